"""What is serious is warned of at the call, on the user's line, and told in tables and summary."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from alert_rows import MANY, many, ruled
from fit_helpers import private, privcate, view_of

import privcausal as pc
from privcausal.accounting import weak_promise
from privcausal.report.tables import number
from privcausal.testing import seeded_noise

BOUNDS: dict[str, Any] = {"Y": (-4, 4), "X": (-1, 1), "G": ["a", "b", "c"]}


def rows(n: int = 4000, chance: float = 0.5, slope: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, n)
    e = np.clip(chance + slope * np.sign(x), 0, 1)
    t = (rng.uniform(size=n) < e).astype(int)
    y = np.clip(x + 0.5 * t + rng.normal(0, 0.5, n), -4, 4)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "G": rng.choice(["a", "b", "c"], n)})


def unlike() -> pd.DataFrame:
    """One row in twelve is treated, all at one end of what the outcome depends on."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, 20_000)
    t = (rng.uniform(size=len(x)) < np.where(x < -0.7, 0.6, 0.025)).astype(int)
    y = np.clip(2 * x + rng.normal(0, 0.5, len(x)), -4, 4)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "G": rng.choice(["a", "b", "c"], len(x))})


def told(frame: pd.DataFrame, formula: str = "Y ~ T | X + C(G)", **options: Any) -> Any:
    given = {"bounds": BOUNDS, "eps": 2.0} | options
    with warnings.catch_warnings(record=True) as caught, seeded_noise(1):
        warnings.simplefilter("default")
        fit = pc.private(formula, frame, **given)
    assert [w.filename for w in caught] == [__file__] * len(caught)
    assert {w.category for w in caught} <= {pc.PrivcausalWarning}
    # the price of levels, and what a budget is not worth, are told before anything is charged
    before = "The levels of ", "eps="
    found = [t for t in (str(w.message) for w in caught) if not t.startswith(before)]
    for text, whole in zip(found, fit.alerts.values(), strict=True):
        assert whole.startswith(text.removesuffix("..."))
        assert len(f"PrivcausalWarning: {text}") <= 3 * 80
    return fit


RULED = {"Y": (-1, 2), "X": (-1, 1), "Z": (-1, 1)}

