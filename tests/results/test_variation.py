"""Whether an effect varies at all: one sentence, before curves, groups and slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, privcate, view_of
from placebos import cells, placebo
from scipy.stats import binom, norm

from privcausal.results.looks import FLAT

BOUNDS: dict[str, Any] = {"Y": (-4, 4), "X": (-1, 1), "Z": (-1, 1), "G": ["a", "b", "c"]}


def rows(seed: int, slope: float, n: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1, 1, (2, n))
    t = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    y = x + z**2 + (0.5 + slope * z) * t + rng.normal(0, 0.6, n)
    frame = pd.DataFrame({"Y": y.clip(-4, 4), "T": t, "X": x, "Z": z})
    return frame.assign(G=rng.choice(["a", "b", "c"], n))


def fit(seed: int, slope: float, **options: Any) -> Any:
    return privcate(
        "Y ~ T | X + Z + C(G)", rows(seed, slope), bounds=BOUNDS, groups=["G"], **options, seed=seed
    )


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "dr", "auto"])
def test_a_constant_effect_is_not_said_to_vary(learner: str) -> None:
    """At level 5 % more than four of twelve are a false alarm of 2e-4 at most; two are seen."""
    found = [view_of(fit(seed, 0.0, learner=learner, eps=2)).variation for seed in range(12)]
    assert found.count(FLAT) >= 10


@pytest.mark.slow
def test_what_varies_is_named_and_leads_report_and_summary(page_of: Any) -> None:
    made = fit(1, 1.5, eps=8)
    said = view_of(made).variation
    assert said.startswith("The effect varies with ")
    assert "Z" in said.split(",")[0]
    text = str(made.summary())
    assert text.index("The effect varies with") < text.index("  Z: ")
    page = page_of(made)
    assert page.index(said) < page.index("Average effect by group")


def test_averages_alone_say_nothing_of_it() -> None:
    made = private("Y ~ T | X", rows(1, 0.0), bounds=BOUNDS, seed=1)
    assert view_of(made).variation == ""


@pytest.mark.slow
@pytest.mark.parametrize("share", [1 / 3, 0.1])
def test_a_known_allocation_moves_no_slope(share: float) -> None:
    """Two outcome values are clipped asymmetrically. Mean z values: a false alarm of 1e-6."""
    found = [placebo("binary", share, "number", 20_000, seed, eps=1)[0] for seed in range(6)]
    most = norm.isf(1e-6 / 16) / np.sqrt(len(found))
    assert np.abs(np.mean(found, axis=0)).max() < most


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "auto"])
def test_placebos_do_not_vary(learner: str) -> None:
    """Outcomes of all kinds, 10 to 90 % treated: a false alarm of 1e-6 for claims at level 5 %."""
    drawn = cells(learner, 24)
    found = [placebo(*cell[:3], 20_000, cell[3], learner=learner, eps=1) for cell in drawn]
    z = np.concatenate([one.dropna() for one, _ in found])
    assert np.abs(z).max() < norm.isf(1e-6 / (2 * z.size))
    assert sum(claimed for _, claimed in found) <= binom.isf(1e-6, len(found), 0.05)
