"""Shared first steps of all learners: domains, design matrices, synthetic population and Gram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcausal import accounting
from privcausal.errors import SchemaError
from privcausal.estimators import bases, budget, estimands, survival
from privcausal.estimators.survival import ArmCurve
from privcausal.features import functions
from privcausal.features.design import Design, Rows, design_of
from privcausal.features.functions import FeatureMap
from privcausal.inference import ranges
from privcausal.inference.cuts import score_edges
from privcausal.inference.effects import (
    FEW_SDS,
    Answers,
    AverageEstimate,
    Effect,
    Predicted,
    Reading,
)
from privcausal.inference.population import (
    LARGEST_USUAL,
    WEIGHT_HALF_OCTAVES,
    GramEstimate,
    Population,
    WeightLaw,
    correlated,
    feature_map,
    interval_probabilities,
    level_probabilities,
)
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import MOST_AT_END, clipped_share, lacks_arm
from privcausal.request.formula import Group, resolve_groups
from privcausal.request.request import Plan, Request, StageKey
from privcausal.request.schema import Binary, Interval, Levels, Schema, Transformed
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import (
    ColumnHistograms,
    LabelSelection,
    Marginals,
    Mechanism,
    Outcome,
    OutcomeResidual,
    Regressors,
    SizeHistogram,
    SurveyWeight,
    SurvivalCounts,
    SurvivalScore,
    Transform,
    TransformProduct,
    Vault,
)

COLUMN_RANGES, MARGINALS = StageKey("nuisance", "ranges"), StageKey("nuisance", "marginals")
OUTCOME_RANGE = StageKey("nuisance", "outcome range")


@dataclass(eq=False)
class Fit:
    """One fit in progress: the plan, the vault, and all releases and alerts in order."""

    plan: Plan
    vault: Vault
    schema: Schema
    undeclared: budget.Undeclared
    base: bases.PrivateBase  # Base that learns from sums
    # Base as given in the call. For some learners it does not learn from sums.
    option: bases.AnyBase
    steps: tuple[budget.Step, ...]  # The learner's
    releases: list[accounting.Release] = field(default_factory=list)
    # Serious problems that releases show, by code
    alerts: dict[str, str] = field(default_factory=dict)
    # Whether most outcomes are clipped at a bound, so that no interval covers
    unlimited: bool = False
    # Bounds the outcomes beyond privately estimated bounds. Declared bounds have no window.
    beyond: ranges.Window | None = None
    # Queries that were summed before their release
    queries: dict[StageKey, Any] = field(default_factory=dict)
    # Curves of the arms and their replicas, if the outcome is a survival time
    curves: list[tuple[ArmCurve, ArmCurve]] = field(default_factory=list)

    @property
    def request(self) -> Request:
        return self.plan.request

    @property
    def regression(self) -> bases.Base:
        return bases.moment_base(self.base)

    def release(self, stage: StageKey, mechanism: Any) -> accounting.Release:
        out = self.vault.release(stage, mechanism)
        self.releases.append(out)
        return out

    def read(self, stage: StageKey, mechanism: Any) -> list[Reading]:
        """The parts of a release, with the noise sds of their entries."""
        out = self.release(stage, mechanism)
        parts = map(mechanism.split, (out.value, out.noise_sd))
        return [Reading(*part) for part in zip(*parts, strict=True)]

    def finished(
        self,
        design: Design,
        population: Population | None = None,
        effect: estimands.AnyEffect | None = None,
        nuisances: estimands.Nuisances | None = None,
        averages: AverageEstimate | None = None,
        notes: tuple[str, ...] = (),
    ) -> estimands.Estimate:
        """The estimate; `population` is None if no marginals were released."""
        vault = self.vault
        nobody = Population(self.schema, {}, np.eye(0), float(vault.size or 0))
        if self.unlimited:
            # Clipping has no bound: intervals are infinite, and effects have no bands.
            if averages is not None:
                infinite = np.full_like(averages.clipping, np.inf)
                averages = replace(averages, clipping=infinite, moved=np.zeros((0, 0, 0)))
            if isinstance(effect, Answers):
                effect = replace(effect, spread=np.full_like(effect.spread, np.nan))
            elif isinstance(effect, Effect):
                effect = Predicted((), effect.reach, effect)
        return estimands.Estimate(
            plan=self.plan,
            schema=self.schema,
            design=design,
            population=population or nobody,
            effect=effect,
            nuisances=nuisances,
            averages=averages,
            releases=tuple(self.releases),
            size=vault.size,
            real=vault.real_noise,
            notes=notes,
            alerts=tuple(self.alerts.items()),
        )

    def gather(
        self,
        sums: Mapping[StageKey, Mechanism | Sequence[Mechanism]] | None = None,
        moments: Mapping[StageKey, Mechanism] | None = None,
    ) -> None:
        """Sum in one pass the queries that `release` and `moments` will receive later.

        The later calls must pass the same query objects.
        """
        sums, moments = sums or {}, moments or {}
        self.queries |= {**sums, **moments}
        folds = self.plan.request.split == "crossfit"
        self.vault.gather(sums if folds else {**sums, **moments}, moments if folds else {})

    def unused(self, *stages: StageKey) -> None:
        """Budget lines for planned stages that proved unnecessary; they remain charged."""
        trust = self.plan.request.trust
        for stage in map(self.plan.stage, stages):
            charge = accounting.Charge(
                stage.heading,
                stage.query,
                "not used",
                trust.neighbors,
                float("nan"),
                float("nan"),
                accounting.Cost(stage.charged, stage.epsilon, stage.delta),
                stage.rows,
                trust.protected,
                stage.parallel,
            )
            self.releases.append(accounting.Release(np.zeros(0), np.zeros(0), charge))

    def moments(self, stage: StageKey, mechanism: Any) -> list[accounting.Release]:
        """One release, or one per fold under cross-fitting; the budget shows one line."""
        if self.plan.request.split != "crossfit":
            return [self.release(stage, mechanism)]
        folds = list(self.vault.release_folds(stage, mechanism))
        self.releases.append(folds[0])
        return folds

    def check_empty_arm(self, arms: Vector, noise_sd: float) -> None:
        """Note whether an arm may be empty, from noisy counts of the arms."""
        if lacks_arm(arms, noise_sd):
            panel = self.plan.request.trust.panel
            self.alerts["arm"] = estimands.UNSEEN_ARM if panel is None else estimands.PANEL_ARM

    def check_domain(self, name: str, counts: Vector, noise_sd: float, stage: StageKey) -> None:
        """Compare a released histogram of a column with the column's declared domain."""
        request, size = self.plan.request, self.vault.size
        public = size is not None and request.trust.unit is None
        rows = size * self.plan.stage(stage).rows if size is not None and public else None
        column = name, request.schema.get(name), self.schema[name], counts, noise_sd, rows
        outcome = name == request.formula.outcome
        if outcome and self.unlimited:  # an earlier histogram gave the alert
            return
        self.note(estimands.domain_alerts(*column, outcome=outcome))
        if outcome and (clipped := clipped_share(*column[1:])):
            self.unlimited |= clipped[1] > MOST_AT_END

    def check_arms(
        self, counts: Vector, noise_sd: float, declared: tuple[float, float], number: int = 1
    ) -> None:
        """Note whether noisy counts outside and inside an arm contradict its `declared` share."""
        self.check_empty_arm(counts, noise_sd)
        if "arm" in self.alerts or "allocation" in self.alerts:
            return
        name, arms = self.plan.request.formula.assigned, self.plan.request.arms
        coding = self.schema[name]
        arm = arms[number] if arms else coding.one if isinstance(coding, Binary) else "1"
        self.note(estimands.allocation_alert(name, arm, counts, noise_sd, declared))

    def note(self, alerts: estimands.Alerts) -> None:
        for code, text in alerts:
            self.alerts[code] = " ".join(filter(None, (self.alerts.get(code), text)))

    def estimate_bounds(self) -> None:
        """Complete the schema with privately estimated bounds and levels, and with scores."""
        request, numbers = self.plan.request, self.undeclared.numbers
        domains: dict[str, Any] = {**self._estimate_intervals(numbers)} if numbers else {}
        # levels of text columns, by selection
        public = self.vault.size if request.trust.unit is None else None
        pooled, least = dict[str, float](), 0
        for name in self.undeclared.labels:
            stage = budget.levels(name)
            query = LabelSelection(
                name, request.trust.max_rows, self.plan.stage(stage).delta / accounting.PICO
            )
            release = self.release(stage, query)
            noise = float(np.linalg.norm(release.noise_sd))
            rest = np.inf if public is None else public - float(release.value.sum())
            # without a sign of further rows, a level for them would only be an empty column
            domains[name] = Levels(release.labels or ("other",), other=rest > NO_SIGN * noise)
            if not release.labels:
                self.note((("levels", estimands.NO_LEVEL.format(name=estimands.listed([name]))),))
            elif rest > FEW_SDS * noise + estimands.RARE * (public or 0):
                pooled[name] = rest / (public or 1)
                least = max(least, query.threshold(release.charge.noise_sd))
        if pooled:
            # the share of the rows that lack the estimated levels, infinite if unknown
            shares = [
                f"about {x:.0%}" if x < np.inf else "an unknown share" for x in pooled.values()
            ]
            text = estimands.POOLED.format(
                names=estimands.listed([*pooled]),
                shares=", ".join(shares[: estimands.MOST_NAMES]),
                least=least,
                first=next(iter(pooled))[: estimands.LONGEST_NAME],
            )
            self.note((("levels", text),))
        self.schema = self.schema.with_columns(domains)
        if request.horizon is None:
            return
        # survival times by arm; a score in public bounds replaces the outcome
        self.vault.set_layout(self.schema, (), ())
        survivals = self.release(
            survival.SURVIVAL_COUNTS, SurvivalCounts(survival.follow_up(request))
        )
        self.curves = survival.arm_curves(request, [survivals])
        raw = self.schema[request.formula.outcome]
        values = survival.values(request)
        tables = np.stack([survival.scores(curve, *values) for curve, _ in self.curves])
        score = SurvivalScore(survival.follow_up(request), tables)
        assert isinstance(raw, Interval)
        scored = Transformed(score.lo, score.hi, raw)
        self.schema = self.schema.with_columns({request.formula.outcome: scored})
        self.vault.score_survival(score)
        self.alerts |= survival.survival_alerts(request, self.curves, survivals)

    def _estimate_intervals(self, names: tuple[str, ...]) -> dict[str, Interval]:
        """Bounds of the columns: magnitudes first, then a grid within them."""
        request, outcome = self.plan.request, self.plan.request.formula.outcome
        trust, weight = request.trust, request.weights
        domain = request.schema.get(weight) if weight is not None else None
        if isinstance(domain, Interval) and domain.lo > 0:  # no row has the weight 0
            weight = None
        magnitudes = ColumnHistograms(names, weight)
        public = self.vault.size if trust.unit is None else None
        rough = self.release(budget.MAGNITUDES, magnitudes)
        counts = dict(zip(names, np.split(rough.value, len(names)), strict=True))
        sd, ends = float(rough.noise_sd[0]), magnitudes.edges
        sizes = {name: ranges.LookCounts(c, sd, ends) for name, c in counts.items()}
        coarse = {
            name: ranges.coarse_range(look, name, public, outcome=name == outcome)
            for name, look in sizes.items()
        }
        fine = self.release(budget.GRID, ColumnHistograms(names, weight, tuple(coarse.values())))
        cells, fine_sd = np.split(fine.value, len(names)), float(fine.noise_sd[0])
        intervals = {}
        for (name, c), grid in zip(counts.items(), cells, strict=True):
            range_ = coarse[name]
            whole = name in self.undeclared.integers
            steps = np.linspace(range_.lo, range_.hi, len(grid) + 1)
            both = sizes[name], ranges.LookCounts(grid, fine_sd, steps)
            # The end cells of the grid hold all values beyond the largest size of the histogram.
            largest = ends[-1]
            reached = np.array([-steps[0], steps[-1]]) >= largest
            if (grid[[0, -1]][reached] > ranges.FINE_STANDS_OUT * fine_sd).any():
                raise SchemaError(
                    f"Could not estimate bounds for {name!r}: it has values beyond {largest:.2g}, "
                    "the largest that can be detected (noisy counts). Declare them, "
                    f"bounds={{{name!r}: (lo, hi)}}, or divide the column by a large number."
                )
            if ranges.looks_binary(*both, whole=whole):
                intervals[name] = Interval(0.0, 1.0)
                if name == outcome:
                    self.note((("binary", estimands.LOOKS_BINARY.format(name=name)),))
            elif name == outcome:
                # Noise sd of a sum over the rows for the whole budget, per unit of its range.
                change = 1.0 if trust.neighbors == "substitute" else 0.5  # from the middle
                least = change * trust.max_rows / np.sqrt(2 * self.plan.rho / accounting.PICO)
                window = ranges.outcome_range(*both, float(least))
                self.beyond = window.moved_to(ranges.rounded(window.interval, whole))
                intervals[name] = self.beyond.interval
            else:
                rows = ranges.present_rows(c, sd, public)
                interval = ranges.fine_range(grid, fine_sd, range_, rows)
                intervals[name] = ranges.rounded(interval, whole)
        return intervals