CASES: dict[str, Any] = {
    "bounds": lambda: told(rows(), bounds={"Y": (-4, 4), "G": ["a", "b", "c"]}),
    "covariates": lambda: told(
        rows(200).assign(G=[f"label {k}" for k in range(200)]), "Y ~ T | C(G)",
        bounds={"Y": (-4, 4)}, eps=0.2,
    ),
    "arm": lambda: told(rows(chance=1.0)),
    "noise": lambda: told(rows(110), bounds=BOUNDS | {"Y": (-1, 1)}, eps=0.3),
    "levels": lambda: told(rows(), bounds=BOUNDS | {"G": ["a", "b", "c", "d"]}),
    "complete": lambda: told(rows(chance=0.7).assign(T=lambda d: d["T"] + 1)),
    "overlap": lambda: told(rows(20_000, 0.5, 0.49), eps=8.0),
    "overlap of few": lambda: told(unlike(), eps=4.0),
    "clip": lambda: told(rows().assign(X=lambda d: 100 + d["X"])),
    "allocation": lambda: told(rows(), propensity=0.1),
    "groups": lambda: told(rows(), bounds=BOUNDS | {"G": ["a", "b", "c", "d"]}, groups=["G"]),
    "nuisances": lambda: told(
        many(), f"Y ~ T | {' + '.join(MANY)}", bounds={"Y": (-5, 5)} | MANY, eps=0.2
    ),
    "products": lambda: told(ruled(), "Y ~ T | X + Z", bounds=RULED, eps=4.0),
    "adjustment": lambda: told(rows(300), eps=0.5),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_each_is_told_everywhere(code: str) -> None:
    fit = CASES[code]()
    assert code.partition(" ")[0] in fit.alerts
    assert fit.glance()["alerts"].iloc[0].split(", ") == list(fit.alerts)
    assert (fit.tidy()["alerts"] == fit.glance()["alerts"].iloc[0]).all()
    whole = " ".join(str(fit.summary(full=True)).split())
    assert all(text in whole for text in fit.alerts.values())
    assert next(iter(fit.alerts.values()))[:40] in str(fit.summary())


@pytest.mark.slow
def test_products_that_confound_are_told_by_learners_and_slopes() -> None:
    calls = (
        lambda: pc.privcate("Y ~ T | X + Z", ruled(), bounds=RULED, eps=4),
        lambda: pc.private(
            "Y ~ T | X + Z", ruled(), bounds=RULED | {"T": (0, 1)}, eps=4, estimand="PLR"
        ),
        lambda: pc.private("Y ~ T | X + Z", ruled(), bounds=RULED, eps=4, estimand="ATT"),
    )
    for call in calls:
        with seeded_noise(1):
            assert "products" in call().alerts


@pytest.mark.slow
def test_few_treated_unlike_the_controls_are_told() -> None:
    assert "differs by" in CASES["overlap of few"]().alerts["overlap"]
    even = unlike().assign(T=lambda d: np.arange(len(d)) % 12 == 0)
    assert "overlap" not in told(even.astype({"T": int}), eps=4.0).alerts


@pytest.mark.slow
def test_a_summary_with_much_that_is_serious_is_short() -> None:
    """Every alert is there. With real noise, 3% of the fits have two: four in a row, 8e-7."""
    frame = rows().assign(X=lambda d: 100 + d["X"], Z=rows()["X"])
    frame.loc[frame["G"] != "a", "Y"] = np.nan
    bounds = {"X": (-1, 1), "G": ["a", "b", "c", "d", "e", "f"]}
    for _ in range(4):
        with pytest.warns(pc.PrivcausalWarning):  # with its own noise: a guarantee takes more lines
            fit = pc.private("Y ~ T | X + Z + C(G)", frame, bounds=bounds, eps=8.0)
        lines = str(fit.summary()).splitlines()
        if len(fit.alerts) >= 3 and len(lines) <= 32:
            break
    assert len(fit.alerts) >= 3
    assert len(lines) <= 32
    said = [line for line in lines if line.startswith("Alert: ")]
    for line, text in zip(said, fit.alerts.values(), strict=True):
        assert " ".join(text.split()).startswith(line.removeprefix("Alert: "))
    whole = " ".join(str(fit.summary(full=True)).split())
    assert all(" ".join(text.split()) in whole for text in fit.alerts.values())


def test_a_sound_fit_is_quiet() -> None:
    fit = told(rows(20_000), eps=4.0)
    assert fit.alerts == {}
    assert fit.glance()["alerts"].iloc[0] == ""


def test_all_labels_absent() -> None:
    fit = told(rows(), bounds=BOUNDS | {"G": ["A", "B", "C"]})
    assert "any of the declared levels of 'G'" in fit.alerts["levels"]


def test_undeclared_levels_are_used_without_their_level_and_told() -> None:
    """Two of them confound the ATE, which is 0: the tutorial says so. The seed makes it certain."""
    rng = np.random.default_rng(3)
    g = rng.choice(["a", "b", "y", "z"], 20_000, p=[0.45, 0.45, 0.05, 0.05])
    treated = rng.random(len(g)) < pd.Series(g).map({"a": 0.5, "b": 0.4, "y": 0.9, "z": 0.1})
    frame = pd.DataFrame({"G": g, "T": treated, "Y": 10 * (g == "y") + rng.normal(size=len(g))})
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="About 10% of the rows"):
        fit = pc.private("Y ~ T | C(G)", frame, bounds={"Y": (-5, 15), "G": ["a", "b"]})
    assert fit.params["ATE"] > 0.3
    assert "without their level, which can bias" in fit.alerts["levels"]
    every = {"Y": (-5, 15), "G": ["a", "b", "y", "z"]}
    whole = private("Y ~ T | C(G)", frame, bounds=every, seed=1)
    assert abs(whole.params["ATE"]) < 0.2
    assert "levels" not in whole.alerts


