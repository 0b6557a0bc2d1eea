"""Networks by DP-SGD: gradients, clipping, what one row moves, and the accountant.

No randomness is tested here but the noise's scale.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal import testing
from privcausal.errors import BudgetError, CapabilityError
from privcausal.learners.bases import NN, Kernel
from privcausal.learners.networks import MARGIN, multiplier

UNIT = 2.0**16
BOUNDS: dict[str, Any] = {"Y": (-1, 8), "X1": (0, 1), "X2": (0, 1)}
FORMULA = "Y ~ T | X1 + X2"


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    return pc.datasets.dpcate(1, n, seed).frame


def fit(data: pd.DataFrame, **options: Any) -> Any:
    call = {"learner": "dpcate", "base": NN(epochs=1), "bounds": BOUNDS, "eps": 4.0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PyTorch, when it is first loaded
        return pc.privcate(FORMULA, data, **call)


@pytest.mark.extra("nn")
@pytest.mark.parametrize("share", [False, True])
def test_gradients_of_rows_are_those_of_differences_and_at_most_one_long(share: bool) -> None:
    from privcausal.spec.networks import split
    from privcausal.vault.mechanisms.network import _Learner

    rng = np.random.default_rng(0)
    z, y = rng.uniform(-1, 1, (6, 3)), rng.choice([-1.0, 1.0], 6) * (1.0 if share else 3.0)
    learner = _Learner(3, share, 0.01)
    found = learner.gradients(z, y)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12

    def loss(w: Any, i: int) -> float:
        w1, b1, w2, b2 = split(w, 3)
        f = np.maximum(w1 @ z[i] + b1, 0) @ w2 / np.sqrt(32) + b2
        if share:
            return float(np.logaddexp(0, f) - (y[i] + 1) / 2 * f)
        return float(0.5 * (f - y[i]) ** 2)

    start = learner.weights
    start[32 * 4 : 32 * 5] *= np.sqrt(32)  # weights are told without the inner factor
    eye = 1e-6 * np.eye(len(start))
    for i in range(6):
        slope = np.array([(loss(start + e, i) - loss(start - e, i)) / 2e-6 for e in eye])
        cut = slope / max(1.0, np.linalg.norm(slope))
        assert found[i] == pytest.approx(cut, abs=1e-6)


@pytest.mark.extra("nn")
@pytest.mark.parametrize(
    "new", [{"Y": 8.0, "T": 1}, {"Y": -1.0, "T": 0}, {"Y": np.nan}, {"X1": 1e9}]
)
def test_one_row_moves_each_step_by_what_is_stated(new: dict[str, Any]) -> None:
    """The same coins and the same noisy sums: every exact sum moves by at most 2 x 2^16."""
    one = rows(40)
    two = one.copy()
    for name, value in new.items():
        two[name] = two[name].astype(float)
        two.loc[39, name] = value
    with testing.recorded(5) as first:
        a = fit(one)
    with testing.recorded(5, first.calls) as again:
        b = fit(two)
    steps = 0
    for before, after in zip(first.calls, again.calls, strict=True):
        assert before.query.scale == after.query.scale
        moved = np.linalg.norm((before.exact - after.exact) * before.query.weights)
        assert moved <= before.query.sensitivity * (1 + 2.0**-40)
        if before.query.name.startswith("network"):
            steps += 1
            assert before.query.sensitivity == 2 * UNIT
    assert steps == 2  # forty rows: each step reads them all
    at = one.iloc[:5]
    assert a.predict(at).equals(b.predict(at))


@pytest.mark.extra("nn")
def test_the_noise_is_what_the_accountant_asked_for() -> None:
    """Against Google's dp_accounting, for a replaced row as one removed and one added."""
    accounting = pytest.importorskip("dp_accounting")
    epsilon, delta, rate, steps = 1.0, 1e-5, 128 / 2700, 422
    sd = multiplier(epsilon, delta, rate, steps) / MARGIN
    accountant = accounting.rdp.RdpAccountant()
    event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(sd))
    accountant.compose(accounting.SelfComposedDpEvent(event, steps))
    half = accountant.get_epsilon(delta / (1 + np.exp(epsilon / 2)))
    assert 0.4 < half <= 0.5 * (1 + 1e-6)
    assert multiplier(2.0, delta, rate, steps) < sd < multiplier(1.0, delta, rate, 2 * steps)
    with pytest.raises(BudgetError, match="too small"):
        multiplier(1e-9, 1e-12, rate, steps)
    with testing.recorded() as recorder:
        found = fit(rows(300), eps=2.0)
    line = found.budget.set_index("query").loc["network of the outcome"]
    scales = {c.query.scale for c in recorder.calls if c.query.name == "network of the outcome"}
    assert list(scales) == [pytest.approx(line["noise_sd"] * UNIT)]
    assert found.plan.stage("nuisance: network of the outcome").epsilon == 5 * 10**11


