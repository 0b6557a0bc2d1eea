"""`PlanResult`: how wide intervals will be and what they cost, before there are rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from privcausal.accounting import PICO, Cost
from privcausal.errors import CapabilityError, LedgerError
from privcausal.learners.forecast import (
    LEAST_EPSILON,
    LEAST_ROWS,
    MOST_EPSILON,
    MOST_ROWS,
    Forecast,
    Planner,
)
from privcausal.results.frames import budget_lines
from privcausal.results.question import Points, Question

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.accounting import Ledger
    from privcausal.report import Summary

CURVE_POINTS = 7
"""Points of a curve, besides those that were asked for."""

BEYOND = 4.0
"""A curve through one point goes this far to each side."""

WEIGHTS = (0.25, 0.5, 0.75)
"""Weights of privacy in the utility curve."""

_KINDS = ("eps", "n", "utility")


@dataclass(frozen=True, eq=False)
class PlanResult:
    """What `privcausal.plan` returns: forecasts of the average effect's interval.

    Attributes
    ----------
    planner : Planner
    question : Question
    points : tuple of (n, eps)
        The rows of `table`.
    worst : Planner or None
        Plans for the most variable outcome within its bounds; None where `outcome_sd` was stated.
    """

    planner: Planner
    question: Question
    points: Points
    worst: Planner | None = None

    def __post_init__(self) -> None:
        for n, eps in self.points:  # what cannot be planned is refused here, not when printed
            self.planner.at(n, eps)

    # -- numbers -----------------------------------------------------------------------------

    @property
    def table(self) -> pd.DataFrame:
        """A row per n and epsilon, for the average effect.

        Columns n eps delta rho half-width detectable se_sampling se_privacy se_clipping
        se_nuisances privacy_share, and worst_case where no `outcome_sd` was stated: the
        half-width for the most variable outcome that its bounds allow. `detectable` is the
        smallest effect whose interval leaves out zero with the power asked for; `privacy_share`
        is of the variance. An interval is infinite where the fit would find nothing. In pure
        epsilon delta is 0 and rho NaN.
        """
        import pandas as pd

        return pd.DataFrame([self._row(n, eps) for n, eps in self.points])

    def _row(self, n: int, eps: float) -> dict[str, float]:
        found, alpha = self.planner.at(n, eps), self.question.alpha
        z = float(norm.ppf(1 - alpha / 2) + norm.ppf(self.question.power))
        variance = float(found.variance[0])
        pure = found.plan.pure
        row = {
            "n": n, "eps": eps, "delta": 0.0 if pure else found.plan.request.budget.delta,
            "rho": np.nan if pure else found.plan.rho / PICO, "half-width": _first(found, alpha),
            "detectable": z * float(np.sqrt(variance)),
            "se_sampling": float(np.sqrt(found.sampling[0])),
            "se_privacy": float(np.sqrt(found.privacy[0])),
            "se_clipping": float(np.sqrt(found.clipping[0])),
            "se_nuisances": float(np.sqrt(found.nuisances[0])),
            "privacy_share": float(found.privacy[0]) / variance if variance < np.inf else np.nan,
        }  # fmt: skip
        if self.worst is not None:
            row["worst_case"] = _first(self.worst.at(n, eps), alpha)
        return row

    @property
    def terms(self) -> pd.DataFrame:
        """n eps term half-width: the average effect, slopes of the projection, and groups."""
        import pandas as pd

        rows = []
        for n, eps in self.points:
            found = self.planner.at(n, eps)
            widths = found.half_width(self.question.alpha).tolist()
            rows += [
                {"n": n, "eps": eps, "term": term, "half-width": width}
                for term, width in zip(found.terms, widths, strict=True)
            ]
        return pd.DataFrame(rows)

    @property
    def budget(self) -> pd.DataFrame:
        """A line per release of each planned fit: n, eps, then the columns of a fit's `budget`."""
        import pandas as pd

        frames = []
        for n, eps in self.points:
            found = self.planner.at(n, eps)
            lines = budget_lines(found.releases, found.plan.request.budget.delta)
            lines.insert(0, "eps", eps)
            lines.insert(0, "n", n)
            frames.append(lines)
        return pd.concat(frames, ignore_index=True)

    @property
    def passes(self) -> int:
        """How often a fit reads the rows through."""
        return max(self.planner.at(n, eps).passes for n, eps in self.points)

    def fits(self, ledger: Ledger, besides: Iterable[PlanResult] = ()) -> pd.DataFrame:
        """Whether a ledger can pay, a row per planned fit: n eps rho affordable left.

        Parameters
        ----------
        ledger : Ledger
            It is only read; nothing is charged.
        besides : sequence of PlanResult
            Other analyses to be paid as well, each planned for one n and one eps.

        Returns
        -------
        DataFrame
            `left` is the epsilon that would be left; NaN where it cannot be paid. `rho` is NaN
            for a fit in pure epsilon.

        Raises
        ------
        LedgerError
            The ledger counts at another delta, or for other neighbours or another unit.
        """
        import pandas as pd

        before = Cost()
        for other in besides:
            if len(other.points) != 1:
                raise CapabilityError("besides= takes plans for one n and one eps each")
            before += other._cost(other.points[0][1], ledger)
        rows = []
        for n, eps in self.points:
            cost = self._cost(eps, ledger)
            left = ledger.after(before + cost)
            rows.append(
                {
                    "n": n, "eps": eps, "rho": cost.rho / PICO if cost.rho else np.nan,
                    "affordable": left is not None,
                    "left": np.nan if left is None else left.epsilon,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def _cost(self, eps: float, ledger: Ledger) -> Cost:
        plan = self.planner.plan(eps)
        trust, delta = plan.request.trust, plan.request.budget.delta
        # as for a fit: only where rho is converted must the two be the same
        if plan.rho > 0 and ledger.delta != delta:
            raise LedgerError(
                f"the ledger counts at delta={ledger.delta:g} and this plan at delta={delta:g}; "
                "plan with the ledger's"
            )
        history = ledger.history
        if {*history["neighbors"]} - {trust.neighbors} or {*history["unit"]} - {trust.protected}:
            raise LedgerError(
                f"ledger {ledger.dataset!r} holds fits with other neighbours or another unit; "
                "keep one ledger for each"
            )
        return Cost(plan.rho, plan.epsilon, plan.delta)

    # -- pictures ----------------------------------------------------------------------------

    def plot(self, kind: str = "eps", *, ax: Any = None, weights: Sequence[float] = WEIGHTS) -> Any:
        """Draw a curve; returns matplotlib axes.

        Parameters
        ----------
        kind : {"eps", "n", "utility"}
            Half-width against epsilon (a line per n), against n (a line per epsilon), or the
            weighted utility of privacy and precision against epsilon, for the first n.
        weights : sequence of float
            Weights of privacy in the utility, from 0 to 1.

        Notes
        -----
        Utility is "a weighted sum of privacy and interval width" (Schroeder et al. 2025,
        Supplement D, which gives no formula): w P + (1 - w) W, both on scales from 0 to 1 that
        leave nothing to choose. P = 1 - tanh(eps / 2) is twice what is left of an even doubt
        whether a person's data were used: 1 where nothing can be learned of anyone, 0 where all
        can. W is the half-width without privacy noise over the planned one: 1 where privacy
        costs no precision.
        """
        from privcausal.report import curves

        frame = self.plot_data(kind, weights)
        if kind == "utility":
            return curves.utility_plot(frame[frame["n"] == self.points[0][0]], ax=ax)
        return curves.plan_plot(frame, by=kind, ax=ax, alpha=self.question.alpha)

    def plot_data(self, kind: str = "eps", weights: Sequence[float] = WEIGHTS) -> pd.DataFrame:
        """The numbers behind `plot`.

        Returns
        -------
        DataFrame
            ``"eps"`` and ``"n"``: n eps half-width sampling (the half-width without privacy
            noise) planned (whether it is a row of `table`). ``"utility"``: n eps weight privacy
            precision utility.
        """
        if kind not in _KINDS:
            known = ", ".join(map(repr, _KINDS))
            raise CapabilityError(
                f"plot(kind={str(kind)[:40]!r}) is unknown; choose one of {known}"
            )
        return self._utility(weights) if kind == "utility" else self._curve(kind)

    def _curve(self, by: str) -> pd.DataFrame:
        import pandas as pd

        sizes, epsilons = ({point[k] for point in self.points} for k in (0, 1))
        if by == "eps":
            epsilons |= {float(f"{e:.3g}") for e in _between(epsilons, LEAST_EPSILON, MOST_EPSILON)}
        else:
            sizes |= {round(n) for n in _between(sizes, LEAST_ROWS, MOST_ROWS)}
        rows = []
        for n, eps in product(sorted(sizes), sorted(epsilons)):
            width = _first(self.planner.at(int(n), eps), self.question.alpha)
            free = _first(self.planner.at(int(n), MOST_EPSILON), self.question.alpha)
            asked = (int(n), eps) in self.points
            rows.append(
                {"n": int(n), "eps": eps, "half-width": width, "sampling": free, "planned": asked}
            )
        return pd.DataFrame(rows)

    def _utility(self, weights: Sequence[float]) -> pd.DataFrame:
        import pandas as pd

        curve = self._curve("eps")
        privacy = 1 - np.tanh(curve["eps"] / 2)
        precision = np.minimum(curve["sampling"] / curve["half-width"], 1.0)
        parts = {"n": curve["n"], "eps": curve["eps"], "privacy": privacy, "precision": precision}
        frames = [
            pd.DataFrame({**parts, "weight": w, "utility": w * privacy + (1 - w) * precision})
            for w in _checked(weights)
        ]
        columns = ["n", "eps", "weight", "privacy", "precision", "utility"]
        return pd.concat(frames, ignore_index=True)[columns]

    # -- words -------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        from privcausal.report import Summary
        from privcausal.results.plan_text import tabulate

        return Summary(tabulate(self))

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        count = len(self.points)
        return (
            f"<PlanResult {self.planner.request.formula!s}: learner "
            f"{self.planner.learner.name!r}, {count} fit{'s' * (count != 1)} planned>"
        )

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def _first(found: Forecast, alpha: float) -> float:
    """Half-width of the average effect."""
    return float(found.half_width(alpha)[0])


def _between(asked: Iterable[float], low: float, high: float) -> list[float]:
    """Points of a curve on a log scale, over what was asked or around it."""
    least, most = min(asked), max(asked)
    if least == most:
        least, most = max(low, least / BEYOND), min(high, most * BEYOND)
    return [float(p) for p in np.geomspace(least, most, CURVE_POINTS)]


def _checked(weights: Sequence[float]) -> list[float]:
    found = [float(w) for w in weights]
    if not found or not all(0 <= w <= 1 for w in found):
        raise CapabilityError("weights are numbers from 0 to 1, such as (0.25, 0.5, 0.75)")
    return list(dict.fromkeys(found))
