"""DP-CATE: what the function is, what a fit with queries tells, and the published mechanisms."""

from __future__ import annotations

import importlib.util
import itertools
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate, seedable, spied
from scipy.stats import binom, kstest, norm

import privcausal as pc
from privcausal.accounting import delta_after, rho_of
from privcausal.errors import BudgetError, CapabilityError, PrivcausalWarning
from privcausal.estimators import DPCATE
from privcausal.estimators.bases import NN, Given, Kernel, Sklearn
from privcausal.estimators.dpcate import KERNEL, _most
from privcausal.estimators.published import starting_points
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Constant, fourier
from privcausal.features.functions import NuisanceTriple as Nuisance
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema
from privcausal.testing import recorded, seeded_noise, zero_noise
from privcausal.vault import ExactRidge, Ridge, TanhNetwork, Weight, published
from privcausal.vault.published import Process, PublishedAnswers, second_stage_scores
from privcausal.vault.transforms import Outcome

N = 2700
NO_AVERAGE = pc.Control(shares={"average": 0})


@lru_cache
def study(n: int = N, seed: int = 0) -> pc.datasets.Study:
    return pc.datasets.dpcate(1, n, seed)


def points(m: int = 7) -> pd.DataFrame:
    return study(300, 9).frame[["X1", "X2"]].iloc[:m]


def fit(**options: Any) -> Any:
    s = study()
    return privcate(s.formula, s.frame, **{"learner": "dpcate", "bounds": s.bounds, **options})


@seedable
def printed(**options: Any) -> Any:
    s = study()
    data = options.pop("data", s.frame)
    return pc.paper.dpcate(s.formula, data, **{"bounds": s.bounds, **options})


def pehe(result: Any, queries: bool = False) -> float:
    test = study(300, 9)
    found = result.predict() if queries else result.predict(test.frame)
    return float(np.sqrt(np.mean((found["estimate"].to_numpy() - test.tau) ** 2)))


# -- the function ----------------------------------------------------------------------------


@pytest.mark.slow
def test_asking_is_free_and_gives_the_same_answer(reloaded: Any) -> None:
    """A plain function of released numbers: in any order, one by one, and after save and load."""
    found = fit(eps=2.0, seed=1)
    at = points(40)
    whole = found.predict(at)
    assert whole.equals(found.predict(at))
    assert whole.iloc[::-1].equals(found.predict(at.iloc[::-1]))
    one_by_one = pd.concat([found.predict(at.iloc[[i]]) for i in range(len(at))])
    assert whole.equals(one_by_one)
    assert reloaded(found).predict(at).equals(whole)


@pytest.mark.slow
def test_base_gam_is_what_the_nuisances_have_anyway() -> None:
    found = []
    for base in ("gam", "kernel", Kernel()):
        with seeded_noise(3):
            found.append(fit(base=base).predict(points()))
    assert found[0].equals(found[1]) and found[0].equals(found[2])


@pytest.mark.slow
@pytest.mark.parametrize("score", ["r", "dr"])
def test_error_falls_with_epsilon_to_that_without_noise(score: str) -> None:
    """The paper's Figure 5: towards a learner without privacy."""
    call: dict[str, Any] = {"learner": DPCATE(score=score), "control": NO_AVERAGE}
    errors = [pehe(fit(eps=eps, seed=5, **call)) for eps in (0.5, 8.0, 1000.0)]
    assert errors[0] > errors[1] > errors[2]
    without = pehe(fit(eps=1e4, exact=True, **call))
    assert without < 0.2
    assert errors[2] < without + 0.15


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("eps", [1.0, 4.0, 16.0])
def test_the_proven_function_is_no_worse_than_the_published_answers(eps: float) -> None:
    with seeded_noise(2):
        proven = pehe(fit(eps=eps))
        queries = study(300, 9).frame
        published = pehe(printed(eps=eps, queries=queries), queries=True)
    assert proven < published


