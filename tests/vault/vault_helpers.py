"""A small study for the vault's tests: hostile rows, public functions with extremes, orders."""

from __future__ import annotations

import itertools
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from scipy.stats import kstest

from privcausal import testing, vault
from privcausal.features.design import FINE_BINS as FINE
from privcausal.features.design import Design
from privcausal.features.functions import (
    Additive,
    FeatureMap,
    Interactions,
    RescaledFeatures,
    Turned,
)
from privcausal.features.functions import NuisanceTriple as Nuisance
from privcausal.inference.population import Population, feature_map
from privcausal.request.formula import CausalFormula, resolve_groups
from privcausal.request.request import Budget, Plan, Request, Stage, Trust
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.vault import Aipw, Outcome, Source, Vault, open_source, open_vault
from privcausal.vault.exit import Mechanism
from privcausal.vault.queries.slopes import ArmMeans
from privcausal.vault.queries.sums import ArmHistogram, ArmSums

FORMULA = "Y ~ T | X1 + s(X2) + C(G) + B"
DOMAINS: dict[str, Any] = {
    "Y": (-2.0, 6.0),
    "X1": (0.0, 10.0),
    "X2": (99.0, 100.0),  # far from zero
    "G": ["a", "b", "c"],
    "B": {"labels": ["no", "yes"], "ref": "no"},
    "P": (0.2, 0.7),
}
GROUPS = ("G", "X1 >= 5", "B == yes")
CLIP = 0.1
RELATIONS = ("substitute", "add_remove")
ROUNDING = 1 + 2.0**-40
"""The vault raises every noise scale by this, for the rounding of the floats behind it."""

Row = dict[str, Any]


# -- rows ------------------------------------------------------------------------------------

_EXTREME = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 77310.4142]


def _number(lo: float, hi: float) -> st.SearchStrategy[float]:
    return st.one_of(
        st.sampled_from([lo, hi, 0.5 * (lo + hi), np.nextafter(hi, lo), *_EXTREME]),
        st.floats(lo, hi),
        st.floats(allow_nan=True, allow_infinity=True),
    )


def _label(*known: str) -> st.SearchStrategy[Any]:
    strange = ["zzz", "", None, "A", "nan", "other"]
    return st.one_of(st.sampled_from(known), st.sampled_from(strange))


_ARMS = st.sampled_from([0.0, 1.0]) | st.sampled_from([np.nan, 2.0, -1.0, 0.5, np.inf, 1 + 1e-12])
HOSTILE_ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {"Y": _number(-2.0, 6.0), "T": _ARMS, "X1": _number(0.0, 10.0), "X2": _number(99.0, 100.0)}
    | {"G": _label("a", "b", "c"), "B": _label("no", "yes"), "P": _number(0.2, 0.7)}
)


def hostile_tables(low: int, high: int) -> st.SearchStrategy[list[Row]]:
    return st.lists(HOSTILE_ROWS, min_size=low, max_size=high)


@st.composite
def neighbours(draw: Any, relation: str, low: int, high: int) -> tuple[list[Row], list[Row]]:
    """Tables of hostile rows, of which one is replaced by another or leaves."""
    rows = draw(hostile_tables(low, high))
    at = draw(st.integers(0, len(rows) - 1))
    new = [] if relation == "add_remove" else [draw(HOSTILE_ROWS)]
    return rows, [*rows[:at], *new, *rows[at + 1 :]]


@cache
def corner_rows() -> tuple[Row, ...]:
    """Complete rows with all numbers at a bound, in every combination."""
    axes: dict[str, Any] = {"Y": (-2.0, 6.0), "T": (0.0, 1.0), "X1": (0.0, 10.0)}
    axes |= {"X2": (99.0, 100.0), "G": ("a", "c"), "B": ("no", "yes"), "P": (0.2,)}
    return tuple(dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values()))


