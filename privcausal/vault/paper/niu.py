"""interpret's DP-EBM, as Niu et al. (2022) plug it into their stages: published, not proven.

Weights of rows, which learner "r" alone has
--------------------------------------------
A round adds to each leaf of a shape -(lr sum_i w_i (s_i - y_i) + noise) / D. In the first code
(`interpret/glassbox/ebm/ebm.py`, with which the paper's notebook ran: its warnings name line 843 of
that file) the histogram of the bins counts rows, so that D is a noisy count; since then it adds up
weights, so that D is a noisy sum of weights. With weights (T - e)^2 of about 0.2 a step of today's
code, and the noise in it, is about five times as long. Noise is scaled to the largest weight in
both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any, Literal, Self

import numpy as np

from privcausal.accounting import TradeOff
from privcausal.errors import CapabilityError
from privcausal.typing import Matrix, Vector
from privcausal.vault import noise

Weighting = Literal["published", "interpret"]


@dataclass(frozen=True, eq=False)
class PublishedEBM:
    """interpret's private explainable boosting with its defaults, and the guarantee it claims.

    Bounds of columns and target are taken from the rows, as in the paper's experiments; interpret
    warns that this leaks, and a fit's statement tells what else does. With `classification` it
    learns the probability of a 0/1 target.

    Attributes
    ----------
    weighting : {"published", "interpret"}
        What a leaf's noisy sum is divided by, where rows have weights: its noisy count of rows, or
        its noisy sum of weights, as interpret does today.
    """

    epsilon: float
    delta: float
    classification: bool = False
    weighting: Weighting = "published"
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def guarantee(self) -> TradeOff:
        return TradeOff.from_dp(self.epsilon, self.delta)

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        """Learn; `bounds` are left unused, as the paper left interpret's."""
        self._state.clear()
        x, target, weight = self._with_public_rows(x, target, bounds, weight)
        by_rows = weight is not None and self.weighting == "published"
        source = noise.current()
        model = _kind(self.classification, by_rows)(
            feature_types=["continuous"] * x.shape[1], epsilon=self.epsilon, delta=self.delta,
            n_jobs=1, random_state=None if source.real else source.entropy() % 2**31,
        )  # fmt: skip
        y = target.astype(np.int64) if self.classification else target
        model.fit(x, y, sample_weight=weight)
        self._state["model"] = model
        return self

    def _with_public_rows(
        self, x: Matrix, target: Vector, bounds: tuple[float, float], weight: Vector | None
    ) -> tuple[Matrix, Vector, Vector | None]:
        """The rows, and public ones where it could not learn from them.

        It refuses a table of no rows, and its classifier one of a single class; a refusal, or a
        constant in place of a noisy model, would tell of the rows. So there is one public row in
        the middle of the domain for each class that is missing, or for no rows at all.
        """
        wanted = (0.0, 1.0) if self.classification else () if len(target) else (0.5 * sum(bounds),)
        added = [value for value in wanted if not (target == value).any()]
        middle = np.full((len(added), x.shape[1]), 0.5)
        if weight is not None:
            weight = np.append(weight, np.ones(len(added)))
        return np.vstack([x, middle]), np.append(target, added), weight

    def predict(self, x: Matrix) -> Vector:
        model = self._state["model"]
        if self.classification:
            return np.asarray(model.predict_proba(x)[:, 1], np.float64)
        return np.asarray(model.predict(x), np.float64)


@cache
def _kind(classification: bool, by_rows: bool) -> Any:
    """interpret's class, or a subclass of it whose bins hold counts of rows."""
    from interpret.privacy import DPExplainableBoostingClassifier as Classifier
    from interpret.privacy import DPExplainableBoostingRegressor as Regressor

    kind = Classifier if classification else Regressor
    return type(kind.__name__, (kind,), {"fit": _fit_by_rows(kind.fit)}) if by_rows else kind


def _fit_by_rows(fit: Any) -> Callable[..., Any]:
    """interpret's `fit` with its bins made without weights; interpret's own stays as it is.

    All of a fit is one function, which names what makes bins: this is that function with that one
    name standing for another.
    """
    bins = fit.__globals__.get("construct_bins")
    if bins is None or "construct_bins" not in fit.__code__.co_names:
        raise CapabilityError(
            "this version of interpret makes its bins in another place: weighting='published' is "
            "not to be had, weighting='interpret' is"
        )

    def by_rows(*args: Any, **options: Any) -> Any:
        return bins(*args, **{**options, "sample_weight": None})

    names = {**fit.__globals__, "construct_bins": by_rows}
    own = FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)
    own.__kwdefaults__ = fit.__kwdefaults__
    return own