@pytest.mark.slow
def test_the_squared_loss_pays_for_its_reach() -> None:
    with seeded_noise(2):
        huber, squared = fit(eps=4.0), fit(eps=4.0, base=Kernel(loss="squared"))
    names = ["sensitivity", "noise_sd"]
    lines = [f.budget.set_index("query").filter(like="kernel", axis=0) for f in (huber, squared)]
    assert (lines[0][names].to_numpy() < lines[1][names].to_numpy()).all()


@pytest.mark.slow
def test_ridge_is_the_papers_lambda() -> None:
    """The sensitivity of the weights is L / (n lambda), whatever else is chosen."""
    with zero_noise():
        ten, one = (fit(base=Kernel(ridge=r)).budget for r in (0.1, 0.01))
    line = next(i for i, q in enumerate(ten["query"]) if q.startswith("kernel"))
    assert one["sensitivity"][line] == pytest.approx(10 * ten["sensitivity"][line], rel=1e-6)


# -- queries ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_answers_are_those_of_the_function() -> None:
    """For several points the noise of a process is the smaller: equal up to a constant."""
    with seeded_noise(4):
        whole = fit().predict(points())
    some = fit(learner=DPCATE(queries=points()), seed=4)
    moved = some.predict() - whole.to_numpy()
    step = moved.mean() * (moved.columns != "std_error")
    assert (moved - step).to_numpy() == pytest.approx(np.zeros(moved.shape), abs=1e-9)
    assert some.predict(points().iloc[[3, 1]]).index.tolist() == points().index[[3, 1]].tolist()


@pytest.mark.slow
def test_one_point_gets_its_own_noise() -> None:
    one = fit(learner=DPCATE(queries=points(1)), seed=4)
    assert "effect at 1 points" in set(one.budget["query"])
    assert np.isfinite(one.predict().to_numpy()).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["proven", "paper"])
def test_other_points_are_refused(mode: str, tmp_path: Any, reloaded: Any) -> None:
    with seeded_noise(4):
        if mode == "paper":
            some = printed(queries=points())
        else:
            some = fit(learner=DPCATE(queries=points()))
    with pytest.raises(CapabilityError, match="7 points"):
        some.predict(study(300, 9).frame.iloc[20:22])
    with pytest.raises(CapabilityError):
        some.plot("effect")
    assert reloaded(some).predict().equals(some.predict())
    assert "DP-CATE" in str(some.summary())
    some.report(tmp_path / "report.html")


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.slow
def test_queries_may_have_levels() -> None:
    frame = study().frame.assign(G=np.resize(["a", "b"], N))
    bounds = study().bounds | {"G": ["a", "b"]}
    learner = DPCATE(queries=points().assign(G="b"))
    fit = privcate("Y ~ T | X1 + X2 + C(G)", frame, learner=learner, bounds=bounds, seed=1)
    assert len(fit.predict()) == 7


def test_without_torch_the_network_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a)
    )
    with pytest.raises(CapabilityError, match=r"privcausal\[nn\]"):
        printed(second="network", queries=points())


# -- as published ----------------------------------------------------------------------------


def small() -> tuple[Design, Rows, Any, Any]:
    rng = np.random.default_rng(0)
    schema = Schema({"X1": (0, 1), "X2": (0, 1)})
    design = Design(CausalFormula.parse("Y ~ T | X1 + X2").modifiers, schema, full_rank=False)
    rows = Rows({"X1": rng.random(80), "X2": rng.random(80)}, 80)
    return design, rows, rng.uniform(0.1, 1, 80), rng.normal(size=80)


def moved_by_mass(stage: Any, rows: Rows, rho: Any, target: Any, at: Rows, x: int) -> Any:
    """d/dt of g(at) when mass t moves to row x, by finite differences: the influence function."""
    n, step = len(rho), 1e-5
    g = []
    for t in (-step, step):
        mass = np.full(n, 1 - t)
        mass[x] += n * t
        g.append(stage.fit(rows, rho * mass, target * mass, at).g(at))
    return (g[1] - g[0]) / (2 * step)


