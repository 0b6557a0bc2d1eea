"""`AteResult`: an average effect with its private confidence interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privcausal.results.base import Result

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.report import FitView


@dataclass(frozen=True, eq=False, repr=False)
class AteResult(Result):
    """What `privcausal.private` returns."""

    def plot(self, kind: str = "coef", *, ax: Any = None, alpha: float = 0.05) -> Any:
        """Draw ``"coef"``, ``"gate"`` or ``"budget"``; returns matplotlib axes."""
        return super().plot(kind, ax=ax, alpha=alpha)

    def plot_data(self, kind: str = "coef", alpha: float = 0.05) -> pd.DataFrame:
        """The numbers behind `plot`, as a frame."""
        return super().plot_data(kind, alpha)

    def _view(self, alpha: float = 0.05) -> FitView:
        from privcausal.results.view import ate_view

        return ate_view(self, alpha)