WITHOUT_ONE_ARM: dict[str, Any] = {
    "known": lambda d: pc.private("Y ~ T | X", d, bounds=BOUNDS, propensity=0.5),
    "cells": lambda d: pc.privcate("Y ~ T | C(G)", d, bounds=BOUNDS, learner="adum"),
    "two regressions": lambda d: pc.privcate("Y ~ T | X", d, bounds=BOUNDS, learner="tm"),
    "table": lambda d: pc.from_cells(
        pd.DataFrame({"cell": [*"aabb"], "arm": [0, 1] * 2,
                      "count": [0, len(d)] * 2, "sum": [0.0, 9.0] * 2}), ["a", "b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WITHOUT_ONE_ARM)
def test_an_absent_arm_is_told_by_whatever_counts_it(kind: str) -> None:
    words = "One treatment arm is empty or too small"
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match=words) as w:
        fit = WITHOUT_ONE_ARM[kind](rows(6000, chance=1.0))
    assert [one.filename for one in w] == [__file__]
    assert list(fit.alerts) == ["arm"]


@pytest.mark.parametrize("values", [(1.0, 0.0), (1.0, 2.0)])
def test_values_that_belong_at_an_end_are_no_clip(values: tuple[float, float]) -> None:
    """Many amounts are 0; and a column of two values is nowhere else."""
    at, other = values
    frame = rows().assign(X=lambda d: np.where(d["X"] > 0.4, at, other))
    bounds = BOUNDS | {"X": (min(values), max(values))}
    assert "clip" not in told(frame, "Y ~ T | X", bounds=bounds, eps=4.0).alerts


def test_values_cut_at_zero_and_common_events_are_no_clip() -> None:
    frame = rows().assign(X=lambda d: np.maximum(d["X"], 0.0))
    assert "clip" not in told(frame, "Y ~ T | X", bounds=BOUNDS | {"X": (0, 1)}, eps=4.0).alerts
    share = rows().assign(Y=lambda d: (d["Y"] > -0.5).astype(float))
    assert "clip" not in told(share, bounds=BOUNDS | {"Y": (0, 1)}, eps=4.0).alerts


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "numbers": ("Y ~ T | X", {}),
    "two values": ("B ~ T | X", {}),
    "two labels": ("B ~ T | X", {"bounds": BOUNDS | {"B": [0, 1]}}),
    "LATE": ("Y ~ B | X | B ~ T", {"estimand": "LATE"}),
    "no covariates": ("Y ~ T", {}),
    "r": ("B ~ T | X", {"eps": 4}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_allocation_is_told_with_the_count_and_a_right_one_is_not(kind: str) -> None:
    """Three noise sds, three of chance and 2 % of the rows apart: false alarm below 1e-6."""
    frame = rows(6000, chance=0.53).assign(B=lambda d: (d["Y"] > 0).astype(int))
    text, call, (formula, options) = "", privcate if kind == "r" else private, WRONG[kind]
    for declared, wrong in ((0.1, True), (0.53, False)):
        fit = call(formula, frame, **{"bounds": BOUNDS} | options, propensity=declared, seed=3)
        assert ("allocation" in fit.alerts) == wrong
        text = fit.alerts["allocation"] if wrong else text
    words = r"About (\d+)% .*count: (\d+), standard error (\d+)"
    share, count, spread = re.search(words, text).groups()  # type: ignore[union-attr]
    assert abs(int(share) - 53) <= 12
    assert abs(int(count) - frame["T"].sum()) <= 6 * int(spread)
    assert "propensity= declares 10%" in text


@pytest.mark.parametrize("call", ["Y ~ T | X", "Y ~ T", "regress", "privcate", "LATE"])
def test_intervals_are_infinite_if_most_outcomes_are_at_a_bound(
    call: str, tmp_path: Path, reloaded: Any
) -> None:
    """The outcome has percents and its bounds are those of a share; ATE and slope of X are 50."""
    frame = rows().assign(Y=lambda d: 200 + 100 * d["Y"], Z=lambda d: d["T"])
    calls: dict[str, Any] = {
        "regress": lambda given: pc.regress("Y ~ T + X", frame, **given),
        "privcate": lambda given: pc.privcate("Y ~ T | X", frame, **given),
        "LATE": lambda given: pc.private("Y ~ T | X | T ~ Z", frame, estimand="LATE", **given),
    }
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="at or near 1, one of its"):
        fit = calls.get(call, lambda given: pc.private(call, frame, **given))(
            {"bounds": BOUNDS | {"Y": (0, 1)}, "eps": 2.0}
        )
    assert "tail" not in fit.alerts
    assert np.isinf(fit.conf_int().to_numpy()).all()
    assert "inf" in str(fit.summary())
    if call != "LATE":
        assert (fit.pvalues == 1).all()
        assert fit.wald_test("T = 0" if call == "regress" else "ATE = 0").pvalue == 1
    assert fit.alerts["clip"].count("'Y' at or near") == 1
    assert "declare [0, 1] for two values, or pc.Interval(0, 1, natural=True)" in fit.alerts["clip"]
    fit.report(tmp_path / "fit.html")
    again = reloaded(fit)
    assert np.isinf(again.conf_int().to_numpy()).all()
    for curve in (fit, again) if call == "privcate" else ():
        band = curve.predict(frame.head(3))  # no band, as if the error of the effect were unknown
        assert band.pop("estimate").notna().all()
        assert band.isna().all(axis=None)
        assert curve.plot_data("effect")["conf_low"].isna().all()


def test_ends_that_nature_sets_are_no_clip(reloaded: Any) -> None:
    """Households of one person; and what is declared so."""
    rng = np.random.default_rng(1)
    frame = rows().assign(X=rng.geometric(0.45, 4000).clip(1, 12), P=rng.geometric(0.9, 4000))
    bounds = BOUNDS | {"X": (1, 12)}
    assert "clip" not in told(frame, "Y ~ T | X", bounds=bounds, eps=4.0).alerts
    for natural in (False, True):
        bounds = BOUNDS | {"P": pc.Interval(1, 12, natural=natural)}
        fit = told(frame, "Y ~ T | P", bounds=bounds, eps=4.0)
        assert ("clip" in fit.alerts) != natural
        assert fit.schema["P"].natural == natural  # type: ignore[union-attr]
        assert ("natural=True" in fit.call) == natural
        assert reloaded(fit).schema["P"].natural == natural


@pytest.mark.slow
def test_a_label_of_seven_in_a_hundred_is_not_absent() -> None:
    """Where noise is wide, a label is named only if it has less than 2 % of the rows."""
    rng = np.random.default_rng(2)
    frame = rows().assign(G=rng.choice(["a", "b", "c"], 4000, p=[0.6, 0.33, 0.07]))
    for seed in range(15):
        fit = private("Y ~ T | X + C(G)", frame, bounds=BOUNDS, eps=0.3, seed=seed)
        assert "levels" not in fit.alerts


def test_a_factor_without_a_level_is_not_adjusted_for_and_says_so() -> None:
    frame = rows().assign(zip=[f"z{k}" for k in range(4000)])
    fit = told(frame, "Y ~ T | X + C(zip)", eps=0.5)
    assert "'zip'" in fit.alerts["levels"]
    assert "not adjusted for" in fit.alerts["levels"]
    assert "bounds" not in fit.alerts
    assert "1 levels" not in str(fit.summary(full=True))


def test_estimated_levels_that_lack_rows_are_told_with_the_rarest_that_can_be_found() -> None:
    """400 of 4,000 rows have a level of their own: 5.4 noise sds below 50; share's sd 0.3."""
    labels = np.repeat(["a", "b", *map(str, range(400))], [2400, 1200, *[1] * 400])
    few, all_found = rows().assign(G=labels), rows().assign(G=np.repeat(["a", "b"], 2000))
    bounds = {name: BOUNDS[name] for name in ("Y", "X")}
    fit = told(few, bounds=bounds)
    share, least = map(int, re.findall(r"about (\d+)", fit.alerts["levels"]))
    assert "levels of 'G' lack" in fit.alerts["levels"]
    assert abs(share - 10) <= 3
    assert fit.schema["G"].labels == ("a", "b", "other")
    assert 45 < least < 55
    assert "levels" not in told(all_found, bounds=bounds).alerts
    unknown = told(few, bounds=bounds, neighbors="add_remove").alerts["levels"]
    assert "an unknown share of the rows" in unknown


def test_groups_without_rows_have_the_range_that_is_possible() -> None:
    fit = told(rows(), bounds=BOUNDS | {"G": ["a", "b", "zz"]}, groups=["G"])
    row = fit.gate.loc["G[zz]"]
    assert np.isnan(row["estimate"])
    assert (row["conf_low"], row["conf_high"]) == (-8, 8)
    text = str(fit.summary())
    assert not re.search(r"\b(nan|inf)\b", text)


@pytest.mark.slow
def test_complete_rows_are_no_more_than_all() -> None:
    for seed in range(8):
        fit = private("Y ~ T | X", rows(500), bounds=BOUNDS, eps=0.5, seed=seed)
        line = fit.summary().tables[0]["value"]["Complete cases"]
        assert int(line.split(" ")[0]) <= 500


def test_names_of_any_length_and_number_fit_three_lines() -> None:
    """Nothing that a label is called makes a fit fail that was paid for."""
    labels = [f"{k} {'x' * 200}" for k in range(30)]
    fit = told(rows(20_000), bounds=BOUNDS | {"G": ["a", "b", "c", *labels]}, eps=20.0)
    assert "and 27 more" in fit.alerts["levels"]
    name = "x" * 250
    frame = rows(200).assign(**{name: [f"label {k}" for k in range(200)]})
    told(frame, f"Y ~ T | C({name})", bounds={"Y": (-4, 4)}, eps=0.2)


def test_the_line_is_that_of_the_call() -> None:
    with warnings.catch_warnings(record=True) as caught, seeded_noise(1):
        warnings.simplefilter("default")
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        pc.private("Y ~ T", rows(chance=1.0), bounds=BOUNDS)
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line)]


