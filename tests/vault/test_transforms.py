"""Row maps stay inside their stated bounds on any row, and reach them where they say so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vault_helpers import (
    CLIP,
    Study,
    answers,
    corner_rows,
    hostile_tables,
    mechanisms,
    random_rows,
    regression_row,
    second_slopes,
    study,
    table,
)

from privcausal import testing
from privcausal.estimators.estimands import ESTIMANDS, ScoreParts, Tilted
from privcausal.features.functions import Constant, Function, Known, Mixture, Pointwise
from privcausal.features.functions import NuisanceTriple as Nuisance
from privcausal.typing import Integers, Vector
from privcausal.vault import (
    Aipw,
    ArmScore,
    ArmSize,
    ByFold,
    Cross,
    CutScore,
    Gram,
    ImputedEffect,
    Influence,
    OfArm,
    OfTreatment,
    Outcome,
    RegressionInfluence,
    ResidualProduct,
    ScoreSquares,
    ScoreSums,
    ScoreVector,
    SizeHistogram,
    SurveyWeight,
    TransformProduct,
    TreatedScore,
)
from privcausal.vault import Assigned as Treatment
from privcausal.vault.exit import Mechanism

LO, HI = -2.0, 6.0
OUTCOME = Outcome(LO, HI)
ROUNDING = 1 + 1e-12
"""The mechanisms cut a transform to its bound anyway."""


@dataclass(frozen=True, eq=False)
class Probe(Mechanism):
    """Keeps what transforms say of the rows that count; releases nothing."""

    transforms: tuple[Any, ...]
    seen: list[Any] = field(default_factory=list)
    query: str = "probe"

    @property
    def units(self) -> Vector:
        return np.ones(1)

    def sensitivity(self, neighbors: Any) -> float:
        return 2.0 if neighbors == "substitute" else 1.0

    def integers(self, batch: Any) -> Integers:
        values = np.stack([transform(batch) for transform in self.transforms], axis=1)
        self.seen.append((values[batch.complete], batch.part[batch.complete]))
        return np.zeros(1, np.int64)


def values(s: Study, rows: list[Any], *transforms: Any) -> tuple[Vector, Integers]:
    """Values of the rows that count, a column per transform, and their parts."""
    probe = Probe(transforms)
    stages = ["nuisance: a", "effect: b"] if s.split == "disjoint" else ["a"]
    with testing.zero_noise():
        s.vault(table(rows), s.plan(stages)).release(stages[0], probe)
    return np.concatenate([v for v, _ in probe.seen]), np.concatenate([p for _, p in probe.seen])


def transforms(s: Study) -> list[Any]:
    """One of each kind, made of functions that reach their limits on many rows."""
    known = Known(0.2, 0.7)
    both = Mixture(Constant(0.5), s.e, known)
    mixed = Nuisance(both, s.additive(5, LO, HI), s.additive(6, LO, HI))
    return [
        Treatment(),
        OfTreatment("residual", s.e, CLIP),
        OfTreatment("residual", known, 0.2),
        OUTCOME,
        ResidualProduct(s.e, s.additive(4, LO, HI), OUTCOME, CLIP),
        Aipw(s.nuisance, OUTCOME, CLIP),
        Aipw(s.nuisance, OUTCOME, CLIP, Constant(-7.0), 7.0),
        Aipw(s.nuisance, OUTCOME, CLIP, s.additive(7, -8.0, 8.0), 8.0),
        Aipw(mixed, OUTCOME, CLIP),
        Aipw(Nuisance(known, s.nuisance.mu0, s.nuisance.mu1), OUTCOME, 0.2),
        ImputedEffect(s.nuisance, OUTCOME),
        ArmScore(s.nuisance, OUTCOME, CLIP, 0, LO),
        ArmScore(s.nuisance, OUTCOME, CLIP, 1, 3.0),
        OfArm(Treatment(), 0),
        OfArm(ArmScore(s.nuisance, OUTCOME, CLIP, 1, 3.0), 0),
        OfArm(ResidualProduct(s.e, s.additive(4, LO, HI), OUTCOME, CLIP), 2),
        ArmSize(Aipw(s.nuisance, OUTCOME, CLIP), (1.0, 0.9)),
        ArmSize(OUTCOME, (0.6, 1.0)),
        ArmSize(OUTCOME, (0.6, 1.0), signed=True),
        OfTreatment("balance", s.e, CLIP),
        OfTreatment("balance", known, 0.2),
        ResidualProduct(s.e, s.additive(4, LO, HI), OUTCOME, CLIP, -7.0, scale=0.2),
        ResidualProduct(known, s.additive(5, LO, HI), OUTCOME, 0.2, 3.0, scale=0.2),
        ResidualProduct(
            s.e, s.additive(4, LO, HI), OUTCOME, CLIP, s.additive(7, -8.0, 8.0), 8.0, 0.2
        ),
        OfTreatment("overlap", s.e, CLIP, 0.2),
        OfTreatment("root", s.e, scale=0.7),
        TransformProduct(OfTreatment("root", known, scale=0.7), OUTCOME),
        TreatedScore(s.e, s.nuisance.mu0, OUTCOME, CLIP, -7.0, 0.4),
        TreatedScore(
            Pointwise(np.minimum, s.e, Constant(0.6)), s.nuisance.mu0, OUTCOME, 0.4, -7.0, 0.4
        ),
        OfTreatment("treated", s.e, scale=0.4),
        replace(regression_row(s), features=s.features),
        RegressionInfluence(
            regression_row(s), second_slopes(s), np.linspace(-1.0, 1.0, s.features.size), 0.1
        ),
        Influence(TreatedScore(s.e, s.nuisance.mu0, OUTCOME, CLIP, -7.0, 0.4), None, -2.0),
        Influence(Aipw(s.nuisance, OUTCOME, CLIP), OfTreatment("balance", s.e, CLIP), 3.0),
        SurveyWeight("X1", 10.0),
        SurveyWeight("X1", 10.0, root=True),
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(rows=hostile_tables(1, 8), split=st.sampled_from(["full", "crossfit"]))
def test_values_stay_inside_their_bounds(rows: list[Any], split: str) -> None:
    s = study("substitute", split=split)
    chosen = transforms(s)
    chosen.append(ByFold((chosen[0], chosen[5])))
    # test noise refuses a table without any complete row
    found, _ = values(s, [*rows, CORNER | {"Y": HI, "T": 1.0}], *chosen)
    bounds = np.array([t.bound for t in chosen])
    assert np.all(np.abs(found) <= bounds * ROUNDING)


def test_values_stay_inside_their_bounds_at_the_corners() -> None:
    s = study("substitute")
    chosen = transforms(s)
    found, _ = values(s, list(corner_rows()) + random_rows(200, 3), *chosen)
    share = np.abs(found).max(axis=0) / [t.bound for t in chosen]
    assert np.all(share <= ROUNDING)
    assert np.all(share > 0.45)  # nearly reached by functions that were not made for it


CORNER: Any = {"X1": 0.0, "X2": 99.0, "G": "a", "B": "no", "P": 0.2}
ENDS = (LO, HI, 0.5 * (LO + HI))


def everywhere(make: Any) -> Vector:
    """Values over all corners of (y, t, mu0, mu1, e)."""
    s = study("substitute")
    rows = [CORNER | {"Y": y, "T": t} for y, t in itertools.product(ENDS, (0.0, 1.0))]
    corners = itertools.product(ENDS, ENDS, (CLIP, 1 - CLIP, 0.5))
    made = [make(Nuisance(Constant(e), Constant(mu0), Constant(mu1))) for mu0, mu1, e in corners]
    return values(s, rows, *made)[0]


MADE: dict[str, Any] = {
    "aipw": lambda n: Aipw(n, OUTCOME, CLIP),
    "imputed": lambda n: ImputedEffect(n, OUTCOME),
    "residual product": lambda n: ResidualProduct(n.e, n.mu0, OUTCOME, CLIP),
    "residual": lambda n: OfTreatment("residual", n.e, CLIP),
    "balance": lambda n: OfTreatment("balance", n.e, CLIP),
    "aipw around a centre": lambda n: Aipw(n, OUTCOME, CLIP, Constant(3.0), 3.0),
    "treated arm": lambda n: ArmScore(n, OUTCOME, CLIP, 1, HI),
    "control arm": lambda n: ArmScore(n, OUTCOME, CLIP, 0, LO),
    "overlap": lambda n: ResidualProduct(n.e, n.mu0, OUTCOME, CLIP, 3.0, scale=0.2),
    "overlap mass": lambda n: OfTreatment("overlap", n.e, CLIP, 0.2),
    "treated": lambda n: TreatedScore(n.e, n.mu0, OUTCOME, CLIP, 3.0, 0.5),
    "treated with small propensities": lambda n: TreatedScore(
        Pointwise(np.minimum, n.e, Constant(0.2)), n.mu0, OUTCOME, 0.8, -3.0, 0.5
    ),
    "treated mass": lambda n: OfTreatment("treated", n.e, scale=0.5),
}


@pytest.mark.parametrize("name", MADE)
def test_the_bound_is_the_largest_value(name: str) -> None:
    found = np.abs(everywhere(MADE[name])).max()
    bound = MADE[name](Nuisance(Constant(0.5), Constant(0.0), Constant(0.0))).bound
    assert found == pytest.approx(bound, rel=1e-12)


TILTED = {name: one for name, one in ESTIMANDS.items() if isinstance(one, Tilted)}


@pytest.mark.parametrize("name", TILTED)
def test_masses_are_nonnegative_and_their_squares_no_less(name: str) -> None:
    """Sums clip negative masses; standard errors in groups need E[m^2 | e] >= E[m | e]."""
    s, grid, one = study("substitute"), np.linspace(CLIP, 1 - CLIP, 9), TILTED[name]
    rows = [CORNER | {"Y": HI, "T": t} for t in (0.0, 1.0)]
    largest = float(one.tilt(np.linspace(0.0, 1.0, 101)).max())
    zero = Constant(0.0)
    parts = [ScoreParts(Constant(e), zero, zero, zero, OUTCOME, CLIP, CLIP) for e in grid]
    control, treated = values(s, rows, *(one.mass(k, largest) for k in parts))[0]
    assert (control >= 0).all() and (treated >= 0).all()
    mean, square = ((1 - grid) * control**p + grid * treated**p for p in (1, 2))
    np.testing.assert_allclose(mean, one.tilt(grid) / largest)
    assert (square >= mean * (1 - 1e-12)).all()


@pytest.mark.parametrize("name", TILTED)
@pytest.mark.parametrize("e", [0.2, 0.4, 0.7])
def test_scores_are_orthogonal_to_the_propensity(name: str, e: float) -> None:
    """d/de E[score | x] = 0 at the truth: an error of e alone has no first-order effect."""
    s, eta, tau, step = study("substitute"), 0.3, 0.5, 1e-4
    control, treated = eta - e * tau, eta + (1 - e) * tau
    rows = [CORNER | {"Y": y, "T": t} for y, t in ((control, 0.0), (treated, 1.0))]
    means = Constant(eta), Constant(control), Constant(treated)
    parts = [ScoreParts(Constant(e + d), *means, OUTCOME, 0.01, 0.01) for d in (-step, step)]
    scores = values(s, rows, *(TILTED[name].score(k, 0.2, 1.0) for k in parts))[0]
    below, above = (1 - e) * scores[0] + e * scores[1]
    assert abs(above - below) < 1e-3 * step


def test_the_aipw_score_is_kennedys() -> None:
    """psi = mu1 - mu0 + (T - e) / (e (1 - e)) (Y - mu_T)."""
    s = study("substitute")
    rows = [{**CORNER, "Y": 3.0, "T": 1.0}, {**CORNER, "Y": 3.0, "T": 0.0}]
    nuisance = Nuisance(Constant(0.25), Constant(1.0), Constant(2.5))
    found, _ = values(s, rows, Aipw(nuisance, OUTCOME, CLIP))
    assert found[:, 0].tolist() == [1.5 + 0.5 / 0.25, 1.5 - 2.0 / 0.75]


def test_weighted_scores_by_hand() -> None:
    s = study("substitute")
    rows = [{**CORNER, "Y": 3.0, "T": 1.0}, {**CORNER, "Y": 3.0, "T": 0.0}]
    e, mean = Constant(0.25), Constant(1.0)
    treated = TreatedScore(e, mean, OUTCOME, CLIP, 0.5, 0.25)
    overlap = ResidualProduct(e, mean, OUTCOME, CLIP, 0.5, scale=0.25)
    masses = OfTreatment("treated", s.e, scale=0.25), OfTreatment("overlap", e, CLIP, 0.25)
    found, _ = values(s, rows, treated, overlap, *masses)
    assert found[0].tolist() == [1.5 / 0.25, 0.75 * (2 - 0.375) / 0.25, 4.0, 0.75**2 / 0.25]
    assert found[1] == pytest.approx(
        [-2 / 3 / 0.25, -0.25 * (2 + 0.125) / 0.25, 0.0, 0.0625 / 0.25]
    )


@pytest.mark.parametrize("split", ["disjoint", "crossfit"])
def test_by_fold_takes_the_rows_own_fold(split: str) -> None:
    s = study("substitute", split=split)

    @dataclass(frozen=True)
    class Number:
        value: float
        bound: float = 9.0

        def __call__(self, batch: Any) -> Vector:
            return np.full(len(batch.y), self.value)

    transform = ByFold((Number(-7.0), Number(9.0, bound=8.0)))
    assert transform.bound == 9.0
    probe = Probe((transform,))
    stages = ["nuisance: a", "effect: b"] if split == "disjoint" else ["a"]
    with testing.seeded_noise(1):
        vault = s.vault(table(random_rows(60, 2)), s.plan(stages))
        if split == "crossfit":
            vault.release_folds("a", probe)
        else:
            vault.release("nuisance: a", probe)
            vault.release("effect: b", probe)
    (first, at_first), (second, at_second) = probe.seen
    assert set(first[:, 0]) == {-7.0}
    assert set(second[:, 0]) == {9.0}
    assert set(at_first) == {0}
    assert set(at_second) == {1}


def test_a_nuisance_that_is_not_finite_moves_nothing_beyond_the_bounds() -> None:
    """Public functions are finite, but no proof rests on it: NaN counts as zero."""
    s = study("substitute")

    @dataclass(frozen=True)
    class Broken:
        def __call__(self, rows: Any) -> Vector:
            return np.where(np.arange(len(rows)) % 2 == 0, np.nan, np.inf)

    broken: Function = Broken()
    wrong = Nuisance(broken, broken, broken)
    good = mechanisms(s)
    sums: Any = good["sums, mean"]
    aipw = Aipw(wrong, OUTCOME, CLIP)
    one_score = CutScore(aipw, 1.0)
    joint: Any = good["joint sums, mean"]
    vector = ScoreVector(
        (ArmScore(wrong, OUTCOME, CLIP, 1, 0.0), aipw), np.full(2, np.inf), np.eye(2)
    )
    bad = {
        "cross outcome": Cross(s.features, aipw, 1.0, "outcome"),
        "gram with factor": Gram(s.features, factor=OfTreatment("residual", broken, CLIP)),
        "sums, mean": ScoreSums(one_score, sums.masses, sums.regressors, "substitute"),
        "squares, mean": ScoreSquares(one_score, sums.regressors),
        "sizes": SizeHistogram(aipw, np.array([1.0, 2.0])),
        "joint sums, mean": replace(joint, scores=vector),
        "joint squares, mean": ScoreSquares(vector, sums.regressors),
    }
    rows = random_rows(12, 4)
    with np.errstate(all="ignore"):
        one, two = answers(s, table(rows), bad), answers(s, table(rows[:-1]), bad)
    for name in bad:
        assert one[name].distance(two[name]) <= one[name].sensitivity
        assert np.abs(one[name].exact).max() < 2**50
