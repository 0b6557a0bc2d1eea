"""Linear contrasts of released estimates, at no privacy cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.inference.averages import p_value
from privcausal.inference.effects import contrasted
from privcausal.prices import as_typed
from privcausal.report import tables
from privcausal.report.summary import TIDY, Printed, Summary
from privcausal.request.request import AVERAGES, RATIOS, RISKS
from privcausal.results.base import ReleasedFit
from privcausal.results.exchange import linear
from privcausal.results.frames import critical, quantile

if TYPE_CHECKING:
    from privcausal.inference.averages import AverageEstimate
    from privcausal.typing import Kind, Vector


FREE = "Computed from released numbers at no privacy cost."
CONTRASTS_TOGETHER = (
    "The intervals cover all contrasts together (maximum of |z|); each p-value is for one contrast."
)


@dataclass(frozen=True, eq=False)
class Contrasts(Printed):
    """The result of `fit.contrast`.

    Attributes
    ----------
    frame : DataFrame
        One row per contrast: estimate std_error max_bias statistic p_value conf_low conf_high.
    simultaneous : bool
        Whether the limits cover all contrasts together.
    kind : str
        Kind of the fit's guarantee.
    """

    frame: pd.DataFrame
    alpha: float
    simultaneous: bool
    kind: Kind

    def to_frame(self) -> pd.DataFrame:
        """A copy of `frame`."""
        return self.frame.copy()

    def tidy(self) -> pd.DataFrame:
        """Broom's columns and the maximum bias, as in `tidy` of a fit."""
        return self.frame.rename_axis("term").reset_index()[list(TIDY)]

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        grid = tables.effect_grid(self.frame.assign(mark="post"), self.alpha)
        said = f"{FREE} {CONTRASTS_TOGETHER}" if self.simultaneous else FREE
        blocks = (tables.Rule("="), grid, tables.Rule("="), tables.Prose((said,)))
        return Summary(tables.Table("Contrasts", blocks, tables.ALERTS[self.kind]))

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """The table as LaTeX, as for a fit's summary."""
        return self.summary().as_latex(caption, label)

    def __repr__(self) -> str:
        return f"<Contrasts: {', '.join(map(str, self.frame.index))}>"


def contrasts_of(
    result: ReleasedFit, asked: str | Sequence[str], alpha: float, simultaneous: bool
) -> Contrasts:
    """Contrasts for `Result.contrast`, with the same arguments."""
    texts = [asked] if isinstance(asked, str) else asked
    plain = isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)
    if not plain or not texts or not all(text.strip() for text in texts):
        raise CapabilityError(
            "A contrast must be text, for example 'ward[east] - ward[west]', or a list of texts."
        )
    found = result._averages
    rows = [_row(result, found, text) for text in texts]
    matrix, more, values = (np.array(part) for part in zip(*rows, strict=True))
    told = contrasted(found, matrix, more)
    z = max(critical(told.cov, alpha, simultaneous=simultaneous), quantile(alpha))
    half = told.half_widths(z)
    away = told.estimate - values
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = away / told.sd
    frame = pd.DataFrame(
        {
            "estimate": told.estimate, "std_error": told.sd, "max_bias": told.bias,
            "statistic": statistic, "p_value": p_value(away, told.bias, told.sd),
            "conf_low": told.estimate - half, "conf_high": told.estimate + half,
        },
        index=pd.Index([" ".join(text.split()) for text in texts], name="contrast"),
    )  # fmt: skip
    return Contrasts(frame, alpha, simultaneous, result.guarantee.kind)


