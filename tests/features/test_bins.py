"""Bins of numeric columns: equal shares, and one bin for rows that pile up on one value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privcausal.features.design import FINE_BINS as FINE
from privcausal.features.design import Design
from privcausal.features.functions import SYNTHETIC_CELLS as CELLS
from privcausal.features.functions import TermBins, make_bins
from privcausal.inference.population import Population, interval_probabilities
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema
from privcausal.vault.queries.moments import BINS


def axis(values: Any, sd: float) -> TermBins:
    """The bins that a noisy histogram of values in [0, 1] leads to."""
    schema = Schema.of({"Y": (0, 1), "T": (0, 1), "X": (0, 1)})
    formula = CausalFormula.parse("Y ~ T | X", ["X", "T", "Y"])
    counts = np.histogram(values, np.linspace(0, 1, BINS + 1))[0].astype(float)
    noisy = counts + np.random.default_rng(1).normal(0, sd, BINS)
    marginals = {"X": interval_probabilities(noisy, sd, noisy.sum())}
    population = Population(schema, marginals, np.eye(1), float(len(values)))
    return make_bins(
        Design(formula.modifiers, schema, full_rank=False), population.rows(), 32
    ).axes[0]


def test_cells_are_those_of_the_histogram() -> None:
    assert CELLS == BINS


@pytest.mark.parametrize("sd", [0.0, 20.0, 80.0])
def test_a_column_of_two_values_has_a_bin_for_each(sd: float) -> None:
    values = np.repeat([0.0, 1.0], [1500, 2500])
    bin_of = axis(values, sd).bin_of
    assert bin_of is not None
    for end, cell in ((bin_of[0], bin_of[: FINE // CELLS]), (bin_of[-1], bin_of[-FINE // CELLS :])):
        assert (cell == end).all()
    assert bin_of[0] < bin_of[FINE // 2] < bin_of[-1]


@pytest.mark.parametrize("sd", [0.0, 20.0, 80.0])
@pytest.mark.parametrize("law", ["uniform", "normal", "exponential"])
def test_columns_of_many_values_have_equal_shares(law: str, sd: float) -> None:
    """Whatever the noise; a bin is to hold 0.03 of the rows."""
    rng = np.random.default_rng(0)
    values = {
        "uniform": rng.uniform(0, 1, 4000),
        "normal": np.clip(0.5 + 0.1 * rng.standard_normal(4000), 0, 1),
        "exponential": np.clip(0.2 * rng.exponential(1.0, 4000), 0, 1),
    }[law]
    found = axis(values, sd)
    assert found.bin_of is not None
    share = np.bincount(found.bin_of[np.minimum((values * FINE).astype(int), FINE - 1)]) / 4000
    assert found.size > 28
    assert share.max() < 0.09