@pytest.mark.parametrize("kind", ["kernel", "linear"])
def test_influence_is_the_derivative_in_the_mass_of_a_row(kind: str) -> None:
    """Corollaries 1 and 2: IF(z) = h(x) rho (phi - g(x)), plus what the ridge does to g itself."""
    from privcausal.vault import Affine

    design, rows, rho, target = small()
    # few functions, so that the ridge does not matter
    kernel = fourier(design, np.arange(2), 2.0, 4)
    stage = Ridge(kernel if kind == "kernel" else Affine(design, np.arange(2)), 1e-9)
    at = Rows({"X1": np.array([0.1, 0.5, 0.9]), "X2": np.array([0.3, 0.2, 0.8])}, 3)
    fitted = stage.fit(rows, rho, target, at)
    residual = target - rho * fitted.g(rows)
    for x in (0, 17):
        expected = np.linalg.norm(moved_by_mass(stage, rows, rho, target, at, x))
        assert fitted.influence(rows)[x] * abs(residual[x]) == pytest.approx(expected, rel=1e-3)


def test_exact_kernel_regression_is_that_of_a_good_basis() -> None:
    """In two columns the basis is all but the kernel: so are g, and how far a row moves it."""
    design, rows, rho, target = small()
    rho[:5] = 0.0  # as weights may be
    at = Rows({"X1": np.array([0.1, 0.5, 0.9]), "X2": np.array([0.3, 0.2, 0.8])}, 3)
    features = fourier(design, np.arange(2), 2.0, 400)
    one = ExactRidge(design, np.arange(2), 2.0, 1e-2).fit(rows, rho, target, at)
    other = Ridge(features, 1e-2).fit(rows, rho, target, at)
    assert one.g(at) == pytest.approx(other.g(at), rel=1e-5)
    assert one.influence(rows) == pytest.approx(other.influence(rows), rel=1e-5)


@pytest.mark.parametrize("weight", get_args(Weight))
def test_scores_are_those_of_the_weight(weight: Any) -> None:
    """Eqs. 4 and 5 with a numeric slope; given x, E rho = lambda(pi) and E rho phi = lambda tau."""
    e, step = np.linspace(0.1, 0.9, 17), 1e-6
    value = published.WEIGHT_CURVES[weight][0]
    slope = (value(e + step) - value(e - step)) / (2 * step)
    mu0, mu1, size = np.full(17, 0.5), np.full(17, 2.0), np.ones(17)
    expected = np.zeros((2, 17))
    for t, y in ((0.0, 0.7), (1.0, 1.1)):
        rho, target = second_stage_scores(weight, (e, mu0, mu1), t * size, y * size)
        assert rho == pytest.approx((t - e) * slope + value(e), abs=1e-8)
        assert (rho >= 0).all()
        phi_rho = value(e) * (t - e) / (e * (1 - e)) * (y - (mu1 if t else mu0)) + rho * 1.5
        assert target == pytest.approx(phi_rho, abs=1e-8)
        # the outcome at its mean, so that only rho (mu1 - mu0) is left
        share = e if t else 1 - e
        mean = second_stage_scores(weight, (e, mu0, mu1), t * size, mu1 if t else mu0)[1]
        expected += share * np.array([rho, mean])
    assert expected[0] == pytest.approx(value(e), abs=1e-8)
    assert expected[1] == pytest.approx(1.5 * value(e), abs=1e-8)
    if weight in ("overlap", "one"):  # the R- and the DR-learner
        assert rho == pytest.approx((1 - e) ** 2 if weight == "overlap" else size)
    ends = published.tangent(weight, np.array([0.1, 0.9]), np.array([1.0, 0.0])).max()
    grid = [published.tangent(weight, e, t * size).max() for t in (0.0, 1.0)]
    assert max(grid) == pytest.approx(ends)  # sup rho of Theorem 3


