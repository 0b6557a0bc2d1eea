"""DP-EBM of the package interpret, as Niu et al. (2022) used it: for ``mode="paper"`` only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from privcausal.accounting import TradeOff
from privcausal.typing import Matrix, Vector


@dataclass(frozen=True, eq=False)
class PublishedEBM:
    """interpret's private explainable boosting with its defaults, and the guarantee it claims.

    Bounds of columns and target are taken from the rows, as in the paper's experiments; interpret
    warns that this leaks, and `privcausal.results.meta` tells what else does.

    Parameters
    ----------
    epsilon, delta : float
        What it claims.
    classification : bool
        Learn the probability of a 0/1 target.
    """

    epsilon: float
    delta: float
    classification: bool = False
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def guarantee(self) -> TradeOff:
        return TradeOff.from_dp(self.epsilon, self.delta)

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        """Learn; `bounds` are left unused, as the paper left interpret's."""
        from interpret.privacy import (
            DPExplainableBoostingClassifier,
            DPExplainableBoostingRegressor,
        )

        self._state.clear()
        x, target, weight = self._with_public_rows(x, target, bounds, weight)
        kind = (
            DPExplainableBoostingClassifier
            if self.classification
            else DPExplainableBoostingRegressor
        )
        model = kind(
            feature_types=["continuous"] * x.shape[1],
            epsilon=self.epsilon,
            delta=self.delta,
            n_jobs=1,
        )
        y = target.astype(np.int64) if self.classification else target
        model.fit(x, y, sample_weight=weight)
        self._state["model"] = model
        return self

    def _with_public_rows(
        self, x: Matrix, target: Vector, bounds: tuple[float, float], weight: Vector | None
    ) -> tuple[Matrix, Vector, Vector | None]:
        """The rows, and public ones where it could not learn from them.

        It refuses a table of no rows, and its classifier one of a single class; a refusal, or a
        constant in place of a model with noise, would tell of the rows. So there is one public row
        in the middle of the domain for each class that is missing, or for no rows at all.
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
