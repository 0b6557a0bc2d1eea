"""What all learners stand on: complete domains, designs, a synthetic population and the Gram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcausal.accounting import Charge, Cost, Release
from privcausal.inference.average import FEW
from privcausal.inference.basis import feature_map
from privcausal.inference.gram import GramEstimate, correlated, population_gram, shrunken
from privcausal.inference.outcome import Look, edges, look
from privcausal.inference.population import (
    Population,
    interval_probabilities,
    level_probabilities,
    modelled_probabilities,
)
from privcausal.inference.ranges import coarse_range, effective_range, fine_range, present_rows
from privcausal.learners.bases import Base, PrivateBase, moment_base
from privcausal.learners.needs import Need, Undeclared
from privcausal.spec.features import Design, FeatureMap, Rows, design_of
from privcausal.spec.functions import Constant, Function, Known
from privcausal.spec.groups import Group, parse_group, resolve_groups
from privcausal.spec.plan import Plan
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval, Levels, Schema
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import (
    Gram,
    Grid,
    LabelSelection,
    Magnitudes,
    Marginals,
    Outcome,
    OutcomeResidual,
    Regressors,
    SizeHistogram,
    Vault,
)

NORM_QUANTILE = 0.5
"""C is this quantile of the population's feature norms; flat from the 50th to the 90th."""


@dataclass
class Session:
    """One fit in progress: the vault, the plan, and every release so far in order.

    `unseen` says that the rarer arm has too few rows to be told from none.
    """

    plan: Plan
    vault: Vault
    schema: Schema
    undeclared: Undeclared
    base: PrivateBase
    releases: list[Release] = field(default_factory=list)
    unseen: bool = False

    @property
    def regression(self) -> Base:
        """The base, where it learns from noisy moments."""
        return moment_base(self.base)

    def release(self, stage: str, mechanism: Any) -> Release:
        out = self.vault.release(stage, mechanism)
        self.releases.append(out)
        return out

    def unused(self, *stages: str) -> None:
        """Lines of the budget for planned stages that nothing was asked of: they stay charged."""
        trust = self.plan.request.trust
        for stage in map(self.plan.stage, stages):
            name, _, query = stage.name.partition(": ")
            charge = Charge(
                name, query, "not used", trust.neighbors, float("nan"), float("nan"),
                Cost(stage.charged, stage.epsilon, stage.delta), stage.rows, trust.protected,
            )  # fmt: skip
            self.releases.append(Release(np.zeros(0), np.zeros(0), charge))

    def moments(self, stage: str, mechanism: Any) -> list[Release]:
        """One release, or one per fold under cross-fitting; the budget shows one line."""
        if self.plan.request.split != "crossfit":
            return [self.release(stage, mechanism)]
        folds = list(self.vault.release_folds(stage, mechanism))
        self.releases.append(folds[0])
        return folds

    def look_for(self, rows: float, noise_sd: float) -> None:
        """Remember whether this noisy count of the rarer arm's rows shows any."""
        self.unseen |= rows <= FEW * noise_sd

    def buy_bounds(self) -> None:
        """Complete the schema by private bounds and levels."""
        found: dict[str, Any] = {}
        numbers = self.undeclared.numbers
        if numbers:
            found |= self._buy_intervals(numbers)
        for name in self.undeclared.labels:
            found[name] = self._buy_levels(name)
        self.schema = self.schema.with_columns(found)

    def find_ranges(self) -> None:
        """Narrow the schema to where covariates are: beyond, they are held at the ends."""
        names = ranged(self.plan.request, self.schema)
        release = self.release(RANGES, Marginals(names, self.schema, CELLS))
        counts, sd = np.split(release.value, len(names)), float(release.noise_sd[0])
        found: dict[str, Any] = {}
        for name, c in zip(names, counts, strict=True):
            domain = self.schema[name]
            assert isinstance(domain, Interval)
            found[name] = effective_range(c, sd, domain, len(names))
        self.schema = self.schema.with_columns(found)

    def _buy_intervals(self, names: tuple[str, ...]) -> dict[str, Interval]:
        first = Magnitudes(names)
        rough = self.vault.release_raw("bounds: magnitudes", first, names)
        self.releases.append(rough)
        counts = np.split(rough.value, len(names))
        sd, public = float(rough.noise_sd[0]), self._public_rows()
        coarse = tuple(
            coarse_range(c, sd, first.edges(), name, public)
            for c, name in zip(counts, names, strict=True)
        )
        rows = [present_rows(c, sd, public) for c in counts]
        fine = self.vault.release_raw("bounds: grid", Grid(names, coarse), names)
        self.releases.append(fine)
        cells = np.split(fine.value, len(names))
        return {
            name: fine_range(c, float(fine.noise_sd[0]), r, m)
            for name, c, r, m in zip(names, cells, coarse, rows, strict=True)
        }

    def _public_rows(self) -> float | None:
        """The number of rows where it is public (not where units are)."""
        return self.vault.size if self.plan.request.trust.unit is None else None

    def _buy_levels(self, name: str) -> Levels:
        stage = self.plan.stage(f"bounds: levels of {name}")
        trust = self.plan.request.trust
        chosen = self.vault.select(
            stage.name, LabelSelection(name, trust.max_rows, stage.delta / 1e12)
        )
        self.releases.append(chosen)
        return (
            Levels(chosen.labels, other=True) if chosen.labels else Levels(("other",), other=True)
        )


