"""The page on the papers runs, and the experiments that it summarizes show what it says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from tied_trees import Stump, tied

import privcausal as pc
from privcausal.testing import recorded

PAGE = Path(__file__).parents[1] / "vignettes" / "explanation" / "where-the-papers-leak.md"
TEXT = PAGE.read_text(encoding="utf-8")
Effect = Callable[[np.ndarray], float]


def test_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec("\n".join(blocks), {})


# -- PrivATE: estimated nuisance models ------------------------------------------------------------


def published(n: int, first: float) -> tuple[float, float]:
    """Estimate and noise sd of PrivATE's Theorem 4.3, before any noise is drawn."""
    with recorded() as noise:
        pc.paper.private(
            "Y ~ T | X1 + X2", tied(n, first), eps=1, propensity=0.5,
            base=pc.bases.Sklearn(LogisticRegression(), Stump()),
            bounds={"Y": (0, 1), "X1": (0, 1), "X2": (0, 1)},
        )  # fmt: skip
    order = noise.calls[0]
    unit = 2 * 2.0**-30  # of the integers that the mechanism works with
    return float(order.exact[0]) * unit, float(order.query.scale) * unit


@pytest.mark.parametrize("n", [2_000, 8_000])
def test_one_row_moves_the_mean_of_trees_by_a_quarter(n: int) -> None:
    (one, sd), (other, sd2) = published(n, 0.0), published(n, 1.0)
    mu = abs(one - other) / max(sd, sd2)
    epsilon = pc.TradeOff.from_gaussian(mu).epsilon(1e-5)
    row = f"| {n:,} | {one:.3f} and {other:.3f} | {mu:.1f} sd of the noise | {epsilon:.0f} |"
    assert row in TEXT


# -- PrivATE: the width of the interval ------------------------------------------------------------


def test_the_width_of_theorem_4_6_shows_a_row() -> None:
    outcomes = np.random.default_rng(0).uniform(0, 1, 1000)
    neighbor = outcomes.copy()
    neighbor[0] = 1 - neighbor[0]
    widths = []
    for y in (outcomes, neighbor):  # propensity 1/2, one constant mean in both arms
        gamma = 2 * max(y.mean(), 1 - y.mean())
        noise = 5 * math.sqrt(2 * math.log(1000) * math.log(2 / 5e-6))
        widths.append(f"{1.96 * noise * gamma / (0.5 * 1000):.5f}")
    assert f"from {widths[0]} to {widths[1]}" in TEXT


# -- ADUM: counts and sums -------------------------------------------------------------------------


def test_the_losses_of_algorithm_1() -> None:
    bounds = ((0, 1), (-1, 1), (5, 10), (99, 100))
    once = [0.5 + max(abs(low), abs(high)) / (2 * (high - low)) for low, high in bounds]
    assert "added or removed | " + " | ".join(f"{loss:.2f}" for loss in once) in TEXT
    assert "row replaced | " + " | ".join(f"{2 * loss:.2f}" for loss in once) in TEXT


@pytest.mark.slow
def test_an_audit_does_not_refute_the_centered_sums() -> None:
    audit = pc.audit(
        "Y ~ T | X", learner=pc.learners.ADUM(cells=2, release="count_sum"), eps=1, trials=10_000,
        bounds={"Y": (99, 100), "X": (0, 1), "T": (0, 1)},
    )  # fmt: skip
    assert audit.passes


# -- Niu et al.: the split -------------------------------------------------------------------------


def test_a_stratified_split_moves_other_rows() -> None:
    treated = np.random.default_rng(2).integers(0, 2, 1000)
    flipped = treated.copy()
    flipped[0] = 1 - flipped[0]
    parts = [
        set(train_test_split(np.arange(1000), stratify=t, random_state=0)[0])
        for t in (treated, flipped)
    ]
    assert len(parts[0] ^ parts[1]) // 2 > 100  # the page has the number of one version


def test_the_real_epsilon_of_parts_of_fixed_size() -> None:
    real = math.log((math.exp(3) + math.exp(-1)) / 2)
    assert f"a real ε of {real:.2f} at ε = 1" in TEXT


# -- DP-CATE: the kernel and the queries -----------------------------------------------------------


def kernel(x: np.ndarray, other: np.ndarray, h: float) -> np.ndarray:
    """The paper's Gaussian kernel between the rows of two arrays, shape (n, m)."""
    distance = ((x[:, None] - other) ** 2).sum(axis=2)
    return (np.sqrt(2 * np.pi) * h) ** -x.shape[1] * np.exp(-distance / (2 * h**2))