def random_rows(n: int, seed: int) -> list[Row]:
    """Ordinary rows, one in six of them hostile in one place."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = [
        {
            "Y": float(rng.uniform(-3, 7)),
            "T": float(rng.integers(2)),
            "X1": float(rng.uniform(-1, 11)),
            "X2": float(rng.uniform(98.9, 100.1)),
            "G": str(rng.choice(["a", "b", "c"])),
            "B": str(rng.choice(["no", "yes"])),
            "P": float(rng.uniform(0.1, 0.8)),
        }
        for _ in range(n)
    ]
    for row in rows[::6]:
        name = str(rng.choice(["Y", "T", "X1", "X2", "P"]))
        row[name] = float(rng.choice(_EXTREME))
    for row in rows[::13]:
        row[str(rng.choice(["G", "B"]))] = rng.choice(["zzz", None])
    return rows


def table(rows: Sequence[Row], units: Sequence[Any] | None = None) -> pd.DataFrame:
    names = list(HOSTILE_ROWS_COLUMNS)
    frame = pd.DataFrame({name: [row[name] for row in rows] for name in names})
    for name in ("G", "B"):
        frame[name] = pd.Series([row[name] for row in rows], dtype="str")
    for name in ("Y", "T", "X1", "X2", "P"):
        frame[name] = frame[name].astype(float)
    if units is not None:
        frame["pid"] = pd.Series(list(units), dtype="str")
    return frame


HOSTILE_ROWS_COLUMNS = ("Y", "T", "X1", "X2", "G", "B", "P")


# -- the study -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Study:
    """Public side of one analysis: request, domains, designs, features and public functions."""

    neighbors: Any
    max_rows: int = 1
    split: Any = "full"
    unit: str | None = None
    schema: Schema = field(init=False)
    request: Request = field(init=False)
    design: Design = field(init=False)
    linear: Design = field(init=False)
    features: FeatureMap = field(init=False)
    groups: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        schema = Schema({**DOMAINS, "T": {"labels": [0, 1]}})
        schema = schema.with_columns({"T": Schema({"T": {"labels": [0, 1], "ref": 0}})["T"]})
        formula = CausalFormula.parse(FORMULA, HOSTILE_ROWS_COLUMNS)
        trust = Trust(self.neighbors, self.unit, self.max_rows)
        asked = {"propensity": "P", "split": self.split, "groups": GROUPS}
        request = Request(formula, schema, Budget(1.0), trust, **asked)
        design = Design(formula.modifiers, schema, full_rank=False)
        values = {
            "schema": schema,
            "request": request,
            "design": design,
            "linear": Design(formula.modifiers, schema, full_rank=True),
            "features": feature_map(design, population(schema, design.variables), 3, 0.5),
            "groups": resolve_groups(GROUPS, schema),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # public functions that reach their limits on many rows

    def additive(self, seed: int, lo: float, hi: float) -> Additive:
        coef = np.random.default_rng(seed).normal(scale=3 * (hi - lo), size=self.features.size)
        return Additive(self.features, coef, 0.5 * (lo + hi), lo, hi)

    @property
    def e(self) -> Additive:
        return self.additive(1, CLIP, 1 - CLIP)

    @property
    def outcome(self) -> Outcome:
        return Outcome(-2.0, 6.0)

    @property
    def nuisance(self) -> Nuisance:
        return Nuisance(self.e, self.additive(2, -2.0, 6.0), self.additive(3, -2.0, 6.0))

    @property
    def aipw(self) -> Aipw:
        return Aipw(self.nuisance, self.outcome, CLIP)

    @property
    def balance(self) -> vault.OfTreatment:
        return vault.OfTreatment("balance", self.e, CLIP)

    def plan(self, names: Sequence[str], rho: float = 1e-3) -> Plan:
        amount = round(rho * 1e12)
        if self.split == "disjoint":
            stages = tuple(
                Stage(n, amount, charged=amount if i == 0 else 0, rows=0.5, part=part)
                for i, (n, part) in enumerate(zip(names, itertools.cycle(PARTS), strict=False))
            )
        else:
            stages = tuple(Stage(n, amount) for n in names)
        return Plan(self.request, "test", "gam", stages, 10**18)

    def vault(self, data: Any, plan: Plan, *, groups: bool = False) -> Vault:
        source = data if isinstance(data, Source) else open_source(data)
        vault = open_vault(source, plan, None, "run")
        self.set_layout(vault, groups=groups)
        return vault

    def set_layout(self, vault: Vault, *, groups: bool) -> None:
        vault.set_layout(self.schema, [self.design, self.linear], self.groups if groups else ())


PARTS = ("nuisance", "effect")


def population(schema: Schema, variables: Sequence[str]) -> Population:
    probabilities = {}
    for name in variables:
        domain = schema[name]
        if isinstance(domain, Interval):
            probabilities[name] = np.full(FINE, 1 / FINE)
        else:
            size = len(domain.labels) if isinstance(domain, Levels) else 2  # type: ignore[arg-type]
            extra = isinstance(domain, Levels)
            probabilities[name] = np.r_[np.full(size, 1 / size), np.zeros(int(extra))]
    numeric = sum(isinstance(schema[v], Interval) for v in variables)
    return Population(schema, probabilities, np.eye(numeric), 100.0)


@cache
def study(neighbors: str, max_rows: int = 1, split: str = "full", unit: str | None = None) -> Study:
    return Study(neighbors, max_rows, split, unit)


def saved(folder: Path, call: Any, *given: Any, **options: Any) -> bytes:
    """The file of a seeded fit."""
    with testing.seeded_noise(3):
        call(*given, **options).save(folder / "fit.json")
    return (folder / "fit.json").read_bytes()


# -- interruptions ---------------------------------------------------------------------------


@contextmanager
def interrupted(step: str, pressed: Any) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """A fit within this block is stopped by Ctrl-C, which `pressed` raises in the step's place."""
    # jobs that a shell starts in the background ignore the signal, and their children do
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"privcausal.{step}", pressed)
            with pytest.raises(KeyboardInterrupt, match="already charged stays spent") as caught:
                yield caught
    finally:
        signal.signal(signal.SIGINT, ours)