def _row(result: ReleasedFit, found: AverageEstimate, text: str) -> tuple[Vector, float, float]:
    """Weights of terms and groups, the noise sd of released weights, and the tested value."""
    names = [*found.terms, *found.groups]
    unions = _unions(found, text)
    for ratio in (*result.plan.request.asked.ratios, "LATE"):
        if re.search(rf"\b{ratio}\b", text) and (ratio != "LATE" or "LATE" in names):
            raise CapabilityError(
                f"{ratio} is a ratio, but contrasts are linear. Its interval is in conf_int()."
            )
    known = sorted([*names, *unions], key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w`]){re.escape(name)}(?![\w`\[])" for name in known)
    quoted = re.sub(pattern, lambda match: f"`{match[0]}`", text.replace("`", ""))
    _check_rest(result, re.sub(r"`[^`]*`", " ", quoted), names)
    # Backticks allow any name in an expression; the parser identifies names by position.
    matrix, values = linear([*names, *unions], quoted)
    if len(matrix) != 1:
        raise CapabilityError(f"{tables.clean(text)!r} is more than one contrast. Give a list.")
    own, of_unions = np.split(matrix[0], [len(names)])
    if not matrix.any():
        raise CapabilityError(f"{tables.clean(text)!r} contains no term of the fit.")
    more = 0.0
    for weight, (members, shares, shares_sd) in zip(of_unions, unions.values(), strict=True):
        own[members] += weight * shares / shares.sum()
        middle = float(found.estimate[members] @ shares) / shares.sum()
        away = (found.estimate[members] - middle) * shares_sd / shares.sum()
        more += abs(weight) * float(np.linalg.norm(away))
    return own, more, float(values[0])


Union = tuple[list[int], "Vector", "Vector"]
"""Positions of groups, their shares of the rows or of score weights, and the noise sds."""


def _unions(found: AverageEstimate, text: str) -> dict[str, Union]:
    """Unions of levels that the text names, as ``ward[east | west]``."""
    m = len(found.terms)
    levels: dict[str, dict[str, int]] = {}
    for place, name in enumerate(found.groups):
        stem, bracket, label = name.partition("[")
        if bracket and label.endswith("]"):
            levels.setdefault(stem, {})[label[:-1]] = place
    unions: dict[str, Union] = {}
    for stem in sorted(levels, key=len, reverse=True):
        for match in re.finditer(rf"(?<!\w){re.escape(stem)}\[([^\[\]]*\|[^\[\]]*)\]", text):
            labels = [label.strip() for label in match[1].split("|")]
            lacking = [label for label in labels if label not in levels[stem]]
            if lacking or len(set(labels)) < len(labels):
                raise CapabilityError(
                    f"{tables.clean(match[0])!r} must name levels of {tables.clean(stem)}, each "
                    f"once. Choices: {', '.join(map(tables.clean, levels[stem]))}."
                )
            if not len(found.shares):
                raise CapabilityError(
                    "This fit was saved without the shares of the groups. Fit it again."
                )
            places = [levels[stem][label] for label in labels]
            shares = np.maximum(found.shares[places], 0.0)
            unions[match[0]] = [m + place for place in places], shares, found.shares_sd[places]
    return unions


def _check_rest(result: ReleasedFit, rest: str, names: Sequence[str]) -> None:
    """Refuse names that were not released, and show the call that would release them."""
    request = result.plan.request
    unknown = re.search(r"[^\W\d][\w.]*(?:\[[^\]]*\]?)*(?::[\w.]+(?:\[[^\]]*\])?)?", rest)
    unknown = None if unknown and re.fullmatch(r"[eE]", unknown[0]) else unknown
    if unknown is None:
        return
    name = unknown[0]
    stem, bracket, _ = name.rpartition(":")[2].partition("[")
    call = ""
    if name in (*AVERAGES, *RATIOS, *RISKS):
        wanted = [*request.asked.averages, *request.asked.ratios, "RR" if name in RISKS else name]
        call = f"estimand={wanted!r}"
    elif stem not in request.groups and (bracket or stem in request.formula.variables):
        call = f"groups={[*request.groups, stem]!r}"
    if not call:
        near = [term for term in names if name in term] or list(names)
        listed = ", ".join(repr(tables.clean(term)) for term in near[:8]) + ", ..." * (
            len(near) > 8
        )
        raise CapabilityError(
            f"{tables.clean(name)!r} is not a term of this fit. Choices: {listed}."
        )
    raise CapabilityError(
        f"{tables.clean(name)!r} was not released. It requires another fit, at an additional cost: "
        f"pc.private(..., eps={as_typed(request.budget.epsilon)}, {tables.clean(call)})."
    )
