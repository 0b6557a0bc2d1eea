"""Simulate a fit with invented rows and noise of typical size, to predict interval widths.

The simulation does not use private data. Rows are invented from the plan's declared domains and
from assumptions. The noise is a fixed pattern of plus and minus one standard deviation. Therefore
the result is marked NOT PRIVATE, like a fit with test noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from privcausal.accounting.price import Release
from privcausal.features.design import design_of
from privcausal.request.panels import Staggered
from privcausal.request.request import (
    LEVELS,
    WITH_EVENT,
    Assumptions,
    Plan,
    PopulationShape,
    Request,
    Stage,
)
from privcausal.request.schema import Binary, Domain, Interval, Levels
from privcausal.typing import Integers, Mask, Matrix, Vector
from privcausal.vault import noise
from privcausal.vault.admission import Source
from privcausal.vault.exit import Query
from privcausal.vault.noise import NoiseQuery
from privcausal.vault.published import (
    PublishedAnswers,
    PublishedAte,
    PublishedLogits,
    PublishedProcess,
)
from privcausal.vault.queries.cells import LabelSelection
from privcausal.vault.queries.sums import ClusterSquares
from privcausal.vault.sources.memory import Memory
from privcausal.vault.vault import Answerable, Vault

LATTICE, MULTIPLIER = 2039, 436
"""A rank-one lattice (Korobov) with a prime number of points. Every coordinate is uniform. Any two
of the first 70 coordinates have a correlation below 0.05, and so have their squares.
"""


def simulate(plan: Plan, rows: int, assumed: Assumptions, *, mirrored: bool) -> Vault:
    """A vault that answers like one with `rows` rows of the assumed distribution.

    `mirrored` reverses the noise. Averaging over both patterns removes all terms linear in the
    noise.
    """
    request = plan.request
    panel, name = request.trust.panel, request.formula.outcome
    if panel is None:
        frame = _invented(request, assumed)
    else:  # One row per unit, with its outcome in each period; cohorts differ in size as levels do.
        assert isinstance(panel, Staggered)
        time, cohort = (request.schema[column] for column in (panel.time, panel.cohort))
        assert isinstance(time, Levels)
        assert isinstance(cohort, Levels)
        # `Assumptions.r2` is the share of the outcome's variance that is constant within a unit.
        common, place, *uniform = _lattice(2 + len(panel.wide))
        never = np.array([label not in time.labels for label in cohort.labels])
        sizes = np.where(never, 0.0, assumed.population.next_level ** np.arange(len(never)))
        treated = assumed.treated * sizes / max(sizes.sum(), 1e-9)
        shares = np.where(never, 1 - assumed.treated, treated)
        ends, index = np.cumsum(shares / shares.sum())[:-1], _index({name: common})
        cohorts = np.array(cohort.labels, object)[np.searchsorted(ends, place)]
        frame = {str(request.trust.unit): np.arange(LATTICE), panel.cohort: cohorts}
        for column, places in zip(panel.wide, uniform, strict=True):
            frame[column] = _outcome(places, index, assumed, panel.outcome[name])
        frame[name] = frame[panel.wide[-1]]
    stretch, clusters = (1.0, 1.0), request.cluster
    if clusters is not None:  # Each invented row is a cluster.
        stretch = 1 + (clusters.max_rows - 1) * assumed.icc, 1 / clusters.max_rows
    noise = Typical(rows / LATTICE, -1.0 if mirrored else 1.0, stretch)
    vault = Vault(Source(Memory(frame)), plan, noise)
    if vault.size is not None:
        vault.size = rows if request.trust.unit is None else max(1, rows // request.trust.max_rows)
    return vault


class Typical(noise.OperatingSystem):
    """Exact sums scaled to the planned number of rows, plus or minus one noise sd each.

    This noise has the average energy of real noise, to which shrinkage reacts, but no tails. A
    single number gets no noise. `stretch` has the factors of squared cluster sums (the design
    effect) and of the number of clusters.
    """

    real = False

    def __init__(
        self, scale: float, sign: float, stretch: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        self._queries = 0
        self._scale, self._sign, self._stretch = scale, sign, stretch

    def with_noise(self, exact: Integers, query: NoiseQuery) -> Vector:
        self._queries += 1
        if query.name == ClusterSquares.label:
            exact = exact * np.r_[np.repeat(self._stretch[0], len(exact) - 1), self._stretch[1]]
        # A fixed, random-looking pattern of +-1: fractional parts of k^2 sqrt(2)
        k = np.arange(1.0, len(exact) + 1) + 1000.0 * self._queries
        upper = (k * np.sqrt(5.0) / 2 + k**2 * np.sqrt(2.0)) % 1.0 >= 0.5
        shift = self._sign * np.where(upper, 1.0, -1.0) if len(exact) > 1 else 0.0
        return np.asarray(exact * self._scale + shift * self.sd(query))

    def entropy(self) -> int:
        return 0

    def coins(self, size: int, rate: float) -> Mask:
        """Select row i if a whole number lies in (rate (i - 1), rate i]."""
        return np.diff(np.floor(rate * np.arange(size + 1.0))) > 0


# -- invented rows ---------------------------------------------------------------------------


def _invented(request: Request, assumed: Assumptions) -> dict[str, Any]:
    """Columns of the assumed distribution, shape (LATTICE,) each."""
    formula, schema, shape = request.formula, request.schema, assumed.population
    arms, outcomes, common, *uniform, drawn = _lattice(4 + len(request.columns))
    # uniform numbers whose normal scores have the correlation
    shared, apart = np.sqrt([shape.correlation, 1 - shape.correlation])
    correlated = [ndtr(shared * ndtri(common) + apart * ndtri(u)) for u in uniform]
    places = dict(zip(request.columns, correlated, strict=True))
    unit = request.trust.unit
    roles = formula.outcome, *formula.causes, unit, request.weights
    others = [name for name in request.columns if name not in roles]
    # Public rows, each drawn about equally often.
    public = {
        name: rows[(drawn * len(rows)).astype(np.int64)] for name, rows in assumed.like.items()
    }
    places |= {name: _ranks(column) for name, column in public.items()}
    frame = {
        name: public[name]
        if name in public
        else _covariate(places[name], schema.get(name), shape, name in formula.categorical)
        for name in others
    }
    terms = [t for t in formula.terms if all(v in schema for v in t.variables)]
    for column, atoms in design_of(terms, schema, full_rank=True).atoms.items():
        if column not in public:
            # Terms jump at atoms: move this share of the values, the nearest ones, to the atoms.
            values = frame[column]
            nearest = atoms[np.abs(values[:, None] - atoms).argmin(axis=1)]
            gap = np.abs(values - nearest)
            frame[column] = np.where(gap <= np.quantile(gap, shape.ones), nearest, values)
    index = _index({name: _ranks(frame[name]) for name in others if name in formula.variables})
    name = formula.assigned
    if isinstance(request.propensity, Mapping):
        labels = np.array(list(request.propensity), object)
        ends = np.cumsum(list(request.propensity.values()))[:-1]
        frame[name] = labels[np.searchsorted(ends, arms)]
    elif request.dose or request.arms:  # Spread evenly.
        frame[name] = _covariate(arms, schema.get(name), replace(shape, next_level=1.0))
    elif name:
        treated = arms < _propensity(request, assumed, index, frame)
        frame[name] = _coded(treated, schema.get(name))
    if formula.instruments:  # The instrument sets half of its range.
        place = arms if request.dose else np.asarray(treated, np.float64)
        domain, alone = schema.get(formula.treatment), places[formula.treatment]
        taken = np.asarray((place + alone) / 2 if request.per_unit else alone < 0.25 + place / 2)
        frame[formula.treatment] = (
            _covariate(taken, domain, shape) if request.per_unit else _coded(taken, domain)
        )
    if formula.event:
        frame[formula.event] = _coded(places[formula.event] < WITH_EVENT, schema.get(formula.event))
    frame[formula.outcome] = _outcome(outcomes, index, assumed, schema.get(formula.outcome))
    if request.weights is not None:  # Spread evenly over their bounds.
        domain = schema[request.weights]
        assert isinstance(domain, Interval)
        frame[request.weights] = domain.lo + domain.width * places[request.weights]
    frame |= public
    if request.cluster is not None and request.cluster.column != unit:
        frame[request.cluster.column] = np.arange(LATTICE)
    if unit is not None:
        frame[unit] = np.arange(LATTICE) // request.trust.max_rows
    return frame


def _ranks(column: Any) -> Vector:
    """Relative ranks in (0, 1), equal for equal values."""
    values = column.astype(str) if column.dtype == object else column
    _, codes = np.unique(values, return_inverse=True)
    counts = np.bincount(codes)
    return np.asarray((np.cumsum(counts) - counts / 2)[codes] / len(codes))


def _lattice(size: int) -> Matrix:
    """Points in the unit cube, one row for each coordinate, shape (size, LATTICE)."""
    steps = np.cumprod([1, *[MULTIPLIER] * (size - 1)], dtype=object) % LATTICE
    cells = np.outer(steps.astype(np.int64), np.arange(LATTICE)) % LATTICE
    return np.asarray((cells + 0.5) / LATTICE)


def _bell(uniform: Vector, mean: Vector | float, variance: Vector | float) -> Vector:
    """Quantiles of the beta distribution with this mean and variance."""
    size = mean * (1 - mean) / variance - 1
    return np.asarray(betaincinv(mean * size, (1 - mean) * size, uniform))


def _covariate(
    uniform: Vector, domain: Domain | None, shape: PopulationShape, categorical: bool = False
) -> Any:
    """A column of its usual shape.

    An undeclared column has levels if it is categorical; otherwise its bounds are [0, 1].
    """
    if domain is None and categorical:
        domain = Levels([f"level {k}" for k in range(1, LEVELS + 1)])
    if isinstance(domain, Levels):
        ends = np.cumsum(shape.next_level ** np.arange(len(domain.labels)))
        return np.array(domain.labels, object)[np.searchsorted(ends[:-1], uniform * ends[-1])]
    if isinstance(domain, Binary):
        return _coded(uniform >= 1 - shape.ones, domain)
    place = _bell(uniform, shape.mean, shape.sd**2)
    return place if domain is None else domain.lo + place * domain.width


def _coded(true: Any, domain: Domain | None) -> Any:
    """True and false as the two labels of a domain, or as 1 and 0."""
    if isinstance(domain, Levels):
        domain = Binary(list(domain.values))
    if isinstance(domain, Binary) and domain.labels is not None:
        return np.array(domain.labels, object)[true.astype(np.int64)]
    return true.astype(np.float64)


def _index(places: Mapping[str, Vector]) -> Vector:
    """An index with mean zero and variance one.

    All covariates have equal weights, with alternating signs.
    """
    total = np.zeros(LATTICE)
    for k, uniform in enumerate(places.values()):
        total += (-1.0) ** k * (uniform - 0.5)
    sd = float(total.std())
    return total / sd if sd > 0 else total


def _propensity(
    request: Request, assumed: Assumptions, index: Vector, frame: Mapping[str, Any]
) -> Vector | float:
    propensity = request.propensity
    if isinstance(propensity, str):
        return np.asarray(frame[propensity])
    if propensity is not None:
        assert not isinstance(propensity, Mapping)
        return float(propensity)
    if not index.any():
        return assumed.treated
    place = (np.argsort(np.argsort(index)) + 0.5) / LATTICE
    mean = assumed.treated
    variance = assumed.population.confounding * mean * (1 - mean)
    return np.asarray(np.clip(_bell(place, mean, variance), 0.005, 0.995))


def _outcome(uniform: Vector, index: Vector, assumed: Assumptions, domain: Domain | None) -> Any:
    """Values of the assumed standard deviation whose means follow the index."""
    share = assumed.outcome_sd / assumed.width
    numeric = domain is None or isinstance(domain, Interval)
    # For two labels with standard deviation s, the rarer label has p (1 - p) = s^2.
    middle = 0.5 - np.sqrt(max(0.25 - share**2, 0.0))
    if numeric:
        middle = min(0.5, assumed.population.tail * share)
    mean = np.clip(middle + np.sqrt(assumed.r2) * share * index, 0.001, 0.999)
    if not numeric:
        return _coded(uniform >= 1 - mean, domain)
    variance = np.minimum((1 - assumed.r2) * share**2, 0.999 * mean * (1 - mean))
    value = _bell(uniform, mean, variance)
    if isinstance(domain, Interval):
        return domain.lo + domain.width * value
    return assumed.width * (value - 0.5)


# -- replay of stored releases -----------------------------------------------------------------


Answer = tuple[Vector, tuple[str, ...]]
"""Released numbers, and the labels that a query selected."""

MOST_LABELS = 2_000
"""Maximum number of labels in one answer. Each becomes a column."""


class _EarlierNoise(noise.OperatingSystem):
    """The noise of an earlier fit. Only its scale matters."""

    def __init__(self, *, real: bool, silent: bool) -> None:
        self.real, self._silent = real, silent

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return np.zeros_like(query.weights) if self._silent else super().sd(query)


class Replay(Vault):
    """Answers each stage with the numbers that another vault released for it.

    The noise and the cost of an answer follow from the plan and the query, so no file can state
    them. Numbers that the query could not release raise `ValueError`.
    """

    __slots__ = ("_left",)

    def __init__(
        self,
        plan: Plan,
        size: int | None,
        answers: Mapping[str, Sequence[Answer]],
        *,
        real: bool,
        silent: bool,
    ) -> None:
        super().__init__(None, plan, _EarlierNoise(real=real, silent=silent), size=size)
        self._left = dict(answers)

    def set_layout(self, *_: Any, **__: Any) -> None:
        """Nothing is read."""

    score_survival = gather = set_layout

    def check_used(self) -> None:
        """Refuse answers that no stage asked for."""
        _need(not self._left)

    def _drawn(
        self, stage: Stage, query: Answerable, parts: tuple[int | None, ...]
    ) -> Sequence[Release]:
        answers = self._left.pop(stage.name)
        _need(len(answers) == len(parts))
        releases = []
        for values, labels in answers:
            if isinstance(query, PublishedLogits):
                _need(len(values) == 2 * query.polynomials.size)
            if isinstance(query, PublishedAnswers | PublishedProcess):
                assert query.queries is not None  # otherwise nothing is released here
                _need(len(values) == len(query.queries))
            if isinstance(query, LabelSelection):
                _need(len(labels) <= MOST_LABELS and list(labels) == sorted(set(labels)))
            else:
                _need(not labels)
            release = self._charged(stage, query, values, labels)
            _need(release.value.shape == release.noise_sd.shape and np.isfinite(values).all())
            if isinstance(query, Query):
                _need((np.abs(values) <= 2.0 * noise.LIMIT * query.units).all())
            if isinstance(query, LabelSelection):
                _need((values >= query.threshold(release.charge.noise_sd)).all())
            releases.append(release)
        return releases

    def _published(
        self, stages: tuple[Stage, Stage], mechanism: PublishedAte
    ) -> tuple[float, float]:
        answers = [self._left.pop(stage.name) for stage in stages]
        ((mean,),), ((square,),) = ([values for values, _ in answer] for answer in answers)
        _need(np.isfinite([mean, square]).all())
        return float(mean), float(square)


def _need(true: object) -> None:
    if not true:
        raise ValueError("no vault released this")