def moved(q: int, h: float, n: int = 50, ridge: float = 0.1) -> tuple[float, float, float]:
    """RKHS distance of two neighbors' minimizers; the printed bound, and the correct one.

    The loss is the absolute one (L = 1), and outcomes are so distant that the minimizer is
    f = sum of sign(y_i) K(., x_i) / (2 ridge n).
    """
    x = np.random.default_rng(0).uniform(0, 1, (n, q))
    signs = np.ones((2, n))
    signs[1, 0] = -1  # the neighbor: another outcome in the first row
    change = (signs[1] - signs[0]) / (2 * ridge * n)
    top = (np.sqrt(2 * np.pi) * h) ** -q
    distance = np.sqrt(change @ kernel(x, x, h) @ change)
    return distance, top / (ridge * n), np.sqrt(top) / (ridge * n)


def answers(
    g: Effect, x: np.ndarray, rng: np.random.Generator, repaired: bool = False, h: float = 0.5
) -> np.ndarray:
    """Answers to two queries x (2, q) by Algorithm 2 with r = 1, or with g added to both."""
    top, across = kernel(x[:1], x[:1], h)[0, 0], kernel(x[:1], x[1:], h)[0, 0]
    first = g(x[0]) + np.sqrt(top) * rng.standard_normal()
    spread = np.sqrt(max(top - across**2 / top, 0.0))
    second = across / top * first + spread * rng.standard_normal()
    return np.array([first, second + (g(x[1]) if repaired else 0)])


def test_the_printed_bound_is_exceeded_as_the_page_says() -> None:
    slack = 4 * np.sqrt(2 * np.log(2 / 1e-5))  # of Theorem 3, for a claimed epsilon of 1
    excess, real = [], []
    for q, h in ((1, 0.3), (2, 0.5), (5, 0.5), (5, 1.0), (10, 1.0)):
        distance, printed, right = moved(q, h)
        assert distance == pytest.approx(right)
        excess.append(distance / printed)
        assert excess[-1] == pytest.approx((np.sqrt(2 * np.pi) * h) ** (q / 2))
        real.append(pc.TradeOff.from_gaussian(excess[-1] / slack).epsilon(1e-5))
    for label, values in (("distance / printed bound", excess), ("for a claimed ε of 1", real)):
        assert f"{label} | " + " | ".join(f"{v:.2f}" for v in values) in TEXT


def test_the_second_query_loses_the_effect() -> None:
    rng, apart = np.random.default_rng(1), np.array([[0.0], [5.0]])
    mean = np.mean([answers(lambda point: 10.0, apart, rng) for _ in range(2000)], axis=0)
    assert mean == pytest.approx([10.0, 0.0], abs=0.15)


def test_the_repair_leaks_exactly() -> None:
    def secret(point: np.ndarray) -> float:
        return float(3.14159265 + np.sin(point[0]))

    same = np.array([[0.7], [0.7]])
    first, second = answers(secret, same, np.random.default_rng(2), repaired=True)
    assert second - first == pytest.approx(secret(same[0]), abs=1e-6)


@pytest.mark.slow
def test_ours_is_a_function() -> None:
    study = pc.datasets.dpcate(1, 2000, seed=0)
    fit = pc.privcate(study.formula, study.frame, learner="dpcate", eps=2, bounds=study.bounds)
    once, again = fit.predict(study.frame.iloc[:3]), fit.predict(study.frame.iloc[:3])
    assert once.equals(again)
    assert fit.guarantee.kind == "proven"


# -- Asiaee and Aryan: bins and the formula of the noise -------------------------------------------


def test_one_row_decides_how_many_bins_there_are() -> None:
    def shares_by_bin(column: np.ndarray) -> np.ndarray:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, 6)))
        place = pd.cut(pd.Series(column), edges, labels=False, include_lowest=True)
        return place.value_counts(normalize=True).sort_index().to_numpy()

    one, other = np.r_[np.zeros(100), np.ones(400)], np.r_[np.zeros(99), np.ones(401)]
    assert (len(shares_by_bin(one)), len(shares_by_bin(other))) == (2, 1)


def test_the_classical_gaussian_formula_fails_at_20() -> None:
    def exact_delta(eps: float, delta: float) -> float:
        s = np.sqrt(2 * np.log(1.25 / delta)) / eps
        return float(norm.cdf(0.5 / s - eps * s) - np.exp(eps) * norm.cdf(-0.5 / s - eps * s))

    claimed = 1 / 747**2
    assert exact_delta(5, claimed) < claimed < exact_delta(20, claimed)
