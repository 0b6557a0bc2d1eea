"""Fits with groups that partition the rows: the average is theirs, at the stated covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, privcate
from scipy.stats import chi2

import privcausal as pc
from privcausal.inference.effects import AverageEstimate
from privcausal.request.schema import Schema
from privcausal.testing import zero_noise

FALSE_ALARM = 1e-6
BOUNDS: dict[str, Any] = {"Y": ["no", "yes"], "G": ["a", "b", "c"], "H": ["u", "v"], "X": (0, 1)}
GROUPS = ["G", "X >= 0.5", "X < 0.5"]


def study(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    g, x = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]), rng.random(n)
    t = (rng.random(n) < 0.5).astype(int)
    y = rng.random(n) < 0.3 + 0.2 * x + t * np.where(g == "a", 0.1, 0.3)
    h = rng.choice(["u", "v"], n)
    return pd.DataFrame({"Y": np.where(y, "yes", "no"), "T": t, "G": g, "H": h, "X": x})


def averages(
    frame: pd.DataFrame, formula: str = "Y ~ T | G + X", *, seed: int = 3, **options: Any
) -> AverageEstimate:
    call = {"bounds": BOUNDS, "groups": GROUPS, "eps": 1.0} | options
    fit = privcate if "learner" in call else private
    found = fit(formula, frame, **call, seed=seed).estimate.averages
    assert found is not None
    return found


FITS: dict[str, dict[str, Any]] = {
    "aipw": {},
    "crossfit": {"control": pc.Control(split="crossfit")},
    "trial": {"propensity": 0.5},
    "ATT": {"estimand": "ATT"},
    "ATO": {"estimand": "ATO"},
    "complete": {"bounds": Schema(BOUNDS, complete=True)},
    "size secret": {"neighbors": "add_remove"},
    "r": {"learner": "r"},
    "dr": {"learner": "dr"},
}


@pytest.mark.parametrize("kind", FITS)
def test_the_average_is_that_of_the_groups(kind: str) -> None:
    found = averages(study(), **FITS[kind])
    m = len(found.terms)
    for part in (slice(m, m + 3), slice(m + 3, m + 5)):
        share = found.sampling[0, part] / np.diag(found.sampling)[part]
        assert share @ found.estimate[part] / share.sum() == pytest.approx(
            found.estimate[0], rel=1e-8
        )
    cov = found.cov
    assert (np.abs(cov[0, m:]) > 0).all()
    assert np.linalg.eigvalsh(cov).min() > 0


@pytest.mark.slow
def test_the_number_of_rows_is_as_known() -> None:
    """Public where nothing can be missing, and never above what is public."""
    frame = study()
    assert averages(frame, bounds=Schema(BOUNDS, complete=True)).size == len(frame)
    sizes = [averages(frame, seed=k).size for k in range(8)]
    assert max(sizes) == len(frame) > min(sizes)
    secret = [averages(frame, seed=k, neighbors="add_remove").size for k in range(8)]
    assert max(secret) > len(frame) > min(secret)


@pytest.mark.slow
def test_arms_of_a_trial_have_noise_of_the_stated_covariance() -> None:
    """100 fits of the same rows: in every direction the mean square is that of the noise."""
    frame, draws, at = study(8000), 100, [0, 1, 2, 4]
    found = [averages(frame, "Y ~ T", seed=k, eps=4.0) for k in range(draws)]
    exact = private("Y ~ T", frame, bounds=BOUNDS, groups=GROUPS, exact=True).estimate.averages
    errors = np.array([(one.estimate - exact.estimate)[at] for one in found])
    cov = np.mean([one.privacy[np.ix_(at, at)] for one in found], axis=0)
    square = (np.linalg.solve(np.linalg.cholesky(cov), errors.T) ** 2).sum()
    low, high = chi2(len(at) * draws).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert 0.98 * low < square < 1.02 * high


@pytest.mark.slow
def test_without_noise_groups_change_nothing() -> None:
    frame = study()
    with zero_noise():
        both = [  # at an eps at which both cut their scores alike
            pc.private("Y ~ T | G + X", frame, eps=3, bounds=BOUNDS, groups=groups)
            for groups in (GROUPS, ["G == a", "X >= 0.5"])
        ]
    one, other = (fit.conf_int().to_numpy() for fit in both)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(
        both[0].gate.loc[["G[a]", "X >= 0.5"]], both[1].gate, rtol=1e-6, atol=1e-9
    )


def plain(frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, **options: Any) -> AverageEstimate:
    """The same fit whose groups are not known to partition the rows."""
    from privcausal.estimators import averages as module
    from privcausal.estimators import difference
    from privcausal.request.formula import Partitions

    def whole(groups: list[Any], *_: Any) -> Partitions:
        return Partitions(np.zeros((0, 1 + len(groups))), np.zeros(0, bool))

    with monkeypatch.context() as patch:
        for place in (module, difference):
            patch.setattr(place, "partitions", whole)
        return averages(frame, **options)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("formula", ["Y ~ T | G + X", "Y ~ T"])
@pytest.mark.parametrize(
    ("groups", "alters", "same"),
    [
        (["G"], {}, False),
        (["X >= 0.5"], {}, True),  # a condition alone
        (["G == a", "G == b"], {}, True),
        (["G"], {"G": "d"}, True),  # a third of the rows have a label that nobody declared
        (["H"], {"H": None}, True),  # or miss a value of a column that is in no formula
        (["H"], {}, False),
    ],
)
def test_only_groups_without_a_rest_are_reconciled(
    formula: str,
    groups: list[str],
    alters: dict[str, Any],
    same: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = study()
    for column, value in alters.items():
        frame.loc[::3, column] = value
    options: dict[str, Any] = {"formula": formula, "groups": groups}
    found, other = averages(frame, **options), plain(frame, monkeypatch, **options)
    assert np.array_equal(found.estimate, other.estimate, equal_nan=True) == same
    assert np.array_equal(found.cov, other.cov) == same
    if not same:
        assert (np.diag(found.privacy) < 0.9 * np.diag(other.privacy)).all()
