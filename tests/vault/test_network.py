"""Networks by DP-SGD: gradients, clipping, what one row moves, and the accountant."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import network_checks
import numpy as np
import pandas as pd
import pytest
from fit_helpers import replayed
from network_checks import at_kinks, check_rows_stand_alone, check_sums_stand_alone, dispatched
from scipy.special import expit

import privcausal as pc
from privcausal import testing
from privcausal.accounting import PICO, multiplier_for_replaced
from privcausal.errors import CapabilityError
from privcausal.estimators.bases import NN, Kernel
from privcausal.features.design import Rows, design_of
from privcausal.features.functions import inputs, logistic, split, start
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema
from privcausal.vault.queries.boosting import row_gradients

UNIT = 2.0**30
BOUNDS: dict[str, Any] = {"Y": (-1, 8), "X1": (0, 1), "X2": (0, 1)}
FORMULA = "Y ~ T | X1 + X2"


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    return pc.datasets.dpcate(1, n, seed).frame


def fit(data: pd.DataFrame, **options: Any) -> Any:
    call = {"learner": "dpcate", "base": NN(epochs=1), "bounds": BOUNDS, "eps": 4.0, **options}
    return pc.privcate(FORMULA, data, **call)


def printed(data: pd.DataFrame, **options: Any) -> Any:
    call = {"base": NN(epochs=1), "bounds": BOUNDS, "below_minimum": "published", **options}
    return pc.paper.dpcate(FORMULA, data, **({"eps": 4.0} | call))


# -- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [False, True])
def test_gradients_of_rows_are_those_of_differences(share: bool) -> None:
    rng = np.random.default_rng(0)
    z, y = rng.uniform(-1, 1, (6, 3)), rng.choice([-1.0, 1.0], 6) * (1.0 if share else 3.0)
    weights = start(3)
    weights[96:128] = rng.normal(0, 0.3, 32)
    weights[-1] = 0.2
    found = row_gradients(weights, z, y, share).T / UNIT

    def loss(w: Any, i: int) -> float:
        w1, b1, w2, b2 = split(w, 3)
        f = np.maximum(w1 @ z[i] + b1, 0) @ w2 / np.sqrt(32) + b2
        if share:
            return float(np.logaddexp(0, f) - (y[i] + 1) / 2 * f)
        return float(0.5 * (f - y[i]) ** 2)

    eye = 1e-6 * np.eye(len(weights))
    lengths = []
    for i in range(6):
        slope = np.array([(loss(weights + e, i) - loss(weights - e, i)) / 2e-6 for e in eye])
        lengths.append(np.linalg.norm(slope))
        assert found[i] == pytest.approx(slope / max(1.0, lengths[-1]), abs=1e-6)
    assert max(lengths) > 1.0  # one at least is cut


@pytest.mark.parametrize("q", [0, 1, 5, 300])
@pytest.mark.parametrize("size", [1e-200, 1.0, 30.0, 1e100])
def test_no_row_is_longer_than_one_on_the_grid_and_none_is_lost(q: int, size: float) -> None:
    """Weights of all sizes, counted in Python's integers; rows that are cut are nearly one long."""
    rng = np.random.default_rng(q)
    z, y = rng.choice([-1.0, 1.0, 0.3], (40, q)), rng.choice([-1.0, 1.0], 40)
    for share in (False, True):
        whole = row_gradients(size * start(q), z, y, share)
        squares = [sum(int(v) ** 2 for v in column) for column in whole.T]
        assert max(squares) <= 2**60
        if not share:  # a share that is surely right has no gradient
            assert min(squares) > 0
            assert q == 0 or size < 30 or min(squares) > 0.999 * 2**60


def test_what_is_not_finite_adds_nothing() -> None:
    weights = start(2)
    weights[0] = 1e300
    z = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    with np.errstate(all="ignore"):  # as in the vault
        whole = row_gradients(weights, z, np.ones(3), False)
    assert not whole[:, 0].any()
    assert whole[:, 1:].any(axis=0).all()
    assert row_gradients(weights, z[:0], np.ones(0), False).sum(axis=1).tolist() == [0] * 129


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_at_kinks_a_row_stands_alone(share: bool, moved: bool) -> None:
    check_rows_stand_alone(300 if moved else 80, 130, share, moved)