@pytest.mark.extra("nn")
def test_the_prices_add_up(tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=9)
    found = fit(rows(300), eps=2.0, ledger=ledger)
    assert ledger.spent.epsilon <= 2.0
    assert found.guarantee.kind == "proven"
    assert found.guarantee.epsilon <= 2.0
    assert found.plan.epsilon == 10**12
    assert found.plan.delta == 5 * 10**6
    assert found.plan.rho > 0.99 * found.plan.rho_cap
    assert "beside (1, 5e-06)-DP" in found.guarantee.statement
    with pytest.raises(CapabilityError):
        _ = found.params


@pytest.mark.extra("nn")
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


@pytest.mark.extra("nn")
@pytest.mark.parametrize("known", [True, False])
def test_as_published_networks_learn_on_the_other_half(known: bool, tmp_path: Any) -> None:
    """Half of epsilon and of delta each; a step's coins pick 128 of that half's rows."""
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=9, allow_published=True)
    options = {"propensity": 0.5} if known else {}
    paper = {"mode": "paper", "split": "disjoint", "below_minimum": "published"}
    data = rows(400)
    with testing.recorded() as recorder:
        found = fit(data, queries=data.iloc[:5][["X1", "X2"]], eps=2.0, **paper, **options)
    networks = [s for s in found.plan.stages if "network" in s.name]
    assert len(networks) == (1 if known else 2)
    assert {(s.part, s.rows) for s in networks} == {("nuisance", 0.5)}
    assert sum(s.epsilon for s in networks) == found.plan.stage("effect: second stage").epsilon
    assert (found.plan.epsilon, found.plan.delta, found.plan.rho) == (2 * 10**12, 10**7, 0)
    assert found.guarantee.kind == "none"  # the recorder is a test noise source
    steps = [c for c in recorder.calls if c.query.name == "network of the outcome"]
    assert len(steps) == 2  # 128 of 200
    real = fit(data, queries=data.iloc[:5][["X1", "X2"]], eps=2.0, ledger=ledger, **paper)
    assert real.guarantee.kind == "published"
    assert ledger.spent.epsilon == pytest.approx(2.0)
    assert np.isfinite(real.predict()["estimate"]).all()


@pytest.mark.extra("nn")
def test_as_published_only_the_nuisances_half_moves_the_networks() -> None:
    """Of twelve rows six move a step's sums when their outcome goes to the other end."""
    data = rows(12)
    paper = {"mode": "paper", "split": "disjoint", "below_minimum": "published"}
    at, moved = data.iloc[:3][["X1", "X2"]], 0
    with testing.recorded(5) as first:
        fit(data, queries=at, **paper)
    for i in range(12):
        other = data.copy()
        other.loc[i, "Y"] = -1.0 if other.loc[i, "Y"] > 3.5 else 8.0
        with testing.recorded(5, first.calls) as again:
            fit(other, queries=at, **paper)
        moved += any(
            not np.array_equal(a.exact, b.exact)
            for a, b in zip(first.calls, again.calls, strict=True)
            if a.query.name == "network of the outcome"
        )
    assert moved == 6


REFUSED: dict[str, dict[str, Any]] = {
    "add_remove": {"neighbors": "add_remove"},
    "disjoint": {"split": "disjoint"},
    "groups": {"groups": ["X1 >= 0.5"]},
    "shares": {"shares": {"effect": 0.5}},
    "bought": {"bounds": {"Y": (-1, 8)}},
    "another learner": {"learner": "r"},
}


@pytest.mark.extra("nn")
@pytest.mark.parametrize("what", REFUSED)
def test_refusals_cost_nothing(what: str, tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=9)
    with pytest.raises(CapabilityError):
        fit(rows(50), ledger=ledger, **REFUSED[what])
    assert ledger.spent.epsilon == 0


@pytest.mark.parametrize("absent", ["torch", "opacus"])
def test_what_is_not_installed_is_named(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == absent else real(name, *a)
    )
    with pytest.raises(CapabilityError, match=rf"{absent}.*privcausal\[nn\]"):
        fit(rows(50))
    with pytest.raises(CapabilityError, match="epochs"):
        NN(epochs=0)