def test_a_warning_made_an_error_keeps_what_was_paid_for() -> None:
    with warnings.catch_warnings(), seeded_noise(1):
        warnings.simplefilter("error")
        with pytest.raises(pc.PrivcausalWarning) as raised:
            pc.private("Y ~ T", rows(chance=1.0), bounds=BOUNDS)
    fit: Any = raised.value.fit
    assert list(fit.alerts) == ["arm"]


def test_a_folder_beside_the_package_is_the_users() -> None:
    source = "def call(frame): return pc.private('Y ~ T', frame, bounds={'Y': (-4, 4)})"
    place = f"{Path(pc.__file__).parent}_of_mine/analysis.py"
    names: dict[str, Any] = {"pc": pc}
    exec(compile(source, place, "exec"), names)
    with warnings.catch_warnings(record=True) as caught, seeded_noise(1):
        warnings.simplefilter("default")
        names["call"](rows(chance=1.0))
    assert [w.filename for w in caught] == [place]


MISSING: dict[str, Any] = {
    "covariates": lambda d: pc.private("Y ~ T | X", d, bounds=BOUNDS),
    "trial": lambda d: pc.private("Y ~ T", d, bounds=BOUNDS),
    "regression": lambda d: pc.regress("Y ~ X", d, bounds=BOUNDS),
    "CATE": lambda d: pc.privcate("Y ~ T | X", d, bounds=BOUNDS),
    "survival": lambda d: pc.private("Surv(Y, E) ~ T", d.assign(E=1), estimand="RMST", horizon=2),
    "differences": lambda d: pc.did(
        "Y ~ S", pd.concat([d.assign(id=d.index, time=t, S=d["T"] * t) for t in (0, 1)]),
        unit="id", time="time", periods=(0, 1), bounds={"Y": (-4, 4)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISSING)
def test_missing_rows_are_told_by_every_fit(kind: str) -> None:
    """Of 5,000 rows 4,000 are incomplete, or none."""
    for part in (0.2, 1.0):
        frame = rows(5000).assign(Y=lambda d: d["Y"].where(d.index < part * len(d)))  # noqa: B023
        with seeded_noise(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = MISSING[kind](frame)
        assert ("complete" in fit.alerts) == (part < 1)


@pytest.mark.parametrize("formula", ["Y ~ T | X", "Y ~ T"])
@pytest.mark.parametrize("coding", [{}, {"T": (0, 1)}, {"T": [0, 1]}, {"T": pc.Binary([0, 1])}])
def test_a_treatment_of_three_codes_is_told_by_name(formula: str, coding: dict[str, Any]) -> None:
    """The two thirds that remain are 15 sds of the noise or more below three quarters."""
    frame = rows(5000).assign(T=lambda d: d.index % 3)
    found = told(frame, formula, bounds=BOUNDS | coding).alerts["complete"]
    assert "About 67% of the rows" in found
    # the outcome may be missing as well
    assert re.search(r"Check 'Y', 'T'.* missing values, .*\('T': other than 0/1\)", found)


COUNTED: dict[str, Any] = {
    "groups": lambda d: pc.private("Y ~ T | X", d, bounds=BOUNDS, groups=["G"]),
    "halves": lambda d: pc.private(
        "Y ~ T | X", d, bounds=BOUNDS, control=pc.Control(split="disjoint")
    ),
    "cells": lambda d: pc.privcate("Y ~ T | C(G)", d, bounds=BOUNDS, learner="adum"),
    "two regressions": lambda d: pc.privcate("Y ~ T | X", d, bounds=BOUNDS, learner="tm"),
    "no average": lambda d: pc.privcate(
        "Y ~ T | X", d, bounds=BOUNDS, control=pc.Control(shares={"average": 0})
    ),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_whatever_the_fit_the_complete_rows_are_told(kind: str) -> None:
    """Six standard deviations of its noise, of which the line has one: false alarm 2e-9."""
    frame = rows(5000)
    frame.loc[:1499, "Y"] = np.nan
    for seed in range(3):
        with seeded_noise(seed):
            head = COUNTED[kind](frame).summary().tables[0]["value"]
        size, sd = head["Complete cases"].replace(",", "")[:-1].split(" (noise sd ")
        assert abs(int(size) - 3500) <= 6 * float(sd) + 1
        assert 6 * float(sd) < 1500, "or it would not tell 3,500 from 5,000"


def test_where_none_was_counted_the_public_number_is_a_most() -> None:
    with seeded_noise(1):
        fit = pc.paper.tm("Y ~ T | X", rows().assign(Y=lambda d: 1 * (d["Y"] > 0)),
                          bounds=BOUNDS | {"Y": pc.Binary()}, eps=2.0)  # fmt: skip
    assert fit.summary().tables[0]["value"]["Observations"] == "at most 4,000"


@pytest.mark.parametrize("formula", ["Y ~ T | X", "Y ~ T"])
def test_complete_rows_are_those_that_were_released(formula: str) -> None:
    """With 30 % of outcomes missing the public number is not all there is to say."""
    frame = rows(5000, chance=0.3)
    frame.loc[:1499, "Y"] = np.nan
    fit = told(frame, formula)
    found = fit.estimate.averages
    assert abs(found.size - 3500) < 6 * found.size_sd < 600  # false alarm: 2e-9
    assert abs(found.treated - 0.3) < 0.05
    head = fit.summary(full=True).tables[0]["value"]
    assert head["Complete cases"] == f"{found.size:,.0f} (noise sd {number(found.size_sd, 2)})"
    assert head["Treated (noisy)"] == f"{found.treated:.0%}"
    declared = private(formula, rows(), bounds=pc.Schema(BOUNDS, complete=True), seed=1)
    assert "Complete" not in str(declared.summary(full=True))


# -- promises that are worth little ----------------------------------------------------------------

SMALL = rows(400).assign(
    unit=[f"u{k // 2}" for k in range(400)], time=["before", "after"] * 200,
    D=lambda d: np.where(d["time"] == "after", d["T"], 0),
)  # fmt: skip
CELLS = pd.DataFrame({"cell": [*"aabb"], "arm": [0, 1] * 2, "count": 90, "sum": 40.0})
PURE = {"eps": 12.0}
LOOSE = {"eps": 12.0, "delta": 0.0125}
PAPER = {"below_minimum": "published"}
WEAK: dict[str, Any] = {
    "private": lambda **k: pc.private("Y ~ T", SMALL, bounds=BOUNDS, **LOOSE, **k),
    "privcate": lambda **k: pc.privcate("Y ~ T | X", SMALL, bounds=BOUNDS, **LOOSE, **k),
    "regress": lambda **k: pc.regress("Y ~ X", SMALL, bounds=BOUNDS, **LOOSE, **k),
    "did": lambda **k: pc.did(
        "Y ~ D", SMALL, unit="unit", time="time", periods=("before", "after"),
        bounds=BOUNDS | {"time": ["before", "after"]}, **LOOSE, **k
    ),
    "cells in pure epsilon": lambda **k: pc.privcate(
        "Y ~ T | C(G)", SMALL, learner="adum", bounds=BOUNDS, **PURE, **k
    ),
    "paper.private": lambda **k: pc.paper.private(
        "Y ~ T | X", SMALL, bounds=BOUNDS, **LOOSE, **PAPER, **k
    ),
    "paper.dpcate": lambda **k: pc.paper.dpcate(
        "Y ~ T | X", SMALL, queries=pd.DataFrame({"X": [0.0]}), bounds=BOUNDS, **LOOSE, **PAPER, **k
    ),
    "paper.adum": lambda **k: pc.paper.adum("Y ~ T | C(G)", SMALL, bounds=BOUNDS, **PURE, **k),
    "paper.tm": lambda **k: pc.paper.tm(
        "Z ~ T | X", SMALL.assign(Z=SMALL["Y"] > 0), bounds=BOUNDS | {"Z": pc.Binary()}, **PURE, **k
    ),
    "plan": lambda: pc.plan("Y ~ T", n=[90, 400], bounds=BOUNDS, **LOOSE),
    "from_cells": lambda **k: pc.from_cells(CELLS, ["a", "b"], eps=12.0, **k),
    "from_cells with noise": lambda: pc.from_cells(
        CELLS, ["a", "b"], eps=12.0, delta=0.0125, noise={"count": 2.0, "sum": 2.0}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_promise_is_warned_of_before_anything_is_charged(name: str, tmp_path: Path) -> None:
    made, no_ledger = WEAK[name], name in ("plan", "from_cells with noise")
    ledger = pc.Ledger(tmp_path / "l.db", "study", 500.0, 0.0125, allow_published=True)
    options = {} if no_ledger else {"ledger": ledger}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pc.PrivcausalWarning, match=r"^eps=12 is above 10") as raised:
            made(**options)
    assert raised.value.fit is None
    assert ledger.fits == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = made(**options)
    assert ledger.fits == (not no_ledger)
    told = [str(w.message) for w in caught if str(w.message).startswith(("eps=", "delta="))]
    assert all(w.filename == __file__ for w in caught)
    assert all(len(f"PrivcausalWarning: {text}") <= 3 * 80 for text in told)
    text = " ".join(str(found.summary()).split())
    assert all(one in text for one in told)
    sizes = {"did": 200, "cells in pure epsilon": 0, "paper.adum": 0, "paper.tm": 0,
             "from_cells": 0, "from_cells with noise": -1}  # fmt: skip
    size = sizes.get(name, 400)
    assert len(told) == 1 + (size != 0)
    if size > 0:
        assert f"delta=0.0125 is not below 1/n, with n = {size}." in told[1]
    if size < 0:
        assert told[1].startswith("delta=0.0125 is above 0.0001.")


def test_a_report_says_what_a_promise_is_not_worth(page_of: Any) -> None:
    page = page_of(WEAK["private"]())
    assert "eps=12 is above 10. " in page
    assert "delta=0.0125 is not below 1/n, with n = 400. " in page


@pytest.mark.parametrize(
    ("epsilon", "delta", "size", "said"),
    [
        (10.0, 1e-4, 9_999, []), (10.0, 1e-4, None, []), (10.01, 0.0, 400, ["eps=10.01 "]),
        (1.0, 1e-4, 10_000, ["delta=0.0001 is not below 1/n, with n = 10,000"]),
        (1.0, 1e-5, 100_000, ["delta=1e-05 is not below 1/n, with n = 100,000"]),
        (1.0, 1 / 10_015, 10_015, ["delta=9.99e-05 is not below 1/n, with n = 10,015"]),
        (1.0, 1e-5, 0, []),
        (1.0, 1.001e-4, 400, ["delta=0.000101 is above 0.0001"]),
        (11.0, 0.5, None, ["eps=11 is", "delta=0.5 is above"]),
    ],
)  # fmt: skip
def test_where_a_promise_is_weak(epsilon: float, delta: float, size: Any, said: Any) -> None:
    found = weak_promise(epsilon, delta, size)
    assert len(found) == len(said)
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True))


def test_a_private_number_of_rows_is_not_told_of() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pc.private("Y ~ T", SMALL, bounds=BOUNDS, neighbors="add_remove", **LOOSE)
        pc.plan("Y ~ T", n=400, bounds=BOUNDS, neighbors="add_remove", **LOOSE)
    told = [str(w.message) for w in caught]
    assert sum("delta=0.0125 is above 0.0001" in text for text in told) == 2
    assert not any("400" in text for text in told)


@pytest.mark.slow
def test_an_outcome_of_two_labels_says_which_one_counts(page_of: Any) -> None:
    """The second, as it is declared: in header, table, headline, comparison, plots and report."""
    frame = rows().assign(Y=lambda d: np.where(d["Y"] > 0, "well", "ill"))
    for labels, on, verb in (
        (["ill", "well"], "P(Y = 'well')", "raises"), (["well", "ill"], "P(Y = 'ill')", "lowers"),
    ):  # fmt: skip
        fit = told(frame, bounds=BOUNDS | {"Y": labels}, groups=["G"], eps=8.0)
        view, text = view_of(fit), str(fit.summary())
        assert f" {verb} {on} by " in view.headline[0]
        assert text.count(on) >= 2, "in the head, and above the estimates"
        assert pc.compare(fit, fit).stats["Outcome"].tolist() == [on, on]
        assert on in str(pc.plan("Y ~ T | X", n=4000, bounds=BOUNDS | {"Y": labels}))
        for kind in ("coef", "gate"):
            assert on in fit.plot(kind).get_xlabel()
        assert on.replace("'", "&#39;") in page_of(fit)