def test_at_kinks_every_sum_stands_alone() -> None:
    check_sums_stand_alone(300, 60)


@pytest.mark.slow
def test_gradients_are_the_same_on_every_instruction_set(tmp_path: Path) -> None:
    path = tmp_path / "points.npz"
    network_checks.save_points(path)
    own = network_checks.digest(path)
    names = dispatched()
    settings = [
        {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Nehalem"},
        {"NPY_DISABLE_CPU_FEATURES": " ".join(names), "OPENBLAS_NUM_THREADS": "1"},
        {"NPY_DISABLE_CPU_FEATURES": " ".join(names), "OPENBLAS_NUM_THREADS": "2"},
        # the upper half of them, so that the kernels in between are used
        {"NPY_DISABLE_CPU_FEATURES": " ".join(names[len(names) // 2 :])},
    ]
    for setting in settings:
        done = subprocess.run(
            [sys.executable, network_checks.__file__, str(path)],
            capture_output=True, text=True, timeout=120, check=True,
            env=os.environ | setting | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        left, digest = done.stdout.split()
        disabled = setting.get("NPY_DISABLE_CPU_FEATURES", "").split()
        assert int(left) == len(names) - len(disabled)
        assert digest == own, setting


def test_the_logistic_function_is_accurate_and_total() -> None:
    special = [0.0, -0.0, 1e-300, -1e-20, 0.34657, -0.3466]
    f = np.concatenate([np.linspace(-40, 40, 20_001), special])
    assert logistic(f) == pytest.approx(expit(f), rel=2e-15, abs=0)
    far = logistic(np.array([-np.inf, -1e300, 1e300, np.inf]))
    assert far.tolist() == [logistic(np.array([-40.0]))[0]] * 2 + [1.0] * 2
    assert (np.diff(logistic(np.linspace(-45, 45, 5_001))) >= 0).all()


@pytest.mark.slow
def test_inputs_of_a_row_do_not_depend_on_other_rows() -> None:
    """Every function a formula may call, to the bit, whatever stands in the other rows."""
    formula = CausalFormula.parse(
        "Y ~ T | X1 + log(X1 + 2) + exp(X2) + sqrt(X1 + 1) + poly(X1, 3) + bs(X2, df=5) + "
        "I(X1 * X2) + I(X1**3) + C(G) + X1:X2 + X1:C(G)",
        ("Y", "T", "X1", "X2", "G"),
    )
    schema = Schema.of({"Y": (0, 1), "X1": (-1, 5), "X2": (-3, 3), "G": ["a", "b", "c"]})
    design = design_of(formula.terms, schema, full_rank=False)
    assert len(design) > 20
    rng = np.random.default_rng(0)

    def drawn(n: int) -> dict[str, Any]:
        own = [rng.uniform(-1, 5, n), np.full(n, 5.0), np.full(n, -1.0), np.full(n, 1e-310)]
        return {
            "X1": own[rng.integers(4)],
            "X2": rng.uniform(-3, 3, n) * rng.choice([1, 1e-300, 0], n),
            "G": rng.integers(-1, 3, n),
        }

    for _ in range(60):
        n = int(rng.integers(2, 140))
        one, two = drawn(n), drawn(n)
        i = int(rng.integers(n))
        for name, values in two.items():
            values[i] = one[name][i]
        first, second = (inputs(Rows(f, n, by_column=True), design)[i] for f in (one, two))
        assert first.tobytes() == second.tobytes()


# -- what one row moves ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "new", [{"Y": 8.0, "T": 1}, {"Y": -1.0, "T": 0}, {"Y": np.nan}, {"X1": 1e9}]
)
def test_one_row_moves_each_step_by_what_is_stated(new: dict[str, Any]) -> None:
    """The same coins and the same noisy sums: every exact sum moves by at most 2 x 2^30."""
    one = rows(40)
    two = one.copy()
    for name, value in new.items():
        two[name] = two[name].astype(float)
        two.loc[39, name] = value
    a, b, pairs = replayed(fit, one, two)
    steps = 0
    for before, after in pairs:
        assert before.query.scale == after.query.scale
        moved = np.linalg.norm((before.exact - after.exact) * before.query.weights)
        assert moved <= before.query.sensitivity * (1 + 2.0**-40)
        if before.query.name.startswith("network"):
            steps += 1
            assert before.query.sensitivity == 2 * UNIT
    assert steps == 2  # forty rows: each step reads them all
    at = one.iloc[:5]
    assert a.predict(at).equals(b.predict(at))


KINKS = 80


def worst_for_products() -> list[Any]:
    """Points where a matrix product puts most units on the other side when a row stands beside."""
    w1, b1, _, _ = split(start(KINKS + 1), KINKS + 1)  # with the arm, which is zero
    w1 = w1[:, :KINKS]
    points = at_kinks(w1, b1, 200)
    turned = [
        np.count_nonzero((z[None] @ w1.T > 0)[0] != (np.tile(z, (2, 1)) @ w1.T > 0)[0])
        for z in points
    ]
    return [points[k] for k in np.argsort(turned)[-3:]]


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("n", [2, 128])
@pytest.mark.parametrize("new", [{"Y": None}, {"x0": 1.0, "x1": -1.0}])
def test_at_kinks_one_row_moves_a_step_by_its_own_gradients(n: int, new: dict[str, Any]) -> None:
    """All rows alike, and all units at their kinks: one row moves no other's gradient."""
    names = [f"x{k}" for k in range(KINKS)]
    formula = "Y ~ T | " + " + ".join(names)
    call: dict[str, Any] = {
        "learner": "dpcate", "base": NN(epochs=1), "propensity": 0.5, "eps": 60,
        "bounds": {"Y": (-1, 1)} | dict.fromkeys(names, (-1, 1)),
    }  # fmt: skip
    moves = []
    for point in worst_for_products():
        one = pd.DataFrame(dict(zip(names, np.tile(point, (n, 1)).T, strict=True)))
        one["T"], one["Y"] = 0.0, 1.0
        two = one.copy()
        for name, value in new.items():
            two.loc[n // 3, name] = np.nan if value is None else value
        *_, pairs = replayed(partial(pc.privcate, formula, **call), one, two, 0)
        (pair,) = [p for p in pairs if p[0].query.name.startswith("network")]
        moves.append(float(np.linalg.norm((pair[0].exact - pair[1].exact).astype(float))) / UNIT)
    most = 1.0 if None in new.values() else 2.0  # an incomplete row takes one gradient away
    assert 0.3 < max(moves) <= most


# -- prices ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_noise_is_what_the_accountant_asked_for() -> None:
    with testing.recorded() as recorder:
        found = fit(rows(300), eps=2.0)
    for what, weights in (("treatment", 32 * 4 + 1), ("outcome", 32 * 5 + 1)):
        query = f"network of the {what}"
        stage = found.plan.stage(f"nuisance: {query}")
        assert (stage.epsilon, stage.delta) == (5 * 10**11, 2_500_000)
        line = found.budget.set_index("query").loc[query]
        sd = multiplier_for_replaced(
            stage.epsilon / PICO, stage.delta / PICO, 128 / 300, 3, weights, UNIT
        )
        assert (line["sensitivity"], line["noise_sd"]) == (2.0, sd)
        scales = [c.query.scale for c in recorder.calls if c.query.name == query]
        assert len(scales) == 3
        assert set(scales) == {sd * UNIT * (1 + 2.0**-40)}
        assert min(scales) >= 2**28


@pytest.mark.slow
def test_the_prices_add_up(tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=9)
    found = fit(rows(300), eps=2.0, ledger=ledger)
    assert ledger.spent.epsilon <= 2.0
    assert found.guarantee.kind == "proven"
    assert found.guarantee.epsilon <= 2.0
    assert found.plan.epsilon == 10**12
    assert found.plan.delta == 5 * 10**6
    assert found.plan.rho > 0.99 * found.plan.rho_cap
    assert "plus (1, 5e-06)-DP" in found.guarantee.statement
    with pytest.raises(CapabilityError):
        _ = found.params


@pytest.mark.slow
def test_without_noise_the_networks_find_the_nuisances(tmp_path: Any) -> None:
    study = pc.datasets.dpcate(1, 2000, 0)
    with testing.zero_noise():
        found = fit(study.frame, base=NN(second=Kernel(functions=60)))
    e, mu0 = (found.nuisances[name](study.frame) for name in ("propensity", "mu0"))
    assert np.sqrt(np.mean((e - study.propensity) ** 2)) < 0.07
    assert np.sqrt(np.mean((mu0 - study.baseline) ** 2)) < 0.35
    found.save(tmp_path / "fit.json")
    at = study.frame.iloc[:20]
    again = pc.load(tmp_path / "fit.json")
    assert again.predict(at).equals(found.predict(at))
    assert again.nuisances["mu1"](at).equals(found.nuisances["mu1"](at))


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_as_published_networks_learn_on_the_other_half(known: bool, tmp_path: Any) -> None:
    """Half of epsilon and delta for each nuisance (Theorem 1), all for the second stage."""
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=9, allow_published=True)
    options = {"propensity": 0.5} if known else {}
    data = rows(400)
    with testing.recorded() as recorder:
        found = printed(data, queries=data.iloc[:5][["X1", "X2"]], eps=2.0, **options)
    networks = [s for s in found.plan.stages if "network" in s.name]
    assert len(networks) == (1 if known else 2)
    assert {(s.part, s.rows) for s in networks} == {("nuisance", 0.5)}
    second = found.plan.stage("effect: second stage")
    assert (second.epsilon, second.delta, second.free) == (2 * 10**12, 10**7, False)
    for stage in networks:
        assert (stage.epsilon, stage.delta) == (2 * 10**12 // len(networks), 10**7 // len(networks))
        assert stage.free and stage.parallel
    budget = found.budget
    paid, own = budget[~budget["parallel"]], budget[budget["parallel"]]
    assert (paid["epsilon"].sum(), paid["delta"].sum()) == (2.0, 1e-5)
    assert own["epsilon"].sum() == pytest.approx(2.0)
    assert own["delta"].sum() == pytest.approx(1e-5)
    assert f"({2 / len(networks):.2f})" in str(found.summary(full=True))
    assert (found.plan.epsilon, found.plan.delta, found.plan.rho) == (2 * 10**12, 10**7, 0)
    assert found.guarantee.kind == "none"  # the recorder is a test noise source
    steps = [c for c in recorder.calls if c.query.name == "network of the outcome"]
    assert len(steps) == 2  # 128 of 200
    real = printed(data, queries=data.iloc[:5][["X1", "X2"]], eps=2.0, ledger=ledger)
    assert real.guarantee.kind == "published"
    assert ledger.spent.epsilon == pytest.approx(2.0)
    assert np.isfinite(real.predict()["estimate"]).all()


@pytest.mark.slow
def test_as_published_only_the_nuisances_half_moves_the_networks() -> None:
    """Of twelve rows six move a step's sums when their outcome goes to the other end."""
    data = rows(12)
    at, moved = data.iloc[:3][["X1", "X2"]], 0
    with testing.recorded(5) as first:
        printed(data, queries=at)
    for i in range(12):
        other = data.copy()
        other.loc[i, "Y"] = -1.0 if other.loc[i, "Y"] > 3.5 else 8.0
        with testing.recorded(5, first.calls) as again:
            printed(other, queries=at)
        moved += any(
            not np.array_equal(a.exact, b.exact)
            for a, b in zip(first.calls, again.calls, strict=True)
            if a.query.name == "network of the outcome"
        )
    assert moved == 6