RANGES, CELLS = "nuisance: ranges", 64
"""The look at where declared covariates are, and its equal cells of a declared range."""


def range_needs(request: Request, weight: float) -> list[Need]:
    """A look at where covariates are, if any has declared bounds that may be loose."""
    return [Need(RANGES, weight, "nuisance")] if ranged(request, request.schema) else []


def ranged(request: Request, schema: Schema) -> tuple[str, ...]:
    """Covariates whose declared bounds may be narrowed: not those that groups are made of.

    Nor a known propensity, nor those of a term whose options fix points in the range (the knots of
    a spline).
    """
    formula = request.formula
    terms = (*formula.modifiers, *formula.controls)
    factors = [f for t in terms for f in t.factors]
    fixed = {v for f in factors if f.options and f.kind != "smooth" for v in f.variables}
    fixed |= {parse_group(text).column for text in request.groups}
    if isinstance(request.propensity, str):  # what is known is not to be changed
        fixed.add(request.propensity)
    names = dict.fromkeys(v for f in factors for v in f.variables)
    declared = (v for v in names if isinstance(request.schema.get(v), Interval))
    return tuple(v for v in declared if v not in fixed and isinstance(schema[v], Interval))


@dataclass(frozen=True, eq=False)
class Ground:
    """Public values after the first stages.

    `gram` has one estimate per fold for the nuisances (of the other folds' rows), or one;
    `whole` is the estimate over all rows of the part.
    """

    session: Session
    design: Design
    linear: Design
    groups: tuple[Group, ...]
    group_sets: int
    population: Population
    features: FeatureMap
    effect_features: FeatureMap
    rows: Rows
    window: Outcome | None = None
    look: Look | None = None
    floor: float = 0.5

    @property
    def centre(self) -> Outcome:
        """Where outcomes are cut to learn their mean: a released window, or the public bounds."""
        return self.window or self.outcome

    @property
    def outcome(self) -> Outcome:
        """Public bounds of the outcome."""
        domain = self.session.schema[self.session.plan.request.formula.outcome]
        return Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)

    @property
    def clip(self) -> float:
        """c with e in [c, 1 - c]: the request's, or less where fewer than that are treated."""
        return min(self.session.plan.request.arm_clip, self.floor)

    @property
    def regressors(self) -> Regressors:
        return Regressors(self.linear, len(self.groups), self.group_sets)

    @property
    def effect_index(self) -> Integers:
        """Where the effect's features stand among the nuisances'."""
        terms = {b.group for b in self.effect_features.blocks}
        keep = [i for i, g in enumerate(self.features.group) if i == 0 or g in terms]
        return np.array(keep, np.int64)

    @property
    def known(self) -> Function | None:
        """The known propensity as a function of the row, or None."""
        request = self.session.plan.request
        if isinstance(request.propensity, str):
            domain = self.session.schema[request.propensity]
            assert isinstance(domain, Interval)
            return Known(domain.lo, domain.hi)
        return None if request.propensity is None else Constant(float(request.propensity))


def lay(session: Session, *, linear_terms: bool = True, modelled: bool = False) -> Ground:
    """Bounds, designs, marginals, basis and norm cut: the stages before the Gram.

    `modelled` marginals are those that a noisy histogram and usual laws have together.
    """
    session.buy_bounds()
    request, schema = session.plan.request, session.schema
    formula = request.formula
    terms = (*formula.modifiers, *formula.controls)
    groups = resolve_groups(request.groups, schema)
    wanted = terms, formula.modifiers if linear_terms else ()

    def designed() -> tuple[Design, Design]:
        full_rank = session.base.name == "linear"
        design = design_of(wanted[0], session.schema, full_rank=full_rank)
        linear = design_of(wanted[1], session.schema, full_rank=True)
        session.vault.arrange(session.schema, [design, linear], groups)
        return design, linear

    design, linear = designed()
    if session.plan.has(RANGES):
        session.find_ranges()
        design, linear = designed()
    schema = session.schema
    population = _population(session, design.variables, modelled)
    features = feature_map(design, population, session.base.functions, NORM_QUANTILE)
    own = {t.name for t in formula.modifiers}
    effect = features if len(own) == len(terms) else _restricted(features, population, own)
    known = request.propensity if isinstance(request.propensity, str) else None
    domain = schema[known] if known else None
    kept = Known(domain.lo, domain.hi) if isinstance(domain, Interval) else None
    return Ground(
        session,
        design,
        linear,
        groups,
        _group_sets(request.groups),
        population,
        features,
        effect,
        population.rows(kept),
    )


def _restricted(features: FeatureMap, population: Population, terms: set[str]) -> FeatureMap:
    """The effect's features, with a norm cut of their own."""
    small = features.restricted(sorted(terms))
    rows = population.rows()
    norms = np.linalg.norm(small.phi(rows.scaled(features.design)), axis=1)
    return FeatureMap(small.design, small.blocks, float(np.quantile(norms, NORM_QUANTILE)))


