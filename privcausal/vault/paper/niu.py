"""interpret's DP-EBM in the stages of Niu et al. (2022): published, not proven.

Row weights, used only by learner "r"
-------------------------------------
A boosting round adds -(lr sum_i w_i (s_i - y_i) + noise) / D to each leaf of a shape function. The
meaning of D depends on the version of `interpret/glassbox/ebm/ebm.py`:

- In its first version the histogram of the bins counts rows, so D is a noisy count. The paper's
  notebook used this version: its warnings cite line 843 of that file.
- Later versions add up weights, so D is a noisy sum of weights.

With weights (T - e)^2 of about 0.2, a step of the current version, including its noise, is about
five times as long. In both versions the noise is scaled to the largest weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, Literal, Self

import numpy as np

from privcausal.accounting import TradeOff
from privcausal.errors import CapabilityError
from privcausal.typing import Matrix, Vector
from privcausal.vault import noise

Weighting = Literal["published", "interpret"]


@dataclass(frozen=True, eq=False)
class PublishedEBM:
    """interpret's private explainable boosting with its defaults, and the guarantee that it claims.

    Bounds of columns and target are taken from the rows, as in the paper's experiments. interpret
    warns that this leaks information. It also takes the types of columns from the rows: a column of
    two values is nominal. A fit's statement lists the other leaks. With `classification`, the model
    learns the probability of a 0/1 target.
    """

    epsilon: float
    delta: float
    classification: bool = False
    # Divisor of a leaf's noisy sum if rows have weights: its noisy count of rows, or its noisy sum
    # of weights, as in current versions of interpret
    weighting: Weighting = "published"
    clip: bool = False  # Clip targets and predictions to public bounds, which the paper does not do
    # Columns of a treatment in the first column. With 2, one for each arm follows the covariates.
    arm_columns: Literal[1, 2] = 1
    # Bounds in place of public ones; finite, so that their midpoint is a number
    unclipped: ClassVar[tuple[float, float]] = (-1e100, 1e100)
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def guarantee(self) -> TradeOff:
        return TradeOff.from_dp(self.epsilon, self.delta)

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        """Fit the model; `bounds` are not used, because the paper did not set them in interpret."""
        self._state.clear()
        x, target, weight = self._with_public_rows(self._arranged(x), target, bounds, weight)
        by_rows = weight is not None and self.weighting == "published"
        source = noise.current()
        seed = None if source.real else source.entropy() % 2**31
        kind = _kind(self.classification, by_rows)
        model = kind(epsilon=self.epsilon, delta=self.delta, n_jobs=1, random_state=seed)
        y = target.astype(np.int64) if self.classification else target
        model.fit(x, y, sample_weight=weight)
        self._state["model"] = model
        return self

    def _with_public_rows(
        self, x: Matrix, target: Vector, bounds: tuple[float, float], weight: Vector | None
    ) -> tuple[Matrix, Vector, Vector | None]:
        """The rows, plus public rows if interpret could not learn from the rows alone.

        interpret refuses a table without rows, and its classifier refuses a single class. A
        refusal, or a constant in place of a noisy model, would reveal information about the rows.
        Therefore one public row in the middle of the domain is added for each missing class. For
        regression, one such row is added if there are no rows.
        """
        wanted = (0.0, 1.0) if self.classification else () if len(target) else (0.5 * sum(bounds),)
        added = [value for value in wanted if not (target == value).any()]
        middle = np.full((len(added), x.shape[1]), 0.5)
        if weight is not None:
            weight = np.append(weight, np.ones(len(added)))
        return np.vstack([x, middle]), np.append(target, added), weight

    def _arranged(self, x: Matrix) -> Matrix:
        return x if self.arm_columns == 1 else np.column_stack([x[:, 1:], 1 - x[:, 0], x[:, 0]])

    def predict(self, x: Matrix) -> Vector:
        model, x = self._state["model"], self._arranged(x)
        if self.classification:
            return np.asarray(model.predict_proba(x)[:, 1], np.float64)
        return np.asarray(model.predict(x), np.float64)


@cache
def _kind(classification: bool, by_rows: bool) -> Any:
    """interpret's class, or a subclass whose bins hold counts of rows."""
    from interpret.privacy import DPExplainableBoostingClassifier as Classifier
    from interpret.privacy import DPExplainableBoostingRegressor as Regressor

    kind = Classifier if classification else Regressor
    return type(kind.__name__, (kind,), {"fit": _fit_by_rows(kind.fit)}) if by_rows else kind


def _fit_by_rows(fit: Any) -> Callable[..., Any]:
    """interpret's `fit`, with bins made without weights; interpret itself is not changed.

    All of a fit is one function, which calls the bin maker by a global name. This returns a copy of
    that function, with another function under that name.
    """
    bins = fit.__globals__.get("construct_bins")
    if bins is None or "construct_bins" not in fit.__code__.co_names:
        raise CapabilityError(
            "weighting='published' is not available with this version of interpret, which "
            "creates its bins differently. Use weighting='interpret'."
        )

    def by_rows(*args: Any, **options: Any) -> Any:
        return bins(*args, **{**options, "sample_weight": None})

    names = {**fit.__globals__, "construct_bins": by_rows}
    copied = FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)
    copied.__kwdefaults__ = fit.__kwdefaults__
    return copied
