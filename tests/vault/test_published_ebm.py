"""interpret's DP-EBM in the published mechanisms: what its noisy sums are divided by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpret.privacy import DPExplainableBoostingRegressor

import privcausal as pc
from privcausal.vault.published import PublishedEBM

pytestmark = pytest.mark.filterwarnings("ignore")
ROUNDS, RATE = 300, 0.01
"""interpret's defaults, which the paper left."""


def table() -> tuple[Any, Any, Any]:
    """One column of two values, an outcome by it, and weights of 0.35 on average."""
    x = np.repeat([0.0, 1.0], 300)[:, None]
    target = np.where(x[:, 0] == 1.0, 1.0, -1.0) + np.tile([-0.5, 0.5], 300)
    return x, target, np.tile([1.0, 0.2, 0.1, 0.1], 150)


def learned(weighting: Any, weight: Any) -> Any:
    """Predictions at both values, all but without noise."""
    x, target, _ = table()
    order = PublishedEBM(1e7, 1e-5, weighting=weighting)
    order.fit(x, target, bounds=(-2.0, 2.0), weight=weight)
    return order.predict(np.array([[0.0], [1.0]]))


@pytest.mark.parametrize("weighting", ["published", "interpret"])
def test_each_weighting_is_its_formula(weighting: str) -> None:
    """R rounds move a score by 1 - (1 - lr W / D)^R of the way; D is W (interpret) or the rows."""
    x, target, weight = table()
    expected = []
    for value in (0.0, 1.0):
        own = x[:, 0] == value
        step = RATE * (weight[own].sum() / own.sum() if weighting == "published" else 1.0)
        mean = np.average(target[own], weights=weight[own])
        expected.append((1 - (1 - step) ** ROUNDS) * mean)
    assert learned(weighting, weight) == pytest.approx(expected, abs=0.01)


def test_without_weights_both_are_one() -> None:
    assert learned("published", None) == pytest.approx(learned("interpret", None), abs=0.01)


@pytest.mark.parametrize("arm_columns", [1, 2])
def test_a_treatment_with_a_column_per_arm_is_learned_twice_as_fast(arm_columns: Any) -> None:
    """Each round moves each column's score by lr of what is left, so two columns take 2 R steps."""
    x, target, _ = table()
    order = PublishedEBM(1e7, 1e-5, arm_columns=arm_columns)
    order.fit(x, target, bounds=(-2.0, 2.0), weight=None)
    share = 1 - (1 - RATE) ** (ROUNDS * arm_columns)
    found = order.predict(np.array([[0.0], [1.0]]))
    assert found == pytest.approx([-share, share], abs=0.01)


def test_interpret_itself_is_not_changed() -> None:
    """Not even after, or while, the published weighting runs."""
    x, target, weight = table()
    learned("published", weight)
    theirs = DPExplainableBoostingRegressor(epsilon=1e7, delta=1e-5, random_state=0, n_jobs=1)
    theirs.fit(x, target, sample_weight=weight)
    assert theirs.predict(np.array([[0.0], [1.0]])) == pytest.approx(
        learned("interpret", weight), abs=0.01
    )


def test_a_version_without_its_place_is_refused() -> None:
    from privcausal.vault.published import _fit_by_rows

    def fit(self: Any, x: Any) -> None: ...

    with pytest.raises(pc.CapabilityError, match="weighting='interpret'"):
        _fit_by_rows(fit)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.slow
def test_the_printed_error_of_the_r_learner(seed: int) -> None:
    """Setup A, epsilon 4: the authors' repository has 0.234; interpret today 1.3 to 8."""
    test = pc.datasets.niu("A", 2000, 99)

    def error(weighting: Any) -> float:
        off = []
        for k in range(5):
            study = pc.datasets.niu("A", 4000, 10 * seed + k)
            fit = pc.paper.dpebm(
                study.formula, study.frame, learner="r", weighting=weighting, eps=4.0,
                bounds=study.bounds, propensity_clip=0.05,
            )  # fmt: skip
            off.append(np.mean((fit.predict(test.frame)["estimate"] - test.tau) ** 2))
        return float(np.median(off))

    with pc.testing.seeded_noise(seed):
        assert error("published") == pytest.approx(0.234, rel=0.35)
        assert error("interpret") > 1.0


@pytest.mark.slow
def test_its_code_says_which() -> None:
    study = pc.datasets.niu("A", 400)
    found = {
        weighting: pc.paper.dpebm(
            study.formula, study.frame, learner="r", weighting=weighting, bounds=study.bounds
        ).call
        for weighting in ("published", "interpret")
    }
    assert "weighting" not in found["published"]
    assert "weighting='interpret'" in found["interpret"]


def test_columns_per_arm_are_for_the_s_learner() -> None:
    study = pc.datasets.niu("A", 400)
    call: dict[str, Any] = {"arm_columns": 2, "bounds": study.bounds}
    found = pc.paper.dpebm(study.formula, study.frame, learner="s", **call)
    assert "arm_columns=2" in found.call