NO_SIGN = 2.0
"""Noise sds that rows of unreleased labels exceed if they form a level. By hand."""


RANGE_CELLS = 64
"""Equal cells of a declared range, used to narrow it: three cells hold the values if bounds are 20
times too wide.
"""


@dataclass(eq=False, kw_only=True)
class FitState(Fit):
    """A fit after its first stages, with the public values that they gave.

    `replace` shares releases, alerts and queries with the state that it copies.
    """

    design: Design
    linear: Design
    groups: tuple[Group, ...]
    population: Population
    # `features`, `effect_features`: bases of the nuisances and of the effect
    features: FeatureMap
    effect_features: FeatureMap
    effect_index: Integers  # Positions of the effect's features among the nuisances' features
    rows: Rows  # The synthetic population
    outcome: Outcome  # Public bounds of the outcome
    propensity: functions.Function | None  # The known propensity as a function of the row
    # Regressors with at most one group per row and text, because levels exclude each other
    regressors: Regressors
    # c with e in [c, 1 - c]: the clip of the request, or a lower clip for a rare treatment; 0 for a
    # treatment that is not binary
    clip: float
    # Interval to which outcomes are clipped when their mean is learned
    window: ranges.MeanWindow | None = None
    look: ranges.Look | None = None  # Histogram of the outcome for averages
    weights: WeightLaw | None = None  # Released distribution of survey weights
    most: float = 1.0  # Clipping threshold of T - e if T is a number
    # Shrunken Gram for all rows and for each fold's complement, once released
    gram: GramEstimate | None = None
    grams: tuple[GramEstimate, ...] = ()

    @property
    def count(self) -> float:
        """Number of complete rows; with weights, the sum of the nuisances' weights in [0, 1]."""
        return self.population.count * (1.0 if self.weights is None else self.weights.usual_mean)

    def weigh(self, target: Transform) -> Transform:
        """The target of a nuisance times the row's weight in [0, 1], if there are weights."""
        if self.weights is None:
            return target
        return TransformProduct(SurveyWeight(self.weights.column, self.weights.usual), target)

    def weigh_root(self, factor: Transform | None = None) -> Transform | None:
        """The factor of a Gram's rows times the root of the row's weight in [0, 1]."""
        if self.weights is None:
            return factor
        root = SurveyWeight(self.weights.column, self.weights.usual, root=True)
        return root if factor is None else TransformProduct(root, factor)

    @property
    def clipping(self) -> Outcome:
        """Clipping interval for learning the mean outcome: released, or the public bounds."""
        if self.window is None:
            return self.outcome
        return Outcome(self.window.interval.lo, self.window.interval.hi)

    @property
    def mean_range(self) -> Outcome:
        """Range of the mean outcome: the clipping interval, as much wider as clipping shrinks it.

        It has the same middle.
        """
        clipping = self.clipping
        wider = 0.0 if self.window is None else clipping.bound * (1 / self.window.kept - 1)
        return Outcome(clipping.lo - wider, clipping.hi + wider)

    @property
    def variance(self) -> float:
        """Variance of the outcome as released, or the largest that its bounds allow."""
        return self.outcome.bound**2 if self.window is None else self.window.variance

    @property
    def soft_clip(self) -> float:
        """The clip for uses that do not divide by e."""
        return min(PRIORS.residual_clip, self.clip)