def assert_normal(z: Any) -> None:
    """By Kolmogorov and Smirnov at 1e-6, while the same draws fail at a scale 30% off."""
    assert kstest(z, "norm").pvalue > 1e-6
    for scale in (0.7, 1.3):
        assert kstest(z * scale, "norm").pvalue < 1e-6


def widest(rows: Any) -> float:
    """Largest squared distance of two rows."""
    return float(((rows[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2).max())


def batches(vault: Vault) -> list[Any]:
    """The blocks of complete rows that a vault sums over."""
    return list(vault._passes.batches())


def redrawn(vault: Vault, stage: Stage, order: Mechanism, exact: Any, times: int) -> list[Any]:
    """Further releases of one exact answer, which its one charge does not pay for."""
    leave = vault._exit
    noisy = [leave.noisy(exact, leave.noise_of(stage, order)) for _ in range(times)]
    return [leave.with_charge(stage, order, values * order.units) for values in noisy]


# -- orders ----------------------------------------------------------------------------------

REGRESSORS = {
    "mean": (False, False),
    "groups": (False, True),
    "slopes": (True, False),
    "slopes and groups": (True, True),
}


def regressors(s: Study, which: str) -> vault.Regressors:
    slopes, groups = REGRESSORS[which]
    design = s.linear if slopes else Design((), s.schema, full_rank=True)
    return vault.Regressors(design, len(s.groups) if groups else 0, len(GROUPS) if groups else 0)


def rescaled(f: FeatureMap) -> RescaledFeatures:
    """Uneven stretches and all products of linear functions, with a norm cut that bites."""
    linear = np.flatnonzero(f.order == 1).tolist()
    pairs = tuple((i, j) for i, j in itertools.combinations(linear, 2) if f.group[i] != f.group[j])
    lift = np.linspace(-0.2, 0.2, f.size * len(pairs)).reshape(f.size, -1)
    psi = Interactions(f, None, pairs, (), np.full(f.size, 0.3), lift, np.ones(len(pairs)), np.inf)
    return RescaledFeatures(f, psi, np.geomspace(0.2, 3.0, f.size + len(pairs)), 0.8)


def turned(f: FeatureMap, cut: float = 0.8) -> Turned:
    """Combinations of features, with a norm cut that bites."""
    return Turned(f, np.random.default_rng(8).normal(size=(f.size, f.size)), cut)


def weighted_scores(s: Study) -> dict[str, tuple[Any, Any, float]]:
    """Scores and masses of the ATT and the ATO, and where they are cut."""
    treated = vault.TreatedScore(s.e, s.nuisance.mu0, s.outcome, CLIP, -3.0, 0.5)
    overlap = vault.ResidualProduct(s.e, s.additive(4, -2.0, 6.0), s.outcome, CLIP, 2.0, scale=0.2)
    mass = vault.OfTreatment("overlap", s.e, CLIP, 0.2)
    return {
        "on the treated": (treated, vault.OfTreatment("treated", s.e, scale=0.5), 15.0),
        "in the overlap": (overlap, mass, 0.5 * overlap.bound),
    }


def joint_scores(s: Study) -> tuple[vault.ScoreVector, tuple[Any, ...], tuple[int, ...]]:
    """Scores of both arms, the treated and the overlap as one vector, and their masses."""
    arms = [vault.ArmScore(s.nuisance, s.outcome, CLIP, arm, 1.0) for arm in (0, 1)]
    (treated, of_treated, _), (overlap, of_overlap, _) = weighted_scores(s).values()
    basis = np.array([[0.1, 0, 0, 0], [-0.1, 0.2, 0, 0], [0, 0.1, 0.1, 0], [0, 0, 0.1, -0.1]])
    vector = vault.ScoreVector((*arms, treated, overlap), np.array([60.0, 40.0, 15.0, 30.0]), basis)
    return vector, (s.balance, of_treated, of_overlap), (0, 2, 3)


def regression_row(s: Study, lever: float = 2.0, *, weighted: bool = False) -> vault.RegressionRow:
    """Rows that are cut in leverage and residual, with survey weights up to 1.5 times the mean."""
    survey = vault.SurveyWeight("X2", 5.0, root=True) if weighted else None
    return vault.RegressionRow(turned(s.features, lever), s.outcome, survey, 1.5**0.5, 2.0, 3.0)


def second_slopes(s: Study) -> np.ndarray:
    return np.linspace(-0.5, 0.5, s.features.size)


def mechanisms(s: Study) -> dict[str, Mechanism]:
    """Every additive mechanism over cleaned rows, with public functions that reach their limits."""
    f, e = s.features, s.e
    residual = vault.OfTreatment("residual", e, CLIP)
    product = vault.ResidualProduct(e, s.additive(4, -2.0, 6.0), s.outcome, CLIP)
    found: dict[str, Mechanism] = {
        "gram": vault.Gram(f),
        "gram with factor": vault.Gram(f, factor=residual),
        "cross treatment": vault.Cross(f, vault.Assigned(), 0.5, "treatment"),
        "cross outcome": vault.Cross(f, s.outcome, s.outcome.bound, "outcome"),
        "cross by arm": vault.Cross(
            f, vault.ImputedEffect(s.nuisance, s.outcome), 8.0, "imputed", by_arm=True
        ),
        "cross cut": vault.Cross(f, product, 0.25 * product.bound, "product"),
        "cross stretched": vault.Cross(rescaled(f), s.outcome, s.outcome.bound, "outcome"),
        "gram turned": vault.Gram(turned(f)),
        "gram of a regression": vault.RegressionMoments(regression_row(s)),
        "gram of a regression, survey weights": vault.RegressionMoments(
            regression_row(s, weighted=True)
        ),
        "squared residual moments": vault.ResidualMoments(regression_row(s), second_slopes(s), 4.0),
        "squared residual moments, survey weights": vault.ResidualMoments(
            regression_row(s, weighted=True), second_slopes(s), 2.0
        ),
        "outliers": vault.OutlierSums(regression_row(s, 0.8), 1.5),
        "outliers, survey weights": vault.OutlierSums(regression_row(s, 0.8, weighted=True), 1.5),
        "marginals": vault.Marginals(s.design.variables, s.schema),
        "ranges": vault.Marginals(("X1", "X2"), s.schema, 64),
        "count": vault.Marginals((), s.schema),
        "sizes": vault.SizeHistogram(s.aipw, s.aipw.bound * 0.5 ** np.arange(8)[::-1]),
        "arm histogram": ArmHistogram(
            vault.OfCovariates(e, 1.0), np.array([0.1, 0.3, 0.5, 0.7, 0.9]), "propensity"
        ),
    }
    found["cross of an arm"] = vault.Cross(f, vault.OfArm(vault.Assigned(), 0), 0.5, "treatment")
    control = vault.ArmSize(
        vault.OfArm(vault.ArmScore(s.nuisance, s.outcome, CLIP, 1, 1.0), 0), (0.5, 1.0), 0
    )
    found["sizes of an arm"] = ArmHistogram(
        control, control.bound * 0.5 ** np.arange(1, 8)[::-1], "score sizes", 0
    )
    arms = vault.ArmSize(s.aipw, (1.0, 0.25))
    borders = arms.bound * 0.5 ** np.arange(1, 8)[::-1]
    found["sizes by arm"] = ArmHistogram(arms, borders, "score sizes")
    both = vault.ArmSize(s.aipw, (1.0, 0.25), signed=True)
    found["scores by arm and sign"] = ArmHistogram(
        both, np.r_[-borders[::-1], 0.0, borders], "score sizes"
    )
    for which in REGRESSORS:
        r = regressors(s, which)
        score, cut = s.aipw, 0.5 * s.aipw.bound
        one = vault.CutScore(score, cut)
        found[f"sums, {which}"] = vault.ScoreSums(one, (s.balance,), r, s.neighbors)
        slopes = vault.ImputedEffect(s.nuisance, s.outcome)
        found[f"sums with slope scores, {which}"] = vault.ScoreSums(
            one, (s.balance,), r, s.neighbors, slopes=slopes
        )
        found[f"sums of the treated, {which}"] = vault.ScoreSums(
            vault.CutScore(slopes, 8.0),
            (vault.OfTreatment("treated", s.e, scale=1.0),),
            r,
            s.neighbors,
        )
        for name, (weighted, mass, at) in weighted_scores(s).items():
            own = vault.CutScore(weighted, at)
            found[f"sums {name}, {which}"] = vault.ScoreSums(own, (mass,), r, s.neighbors, (1,))
        found[f"sums and squares, {which}"] = vault.ScoreSums(
            one, (s.balance,), r, s.neighbors, squares=True
        )
        found[f"sums and squares alone, {which}"] = vault.ScoreSums(
            vault.CutScore(score, cut, 3.0), (), r, s.neighbors, slopes=slopes, squares=True
        )
        found[f"squares, {which}"] = vault.ScoreSquares(one, r)
        found[f"squares with meat, {which}"] = vault.ScoreSquares(one, r, meat=True)
        if "groups" not in which:
            found[f"arm means, {which}"] = ArmMeans(e, CLIP, r)
    for which in ("mean", "groups"):
        r = regressors(s, which)
        vector, masses, grouped = joint_scores(s)
        found[f"joint sums, {which}"] = vault.ScoreSums(vector, masses, r, s.neighbors, grouped)
        found[f"joint sums and squares, {which}"] = vault.ScoreSums(
            vector, masses, r, s.neighbors, grouped, squares=True
        )
        found[f"joint squares, {which}"] = vault.ScoreSquares(vector, r)
    eta = s.additive(4, -2.0, 6.0)
    for label, arms_, cut in (("two arms", 1, 0.0), ("a number", 1, 0.4), ("arms", 3, 0.0)):
        residuals = vault.SlopeScores(
            ((e,) * arms_,), ((eta,) * arms_,), s.outcome, np.ones(arms_), cut, 2 * cut
        )
        found[f"slopes of {label}"] = vault.SlopeSums(residuals, 0.3 * residuals.bound)
        found[f"sizes of slopes of {label}"] = vault.SizeHistogram(
            residuals, np.array([0.1, residuals.bound])
        )
    taken = s.additive(5, 0.0, 1.0)
    single = ("an instrument", (e,), 0.0), ("an instrument that is cut", (e,), 0.4)
    for label, means, cut in (*single, ("instruments", (e, taken, e), 0.0)):
        by = vault.InstrumentScores(
            (means,), ((taken,),), ((eta,),), s.outcome, centre=0.7, scale=3.0, most=0.9, cut=cut
        )
        found[f"slopes by {label}"] = vault.SlopeSums(by, 0.3 * by.bound)
        found[f"sizes of slopes by {label}"] = vault.SizeHistogram(by, np.array([0.1, by.bound]))
    both = found["sizes by arm"], found["arm histogram"]
    found["joint sizes"] = vault.ArmHistograms(both)  # type: ignore[arg-type]
    windows = Interval(-2.0, 6.0), Interval(0.0, 5.0)
    found["arm sums"] = ArmSums(windows, 0, 0, s.neighbors)
    found["arm sums of two values"] = ArmSums(windows, 0, 0, s.neighbors, squares=False)
    found["survival counts"] = vault.SurvivalCounts(vault.FollowUp("B", 3.0))
    found["arm sums, groups"] = ArmSums(windows, len(s.groups), len(GROUPS), s.neighbors)
    return found


RAW = ("Y", "X1", "X2")


def raw_mechanisms() -> dict[str, Mechanism]:
    """Mechanisms over raw columns, whose domains are not known yet."""
    ranges = (Interval(-1.0, 1.0), Interval(0.0, 2.0**40), Interval(64.0, 128.0))
    return {
        "magnitudes": vault.ColumnHistograms(RAW),
        "grid": vault.ColumnHistograms(RAW, ranges=ranges),
        "grid of rows with weight": vault.ColumnHistograms(RAW, "X1", ranges),
    }


def needs_groups(mechanism: Mechanism) -> bool:
    counted = getattr(mechanism, "regressors", mechanism)
    return getattr(counted, "groups", 0) > 0


NAMES = (*mechanisms(study("substitute")), *raw_mechanisms())


@dataclass(frozen=True, eq=False)
class Answer:
    """Exact integers of one query, with what the noise source was told of it."""

    exact: Any
    weights: Any
    sensitivity: float
    scale: float

    def distance(self, other: Answer) -> float:
        """Weighted l2 distance of two exact answers."""
        return float(np.linalg.norm((self.exact - other.exact).astype(float) * self.weights))

    @property
    def size(self) -> float:
        return float(np.linalg.norm(self.exact.astype(float) * self.weights))


def answers(
    s: Study, data: Any, wanted: Mapping[str, Mechanism] | None = None, *, ahead: bool = False
) -> dict[str, Answer]:
    """Exact answers of every mechanism on one table; with `ahead`, gathered first, in one pass."""
    chosen = {**mechanisms(s), **raw_mechanisms()} if wanted is None else dict(wanted)
    chosen = dict(sorted(chosen.items(), key=lambda item: needs_groups(item[1])))
    with testing.recorded() as recorder, warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning about a row would tell of it
        vault, groups = s.vault(data, s.plan(list(chosen))), False
        sums = {n: m for n, m in chosen.items() if ahead and isinstance(m, Mechanism)}
        if ahead:
            vault.gather({n: m for n, m in sums.items() if not needs_groups(m)}, {})
        for name, mechanism in chosen.items():
            if needs_groups(mechanism) and not groups:
                s.set_layout(vault, groups=(groups := True))
                if ahead:
                    vault.gather({n: m for n, m in sums.items() if needs_groups(m)}, {})
            vault.release(name, mechanism)
    return {
        name: Answer(c.exact, c.query.weights, c.query.sensitivity, c.query.scale)
        for name, c in zip(chosen, recorder.calls, strict=True)
    }


@cache
def corner_answers(s: Study) -> tuple[dict[str, Answer], ...]:
    """Answers on each corner row alone."""
    return tuple(answers(s, table([row])) for row in corner_rows())