def _group_sets(texts: Sequence[str]) -> int:
    """Largest number of groups a row can be in: one for each declared text (levels exclude)."""
    return len(texts)


def _population(session: Session, variables: tuple[str, ...], modelled: bool) -> Population:
    schema = session.schema
    mechanism = Marginals(variables, schema)
    release = session.release("nuisance: marginals", mechanism)
    sd = float(release.noise_sd[0])
    counts = np.split(release.value, np.cumsum(mechanism.sizes)[:-1])
    share = session.plan.stage("nuisance: marginals").rows
    size = session.vault.size
    ceiling = np.inf if size is None or session.plan.request.trust.unit else size * share
    count = float(np.clip(np.mean([c.sum() for c in counts]), 1.0, ceiling))
    probabilities: dict[str, Vector] = {}
    for name, c in zip(variables, counts, strict=False):
        domain = schema[name]
        if isinstance(domain, Interval) and modelled:
            probabilities[name] = modelled_probabilities(c, sd, count)
        elif isinstance(domain, Interval):
            probabilities[name] = interval_probabilities(c, sd)
        else:
            probabilities[name] = level_probabilities(c, sd, undeclared=isinstance(domain, Levels))
    numeric = sum(isinstance(schema[v], Interval) for v in variables)
    spread = sd * float(np.sqrt(max(map(len, counts))))
    return Population(schema, probabilities, np.eye(numeric), count, spread)


def outcome_histogram(
    ground: Ground, stage: str, borders: Callable[[Interval], Vector]
) -> Release | None:
    """Counts of a numeric outcome's height above its lower bound; None where none are planned."""
    session, outcome = ground.session, ground.outcome
    if not session.plan.has(stage):
        return None
    domain = session.schema[session.plan.request.formula.outcome]
    if not isinstance(domain, Interval):  # an undeclared column turned out to hold 0/1
        session.unused(stage)
        return None
    height = OutcomeResidual(Constant(outcome.lo), outcome)  # Y - lo, from 0 to the range
    return session.release(stage, SizeHistogram(height, borders(domain)))


def look_at_outcome(ground: Ground, stage: str) -> Ground:
    """The ground with a first look at a numeric outcome, where one is planned."""
    release = outcome_histogram(ground, stage, edges)
    if release is None:
        return ground
    domain = ground.session.schema[ground.session.plan.request.formula.outcome]
    assert isinstance(domain, Interval)
    return replace(ground, look=look(release.value, float(release.noise_sd[0]), domain))


def is_binary(request: Request) -> bool:
    """Whether the outcome is declared to take two values."""
    domain = request.schema.get(request.formula.outcome)
    return domain is not None and not isinstance(domain, Interval)


@dataclass(frozen=True, eq=False)
class Grams:
    """Shrunken Gram for all rows and for each fold's complement."""

    whole: GramEstimate
    outside: tuple[GramEstimate, ...]
    noise_sd: float


def gram_of(ground: Ground) -> tuple[Ground, Grams]:
    """Release the Gram; learn the population's dependence from it; shrink it."""
    mechanism = Gram(ground.features)
    releases = ground.session.moments("nuisance: moments", mechanism)
    noisy = [mechanism.matrix(r.value) for r in releases]
    sd = off_diagonal_sd(mechanism, releases[0])
    total = np.sum(noisy, axis=0)
    # each fold has its own noise of the same size
    population = correlated(ground.population, ground.features, total, sd * np.sqrt(len(noisy)))
    known = ground.known if isinstance(ground.known, Known) else None
    ground = replace(ground, population=population, rows=population.rows(known))
    outside = tuple(
        _shrink(ground, part, noise, share) for part, noise, share in complements(noisy, sd)
    )
    whole = _shrink(ground, total, sd * np.sqrt(len(noisy)), 1.0)
    return ground, Grams(whole, outside, sd)


def _shrink(ground: Ground, noisy: Matrix, sd: float, share: float) -> GramEstimate:
    if ground.session.base.released_weights:  # the textbook base keeps the released moments
        return GramEstimate(noisy, sd, noisy)
    rows = ground.rows
    model = population_gram(
        ground.features, rows, ground.population.count * share, np.ones(len(rows))
    )
    return shrunken(noisy, model, sd, ground.features)


def off_diagonal_sd(mechanism: Gram, release: Release) -> float:
    """Noise sd of an off-diagonal entry (the diagonal's is sqrt(2) larger)."""
    sd = mechanism.matrix(release.noise_sd)
    return float(sd[0, 1]) if len(sd) > 1 else float(sd[0, 0] / np.sqrt(2.0))


def complements(parts: Sequence[Any], sd: float) -> list[tuple[Any, float, float]]:
    """For each fold, the other folds' sum, its noise sd and its share of the rows; one without."""
    if len(parts) == 1:
        return [(parts[0], sd, 1.0)]
    total = np.sum(parts, axis=0)
    k = len(parts)
    return [(total - part, sd * np.sqrt(k - 1), (k - 1) / k) for part in parts]