def outcome_of(request: Request, schema: Schema) -> Outcome:
    """Public bounds of the outcome; a binary outcome is 0 or 1."""
    domain = schema[request.formula.outcome]
    return Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)


def declared_propensity(
    request: Request, schema: Schema
) -> functions.Known | functions.Constant | None:
    """The known propensity as a function of the row, or None."""
    if isinstance(request.propensity, str):
        domain = schema[request.propensity]
        assert isinstance(domain, Interval)
        return functions.Known(domain.lo, domain.hi)
    if request.propensity is None or isinstance(request.propensity, Mapping):
        return None
    return functions.Constant(float(request.propensity))


def prepare(fit: Fit, *, linear_terms: bool = True) -> FitState:
    """Release bounds, marginals and weights; make designs, a population, a basis, a norm clip."""
    fit.estimate_bounds()
    request, formula = fit.request, fit.request.formula
    budget.check_features(request, fit.schema, fit.base.functions)
    terms = (*formula.modifiers, *formula.controls)
    groups = resolve_groups(request.groups, fit.schema)

    def designed() -> tuple[Design, Design]:
        full_rank, projected = fit.base.name == "linear", formula.modifiers
        design = design_of(terms, fit.schema, full_rank=full_rank)
        linear = design_of(projected if linear_terms else (), fit.schema, full_rank=True)
        fit.vault.set_layout(fit.schema, [design, linear], groups)
        return design, linear

    design, linear = designed()
    # later histograms that need no further pass: the outcome and survey weights
    ahead: dict[StageKey, Mechanism] = {}
    outcome = outcome_of(request, fit.schema)
    bounds = Interval(outcome.lo, outcome.hi)
    height = OutcomeResidual(functions.Constant(outcome.lo), outcome)  # Y - lo, from 0 to the range
    for key, borders in ((step.key, step.borders) for step in fit.steps):
        if borders is not None and isinstance(key, StageKey) and fit.plan.has(key):
            ahead[key] = SizeHistogram(height, borders(bounds), "outcome")
    if request.weights is not None:  # relative to their declared upper bound
        domain = fit.schema[request.weights]
        assert isinstance(domain, Interval)
        weight = SurveyWeight(request.weights, domain.hi)
        edges = score_edges(1.0, WEIGHT_HALF_OCTAVES)
        ahead[budget.ROW_WEIGHTS] = SizeHistogram(weight, edges, "survey weights")
    if fit.plan.has(COLUMN_RANGES):
        # Narrow the schema to the detected range of covariates; values outside are clipped. The
        # pass over the rows also computes the later histograms.
        names = budget.ranged(request, fit.schema)
        cells = Marginals(names, fit.schema, RANGE_CELLS)
        fit.gather({COLUMN_RANGES: cells, **ahead})
        release = fit.release(COLUMN_RANGES, cells)
        counts, sd = np.split(release.value, len(names)), float(release.noise_sd[0])
        narrowed: dict[str, Any] = {}
        for name, c in zip(names, counts, strict=True):
            domain, slope = fit.schema[name], name in budget.of_slopes(request)
            assert isinstance(domain, Interval)
            narrowed[name] = ranges.effective_range(c, sd, domain, len(names), whole=slope)
            if slope:  # these values are not clipped to that range
                fit.check_domain(name, c, sd, COLUMN_RANGES)
                narrowed[name] = Transformed(narrowed[name].lo, narrowed[name].hi, domain)
        fit.schema = fit.schema.with_columns(narrowed)
        design, linear = designed()
        ahead = {}
    population = _population(fit, design, ahead)
    features = feature_map(design, population, fit.base.functions, PRIORS.norm_quantile)
    effect, modifiers = features, {term.name for term in formula.modifiers}
    if len(modifiers) < len(terms):
        small = features.restricted(sorted(modifiers))
        effect = replace(small, cut=small.norm_of(population.rows(), PRIORS.norm_quantile))
    weights = _weights(fit)
    propensity = declared_propensity(request, fit.schema)
    blocks = {block.group for block in effect.blocks}
    index = [i for i, group in enumerate(features.group) if i == 0 or group in blocks]
    return FitState(
        **vars(fit),
        design=design,
        linear=linear,
        groups=groups,
        population=population,
        features=features,
        effect_features=effect,
        effect_index=np.array(index, np.int64),
        rows=population.rows(propensity, weights),
        outcome=outcome_of(request, fit.schema),
        propensity=propensity,
        regressors=Regressors(linear, len(groups), len(request.groups)),
        clip=request.arm_clip,
        weights=weights,
    )


