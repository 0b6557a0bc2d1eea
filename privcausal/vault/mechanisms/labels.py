"""Levels for undeclared text columns: noisy counts above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privcausal.typing import Neighbors


@dataclass(frozen=True)
class LabelSelection:
    """Labels of one column whose noisy count passes a threshold.

    Privacy
    -------
    Labels present in both neighbours form a histogram of l2 sensitivity sqrt(2) k (substitution)
    or k, with k = max_rows: rho-zCDP with discrete Gaussian noise of sd sigma. A label present in
    one neighbour only comes from one unit, so its count is at most k, and there are at most k such
    labels; each passes the threshold k + z sigma with probability at most delta_label, where
    exp(-z^2/2) = delta_label bounds the discrete Gaussian's tail (Canonne, Kamath and Steinke
    2020, Fact 7 with a subgaussian bound). Together: (rho, k delta_label)-approximate zCDP.
    Released labels are sorted by their text, so their order says nothing.
    """

    column: str
    max_rows: int
    delta: float
    name: str = "noisy threshold"

    @property
    def query(self) -> str:
        return f"levels of {self.column}"

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (math.sqrt(2.0) if neighbors == "substitute" else 1.0) * self.max_rows

    def threshold(self, sigma: float) -> int:
        """Smallest noisy count that is let through."""
        per_label = self.delta / self.max_rows
        return math.ceil(self.max_rows + sigma * math.sqrt(2 * math.log(1 / per_label))) + 1