@pytest.mark.extra("nn")
@pytest.mark.slow
def test_the_networks_hessian_and_jacobian_are_exact() -> None:
    """Against central differences of the loss and of the output."""
    import torch

    design, rows, rho, target = small()
    stage = TanhNetwork(design, np.arange(2), 1.0, 60, 1e-3)
    x = torch.from_numpy(stage.scaled(rows).copy())
    weight, goal = torch.from_numpy(rho), torch.from_numpy(target)
    theta = published._trained(x[:40], weight[:40], goal[:40], 60)
    rng = np.random.default_rng(1)
    v = torch.from_numpy(rng.normal(size=len(theta)))
    step = 1e-5
    slope = torch.func.grad(published._loss)
    ends = [slope(theta + s * step * v, x, weight, goal).numpy() for s in (-1, 1)]
    product = published._hessian(theta, x, weight, goal) @ v.numpy()
    assert product == pytest.approx((ends[1] - ends[0]) / (2 * step), abs=1e-5)
    out = [published._forward(theta + s * step * v, x[:5]).numpy() for s in (-1, 1)]
    jacobian = published._gradients(theta, x[:5].numpy())
    assert jacobian @ v.numpy() == pytest.approx((out[1] - out[0]) / (2 * step), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("fits", [12, 200], ids=["few", "many"])
def test_gamma_is_never_below_brute_force(fits: int) -> None:
    """Theorem 1's supremum on grids with the corners, in one to three dimensions."""
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        names = [f"X{j + 1}" for j in range(1 + seed % 3)]
        schema = Schema(dict.fromkeys(names, (0, 1)))
        formula = CausalFormula.parse("Y ~ T | " + " + ".join(names))
        design = Design(formula.modifiers, schema, full_rank=False)
        rows = Rows({name: rng.random(80) for name in names}, 80)
        at = Rows({name: rng.random(20) for name in names}, 20)
        t, y = (rng.random(80) < 0.3).astype(float), rng.uniform(-1, 3, 80)
        score = get_args(Weight)[seed % 5]
        nuisance = Nuisance(Constant(0.3), Constant(0.5), Constant(1.0))
        features = fourier(design, np.arange(len(names)), rng.choice([0.3, 1.0]), 40)
        stage, starts = Ridge(features, 10.0 ** -rng.integers(1, 4)), starting_points(design)
        order = PublishedAnswers(
            nuisance, design, Outcome(-1.0, 3.0), 0.1, score, False, stage, at, starts
        )
        parts = second_stage_scores(score, nuisance.values(rows), t, y)
        fitted = stage.fit(rows, *parts, at)

        def reach(public: Rows, o: Any = order, f: Any = fitted, n: Any = nuisance) -> Any:
            return o._reach(n, f, public)

        axis = np.linspace(0, 1, {1: 2001, 2: 81, 3: 25}[len(names)])
        points = [np.ravel(x) for x in np.meshgrid(*[axis] * len(names))]
        grid = Rows(dict(zip(names, points, strict=True)), len(points[0]))
        brute, ones = 0.0, np.ones(len(grid))
        for arm, end in itertools.product((0.0, 1.0), (-1.0, 1.0, 3.0)):
            rho, target = second_stage_scores(score, nuisance.values(grid), arm * ones, end * ones)
            gap = np.abs(target - rho * fitted.g(grid))
            brute = max(brute, float(np.max(fitted.influence(grid) * gap)))
        assert reach(grid).max() == pytest.approx(brute)
        found = published.Supremum(design, starts).of(reach)
        assert brute * (1 - 1e-9) <= found
        assert len(names) > 2 or found <= 1.02 * brute, seed


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gam", NN(epochs=1)], ids=["gam", "nn"])
def test_published_noise_is_that_of_the_theorem(base: Any) -> None:
    """gamma c(eps, delta, n), with n the rows of the second half and all of eps and delta."""
    supremum = mock.patch.object(published.Supremum, "of", return_value=2.0)
    with recorded(system=True) as noise, supremum:
        found = printed(queries=points(), eps=3.0, base=base)
    if isinstance(base, NN):  # each nuisance has half of both
        nuisances = found.budget[found.budget["stage"] == "nuisance"]
        assert nuisances["epsilon"].to_numpy() == pytest.approx([1.5, 1.5])
        assert nuisances["delta"].to_numpy() == pytest.approx([5e-6, 5e-6])
    n, unit = N / 2, 9.0 * 2.0**-30
    expected = 2.0 * 5 * np.sqrt(2 * np.log(n) * np.log(2 / 1e-5)) / (3.0 * n)
    assert noise.calls[-1].query.scale * unit == pytest.approx(expected)


@pytest.mark.slow
def test_the_default_ridge_is_one_over_the_rows_that_learn() -> None:
    """So the printed function is no constant: with 1 in place of 1/n it is all but zero."""
    at = study(300, 9).frame
    found = {}
    for ridge in (None, 2 / N, 1.0):
        fitted = printed(noise="process", queries=at, base=Kernel(ridge=ridge), eps=1e4, exact=True)
        found[ridge] = fitted.predict()["estimate"].to_numpy()
    assert found[None] == pytest.approx(found[2 / N])
    assert np.abs(found[1.0]).max() < 0.2
    assert np.abs(found[None]).max() > 2


def true_nuisances(**options: Any) -> Given:
    """Those of dataset 1, whose propensity and baseline are linear in x."""
    s = study()
    x = np.column_stack([np.ones(N), s.frame[["X1", "X2"]]])
    e, low = (np.linalg.lstsq(x, y, rcond=None)[0] for y in (s.propensity, s.baseline))

    def treated(z: Any) -> Any:
        return low[0] + z @ low[1:] + s.effect(pd.DataFrame(z, columns=["X1", "X2"]))

    return Given(lambda z: e[0] + z @ e[1:], lambda z: low[0] + z @ low[1:], treated, **options)


@pytest.mark.slow
def test_nuisances_of_ones_own_leave_all_rows_to_the_second_stage() -> None:
    with spied(Ridge, "fit") as calls:
        found = printed(queries=study(300, 9).frame, base=true_nuisances(), exact=True)
    assert [len(rows) for (_, rows, *_), _ in calls] == [N]
    assert pehe(found, queries=True) < 0.5
    assert (found.plan.epsilon, found.plan.delta) == (10**12, 10**7)
    assert "declared them public" in found.estimate.notes[0]
    told = printed(queries=points(), base=true_nuisances(price=(0.5, 1e-6)))
    assert "was not checked" in told.guarantee.statement
    assert "(0.5, 1e-06)-DP. This cost is not part of this budget" in told.estimate.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("base", ["kernel", Sklearn.kernel()], ids=["private", "sklearn"])
def test_the_guarantee_is_published_and_says_where_it_fails(base: Any) -> None:
    found = printed(queries=points(), base=base)
    assert found.guarantee.kind == "published"
    assert "Theorem 1" in found.guarantee.statement
    assert ("without privacy protection" in found.guarantee.statement) == isinstance(base, Sklearn)
    assert found.predict()["std_error"].isna().all()
    assert "BELOW THE MINIMUM" not in printed(queries=points(), eps=50.0).guarantee.statement
    assert "BELOW" in printed(queries=study(300, 9).frame, eps=0.5).guarantee.statement


def test_the_papers_own_setting_runs_and_says_what_it_is_worth() -> None:
    """3,000 rows, 300 queries and epsilon 1 (Figure 3); the claim needs 5,192 rows."""
    s = study(3000)
    options: dict[str, Any] = {"bounds": s.bounds, "queries": points(300), "eps": 1.0}
    with pytest.raises(BudgetError, match="at least 5192 rows"):
        pc.paper.dpcate(s.formula, s.frame, below_minimum="refuse", **options)
    found = pc.paper.dpcate(s.formula, s.frame, **options)
    assert found.guarantee.kind == "published" and found.predict()["estimate"].notna().all()
    for text in (found.guarantee.statement, " ".join(str(found.summary()).split())):
        assert "BELOW THE MINIMUM: with fewer than 5,192 rows the claim is false" in text
        assert "No valid epsilon is known for this fit. Treat it as not private." in text


def test_minimum_number_of_rows() -> None:
    plan = printed(queries=points()).plan
    least = max(55, int(np.ceil(8 * (7 + 2 * np.log(2 / 1e-5)) / 1.0)))
    assert plan.least_rows == 2 * least


def asked(seed: int, at: pd.DataFrame, **options: Any) -> Any:
    with seeded_noise(seed), pytest.warns(PrivcausalWarning, match="keeps the exact effect"):
        found = printed(**options)
    with seeded_noise(seed):
        return found, found.predict(at)


def test_a_process_holds_no_rows_but_its_own_function() -> None:
    """Its noise comes by the exit, which has the plan and the noise source, and not the vault."""
    with seeded_noise(1), pytest.warns(PrivcausalWarning):
        process = printed(base="kernel").estimate.effect.function.__self__
    kept = vars(process.add_noise.__self__)
    assert [type(value).__name__ for value in kept.values()] == ["Plan", "_Seeded"]


def test_iterative_answers_are_one_draw_of_the_process() -> None:
    """The same point gives the same answer; a later query is drawn given the noise before."""
    at = points(5)
    found, first = asked(1, at)
    with seeded_noise(99):
        assert found.predict(at).equals(first)
        more = found.predict(points(8))
    assert more.iloc[:5].equals(first)
    with pytest.raises(CapabilityError, match="saved"):
        found.save("nowhere.json")
    assert "DP-CATE" in str(found.summary())


@pytest.mark.slow
def test_the_law_of_sequential_draws() -> None:
    """Drawn one by one, three near points have the joint law of the process."""
    design, _, _, _ = small()
    features = fourier(design, np.arange(2), 1.0, 40)

    class Nothing:
        def g(self, rows: Rows) -> Any:
            return np.zeros(len(rows))

    rng = np.random.default_rng(3)
    at = Rows({"X1": np.r_[0.1, 0.3, 0.9], "X2": np.r_[0.1, 0.2, 0.4]}, 3)

    def one(*_: Any) -> Any:
        return rng.standard_normal(1)

    draws = np.array([Process(Nothing(), features, 0.5, 2.0, one).ask(at) for _ in range(4000)])
    z = at.scaled(design)
    cov = 4.0 * 0.5 * np.exp(-((z[:, None] - z) ** 2).sum(axis=2) / 2)
    white = np.linalg.solve(np.linalg.cholesky(cov), draws.T)
    assert kstest(white.ravel(), "norm").pvalue > 1e-6
    assert kstest((white[0] + white[1]) / np.sqrt(2), "norm").pvalue > 1e-6
    assert kstest((white[1] - white[2]) / np.sqrt(2), "norm").pvalue > 1e-6


def test_the_noise_of_the_whole_function_is_equation_19() -> None:
    """sup rho 4 L sqrt(2 ln(2/delta)) / ((sqrt(2 pi) h)^q lambda n eps), n of the second half."""
    with seeded_noise(1), pytest.warns(PrivcausalWarning, match="keeps the exact effect"):
        found = printed(base=Kernel(bandwidth=0.7, ridge=0.01), eps=3.0)
    process, area = found.estimate.effect.function.__self__, 2 * np.pi * 0.7**2
    expected = 0.9**2 * 4 * 8 * np.sqrt(2 * np.log(2 / 1e-5)) / (area * 0.01 * N / 2 * 3)
    assert process.scale == pytest.approx(expected)
    assert process.density == pytest.approx(1 / area)


def test_algorithm_one_answers_once() -> None:
    """The answers to a batch are those of the function at its points, under the same noise."""
    _, one_by_one = asked(4, points())
    found = printed(noise="process", queries=points(), seed=4)
    real = printed(noise="process", queries=points())
    assert "Theorem 3" in real.guarantee.statement
    assert found.predict().to_numpy() == pytest.approx(one_by_one.to_numpy(), nan_ok=True)


@pytest.mark.extra("nn")
@pytest.mark.parametrize(
    "second", ["kernel", "exact", "linear", pytest.param("network", marks=pytest.mark.slow)]
)
def test_without_noise_published_answers_are_near_the_truth(second: str) -> None:
    found = printed(second=second, queries=study(300, 9).frame, exact=True)
    assert pehe(found, queries=True) < (0.95 if second == "linear" else 0.6)


@pytest.mark.slow
def test_a_budget_that_sees_no_residuals_does_not_take_them_for_the_whole_range() -> None:
    """Bounds ten times as wide as the outcome varies, and noise that hides the histogram."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1000, 2))
    t = rng.integers(0, 2, 1000)
    y = np.clip(x[:, 0] + 0.5 * t + 0.5 * rng.standard_normal(1000), -10, 10)
    frame = pd.DataFrame({"X1": x[:, 0], "X2": x[:, 1], "T": t, "Y": y})
    bounds = {"X1": (-1, 1), "X2": (-1, 1), "Y": (-10, 10)}
    off = []
    for seed in range(6):
        found = privcate(
            "Y ~ T | X1 + X2", frame, learner="dpcate", eps=0.3, bounds=bounds,
            control=NO_AVERAGE, seed=seed
        )  # fmt: skip
        off.append(float(np.mean((found.predict(frame)["estimate"] - 0.5) ** 2)))
    # 0.01; 0.9 where a silent histogram stands for all the range
    assert np.median(off) < 0.2


# -- the number of rows where it is private ------------------------------------------------------


def bound(rows: float, sd: float, split: str, max_rows: int = 1) -> float:
    """What is taken to be the largest number of rows after a noisy count."""
    trust = SimpleNamespace(max_rows=max_rows)
    plan = SimpleNamespace(request=SimpleNamespace(trust=trust, split=split))
    population = SimpleNamespace(count=max(rows, 1.0), count_sd=sd)
    vault = SimpleNamespace(size=None)
    return _most(SimpleNamespace(vault=vault, plan=plan, population=population))  # type: ignore[arg-type]


@pytest.mark.parametrize("max_rows", [1, 7])
@pytest.mark.parametrize("sd", [0.01, 3.0, 1e4])
def test_more_rows_than_are_taken_to_be_there_are_as_rare_as_is_paid_for(
    sd: float, max_rows: int
) -> None:
    """At all sizes, also of the neighbour, by the exact law of the coins; noise at its -10 sd."""
    for units in (0, 1, 5, 40, 143, 200, 201, 260, 400, 1000, 10**4):
        for split in ("full", "crossfit"):
            assert bound((units - 1) * max_rows - 10 * sd, sd, split, max_rows) >= units * max_rows
        first = np.arange(units + 1)
        known = np.array([bound(n * max_rows - 10 * sd, sd, "disjoint", max_rows) for n in first])
        missed = (units - first + 1) * max_rows > known
        assert binom.pmf(first[missed], units, 0.5).sum() < 1e-16
    assert norm.cdf(-10) < 1e-20


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("split", ["full", "disjoint", "crossfit"])
@pytest.mark.parametrize("delta", [1e-5, 2e-12])
def test_that_chance_is_in_delta(split: str, delta: float, tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=10, delta=delta)
    options = {"control": pc.Control(split=split), "neighbors": "add_remove", "delta": delta}
    found = fit(base=Kernel(functions=10), ledger=ledger, eps=4.0, **options)
    plan = found.plan
    assert plan.delta == 1 == plan.stage(KERNEL).delta
    assert plan.rho <= rho_of(4.0, delta_after(delta, 1), gdp=True)
    assert found.guarantee.epsilon <= 4.0
    assert found.guarantee.delta == delta
    assert ledger.spent.delta == 1e-12
    assert ledger.spent.epsilon <= 4.0


def test_where_the_number_of_rows_is_public_nothing_is_taken_off() -> None:
    assert fit(base=Kernel(functions=10)).plan.delta == 0


@pytest.mark.parametrize("make", ["frame", "lists", "one for all", "polars"])
def test_queries_take_what_predict_takes(make: str) -> None:
    at: Any = {"X1": [0.2, 0.8], "X2": [0.5, 0.5]}
    if make == "frame":
        at = pd.DataFrame(at)
    elif make == "one for all":
        at = at | {"X2": 0.5}
    elif make == "polars":
        at = pytest.importorskip("polars").DataFrame(at)
    found = fit(learner=DPCATE(queries=at), base=Kernel(functions=10))
    assert len(found.predict(at)) == len(found.predict()) == 2
