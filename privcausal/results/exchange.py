"""Fits in other packages' tables: statsmodels' `summary_col` and the maketables protocol."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from privcausal.results.absent import HINTS
from privcausal.results.guarantee import Guarantee

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.learners import Estimate

STATS = {
    "N": "Observations",
    "learner": "Learner",
    "base": "Base",
    "estimand": "Estimand",
    "epsilon": "Epsilon",
    "delta": "Delta",
    "neighbors": "Neighbours",
    "guarantee": "Guarantee",
}
"""Keys of `__maketables_stat__` with their labels; "N" is the protocol's own."""

SHOWN = ("N", "learner", "epsilon", "delta", "guarantee")


@dataclass(frozen=True, slots=True)
class Model:
    """What statsmodels asks of a fit's model: the names of its outcome and of its terms."""

    endog_names: str
    exog_names: tuple[str, ...]


class Fit(Protocol):
    """The members of a result that this module reads."""

    @property
    def estimate(self) -> Estimate: ...
    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def params(self) -> pd.Series[float]: ...
    @property
    def zvalues(self) -> pd.Series[float]: ...
    def tidy(self, alpha: float = 0.05) -> pd.DataFrame: ...
    def glance(self) -> pd.DataFrame: ...


@dataclass(frozen=True)
class ForMaketables:
    """A fit that shows maketables nothing but the attributes of its protocol."""

    fit: Fit

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__maketables_"):
            return getattr(self.fit, name)
        raise AttributeError(name)


class Exchange:
    """What lets other packages put a result in their tables; nothing here is a release."""

    @property
    def tvalues(self: Fit) -> pd.Series[float]:
        """`zvalues`, under the name that statsmodels has for both."""
        return self.zvalues

    @property
    def model(self: Fit) -> Model:
        """The names of outcome and terms, for statsmodels' `summary_col`.

        Who reads nothing else of a fit made with test noise still sees that it is not private.
        """
        mark = " (NOT PRIVATE)" if self.guarantee.kind == "none" else ""
        outcome = self.estimate.plan.request.formula.outcome
        return Model(f"{outcome}{mark}", tuple(self.params.index))

    @property
    def default_model_infos(self: Fit) -> dict[str, Callable[[Fit], str]]:
        """The lines that `summary_col` puts below the estimates."""
        return {STATS[key]: partial(_info, key) for key in SHOWN}

    @property
    def nobs(self: Fit) -> int:
        """The public number of rows or units; there is no such attribute where it is private."""
        size = self.estimate.size
        if size is None:
            raise AttributeError(f"nobs: {HINTS['nobs']}")
        return size

    def to_maketables(self: Fit) -> ForMaketables:
        """This fit for `maketables.ETable`, with epsilon, delta and the guarantee.

        The fit itself goes there too, but is taken for one of statsmodels by its attributes, and
        what it promised is not shown.
        """
        return ForMaketables(self)

    @property
    def __maketables_coef_table__(self: Fit) -> pd.DataFrame:
        wide, narrow = self.tidy(0.10), self.tidy(0.05)
        names = {"estimate": "b", "std_error": "se", "statistic": "t", "p_value": "p",
                 "conf_low": "ci95l", "conf_high": "ci95u"}  # fmt: skip
        frame = narrow.rename(columns=names).set_index("term").rename_axis("Coefficient")
        return frame.assign(ci90l=wide["conf_low"].to_numpy(), ci90u=wide["conf_high"].to_numpy())

    def __maketables_stat__(self: Fit, key: str) -> int | str | None:
        text = stat_text(self, key)
        return int(text) if key == "N" and text else text

    @property
    def __maketables_depvar__(self: Fit) -> str:
        return self.estimate.plan.request.formula.outcome

    @property
    def __maketables_stat_labels__(self) -> dict[str, str]:
        return dict(STATS)

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        return list(SHOWN)

    @property
    def __maketables_vcov_info__(self) -> dict[str, str]:
        return {"vcov_type": "with privacy noise"}


def _info(key: str, fit: Fit) -> str:
    return stat_text(fit, key) or ""


def stat_text(fit: Fit, key: str) -> str | None:
    """One of `STATS` as text; None for what a private fit does not have, such as R squared."""
    if key not in STATS:
        return None
    if key == "guarantee":
        kind = fit.guarantee.kind
        return "NOT PRIVATE" if kind == "none" else kind
    value = fit.glance().iloc[0]["n" if key == "N" else key]
    if key == "N":  # NaN where it is private
        return f"{value:.0f}" if math.isfinite(value) else None
    return f"{value:.4g}" if key in ("epsilon", "delta") else str(value).replace("_", "/")
