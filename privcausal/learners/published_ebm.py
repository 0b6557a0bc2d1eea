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
        if not len(target) or (self.classification and len(np.unique(target)) < 2):
            # a classifier refuses one class, and a refusal would tell of the rows
            self._state["constant"] = float(target[0]) if len(target) else 0.5 * sum(bounds)
            return self
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

    def predict(self, x: Matrix) -> Vector:
        if "constant" in self._state:
            return np.full(len(x), self._state["constant"])
        model = self._state["model"]
        if self.classification:
            return np.asarray(model.predict_proba(x)[:, 1], np.float64)
        return np.asarray(model.predict(x), np.float64)
