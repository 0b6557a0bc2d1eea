"""What is serious is warned of at the call, on the user's line, and told in tables and summary."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal.testing import seeded_noise

CLINIC = pc.datasets.clinic(3000)
BOUNDS: dict[str, Any] = {"Y": (-4, 4), "X": (-1, 1), "G": ["a", "b", "c"]}


def rows(n: int = 4000, chance: float = 0.5, slope: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, n)
    e = np.clip(chance + slope * np.sign(x), 0, 1)
    t = (rng.uniform(size=n) < e).astype(int)
    y = np.clip(x + 0.5 * t + rng.normal(0, 0.5, n), -4, 4)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "G": rng.choice(["a", "b", "c"], n)})


def told(frame: pd.DataFrame, formula: str = "Y ~ T | X + C(G)", **options: Any) -> Any:
    given = {"bounds": BOUNDS, "eps": 2.0} | options
    with warnings.catch_warnings(record=True) as caught, seeded_noise(1):
        warnings.simplefilter("default")
        fit = pc.private(formula, frame, **given)
    assert [w.filename for w in caught] == [__file__] * len(caught)
    assert {w.category for w in caught} <= {pc.PrivcausalWarning}
    # the price of levels is told before anything is charged, and is no alert of the fit
    found = [t for t in (str(w.message) for w in caught) if not t.startswith("Levels of ")]
    for text, whole in zip(found, fit.alerts.values(), strict=True):
        assert whole.startswith(text)
        assert len(f"PrivcausalWarning: {text}") <= 3 * 80
    return fit


CASES: dict[str, Any] = {
    "bounds": lambda: told(rows(), bounds={"Y": (-4, 4), "G": ["a", "b", "c"]}),
    "covariates": lambda: told(
        rows(200).assign(G=[f"label {k}" for k in range(200)]), "Y ~ T | C(G)",
        bounds={"Y": (-4, 4)}, eps=0.2,
    ),
    "arm": lambda: told(rows(chance=1.0)),
    "levels": lambda: told(rows(), bounds=BOUNDS | {"G": ["a", "b", "c", "d"]}),
    "complete": lambda: told(rows(chance=0.7).assign(T=lambda d: d["T"] + 1)),
    "overlap": lambda: told(rows(20_000, 0.5, 0.49), eps=8.0),
    "nuisances": lambda: told(CLINIC.frame, CLINIC.formula, bounds=CLINIC.bounds, eps=0.5),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_each_is_told_everywhere(code: str) -> None:
    fit = CASES[code]()
    assert code in fit.alerts
    assert fit.glance()["alerts"].iloc[0].split(", ") == list(fit.alerts)
    assert (fit.tidy()["alerts"] == fit.glance()["alerts"].iloc[0]).all()
    assert fit.alerts[code].split(". ")[0][:60] in " ".join(str(fit.summary()).split())


def test_a_sound_fit_is_quiet() -> None:
    fit = told(rows(20_000), eps=4.0)
    assert fit.alerts == {}
    assert fit.glance()["alerts"].iloc[0] == ""


def test_all_labels_absent() -> None:
    fit = told(rows(), bounds=BOUNDS | {"G": ["A", "B", "C"]})
    assert "one of the declared labels of 'G'" in fit.alerts["levels"]


def test_an_arm_of_a_trial_that_is_absent() -> None:
    assert "arm" in told(rows(chance=1.0), "Y ~ T").alerts


@pytest.mark.parametrize("formula", ["Y ~ T | X", "Y ~ T"])
def test_complete_rows_are_those_that_were_released(formula: str) -> None:
    """With 30 % of outcomes missing the public number is not all there is to say."""
    frame = rows(5000, chance=0.3)
    frame.loc[:1499, "Y"] = np.nan
    fit = told(frame, formula)
    found = fit.estimate.averages
    assert abs(found.size - 3500) < 6 * found.size_sd < 600  # false alarm: 2e-9
    assert abs(found.treated - 0.3) < 0.05
    line = next(line for line in str(fit.summary()).splitlines() if "Complete:" in line)
    assert f"{found.size:.0f} +- {2 * found.size_sd:.0f}, {found.treated:.0%} treated [dp]" in line
    with seeded_noise(1):
        declared = pc.private(formula, rows(), bounds=pc.Schema(BOUNDS, complete=True))
    assert "Complete:" not in str(declared.summary())


def test_they_are_saved(tmp_path: Any) -> None:
    fit = CASES["levels"]()
    fit.save(tmp_path / "fit.json")
    assert pc.load(tmp_path / "fit.json").alerts == fit.alerts