def _weights(fit: Fit) -> WeightLaw | None:
    """Release the distribution of survey weights, if there are any."""
    stage, name = budget.ROW_WEIGHTS, fit.request.weights
    if name is None:
        return None
    release, domain = fit.release(stage, fit.queries[stage]), fit.schema[name]
    assert isinstance(domain, Interval)
    # without covariates, the nuisances are two numbers that weights may not distort
    most = LARGEST_USUAL if fit.request.formula.terms else np.inf
    law = WeightLaw.read(name, release.value, float(release.noise_sd[0]), domain.hi, most)
    # Weights in the first bin may all be 0, so the mean may be unknown to a factor of two.
    if float(law.p @ law.edges[:-1]) <= 0.5 * law.mean:
        raise SchemaError(
            f"The weights {name!r} are 0, or less than a 4,000th of their upper bound, for almost "
            "all rows (noisy counts), so there is no estimate. Check the column, or declare a "
            "smaller upper bound."
        )
    return law


def _population(fit: Fit, design: Design, looks: Mapping[StageKey, Mechanism]) -> Population:
    """Release the marginals, with the histograms `looks` in the same pass over the rows."""
    schema, variables = fit.schema, design.variables
    mechanism = Marginals(variables, schema)
    fit.gather({MARGINALS: mechanism, **looks})
    release = fit.release(MARGINALS, mechanism)
    sd = float(release.noise_sd[0])
    counts = np.split(release.value, np.cumsum(mechanism.sizes)[:-1])
    share = fit.plan.stage(MARGINALS).rows
    size = fit.vault.size
    ceiling = np.inf if size is None or fit.request.trust.unit else size * share
    count = float(np.clip(np.mean([c.sum() for c in counts]), 1.0, ceiling))
    probabilities: dict[str, Vector] = {}
    for name, c in zip(variables, counts, strict=False):
        domain = schema[name]
        fit.check_domain(name, c, sd, MARGINALS)
        if isinstance(domain, Interval):
            probabilities[name] = interval_probabilities(c, sd, count)
        else:
            probabilities[name] = level_probabilities(c, sd, undeclared=isinstance(domain, Levels))
    numeric = sum(isinstance(schema[v], Interval) for v in variables)
    spread = sd * float(np.sqrt(max(map(len, counts))))
    return Population(schema, probabilities, np.eye(numeric), count, spread, design.atoms)


def dependent(state: FitState, noisy: Matrix, sd: float) -> FitState:
    """The state with the population's dependence, learned from a released Gram."""
    counted = replace(state.population, count=state.count)
    population = correlated(counted, state.features, noisy, sd)
    population = replace(population, count=state.population.count)
    rows = population.rows(state.propensity, state.weights)
    return replace(state, population=population, rows=rows)


def off_diagonal_sd(mechanism: Any, release: accounting.Release) -> float:
    """Noise sd of an off-diagonal entry (sqrt(2) times smaller than on the diagonal)."""
    sd = mechanism.matrix(release.noise_sd)
    return float(sd[0, 1]) if len(sd) > 1 else float(sd[0, 0] / np.sqrt(2.0))


def complements(parts: Sequence[Any], sd: float) -> list[tuple[Any, float, float]]:
    """For each fold, the other folds' sum, noise sd and share of the rows."""
    if len(parts) == 1:
        return [(parts[0], sd, 1.0)]
    total = np.sum(parts, axis=0)
    k = len(parts)
    return [(total - part, sd * np.sqrt(k - 1), (k - 1) / k) for part in parts]
