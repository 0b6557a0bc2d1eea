"""Replay: a neighbour is fitted on the first table's answers, and nothing else may differ."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from replay_helpers import (
    BOUNDS,
    FORMULA,
    HIGH,
    HUGE,
    INSIDE,
    LOW,
    MISSING,
    ROW,
    Fit,
    Pair,
    aligned,
    check,
    fit,
    frame,
    hostile,
    moved_by,
    ordinary,
    plain,
)

import privcausal as pc
from privcausal.accounting import PICO

LEARNERS = ("r", "dr", "s", "t", "x", "auto", "private")
BASES = ("gam", "linear")
SPLITS = ("full", "disjoint", "crossfit")
BASE_OF = {"full": "gam", "disjoint": "linear", "crossfit": "linear"}
"""For tables where the base is not the matter: a fit by "linear" takes a third of the time."""
RELATIONS = ("substitute", "add_remove")
N = 61


def call(**options: Any) -> dict[str, Any]:
    made = {"formula": FORMULA, "learner": "r", "bounds": BOUNDS, "eps": 1.0}
    return made | options


def neighbours(relation: str, rows: list[Any], new: Any) -> tuple[Any, Any]:
    """The last row replaced by `new`, or `new` added: coins of a split go to rows in order."""
    if relation == "substitute":
        return frame(rows), frame([*rows[:-1], new])
    return frame(rows), frame([*rows, new])


# -- every learner on every base and split ---------------------------------------------------


@pytest.mark.sample(11)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_declared_bounds(learner: str, base: str, split: str, relation: str) -> None:
    rng = np.random.default_rng([len(learner), len(base), len(split), len(relation)])
    rows = [*ordinary(N, 1), hostile(rng)]
    if learner == "auto" and base != "gam":
        pytest.skip("learner 'auto' takes base 'gam' only")
    options = call(learner=learner, base=base, control=pc.Control(split=split), neighbors=relation)
    options["groups"] = ["G", "X1 >= 0"]
    if split == "full" and base == "gam":
        one, two = neighbours(relation, rows, hostile(rng))
        check(Pair("hostile", options, one, two))
    corner, other = neighbours(relation, [*ordinary(N, 2), LOW], HIGH)
    report = check(Pair("low to high", options, corner, other))
    assert report.share > 0.1  # a real change of a whole row: the check is not idle


@pytest.mark.sample(7)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("learner", ["r", "s", "x", "private"])
def test_bought_bounds(learner: str, split: str, relation: str) -> None:
    """Bounds and levels bought with a share of the budget, generous enough to find some."""
    rng = np.random.default_rng([len(learner), len(split), len(relation), 5])
    rows = ordinary(150, 3)
    new = {"full": hostile(rng) | {"G": "b"}, "disjoint": HUGE, "crossfit": MISSING}[split]
    control = pc.Control(split=split, shares={"bounds": 0.5})
    options = call(
        learner=learner, base=BASE_OF[split], control=control, neighbors=relation, eps=40.0,
        bounds=None,
    )  # fmt: skip
    one, two = neighbours(relation, rows, new)
    first = check(Pair("bought", options, one, two)).fit
    assert first.error is None  # it got as far as an answer
    assert any(c.query.name.startswith("levels of ") for c in first.calls)


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("learner", ["r", "t", "private"])
def test_units(learner: str, split: str, relation: str) -> None:
    """All rows of a unit replaced, or added: of any number only max_rows count."""
    rows = ordinary(N, 4)
    ids = [f"u{i // 3}" for i in range(N)]
    options = call(
        learner=learner, base=BASE_OF[split], control=pc.Control(split=split), neighbors=relation,
        unit="pid", max_rows=2, eps=4.0,
    )  # fmt: skip
    for low, high in ((LOW, HIGH), (LOW | INSIDE, HIGH | INSIDE)):
        one = frame([low, *rows, low], pid=["x", *ids, "x"])
        if relation == "substitute":
            # a unit of another name has another coin, but of the same law; here it keeps its own
            two = frame([*rows[:9], *[high] * 4, *rows[9:]], pid=[*ids[:9], *["x"] * 4, *ids[9:]])
        else:
            two = frame(rows, pid=ids)
        check(Pair("unit", options, one, two))
    if split == "full":
        nobody = frame([*rows, HIGH], pid=[*ids, None])
        check(Pair("a row of nobody", options, frame(rows, pid=ids), nobody))


def clustered(
    rows: list[Any], old: Any, new: Any, name: str | None, relation: str
) -> tuple[Any, Any]:
    """Tables whose last row changes its values and its cluster; without it under add_remove."""
    names = [f"v{i % 9}" for i in range(N)]
    one = frame([*rows, old], village=[*names, "v0"])
    if relation == "add_remove":
        one = frame(rows, village=names)
    return one, frame([*rows, new], village=[*names, name])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("formula", ["Y ~ T", FORMULA, "Y ~ X1 + C(G)"])
def test_clusters(formula: str, relation: str) -> None:
    """The last row changes its values and its cluster, and may have a cluster of its own."""
    rows, names = ordinary(N, 8), [f"v{i % 9}" for i in range(N)]
    own = {"learner": "private", "groups": ["G"], "base": "linear"}
    if "T" not in formula:
        own = {"learner": "regress"}
    options = call(
        formula=formula, neighbors=relation,
        control=pc.Control(cluster="village", max_cluster_rows=7), **own,
    )  # fmt: skip
    gone = HUGE if "T" not in formula else MISSING
    for old, new, name in ((LOW, HIGH, "v3"), (HIGH, LOW, "alone"), (HIGH, gone, None)):
        one, two = clustered(rows, old, new, name, relation)
        report = check(Pair("clusters", options, one, two), texts=True)
        assert report.share > 0.02 or new is gone
    units = options | {"unit": "pid", "max_rows": 2}
    ids = [f"u{i // 2}" for i in range(N)]
    one = frame([*rows, LOW, HIGH], village=[*names, "v0", "v1"], pid=[*ids, "x", "x"])
    two = frame([*rows, *[HIGH] * 4], village=[*names, *["v5"] * 4], pid=[*ids, *["x"] * 4])
    if relation == "add_remove":
        one = frame(rows, village=names, pid=ids)
    check(Pair("clusters of units", units, one, two))


@pytest.mark.parametrize("relation", RELATIONS)
def test_units_with_bought_bounds(relation: str) -> None:
    rows = ordinary(240, 6)
    ids = [f"u{i // 2}" for i in range(240)]
    options = call(
        base="linear", neighbors=relation, unit="pid", max_rows=2, bounds=None, eps=60.0,
        control=pc.Control(shares={"bounds": 0.5}),
    )  # fmt: skip
    # far more rows than count, each with a level of its own
    many = [HIGH | {"G": f"only {i}"} for i in range(50)]
    one, two = frame(rows, pid=ids), frame([*rows, *many], pid=[*ids, *["x"] * 50])
    if relation == "substitute":
        one = frame([*rows, LOW], pid=[*ids, "x"])
    check(Pair("many levels of one unit", options, one, two))


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("estimand", ["ATT", "ATO"])
def test_estimands(estimand: str, split: str, relation: str) -> None:
    """Groups have masses of their own here; and a row may change arms."""
    rng = np.random.default_rng([len(split), len(relation), 9])
    options = call(
        learner="private", estimand=estimand, control=pc.Control(split=split), neighbors=relation,
        groups=["G", "X1 >= 0"], base=BASE_OF[split],
    )  # fmt: skip
    rows = ordinary(N, 11)
    for old, new in ((LOW, HIGH), (HIGH, LOW | {"T": 0.0})):
        report = check(Pair("estimand", options, *neighbours(relation, [*rows, old], new)))
        assert report.share > 0.02
    pair = Pair("hostile", options, *neighbours(relation, [*rows, HIGH], hostile(rng)))
    check(pair, first=report.fit)
    known = options | {"propensity": "P", "bounds": BOUNDS | {"P": (0.2, 0.7)}}
    check(Pair("known", known, *neighbours(relation, [*rows, LOW], HIGH)), texts=True)


def years(*units: tuple[str | None, list[dict[str, Any]]]) -> pd.DataFrame:
    """Rows of units, each with its year; the treatment of the first row is 0 unless it says so."""
    rows = [{"year": 2018 + k % 2, **row} for _, own in units for k, row in enumerate(own)]
    names = [name for name, own in units for _ in own]
    return frame(rows, pid=names, year=[row["year"] for row in rows])


PANELS: dict[str, tuple[str, Any, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "ends": (FORMULA, {}, [LOW, HIGH], [HIGH | {"T": 0.0}, LOW]),
    "trends alone": ("Y ~ T", {}, [LOW, HIGH], [HIGH | {"T": 0.0}, LOW]),
    "clusters": (
        "Y ~ T", {"control": pc.Control(cluster="G", max_cluster_rows=40)},
        [LOW, HIGH], [HIGH | {"T": 0.0, "G": "b"}, LOW | {"G": None}],
    ),
    "no change": (FORMULA, {}, [LOW, HIGH], [MISSING, MISSING]),
    "many rows": (FORMULA, {}, [LOW, HIGH], [HIGH | {"T": 0.0}, LOW] * 20),
    "one row": ("Y ~ T", {}, [LOW, HIGH], [LOW]),
    "treated before": (FORMULA, {}, [LOW, HIGH], [HIGH, HIGH]),
    "beyond": (FORMULA, {}, [LOW | {"Y": -1e308}, HUGE], [HUGE | {"T": 0.0}, MISSING]),
    "other years": (FORMULA, {}, [LOW, HIGH], [LOW | {"year": 7}] * 5),
    "bought": (
        FORMULA,
        {"bounds": {"Y": (-2, 3)}, "eps": 40.0, "control": pc.Control(shares={"bounds": 0.5})},
        [LOW, HIGH], [HIGH | {"T": 0.0}, LOW],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", PANELS)
def test_differences_in_differences(kind: str, split: str, relation: str) -> None:
    """All rows of a unit, of any number, are one row of bounded numbers."""
    formula, more, old, new = PANELS[kind]
    if (formula == "Y ~ T" or kind == "bought") and split != "full":
        pytest.skip("without nuisances, or tried elsewhere")
    options = call(
        learner="did", formula=formula, unit="pid", time="year", periods=(2018, 2019),
        neighbors=relation, base=BASE_OF[split], control=pc.Control(split=split),
    )  # fmt: skip
    many = 150 if kind == "bought" else N
    first, second = ordinary(many, 7), ordinary(many, 8)
    units = [
        (f"u{k}", [a | {"T": 0.0}, b]) for k, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    if kind == "bought":
        new = [row | {"G": "b"} for row in new]
    with_new = years(*units[:9], ("x", new), *units[9:])
    one = years(*units, ("x", old)) if relation == "substitute" else years(*units)
    report = check(Pair(kind, options | more, one, with_new), texts=True)
    first = report.fit if relation == "add_remove" else None  # of the same table
    if kind in ("ends", "trends alone") and relation == "substitute":
        assert report.share > 0.05
    nobody = years(*units, (None, [HIGH, LOW]))
    check(Pair("rows of nobody", options | more, years(*units), nobody), first=first)


STAGGERED: dict[str, tuple[list[Any], list[Any]]] = {
    "ends": ([(2019, 0), (2019, 1), (2019, 0)], [(2020, 1), (2020, 0), (2020, 1)]),
    "no cohort": ([(2019, 0), (2019, 1), (2019, 0)], [(None, 0), (None, 1), (None, 1)]),
    "two cohorts": ([(2019, 0), (2019, 1), (2019, 0)], [(2019, 0), (2020, 1), (2020, 1)]),
    "one row": ([(2019, 0), (2019, 1), (2019, 0)], [(2019, 1)]),
    "many rows": ([(0, 1), (0, 0), (0, 1)], [(2020, 1), (2020, 0), (2020, 1)] * 20),
    "beyond": ([(2019, -1e308), (2019, np.inf), (2019, 0)], [(0, 1e308), (0, np.nan), (0, 1)]),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", STAGGERED)
def test_event_studies(kind: str, relation: str) -> None:
    """All rows of a unit, of any number, are one bounded path in one cohort."""

    def table(units: list[tuple[str, list[Any]]]) -> pd.DataFrame:
        rows = [(name, 2018 + k % 3, *row) for name, own in units for k, row in enumerate(own)]
        return pd.DataFrame(rows, columns=["pid", "year", "first", "Y"])

    rng, (old, new) = np.random.default_rng(3), STAGGERED[kind]
    firsts = rng.choice([0, 2019, 2020], N)
    units = [(f"u{k}", [(f, y) for y in rng.random(3)]) for k, f in enumerate(firsts)]
    options = {
        "learner": "did", "formula": "Y ~ 1", "unit": "pid", "time": "year", "cohort": "first",
        "periods": [2018, 2019, 2020], "bounds": {"Y": (0, 1), "first": [0, 2019, 2020]},
        "neighbors": relation, "eps": 4.0,
    }  # fmt: skip
    whole = [*units, ("x", old)] if relation == "substitute" else units
    report = check(Pair(kind, options, table(whole), table([*units, ("x", new)])), texts=True)
    if kind == "ends":
        assert report.share > 0.05


SLOPES: dict[str, Any] = {"a number": (0, 1), "several arms": ["0", "1", "2"]}


@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("treatment", SLOPES)
def test_slopes(treatment: str, split: str, relation: str) -> None:
    declared = {"T": SLOPES[treatment]}
    options = call(
        learner="private", estimand="PLR", control=pc.Control(split=split), neighbors=relation,
        base=BASE_OF[split], bounds=BOUNDS | declared,
    )  # fmt: skip
    rows = ordinary(N, 11)
    first = None
    for old, new in ((HIGH, LOW | {"T": 0.0}), (LOW, HIGH), (LOW, HUGE | {"T": 2.0})):
        one, two = neighbours(relation, [*rows, old], new)
        if treatment == "several arms":
            one, two = (d.assign(T=d["T"].map("{:.0f}".format)) for d in (one, two))
        report = check(Pair("slopes", options, one, two), first=first if new["T"] == 2 else None)
        first = report.fit
        assert report.error is None
        assert "sums of scores and products" in report.reached


@pytest.mark.sample(3)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("pair", range(4))
def test_a_layout_with_products(pair: int, relation: str) -> None:
    """Budget enough that the second release of learner r is asked for products too."""
    options = call(formula="Y ~ T | X1 + X2 + C(G)", eps=50.0, neighbors=relation)
    rows, rng = ordinary(300, 4), np.random.default_rng(len(relation))
    pairs = [(LOW, HIGH), (HIGH, HUGE), (LOW, MISSING), (hostile(rng), hostile(rng))]
    old, new = pairs[pair]
    report = check(Pair("products", options, *neighbours(relation, [*rows, old], new)), texts=True)
    reached = report.reached
    assert "residual product, p = 15" in reached, list(reached)  # 10 functions, 5 products
    assert report.error is None


# -- uplift by cells ---------------------------------------------------------------------------

CELLS: dict[str, Any] = {
    "default": {},
    "the paper's release": {"learner": pc.learners.ADUM(release="count_sum", cells=9)},
    "as released": {"learner": pc.learners.ADUM(shrink=False, cells=9)},
    "gaussian": {"learner": pc.learners.ADUM(noise="gaussian")},
    "bound": {"learner": pc.learners.ADUM(cells="bound", rows=61)},
    "kmeans": {"learner": pc.learners.ADUM(partition="kmeans", cells=4, rounds=2)},
    "gaussian kmeans": {
        "learner": pc.learners.ADUM(partition="kmeans", cells=4, rounds=2, noise="gaussian")
    },
    "declared parts": {"learner": pc.learners.ADUM(partition={"X1": [0.0, 0.5], "G": "levels"})},
    "a function": {"learner": pc.learners.ADUM(partition=lambda points: points["X1"] > 0)},
    "two values": {"bounds": BOUNDS | {"Y": pc.Binary(["0", "1"])}},
    "off-centre": {"bounds": BOUNDS | {"Y": (5, 10)}},
    "known share": {"propensity": 0.4},
    "two regressions": {"learner": "tm"},
    "two regressions of degree 3": {"learner": pc.learners.TM(degree=3)},
    "units": {"unit": "pid", "max_rows": 2},
    "bought": {
        "learner": pc.learners.ADUM(noise="gaussian"), "bounds": None, "eps": 40.0,
        "control": pc.Control(shares={"bounds": 0.5}),
    },
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind: str, relation: str) -> None:
    formula = FORMULA.rpartition("|")[0] if FORMULA.count("|") > 1 else FORMULA
    made = call(learner="adum", formula=formula, neighbors=relation) | CELLS[kind]
    rng = np.random.default_rng([len(kind), len(relation)])
    low, high = {"Y": -1e9, "T": 0.0}, {"Y": 1e9, "T": 1.0}
    if kind == "two values":
        low, high = {"Y": 0.0, "T": 0.0}, {"Y": 1.0, "T": 1.0}
    pairs = [(LOW | low, HIGH | high), (LOW | low, MISSING), (hostile(rng), hostile(rng))]
    most, first = 0.0, None
    for old, new in pairs:
        one, two = neighbours(relation, [*ordinary(150, 9), old], new)
        if kind == "units":
            one, two = (d.assign(pid=np.arange(len(d)).astype(str)) for d in (one, two))
        again = first if new is MISSING else None  # the table of the pair before
        report = check(Pair(kind, made, one, two), texts=True, first=again)
        most, first = max(most, report.share), report.fit
    # from one end to the other, and to another cell: the bound is not idle
    assert most > (0.2 if kind in ("units", "bought") else 0.6)


# -- the kernel of DP-CATE ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("score", ["r", "dr"])
def test_kernel(score: str, split: str, relation: str) -> None:
    """Weights that a solver finds: no sums, but moved as little as is stated."""
    rng = np.random.default_rng([len(score), len(split), len(relation)])
    base = pc.bases.Kernel(functions=40)
    made = call(learner=pc.learners.DPCATE(score=score), base=base, control=pc.Control(split=split))
    made |= {"neighbors": relation, "groups": ["G"]}
    if split != "full":  # the nuisances are not the matter, and those of three columns take long
        made["formula"] = "Y ~ T | X1 + C(G)"
    first = None
    for new in (HIGH, MISSING, HUGE, hostile(rng)):
        one, two = neighbours(relation, [*ordinary(N, 2), LOW], new)
        first = check(Pair("kernel", made, one, two), first=first).fit
    made["formula"] = "Y ~ T | X1 + C(G)"
    strong = made | {
        "base": pc.bases.Kernel(ridge=5.0, functions=20),
        "control": pc.Control(shares={"effect": 0.9}),
    }
    one, two = neighbours(relation, [*ordinary(N, 2), LOW], HIGH)
    check(Pair("strong ridge", strong, one, two), texts=True)
    if relation == "substitute":
        squared = made | {"base": pc.bases.Kernel(loss="squared", functions=20)}
        check(Pair("squared loss", squared, one, two))
    units = made | {"unit": "pid", "max_rows": 2, "eps": 4.0}
    check(Pair("units", units, *(d.assign(pid=np.arange(len(d)) // 2) for d in (one, two))))


# -- the difference in means -------------------------------------------------------------------

TRIALS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "two values": {"bounds": {"Y": pc.Binary(["0", "1"])}},
    "groups": {"groups": ["G", "X1 >= 0"]},
    "bought": {"bounds": None, "eps": 40.0, "control": pc.Control(shares={"bounds": 0.5})},
    "units": {"unit": "pid", "max_rows": 2},
}


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", TRIALS)
def test_difference_in_means(kind: str, relation: str) -> None:
    """A table with many rows, so that windows are narrow, and one with so few that none is seen."""
    made = call(learner="private", formula="Y ~ T", neighbors=relation) | TRIALS[kind]
    first: dict[int, Fit] = {}
    for n, new in ((150, HIGH), *((4000, row) for row in (HIGH, MISSING, HUGE, LOW | {"T": 1}))):
        rows = [*ordinary(n, 5), LOW]
        if kind == "two values":
            rows = [row | {"Y": float(row["Y"] > 0.5)} for row in rows]
        one, two = neighbours(relation, rows, new)
        if kind == "units":
            one, two = (d.assign(pid=np.arange(len(d)).astype(str)) for d in (one, two))
        report = check(Pair(kind, made, one, two), texts=True, first=first.get(n))
        first[n] = report.fit
        if n > 150 and new is HIGH and kind == "numbers":
            assert report.share > 0.9  # from one end to the other: the bound is not idle


# -- hand-made corners -----------------------------------------------------------------------


def corner_pairs() -> dict[str, tuple[dict[str, Any], list[Any], Any]]:
    rows, far = ordinary(40, 8), {"bounds": BOUNDS | {"Y": (99, 100)}}
    known = {"propensity": "P", "bounds": BOUNDS | {"P": (0.2, 0.7)}}
    robust = {"control": pc.Control(cov_type="HC0"), "groups": ["X1 >= 0"]}
    pairs: list[tuple[str, dict[str, Any], list[Any], Any]] = [
        ("all at a bound", {}, [LOW] * 40, HIGH),
        ("both ends", {}, [LOW, HIGH] * 20, LOW),
        ("one class only", {}, [r | {"T": 1.0} for r in rows], ROW | {"T": 0.0}),
        ("only treated", {}, [*(r | {"T": 1.0} for r in rows), ROW | {"T": 0.0}], LOW | {"T": 1.0}),
        ("a single level", {}, [r | {"G": "a"} for r in rows], ROW | {"G": "b"}),
        ("off-centre", far, [r | {"Y": 99.5} for r in rows], HIGH | {"Y": 99.0}),
        ("value for missing", {}, [*rows, MISSING], ROW),
        ("missing for value", {}, [*rows, HIGH], MISSING),
        *(
            (f"missing {name}", {}, [*rows, HIGH], HIGH | {name: MISSING[name]})
            for name in ("Y", "T", "X1", "X2", "G")
        ),
        ("new level", {}, [*rows, LOW], LOW | {"G": "CANARY_ZQX"}),
        ("treatment of 2", {}, [*rows, LOW], LOW | {"T": 2.0}),
        ("outlier", {}, [*rows, LOW], HUGE),
        ("all equal", {}, [ROW] * 40, HIGH),
        ("all missing but one", {}, [MISSING] * 40, ROW),
        ("one row", {"eps": 100.0}, [LOW], HIGH),
        ("two rows", {"eps": 100.0}, [LOW, HIGH], HUGE),
        ("known propensity", known, rows, HIGH),
        ("known number", {"propensity": 0.3}, rows, LOW),
        ("no covariates", {"formula": "Y ~ T"}, rows, HIGH),
        ("functions", {"formula": "Y ~ T | log(X2 + 1) * X1 + bs(X2, df=5)"}, [*rows, LOW], HUGE),
        ("sandwich", robust, [*rows, LOW], HIGH),
    ]
    return {name: pair for name, *pair in pairs}


CORNERS = corner_pairs()


@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("corner", CORNERS)
def test_corners(corner: str, relation: str) -> None:
    options, rows, new = CORNERS[corner]
    at = list(CORNERS).index(corner) + 3 * (relation == "substitute")
    made = call(learner=LEARNERS[at % 6], neighbors=relation, base=BASES[at % 2], **options)
    check(Pair(corner, made, *neighbours(relation, rows, new)), texts=True)


@pytest.mark.slow
def test_the_last_row_of_all_may_leave() -> None:
    """Under add_remove a table without rows is a table: its neighbour must not tell of it."""
    for learner in ("r", "private"):
        made = call(learner=learner, neighbors="add_remove")
        check(Pair("none left", made, frame([HIGH]), frame([])))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_mixed_objects(relation: str) -> None:
    """True and 1 are equal to Python: the first of them must not name all others."""
    labels = [True, 1, 1.0, "1", "x"] * 30
    data = frame(ordinary(150, 9)).drop(columns="G").assign(G=pd.Series(labels, dtype=object))
    other = data.copy()
    other["G"] = pd.Series(["x", *labels[1:]], dtype=object)
    if relation == "add_remove":
        other = data.iloc[:-1]
    for options in ({"bounds": BOUNDS | {"G": ["1", "True", "x"]}}, {"bounds": None, "eps": 40.0}):
        made = call(base="linear", neighbors=relation, **options)
        check(Pair("mixed objects", made, data, other))


# -- looks at the data by a fit, and structure -------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("look", ["overlap", "balance"])
def test_diagnostics(look: str, relation: str) -> None:
    """One more release each, by the fit's own public functions."""
    options = call(learner="dr", neighbors=relation, control=pc.Control(propensity_clip=0.05))
    one, two = neighbours(relation, [*ordinary(N, 7), LOW], HIGH)
    first = fit(options, one).result
    seen: list[Any] = []

    def looked(rows: Any) -> str:
        seen.append(getattr(first, look)(rows, eps=1.0))
        return str(seen[-1]) + seen[-1].frame.to_csv()

    asked, moved = moved_by(looked, one, two, order=2)
    assert 0 < (moved / asked.query.scale) ** 2 / 2 <= seen[0].measured.plan.rho / PICO


