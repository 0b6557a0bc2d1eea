"""What leaves the vault is the exact answer plus noise of the stated size (false alarms: 1e-6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, chisquare, norm
from vault_helpers import (
    NAMES,
    answers,
    assert_normal,
    mechanisms,
    needs_groups,
    random_rows,
    raw_mechanisms,
    redrawn,
    study,
    table,
)

import privcausal as pc
from privcausal.accounting import PICO, Release, rho_of
from privcausal.typing import Vector
from privcausal.vault import LabelSelection
from privcausal.vault.exit import Exit
from privcausal.vault.noise import OperatingSystem

LEVEL, DELTA = 1e-6, 1e-5
DRAWS = 8_000
RHO = 1e-3  # the noise on a count is then some 20 rows or more: nearly continuous


TABLES = 1_000_000
"""Releases of each of two tables in the audit below."""


def least_epsilon(alarms: int, detected: int) -> float:
    """That of the Gaussian claims which two counts of `TABLES` refute all below, at level 1e-6."""
    most, least = (
        binomtest(count, TABLES).proportion_ci(1 - LEVEL, "exact") for count in (alarms, detected)
    )
    mu = norm.isf(most.high) - norm.isf(least.low)
    return float(brentq(lambda eps: mu_at(eps) - mu, 0.01, 9))


def mu_at(eps: float) -> float:
    return math.sqrt(2 * rho_of(eps, DELTA, gdp=True) / PICO)


@pytest.mark.slow
def test_a_million_releases_of_two_tables_keep_to_the_claim() -> None:
    """At (1, 1e-5); 2.7 sds of both counts refute an epsilon 8% too small, but for 1e-4."""
    frame = pd.DataFrame({"Y": [0, 1] * 20, "T": [0, 0, 1, 1] * 10})
    fit = pc.private("Y ~ T", frame, eps=1, delta=DELTA, bounds={"Y": [0, 1]})
    (stage,) = fit.plan.stages
    leave, change = Exit(fit.plan, OperatingSystem()), 1 << 30
    query = leave.noise_query(stage, "a sum", np.ones(TABLES), float(change))
    counts = []
    for exact in (0, change):
        noisy = leave.noisy(np.full(TABLES, exact, np.int64), query)
        counts.append(int((noisy > change / 2).sum()))
    assert least_epsilon(*counts) <= 1
    alarms, detected = norm.sf(mu_at(1.08) / 2), norm.cdf(mu_at(1.08) / 2)
    slack = 2.7 * math.sqrt(TABLES * alarms * detected)
    assert least_epsilon(round(TABLES * alarms + slack), round(TABLES * detected - slack)) > 1


def draws(name: str) -> Vector:
    """Standardised noise of many releases of one query, made continuous within a unit."""
    s = study("substitute")
    data = table(random_rows(4, 5))
    mechanism: Any = {**mechanisms(s), **raw_mechanisms()}[name]
    asked = answers(s, data, {name: mechanism})[name]
    exact = asked.exact * mechanism.units
    sd = asked.scale / asked.weights * mechanism.units
    plan = s.plan(["draw"], RHO)
    vault = s.vault(data, plan, groups=needs_groups(mechanism))
    released = [vault.release("draw", mechanism)]
    # the sum is the same each time, so only the exit itself is repeated
    times = -(-DRAWS // len(exact))
    released += redrawn(vault, plan.stages[0], mechanism, asked.exact, times - 1)
    assert all(out.noise_sd == pytest.approx(sd, rel=1e-12) for out in released[:3])
    noise = np.array([out.value for out in released]) - exact
    half = 0.5 * mechanism.units
    noise += np.random.default_rng(0).uniform(-half, half, noise.shape)
    return np.concatenate(noise / np.hypot(sd, half / np.sqrt(3)))


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_noise_has_the_stated_law(name: str) -> None:
    assert_normal(draws(name))


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_the_sd_is_that_of_the_price(neighbors: str) -> None:
    """sd = sensitivity / sqrt(2 rho), raised by 2^-40 for the floats' rounding."""
    s = study(neighbors)
    for found in answers(s, table(random_rows(3, 1))).values():
        rho = (found.sensitivity / found.scale) ** 2 / 2
        assert RHO * (1 - 1e-9) < rho <= RHO


# -- labels ----------------------------------------------------------------------------------

LABELS, SIGMA = 4_000, 3.0


def selected(count: int) -> Release:
    """Which of many labels, each with the same count, pass the threshold."""
    s = study("substitute")
    texts = np.repeat([f"label {i}" for i in range(LABELS)], count)
    frame = pd.DataFrame({"G": pd.Series(texts, dtype="str")})
    rho = 2 / (2 * SIGMA**2)
    found = s.vault(frame, s.plan(["levels"], rho)).release("levels", SELECTION)
    assert found.charge.noise_sd == pytest.approx(SIGMA)
    assert list(found.labels) == sorted(found.labels)
    return found


def passed(count: int) -> int:
    return len(selected(count).labels)


SELECTION = LabelSelection("G", 1, 0.01)


@pytest.fixture(scope="module")
def let_through() -> int:
    return passed(SELECTION.threshold(SIGMA) - 4)


def chance(least: int, sigma: float) -> float:
    """P(noise >= least)."""
    return float(norm.sf(least / sigma))


def test_labels_pass_with_the_stated_noise(let_through: int) -> None:
    assert binomtest(let_through, LABELS, chance(4, SIGMA)).pvalue > LEVEL
    assert binomtest(let_through, LABELS, chance(4, 1.3 * SIGMA)).pvalue < LEVEL
    assert binomtest(let_through, LABELS, chance(4, 0.7 * SIGMA)).pvalue < LEVEL


def test_the_counts_of_labels_have_the_stated_noise() -> None:
    """So far above the threshold all pass. Discrete noise of sd 3 is nearly normal."""
    found = selected(60)
    assert len(found.value) == len(found.labels) == LABELS
    assert found.noise_sd == pytest.approx(np.full(LABELS, SIGMA), rel=1e-3)
    for sd, right in ((SIGMA, True), (1.3 * SIGMA, False), (0.7 * SIGMA, False)):
        edges = 60 + sd * norm.ppf(np.linspace(0, 1, 7)[1:-1]) + 0.0
        steps = np.r_[-np.inf, np.floor(edges) + 0.5, np.inf]
        chances = np.diff(norm.cdf((steps - 60) / sd))
        counts = np.histogram(found.value, steps)[0]
        assert (chisquare(counts, chances * LABELS).pvalue > LEVEL) == right


def test_a_label_of_one_row_passes_rarely() -> None:
    """With probability at most delta = 0.01: of 4,000, more than 90 pass with chance < 1e-6."""
    assert passed(1) <= LABELS * 0.01 + 4.9 * np.sqrt(LABELS * 0.01)
    assert norm.sf(4.9) < LEVEL
