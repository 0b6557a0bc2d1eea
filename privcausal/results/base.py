"""What every fit released: estimates with statsmodels' names, nuisances, budget, guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.features.functions import Function
from privcausal.features.points import read_points, warn_beyond
from privcausal.inference.average import AverageEstimate
from privcausal.learners import Estimate
from privcausal.learners.alerts import listed
from privcausal.report.summary import TIDY, Printed
from privcausal.request.schema import Domain, Interval, Levels, Schema
from privcausal.results.frames import (
    average_frame,
    budget_lines,
    critical,
    quantile,
    tested,
    with_ratios,
    within_reach,
)
from privcausal.results.guarantee import Guarantee, guarantee_of
from privcausal.typing import Frame


@dataclass(frozen=True, eq=False)
class NuisanceFunction:
    """A released nuisance: call it with new data; gives a Series with its index."""

    name: str
    result: ReleasedFit
    function: Function

    def __call__(self, newdata: Frame) -> pd.Series[float]:
        design = self.result.estimate.design
        rows, present, index = read_points(
            design, design.variables, newdata, self.result._propensity
        )
        warn_beyond(design, newdata)
        values = np.where(present, self.function(rows), np.nan)
        return pd.Series(values, index=index, name=self.name)

    def __repr__(self) -> str:
        return f"<released nuisance {self.name!r}: call it with new data>"


BOUGHT = (
    "Bounds were bought with noise: {}; values beyond were cut. Intervals of averages allow for "
    "the outcomes among them. They are in fit.schema, to be used again as bounds=."
)


GROUPS = "Too few rows for an estimate are in {names}. By a noisy count, there may be none."


def _has_range(domain: Domain) -> bool:
    """Whether it was bought; of a factor without a level another alert says so."""
    return isinstance(domain, Interval) or (isinstance(domain, Levels) and bool(domain.values))


def _domain(domain: Domain) -> str:
    if isinstance(domain, Interval):
        return f"[{domain.lo:.6g}, {domain.hi:.6g}]"
    return f"{len(domain.labels or ())} levels"


@dataclass(frozen=True, eq=False)
class ReleasedFit(Printed):
    """What a `Result` holds and what is computed from it; below all that asks a fit later."""

    estimate: Estimate
    call: str
    ledger_line: str | None = None

    # -- estimates ---------------------------------------------------------------------------

    @property
    def _averages(self) -> AverageEstimate:
        found = self.estimate.averages
        if found is None:
            raise CapabilityError(
                "no average effects were released: give shares={'average': ...} a share above 0"
            )
        return found

    @property
    def params(self) -> pd.Series[float]:
        """Estimates: the average effect, then best-linear-projection slopes in natural units.

        Average effects and their limits are held within plus and minus the width of the outcome's
        bounds, beyond which no effect can be (all of that range, where an interval lies outside):
        post-processing of what was released. Published mechanisms leave them as printed.
        """
        return self._terms_table()["estimate"]

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors: sampling, privacy noise, and the estimation error of the nuisances.

        The last is the root mean square of the bias that errors of the nuisances leave. The bias
        of clipped scores is not random: `max_bias` bounds it.
        """
        return self._terms_table()["std_error"]

    @property
    def max_bias(self) -> pd.Series[float]:
        r"""The most that clipped scores can bias each estimate; 0 where nothing was clipped.

        Intervals and p values allow for it: with b = max_bias / bse, the interval at level
        1 - alpha is the estimate plus and minus c * bse, where c is the 1 - alpha quantile of
        \|N(b, 1)\|, and the p value is P(\|N(b, 1)\| >= \|estimate\| / bse) (Armstrong and
        Kolesár 2018, Eq. 4). If b is 0, these are the usual normal ones.
        """
        return self._terms_table()["max_bias"]

    def cov_params(self) -> pd.DataFrame:
        """Covariance of `params`, shape (m, m); the diagonal is `bse` squared."""
        terms = pd.Index(self._averages.terms, name="term")
        cov = self._averages.cov[: len(terms), : len(terms)]
        return pd.DataFrame(cov, index=terms, columns=terms)

    @property
    def zvalues(self) -> pd.Series[float]:
        """Estimates over standard errors.

        Ratios have that of the ATE, the LATE has that of the reduced form. Where scores were
        clipped, `pvalues` allow for the bias, and are larger than normal tails of these.
        """
        return tested(self._terms_table())["statistic"]

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p values of no effect, of the test that intervals invert: see `max_bias`."""
        return tested(self._terms_table())["p_value"]

    def conf_int(self, alpha: float = 0.05, simultaneous: bool = False) -> pd.DataFrame:
        """Confidence limits, columns 0 (low) and 1 (high) as in statsmodels.

        The estimate plus and minus c times `bse`. The factor c is the normal quantile if nothing
        was clipped, and larger otherwise, to cover the bias: see `max_bias`.

        Parameters
        ----------
        alpha : float
            1 - level.
        simultaneous : bool
            True: one level for all terms and groups together, by the maximum of |z| under their
            joint covariance; the declared groups are then rows too. Covariances of groups with one
            another and with the terms are not all released and are taken as zero here, which makes
            limits no narrower than joint ones of the same standard errors (Sidak 1967).
        """
        found = self._averages
        cov, terms = found.cov, len(found.terms)
        alone = np.diag(np.diag(cov))
        alone[:terms, :terms] = cov[:terms, :terms]
        if self.plan.request.asked.jointly:  # all are released
            alone = cov
        z = critical(alone, alpha, simultaneous=simultaneous)
        frames = [self._table(groups=False, z=z)]
        if simultaneous and found.groups:
            frames.append(self._table(groups=True, z=z))
        limits = pd.concat(frames)[["conf_low", "conf_high"]]
        return limits.set_axis([0, 1], axis=1)

    def _table(self, *, groups: bool, z: float) -> pd.DataFrame:
        found = self._averages
        frame = average_frame(found, z, groups=groups)
        if self.estimate.plan.request.mode == "paper":  # its part would tell the noise scale
            frame["privacy_share"] = np.nan
        every = groups or self.plan.request.asked.jointly
        whole = len(frame) if every else 1  # of slopes there is none
        if self.plan.request.estimand == "OLS":
            whole = 0
        frame = within_reach(frame, self._reach, whole, self._outcomes)
        return with_ratios(frame, found, self.plan.request.asked.ratios, z)

    @property
    def _lead(self) -> int:
        """The term that a reader asks of first: the average effect, or the first slope."""
        return int(self.plan.request.estimand == "OLS" and len(self._averages.terms) > 1)

    @property
    def _reach(self) -> float:
        """The largest effect there can be: the width of the outcome's bounds; of a number, any."""
        if not self.plan.request.asked.bounded:
            return float("inf")
        low, high = self._outcomes
        return high - low

    @property
    def _outcomes(self) -> tuple[float, float]:
        """The bounds of the outcome, and so of its means."""
        domain = self.estimate.schema[self.plan.request.formula.outcome]
        return (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)

    def _terms_table(self, alpha: float = 0.05) -> pd.DataFrame:
        return self._table(groups=False, z=quantile(alpha))

    @property
    def ate(self) -> pd.DataFrame:
        """The average effect: estimate std_error max_bias conf_low conf_high privacy_share.

        One row; with several arms one for each but the reference.

        `privacy_share` is at least what privacy makes of the variance: the noise on the averages'
        own sums. That on the moments of nuisances widens their allowance, and is not told apart.
        """
        arms = max(len(self.plan.request.asked.arms) - 1, 1)
        return self._terms_table().iloc[:arms].drop(columns="p_value")

    @property
    def gate(self) -> pd.DataFrame:
        """Average effects of the declared groups, a row each; columns as `ate`."""
        return self._table(groups=True, z=quantile(0.05)).drop(columns="p_value")

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """broom's columns, with the bound of the bias and the codes of alerts.

        term estimate std_error statistic p_value conf_low conf_high max_bias alerts
        """
        return _tidied(self._terms_table(alpha)).assign(alerts=", ".join(self.alerts))

    @property
    def alerts(self) -> dict[str, str]:
        """What is serious of this fit, a sentence by code; from released numbers only.

        bounds: some were bought. covariates: none is left. arm: one is absent or too small.
        allocation: a known propensity that counts of the arms contradict. levels: a declared label
        that nobody seems to have, or a factor without any. complete: fewer than half of the rows
        are. overlap: most rows meet the clip of propensities. clip: or an end of declared bounds.
        nuisances: their errors are most of the variance. groups: some have no estimate. columns:
        some coefficients have none.
        """
        declared, found = self.plan.request.schema, self.schema
        names = [n for n in found if n not in declared and _has_range(found[n])]
        bought = [f"{name} {_domain(found[name])}" for name in names]
        told = {"bounds": BOUGHT.format(", ".join(bought))} if bought and self._bought else {}
        told |= dict(self.estimate.alerts)
        averages = self.estimate.averages
        if averages is not None and averages.unseen:
            told["groups"] = GROUPS.format(names=listed(averages.unseen))
        return told

    @property
    def _bought(self) -> bool:
        return any(stage.heading == "bounds" for stage in self.plan.stages)

    @property
    def schema(self) -> Schema:
        """Domains of the columns that the fit used, declared or bought: ``bounds=fit.schema``.

        What was bought is public now. Who reuses it declares it, and pays nothing for it again.
        """
        request = self.plan.request
        declared, bought = request.declared, self.estimate.schema
        known = {n: declared.get(n) or bought.get(n) for n in request.read}
        raw = {n: getattr(domain, "raw", domain) for n, domain in known.items() if domain}
        return Schema(raw, complete=request.schema.complete)

    def glance(self) -> pd.DataFrame:
        """One row: learner base estimand n epsilon delta rho neighbors guarantee alerts.

        `n` is the public number of rows (or units); NaN where it is private. `alerts` has the codes
        of `alerts`, with commas between them.
        """
        promise, plan = self.guarantee, self.estimate.plan
        size = self.estimate.size
        return pd.DataFrame(
            [
                {
                    "learner": plan.learner, "base": plan.base, "estimand": str(plan.request.asked),
                    "n": np.nan if size is None else size, "epsilon": promise.epsilon,
                    "delta": promise.delta, "rho": promise.rho, "neighbors": promise.neighbors,
                    "guarantee": promise.kind, "alerts": ", ".join(self.alerts),
                }
            ]
        )  # fmt: skip

    def _group_table(self, alpha: float) -> pd.DataFrame:
        """`tidy` of the declared groups."""
        return _tidied(self._table(groups=True, z=quantile(alpha)))

    # -- nuisances ---------------------------------------------------------------------------

    @property
    def _propensity(self) -> str | None:
        known = self.estimate.plan.request.propensity
        return known if isinstance(known, str) else None

    @property
    def nuisances(self) -> dict[str, NuisanceFunction]:
        """Released nuisances by name: ``propensity``, ``outcome``, ``mu0``, ``mu1``.

        Raises
        ------
        CapabilityError
            None were released: the fit needs none, or they are not private.
        """
        found = self.estimate.nuisances
        if found is None:
            learner = self.estimate.plan.learner
            raise CapabilityError(f"learner {learner!r} has no nuisances that could be shown")
        names = ("propensity", "outcome", "mu0", "mu1")
        return {name: NuisanceFunction(name, self, getattr(found, name)) for name in names}

    # -- price -------------------------------------------------------------------------------

    @property
    def budget(self) -> pd.DataFrame:
        """A line per release: stage query mechanism neighbors sensitivity noise_sd rho epsilon
        delta rows. `rows` is the public share of rows seen."""
        return budget_lines(self.estimate.releases, self.plan.request.budget.delta)

    @property
    def guarantee(self) -> Guarantee:
        """What this fit promises, and to whom."""
        return guarantee_of(self.estimate)

    @property
    def plan(self) -> Any:
        """The stages and shares by which the budget was spent."""
        return self.estimate.plan

    @property
    def _level_terms(self) -> int:
        """How many of `params`, the first ones, are averages of an effect and no slopes."""
        return len(self.params) if self.plan.request.asked.jointly else 1

    def __repr__(self) -> str:
        plan, promise = self.estimate.plan, self.guarantee
        return (
            f"<{type(self).__name__} {plan.request.formula!s}: learner {plan.learner!r}, "
            f"base {plan.base!r}, {promise.short}>"
        )


def _tidied(frame: pd.DataFrame) -> pd.DataFrame:
    """Broom's columns of a table of estimates, with tests of no effect."""
    return tested(frame).reset_index()[list(TIDY)]