def skeleton(value: Any) -> Any:
    """A document without numbers, notes and alerts, which are words on released numbers."""
    if isinstance(value, dict):
        said = ("notes", "alerts")
        return {key: key if key in said else skeleton(v) for key, v in value.items()}
    if isinstance(value, list):
        return [skeleton(v) for v in value]
    return "number" if isinstance(value, int | float) else value


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("learner", LEARNERS)
def test_structure_does_not_depend_on_the_rows(learner: str) -> None:
    """Without frozen answers: names, shapes, types and lines are those of the call."""
    documents, frames = [], []
    for rows in ([*ordinary(N, 7), LOW], [HUGE, MISSING] * 20, [LOW] * 40):
        asked = call(learner=learner, groups=["G"])
        if learner == "private":
            del asked["learner"]
        made: Any = pc.private if learner == "private" else pc.privcate
        result = made(data=frame(rows), **asked)
        saved = json.loads(Fit((), result, None, ()).saved) | {"results": []}
        estimate = skeleton(plain(result.estimate))
        documents.append(json.dumps(skeleton(saved)) + json.dumps(estimate))
        text = result.budget.select_dtypes("str")
        frames.append(
            (result.budget.dtypes.to_dict(), text.to_csv(), result.tidy()["term"].tolist())
        )
    assert documents[0] == documents[1] == documents[2]
    assert frames[0] == frames[1] == frames[2]


# -- the check itself ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_accounting_is_of_the_parts() -> None:
    """Disjoint stages cost the dearest part once, and a row moves the answers of one part only."""
    rows = [*ordinary(N, 2), LOW]
    one, two = neighbours("substitute", rows, HIGH)
    for learner in LEARNERS:
        base = "gam" if learner in ("r", "auto") else "linear"
        made = call(learner=learner, base=base, control=pc.Control(split="disjoint"))
        first = fit(made, one)
        second = fit(made, two, aligned(Pair("", made, one, two), first.calls))
        plan = first.result.estimate.plan
        parts = [s.part for s in plan.stages]
        moved = [
            bool((a.exact != b.exact).any()) for a, b in zip(first.calls, second.calls, strict=True)
        ]
        touched = {part for part, m in zip(parts, moved, strict=True) if m}
        assert len(touched) == 1
        totals = {p: sum(s.rho for s in plan.stages if s.part == p) for p in set(parts)}
        assert max(totals.values()) <= plan.rho <= plan.rho_cap
        assert sum(totals.values()) > 1.9 * plan.rho
        assert plan.rho / PICO == pytest.approx(first.result.guarantee.rho)
