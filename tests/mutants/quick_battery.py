"""The quick battery: what must hold of the package, each in well under a second or in a few.

Every check raises AssertionError where it fails, and is silent on the package as it is. Random ones
fail on it with chance 1e-6 at most.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from scipy.stats import binom, chi2, gamma, norm, spearmanr

import privcausal as pc
from privcausal import testing
from privcausal.accounting import (
    PICO,
    Charge,
    Cost,
    Events,
    Ledger,
    TradeOff,
    delta_after,
    epsilon_of,
    multiplier_for_replaced,
    noise_multiplier,
    pico,
    rho_of,
    total_epsilon,
)
from privcausal.accounting import price as gaussian
from privcausal.accounting import price as subsampled
from privcausal.accounting.price import within
from privcausal.auditing import audit_case, mu_bound
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    DataError,
    FormulaError,
    LedgerError,
    PrivcausalError,
)
from privcausal.estimators import base_of, dpcate
from privcausal.estimators.budget import Undeclared, as_coded
from privcausal.features import basis, design
from privcausal.features.design import Design, header, labels, open_frame
from privcausal.features.functions import Constant
from privcausal.features.rows import Rows
from privcausal.inference import ranges
from privcausal.inference.effects import Answers
from privcausal.request.formula import CausalFormula
from privcausal.request.partition import LevelAxis
from privcausal.request.request import Budget, Request, Trust
from privcausal.request.schema import Binary, Interval, Schema, label_key
from privcausal.results import stored as serial
from privcausal.vault import (
    ArmHistogram,
    CellSums,
    OfCovariates,
    Outcome,
    noise,
    open_source,
    open_vault,
    passes,
)
from privcausal.vault.exit import Mechanism
from privcausal.vault.guard import guarded
from privcausal.vault.published import PublishedEBM
from privcausal.vault.queries.cells import LabelSelection

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
from hostile_fits import CRAFTED, document, loaded

sys.path.insert(0, str(Path(__file__).parents[1] / "vault"))
from network_checks import check_rows_stand_alone, check_sums_stand_alone

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from printed_prices import check_numbers
from replay_helpers import (
    BOUNDS,
    FORMULA,
    HIGH,
    HUGE,
    LOW,
    MISSING,
    Pair,
    aligned,
    fit,
    frame,
    ordinary,
)
from replay_helpers import check as replayed

LEVEL = 1e-6


# -- sensitivity and dependence on rows --------------------------------------------------------


def audit(case: str, relation: Any) -> None:
    """Exact answers on invented neighbours move by no more than was charged; nothing departs."""
    found = audit_case(case, relation, trials=2)
    assert found.passes, found


def audit_of_groups(relation: Any) -> None:
    """The same of a fit with groups, of which a row is in one or none."""
    call: dict[str, Any] = {"formula": "Y ~ T | X", "bounds": {"Y": (0, 1), "X": (0, 1)}}
    found = pc.audit(
        **call, base="linear", groups=["X >= 0.5"], eps=8.0, neighbors=relation, rows=8, trials=2
    )
    assert found.passes, found


def replay(case: str, relation: str) -> None:
    """A fit played again on a neighbour with the first one's answers is the same to the byte."""
    made = {"formula": FORMULA, "learner": "r", "bounds": BOUNDS, "eps": 1.0} | REPLAYS[case]
    made["neighbors"] = relation
    units = made.get("unit") is not None
    rows = ordinary(150 if units or made["bounds"] is None else 61, 2)
    first = None
    for old, new in ((LOW, HIGH), (LOW, MISSING), (HIGH, HUGE)):
        again = first if new is MISSING else None  # the table of the pair before
        one = [*rows, old]
        two = [*rows, new] if relation == "substitute" else [*rows, old, new]
        if units:
            ids = [f"u{k // 3}" for k in range(len(rows))]
            for row, data in ((old, one), (new, two)):
                data[len(rows) :] = [row] * 4
            table = frame(one, pid=[*ids, *["x"] * 4])
            nobody = relation == "add_remove"
            second = frame(rows, pid=ids) if nobody else frame(two, pid=[*ids, *["x"] * 4])
            first = replayed(Pair(case, made, table, second), first=again).fit
        else:
            first = replayed(Pair(case, made, frame(one), frame(two)), first=again).fit


def replay_of_units_in_a_file(relation: str) -> None:
    """Four rows of one unit, of which two count, where DuckDB ranks them."""
    rows = ordinary(150, 2)
    made = {"formula": FORMULA, "learner": "r", "bounds": BOUNDS, "eps": 1.0}
    ids = [f"u{k // 3}" for k in range(len(rows))]
    one, two = (frame([*rows, *[row] * 4], pid=[*ids, *["x"] * 4]) for row in (LOW, HIGH))
    if relation == "add_remove":
        one = frame(rows, pid=ids)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("one.parquet", "two.parquet")]
        for file, data in zip(files, (one, two), strict=True):
            data.to_parquet(file)
        made |= REPLAYS["units"] | {"neighbors": relation}
        replayed(Pair("units in a file", made, *files))


REPLAYS: dict[str, dict[str, Any]] = {
    "linear": {"base": "linear", "groups": ["G", "X1 >= 0"]},
    "trial": {"learner": "private", "formula": "Y ~ T"},
    "crossfit": {"base": "linear", "control": pc.Control(split="crossfit")},
    "disjoint": {"base": "linear", "control": pc.Control(split="disjoint")},
    "units": {"base": "linear", "unit": "pid", "max_rows": 2},
    "cells of units": {
        "learner": "adum", "formula": "Y ~ T | X1 + C(G)", "unit": "pid", "max_rows": 2,
    },
    "bought": {
        "base": "linear", "bounds": None, "eps": 40.0,
        "control": pc.Control(shares={"bounds": 0.5}),
    },
    "boosting": {"learner": "s", "base": pc.bases.DPEBM(rounds=12, learning_rate=0.3, bins=6)},
}  # fmt: skip


def replay_of_balance(relation: Any) -> None:
    """The release of a diagnostic: arms' means move by what is stated."""
    one = frame([*ordinary(61, 7), LOW])
    two = frame([*ordinary(61, 7), HIGH])
    if relation == "add_remove":
        two = frame([*ordinary(61, 7), LOW, HIGH])
    made = {"formula": FORMULA, "learner": "dr", "bounds": BOUNDS, "neighbors": relation}
    first = fit(made, one).result
    with testing.recorded(3) as recorder:
        first.balance(one, eps=1.0)
    with testing.recorded(3, recorder.calls) as again:
        first.balance(two, eps=1.0)
    (a,), (b,) = recorder.calls, again.calls
    moved = np.linalg.norm((a.exact - b.exact) * a.query.weights)
    assert moved <= a.query.sensitivity * (1 + 2.0**-40)
    assert a.query.sensitivity == b.query.sensitivity


def splits_ignore_values() -> None:
    """Parts of the rows are the same whatever is in them."""
    made = {
        "formula": FORMULA,
        "learner": "r",
        "bounds": BOUNDS,
        "control": pc.Control(split="disjoint"),
    }
    rows = ordinary(61, 2)
    moved = [rows[0] | {"T": 1 - rows[0]["T"]}, *rows[1:]]
    one = fit(made, frame(rows))
    pair = Pair("", made, frame(rows), frame(moved))
    two = fit(made, frame(moved), aligned(pair, one.calls))
    touched = {
        stage.part
        for stage, a, b in zip(one.result.estimate.plan.stages, one.calls, two.calls, strict=True)
        if (a.exact != b.exact).any()
    }
    assert len(touched) == 1


def selection_hides_a_label_of_one_row(relation: Any) -> None:
    """It passes with the stated chance at most, against the noise's own law (a bound, no draws)."""
    selection = LabelSelection("G", 1, 1e-6)
    assert selection.sensitivity(relation) >= (math.sqrt(2) if relation == "substitute" else 1.0)
    for sigma in (1.0, 5.0, 40.0):
        t = selection.threshold(sigma) - 1
        assert 0.5 * math.erfc(t / sigma / math.sqrt(2)) <= 1e-6


def levels_of_one_row_stay_unknown() -> None:
    """A label that one row holds is in no released result, by the noise of a real fit."""
    rows = [*ordinary(150, 3), HIGH | {"G": "CANARY"}]
    options = {"bounds": {k: v for k, v in BOUNDS.items() if k != "G"}, "eps": 40.0}
    found = pc.private("Y ~ T | X1 + C(G)", frame(rows), base="linear", **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        found.save(path)
        assert b"CANARY" not in path.read_bytes()


# -- right answers -----------------------------------------------------------------------------


def borders_of_blocks_are_none_of_the_answers() -> None:
    """A table of one row more ends as the other does, of one feature too."""
    options: dict[str, Any] = {"bounds": BOUNDS | {"P": (0.1, 0.9)}, "neighbors": "add_remove"}
    rows = frame(ordinary(basis.SMALL_PRODUCT, 1))
    for some in (rows[:-1], rows):
        pc.private("Y ~ T", some, propensity="P", **options)


def labels_are_of_their_own_cell() -> None:
    """In a column of objects, after many texts, of values that are equal to a hash table."""
    for cells in ([True, 1], [1, True], ["1", True, 1, None, [1]]):
        values = pd.Series(["a"] * 150 + cells, dtype=object)
        codes, names = labels(open_frame(pd.DataFrame({"x": values}))["x"])
        told = [None if code < 0 else names[code] for code in codes]
        assert told == [label_key(value) for value in values]


def units_stay_apart(held: str) -> None:
    """One unit takes another's place, beside one that a float, a text or a label makes the same."""
    import pyarrow as pa
    import pyarrow.parquet
    import pyreadstat

    near = {"objects": [1, "1", True], "labelled": [1.0, 2.0, 3.0]}
    one, same, other = near.get(held) or map(Decimal, (2**53, 2**53 + 1, 7))
    rest = [type(one)(k) for k in range(10, 40)]
    call: dict[str, Any] = {
        "formula": "Y ~ T", "learner": "private", "eps": 1.0, "bounds": {"Y": (0, 1)}, "unit": "id",
    }  # fmt: skip
    if held == "panel":
        call |= {"learner": "did", "time": "year", "periods": (0, 1)}
    else:
        call["max_rows"] = 1
    tables: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for first, y in ((one, 0.0), (other, 1.0)):
            made = pd.DataFrame({"id": pd.Series([first, same, *rest], dtype=object), "year": 1})
            made["Y"] = [y, 1.0, *np.tile([0.0, 1.0], 15)]
            made["T"] = [1.0, 1.0, *np.tile([0.0, 1.0, 1.0], 10)]
            if held == "panel":
                made = pd.concat([made.assign(year=0, Y=0.0, T=0.0), made], ignore_index=True)
            if held == "Parquet":
                columns = {name: pa.array(made[name]) for name in ("Y", "T")}
                columns["id"] = pa.array(made["id"], pa.decimal128(38, 0))
                made = Path(folder) / f"{y}.parquet"
                pa.parquet.write_table(pa.table(columns), made)
            if held == "labelled":
                texts = {1: "North", 2: "North", 3: "South", **{k: f"c{k}" for k in range(10, 40)}}
                file, made = Path(folder) / f"{y}.dta", made.astype(float)
                pyreadstat.write_dta(made, file, variable_value_labels={"id": texts})
                made, call["bounds"] = file, pc.declare_labels(file, ["id"], {"Y": (0, 1)})
            tables.append(made)
        replayed(Pair(held, call, *tables))


def missing_cells_change_no_others() -> None:
    """Nor how the column is read, in a dict of columns that pandas would look at."""
    import polars as pl

    for cells in ([2**53 + 1, 3], [True, False]):
        whole, some = (open_frame({"x": pl.Series("x", c)})["x"] for c in (cells, [*cells, None]))
        assert header(whole.to_frame()).kinds == header(some.to_frame()).kinds
        (codes, names), (others, alike) = labels(whole), labels(some)
        assert [names[c] for c in codes] == [alike[c] for c in others[:-1]]


def texts_of_no_address() -> None:
    """What has no text of its own is missing."""
    for value in ([1], {"k": 1}, object(), (1,), len):
        assert label_key(value) is None


def looks_are_no_better_than_their_fit() -> None:
    """Of a fit that is only published, for the label and for the ledger."""
    data = frame(ordinary(60, 1))
    found = pc.paper.private("Y ~ T | X1", data, bounds=BOUNDS, below_minimum="published", eps=50.0)
    for look in (found.overlap, found.balance):
        assert look(data, eps=0.1).guarantee.kind == "published"
        with _ledger() as (ledger, _):
            before = ledger.fits
            with contextlib.suppress(LedgerError):
                look(data, eps=0.1, ledger=ledger)
            assert ledger.fits == before


def outcomes_are_centred() -> None:
    """Half their range bounds them, wherever they lie."""
    batch: Any = SimpleNamespace(y=np.array([99.0, 99.5, 100.0]))
    assert (np.abs(Outcome(99.0, 100.0)(batch)) <= Outcome(99.0, 100.0).bound).all()


def limit_without_noise() -> None:
    """The difference in means of a trial whose outcomes lie far from zero."""
    rng = np.random.default_rng(1)
    t = rng.integers(0, 2, 400).astype(float)
    y = 99.2 + 0.3 * t + rng.uniform(-0.2, 0.2, 400)
    data = pd.DataFrame({"Y": y, "T": t, "X": rng.random(400)})
    truth = y[t == 1].mean() - y[t == 0].mean()
    with testing.zero_noise():
        plain = pc.private("Y ~ T", data, bounds={"Y": (99, 100)})
        adjusted = pc.private("Y ~ T | X", data, bounds={"Y": (99, 100), "X": (0, 1)})
    assert abs(plain.params["ATE"] - truth) < 1e-3
    assert abs(adjusted.params["ATE"] - truth) < 0.02


# -- noise -------------------------------------------------------------------------------------


def _noise(law: Any, scale: float, size: int = 4000) -> Any:
    query = noise.NoiseQuery("test", np.ones(size), 1.0, scale, law)
    draw = getattr(noise.OperatingSystem(), law)
    return draw(np.zeros(size, np.int64), query)


def noise_has_its_scale(law: Any) -> None:
    """Sums of squares, or of sizes, have a known law; 4,000 draws see a scale off by a sixth."""
    for scale in (30.0, 1e4):
        draws = np.abs(_noise(law, scale).astype(float)) / scale
        if law == "gaussian":
            chance = chi2(len(draws)).cdf((draws**2).sum())
        else:
            chance = gamma(len(draws)).cdf(draws.sum())
        assert LEVEL / 4 < chance < 1 - LEVEL / 4


def noise_is_scaled_by_weights() -> None:
    weights = np.tile([0.5, 4.0], 2000)
    query = noise.NoiseQuery("test", weights, 1.0, 1e4)
    drawn = noise.OperatingSystem().gaussian(np.zeros(4000, np.int64), query)
    for weight in (0.5, 4.0):
        z = drawn[weights == weight] * weight / 1e4
        assert LEVEL / 4 < chi2(2000).cdf((z**2).sum()) < 1 - LEVEL / 4


def noise_is_fresh() -> None:
    """No two coordinates, nor two calls, share their draws."""
    first, second = _noise("gaussian", 1e9, 500), _noise("gaussian", 1e9, 500)
    assert not (first == second).any()
    assert len(np.unique(first)) > 490
    assert spearmanr(first[:-1], first[1:]).pvalue > LEVEL


def noise_is_not_numpys() -> None:
    """No generator of NumPy's is made or asked while noise is drawn."""

    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("noise comes from NumPy")

    names = ("default_rng", "RandomState", "normal", "standard_normal", "laplace", "randint")
    with contextlib.ExitStack() as patches:
        for name in names:
            patches.enter_context(mock.patch.object(np.random, name, asked))
        for law in ("gaussian", "laplace"):
            _noise(law, 1e4, 4)


def noise_of_no_scale_is_refused() -> None:
    try:
        drawn = _noise("gaussian", 0.0, 3)
    except ArithmeticError:
        return
    raise AssertionError(f"noise of scale zero: {drawn}")


# -- networks ----------------------------------------------------------------------------------


def network_rows_stand_alone() -> None:
    """Where all units are at their kinks, a row's gradient is the same bits in any company."""
    check_rows_stand_alone(80, 40, share=False, moved=False)
    check_sums_stand_alone(80, 40)


def networks_pay_for_discrete_noise() -> None:
    """On a coarse grid, where it is dear: the masses of both laws, and the price of a fit."""
    sd, k = 64.0, int(gaussian.COMPARED_SDS * 64)
    density = np.exp(-0.5 * (np.arange(-20 * sd, 20 * sd + 1) / sd) ** 2).sum()
    rounded = norm.sf((k - 0.5) / sd) - norm.sf((k + 0.5) / sd)
    apart = abs(-0.5 * (k / sd) ** 2 - math.log(density) - math.log(rounded))
    slack = gaussian.rounding_slack(1, sd)[0]
    assert 0.95 * slack < apart <= slack
    epsilon, delta, rate, steps, grid = 0.5, 1e-6, 0.05, 400, 2.0**10
    multiplier = multiplier_for_replaced(epsilon, delta, rate, steps, 1, grid)
    slack = gaussian.rounding_slack(steps, grid / 4)[0]
    failing = delta / (1 + math.exp(epsilon / 2))  # a little more than is left
    half = subsampled.epsilon_of_steps(multiplier, failing, rate, steps)
    assert 2 * (half + slack) <= epsilon


def networks_tell_their_grid() -> None:
    """The slack is that of the grid on which a step's sum moves by the clipping norm."""
    multiplier_for_replaced.cache_clear()
    call: dict[str, Any] = {"bounds": {"Y": (0, 1), "X": (0, 1)}, "eps": 4.0}
    data = pd.DataFrame({"Y": [0.0, 1.0] * 10, "T": [0, 0, 1, 1] * 5, "X": np.linspace(0, 1, 20)})
    told = mock.Mock(wraps=subsampled.rounding_slack)
    with mock.patch.object(subsampled, "rounding_slack", told), testing.recorded() as recorder:
        pc.privcate("Y ~ T | X", data, learner="dpcate", base=pc.bases.NN(epochs=1), **call)
    queries = [c.query for c in recorder.calls if c.query.name.startswith("network")]
    asked = [each.args for each in told.call_args_list]  # also by what converts whole plans
    assert queries
    for query in queries:
        assert (len(query.weights), query.sensitivity / 2 / 4) in asked
        assert query.scale >= query.sensitivity / 2 / 4 >= 2.0**28


def coins_have_their_rate() -> None:
    """200,000 coins, and how often two of them fall on the same row."""
    rate, size = 1e-3, 200_000
    first, second = (noise.OperatingSystem().coins(size, rate) for _ in range(2))
    for heads, chance in ((first, rate), (second, rate), (first & second, rate**2)):
        count = int(heads.sum())
        assert binom.cdf(count, size, chance) > LEVEL
        assert binom.sf(count - 1, size, chance) > LEVEL


# -- the vault ---------------------------------------------------------------------------------


class _Told(Mechanism):
    """One number, released as often as it is asked for."""

    query, units = "one number", np.ones(1)

    def sensitivity(self, neighbors: Any) -> float:
        return 1.0

    def integers(self, batch: Any) -> Any:
        return np.zeros(1, np.int64)


def _opened(data: pd.DataFrame, formula: str = "Y ~ T") -> tuple[Any, str]:
    """A vault of `data` with the plan of a fit, and its first stage's name."""
    bounds = BOUNDS | {"T": (0, 1)}
    with testing.seeded_noise(1):
        found = pc.private(formula, frame(ordinary(30, 1)), bounds=bounds, base="linear")
    plan = found.estimate.plan
    vault = open_vault(open_source(data), plan, None, "run")
    vault.set_layout(as_coded(Schema.of(bounds), plan.request), (), ())
    return vault, plan.stages[0].name


def stages_are_spent_once() -> None:
    vault, name = _opened(frame(ordinary(30, 1)))
    vault.release(name, _Told())
    try:
        vault.release(name, _Told())
    except BudgetError:
        return
    raise AssertionError("one stage was released twice")


def values_stay_in_their_domains() -> None:
    """Whatever a row holds, its cleaned values lie in the declared domains; what is missing counts
    nothing."""
    rows = [HUGE | {"X1": -1e308}, HUGE, MISSING, LOW | {"X1": np.nan}, HIGH]  # HUGE is infinite
    vault, _ = _opened(frame(rows), "Y ~ T | X1 + X2 + C(G)")
    (batch,) = vault._passes.batches()
    assert ((batch.y >= -2) & (batch.y <= 3)).all()
    x = batch.rows.frame["X2"]
    assert ((x >= 0) & (x <= 10)).all()
    assert batch.complete.tolist() == [True, False, False, False, True]


# -- saved fits, and tables of no rows ---------------------------------------------------------


def crafted_files_are_refused(name: str) -> None:
    assert loaded(CRAFTED[name]()) is None


def large_files_are_refused() -> None:
    assert loaded(document("cells")) is not None
    with mock.patch.object(serial, "LARGEST", 1000):
        assert loaded(document("cells")) is None


def large_designs_are_refused() -> None:
    terms = CausalFormula.parse("Y ~ T | C(X)").terms
    with mock.patch.object(design, "MOST_ENTRIES", 1 << 14):
        try:
            Design(terms, Schema.of({"X": ["a", "b", "c", "d"]}), full_rank=True)
        except FormulaError:
            return
    raise AssertionError("a design was made of more numbers than there may be")


class _Cells:
    """Cells of which a row may be in none, or in one that is not there."""

    size, description = 2, "two cells"

    def cell(self, rows: Any) -> Any:
        return np.arange(len(rows["X"])) - 1


def row_maps_are_total() -> None:
    """What lies outside a table, or a set of points, is missing: nothing fails."""
    schema = Schema.of({"X": ["a", "b"], "Z": (0, 1)})
    terms = CausalFormula.parse("Y ~ T | C(X) + Z").terms
    design = Design(terms, schema, full_rank=False)
    rows = Rows({"X": np.array([-1, 0, 1, 2, 9]), "Z": np.linspace(0, 1, 5)}, 5, by_column=True)
    column = np.array([len(design) - 1])
    points = Answers((), 1.0, design, column, np.array([[-1.0]]), np.ones(1), np.ones(1))
    vault, _ = _opened(frame(ordinary(5, 1)), "Y ~ T | X1")
    (batch,) = vault._passes.batches()
    batch.complete[:] = True
    try:
        assert np.isfinite(rows.scaled(design)).all()
        assert np.isnan(points(rows)).tolist() == [False, True, True, True, True]
        assert LevelAxis("X", ("a", "b")).part(rows.frame["X"]).tolist() == [-1, 0, 1, -1, -1]
        nowhere = ArmHistogram(OfCovariates(Constant(np.nan), 1.0), np.array([0.2, 0.8]), "x")
        assert not nowhere.integers(batch).any()
        batch.rows.frame["X"] = np.zeros(5)
        cells = CellSums(_Cells(), Outcome(0, 1), "substitute", "laplace", "count_sum", False)  # type: ignore[arg-type]
        assert cells.integers(batch)[4:].sum() == 2
    except (IndexError, ValueError) as error:
        raise AssertionError("a row map failed") from error


def failures_on_rows_are_told_in_one_way() -> None:
    told = set()
    for kind in (CapabilityError, DataError, ValueError):

        @guarded
        def step(kind: Any = kind) -> None:
            raise kind("row 17")

        try:
            step()
        except PrivcausalError as error:
            told.add((type(error), str(error)))
    assert len(told) == 1


def private_numbers_of_rows_are_not_asked() -> None:
    """A plan with a least number of rows is refused, or not, whatever their number."""
    with testing.seeded_noise(1):
        plan = pc.private(
            "Y ~ T", frame(ordinary(9, 1)), bounds=BOUNDS, neighbors="add_remove"
        ).plan
    told = []
    for rows in (30, 31):
        try:
            open_vault(
                open_source(frame(ordinary(rows, 1))), replace(plan, least_rows=31), None, "run"
            )
        except PrivcausalError as error:
            told.append(str(error))
    assert len(told) in (0, 2)
    assert len(set(told)) <= 1


def no_rows_are_rows_too() -> None:
    """What stacks its blocks answers for a table without any."""
    data = frame(ordinary(30, 1)).iloc[:0]
    bounds = BOUNDS | {"Y": pc.Binary()}
    pc.paper.tm("Y ~ T | X1", data, bounds=bounds, neighbors="add_remove")


def a_published_classifier_has_rows_of_both_classes() -> None:
    for target in (np.zeros(0), np.zeros(3), np.ones(1)):
        x = np.zeros((len(target), 2))
        order = PublishedEBM(1.0, 1e-5, classification=True)
        _, found, _ = order._with_public_rows(x, target, (0.0, 1.0), None)
        assert set(found) == {0.0, 1.0}


# -- accounting --------------------------------------------------------------------------------


def known_prices() -> None:
    """Textbook values: multipliers, two fits of one, pure events, delta taken off."""
    for epsilon, multiplier in ((0.5, 7.67), (1.0, 4.05), (2.0, 2.15)):
        assert abs(noise_multiplier(rho_of(epsilon, 1e-5) / PICO) - multiplier) < 0.005
    one = rho_of(1, 1e-5)
    assert abs(total_epsilon(Events.of([Cost(rho=one)] * 2), 1e-5) - 1.46) < 0.005
    assert 0.9999 < total_epsilon(Events.of([Cost(epsilon=PICO)]), 1e-5) <= 1.0
    many = total_epsilon(Events.of([Cost(epsilon=PICO // 100)] * 400), 1e-5)
    assert abs(many - epsilon_of(PICO // 50, 1e-5, gdp=True)) < 0.02 * many
    assert abs(rho_of(1, 1e-5, gdp=True) / PICO - 0.03593) < 1e-5
    assert delta_after(1e-5, 9 * 10**6) == 1e-6


def small_amounts_count() -> None:
    assert pico(1e-17) == 1
    assert pico(0.1) == PICO // 10
    assert pico(1e-12 + 1e-15) == 2


def caps_hold_to_the_unit() -> None:
    rho = rho_of(2, 1e-5)
    assert within(Events(rho=rho), 2, 1e-5)
    assert not within(Events(rho=rho + 1), 2, 1e-5)
    tenth = [Cost(epsilon=PICO // 10)] * 3
    assert within(Events.of(tenth), 0.3, 0.0)
    assert not within(Events.of([*tenth, Cost(epsilon=1)]), 0.3, 0.0)


def trade_offs_are_of_the_worst() -> None:
    """Parallel parts promise what the dearest promises, and (0, delta) stays delta."""
    cheap, dear = TradeOff.from_dp(0.5, 1e-6), TradeOff.from_dp(2.0, 1e-6)
    both = TradeOff.minimum(cheap, dear)
    at = np.linspace(0, 1, 101)
    assert (both(at) <= np.minimum(cheap(at), dear(at)) + 1e-12).all()
    assert both.epsilon(1e-6) >= 2.0 * (1 - 1e-9)
    assert TradeOff.from_dp(0.5, 1e-3).delta(0.5) >= 1e-3


def bounds_of_audits_hold() -> None:
    """They are above the truth no more often than stated: 0.3, and 165 times in 400 by chance."""
    rng = np.random.default_rng(3)
    over = sum(mu_bound(rng.normal(size=300), rng.normal(size=300), 0.3) > 0 for _ in range(400))
    assert over <= binom.ppf(1 - LEVEL, 400, 0.3)


def chances_of_failing_proofs_are_paid_for() -> None:
    """Learner dpcate bounds a private number of rows; with all of them in the other half, too."""
    made = Request(
        CausalFormula.parse("Y ~ T | X"), Schema({"Y": (0, 1), "X": (0, 1), "T": Binary()}),
        Budget(4.0, 1e-11), Trust("add_remove"), split="disjoint",
    )  # fmt: skip
    plan = dpcate.DPCATE().plan(made, base_of("kernel"), Undeclared((), ()))
    assert plan.delta == 1
    assert plan.rho <= rho_of(4.0, delta_after(1e-11, 1), gdp=True)
    population = SimpleNamespace(count=1.0, count_sd=0.01)
    vault = SimpleNamespace(size=None)
    state: Any = SimpleNamespace(vault=vault, plan=plan, population=population)
    assert dpcate._most(state) > 143  # of the other half: fair coins fail so with chance 2^-143


RELATION = "+- Relation [id#1L,g#2,first(y)#3,... 9 more fields] parquet"
PLANS = {
    "Project [y#3, t#4]": True,
    "Aggregate [g#2], [max(y#3) AS y#5]": True,
    "Window [rank(y#3) windowspec(g#2)], [g#2]\n+- WindowGroupLimit [g#2], rank(y#3)": True,
    "Project [first(y)#3 AS y#7]": True,
    "GlobalLimit 10\n+- LocalLimit 10": False,
    "Join LeftSemi, (g#2 = g#9)\n:- Sample 0.0, 0.5, false, 7": False,
    "Aggregate [g#2], [first(y#3, false) AS y#5]": False,
    "Window [row_number() windowspecdefinition(g#2)], [g#2]": False,
    "InMemoryRelation [y#3], StorageLevel(memory)\n   +- *(1) Project [rand(5) AS y#3]": False,
    "Project [y#3, t#4, ... 3 more fields]": False,
}


def plans_that_may_differ_each_time_are_known() -> None:
    from privcausal.vault.sources import spark

    for plan, same in PLANS.items():
        assert spark._repeats(f"{plan}\n   {RELATION}") is same, plan


def _of_cells(total: Any, outcome: Any, before: Any = None, column: str = "sum") -> Any:
    table = {"cell": ["a"], "arm": [1], "count": [2**31], column: [total]}
    with testing.recorded(1, before) as record:
        pc.from_cells(pd.DataFrame(table), ["a"], outcome=outcome, eps=1.0)
    return record.calls


def rounded_sums_move_no_further_than_stated() -> None:
    """One row, from 0 to 1 + 2^-40, beside others whose sum is rounded down and then up."""
    ulp = 2.0**-22
    one = _of_cells(2.0**30, (0, 1 + 2.0**-40))
    two = _of_cells(2.0**30 + 1 + ulp, (0, 1 + 2.0**-40), one)
    moved = np.abs(one[0].exact - two[0].exact).sum()
    assert moved <= one[0].query.sensitivity


def sums_without_their_digits_are_refused() -> None:
    ended = _ended(lambda: _of_cells(2.0**31 * 1e6, (1e6, 1e6 + 1)))
    assert isinstance(ended, PrivcausalError)


def steps_are_read_to_the_unit() -> None:
    one = _of_cells(2**60 + 1, (0, 1), column="steps")
    two = _of_cells(2**60, (0, 1), one, column="steps")
    assert (one[0].exact != two[0].exact).any()


def _ended(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def first_lines_are_not_quoted(first: str) -> None:
    """Of a CSV file without a header, where a row stands for the names."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        file.write_text(f"{first}\n0.2,0,Bob,neg\n")
        ended = _ended(
            lambda: pc.private("Y ~ T", file, bounds={"Y": (0, 1)}, unit="id", max_rows=1)
        )
        assert isinstance(ended, PrivcausalError)
        assert "Alice" not in str(ended)


def values_are_no_names() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        for field in ("", "0.73", "NA", "2021-05-01", "T"):
            file.write_text(f"Y,T,{field}\n0.2,0,1\n")
            ended = _ended(
                lambda: pc.private("Y ~ T", file, bounds={"Y": (0, 1), "T": [0, 1]}, eps=50)
            )
            assert isinstance(ended, PrivcausalError)


def connections_are_closed(kind: str) -> None:
    """Of a file whose units were ranked, after the fit and after a refusal."""
    import duckdb

    made: list[Any] = []
    connect = duckdb.connect

    def recorded(*args: Any, **options: Any) -> Any:
        made.append(connect(*args, **options))
        return made[-1]

    rows = pd.DataFrame({"Y": np.tile([0.2, 0.7], 40), "T": np.tile([0, 1, 1, 0], 20)})
    rows["pid"] = np.arange(80) // 2
    with tempfile.TemporaryDirectory() as folder, mock.patch("duckdb.connect", recorded):
        file = Path(folder) / f"rows.{kind}"
        rows.to_csv(file, index=False) if kind == "csv" else rows.to_parquet(file)
        pc.private("Y ~ T", file, bounds={"Y": (0, 1), "T": [0, 1]}, unit="pid", max_rows=2)
        with contextlib.suppress(PrivcausalError):
            pc.private("Y ~ Z", file, bounds={"Y": (0, 1)})
        ended = [_ended(lambda c=c: c.execute("SELECT 1")) for c in made]
    assert len(ended) > 3
    assert all(isinstance(error, duckdb.ConnectionException) for error in ended)


def panics_are_told_in_constant_words() -> None:
    """A panic of polars is no Exception; and an exit carries no value."""
    for kind, expected in ((BaseException, PrivcausalError), (SystemExit, SystemExit)):

        def stopped(kind: Any = kind) -> None:
            raise kind("Alice")

        ended = _ended(guarded(stopped))
        assert isinstance(ended, expected)
        assert "Alice" not in str(ended)


# -- the ledger --------------------------------------------------------------------------------


@contextlib.contextmanager
def _ledger(**options: Any) -> Iterator[tuple[Ledger, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        ledger = Ledger(path, "study", 2, **options)
        for run in "ab":
            ledger.charge(run, [_charge(10), _charge(20)])
        yield ledger, path


def _charge(rho: int = 1, **options: Any) -> Charge:
    fields: dict[str, Any] = {"neighbors": "substitute", "sensitivity": 1.0, "noise_sd": 1.0}
    return Charge("effect", "sums", "discrete Gaussian", cost=Cost(rho), **{**fields, **options})


def _closed(path: Path) -> None:
    """Every way into the ledger is closed."""
    try:
        Ledger.open(path)
    except LedgerError:
        return
    raise AssertionError("the ledger opened")


def ledger_notices_an_edit() -> None:
    with _ledger() as (_, path), contextlib.closing(sqlite3.connect(path)) as behind:
        triggers = behind.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'")
        found = triggers.fetchall()
        for name, _sql in found:
            behind.execute(f"DROP TRIGGER {name}")
        behind.execute("UPDATE charges SET rho = 0 WHERE seq = 2")
        for _name, sql in found:
            behind.execute(sql)
        behind.commit()
        _closed(path)


def ledger_notices_an_old_copy() -> None:
    with _ledger() as (ledger, path):
        old = shutil.copy2(path, path.with_name("old"))
        ledger.charge("c", [_charge()])
        shutil.copy2(old, path)
        _closed(path)


def ledger_notices_a_lost_head() -> None:
    with _ledger() as (_, path):
        path.with_name("study.db.head").unlink()
        _closed(path)


def ledger_refuses_two_names_and_read_only() -> None:
    with _ledger() as (_, path):
        os.link(path, path.with_name("second.db"))
        os.link(path.with_name("study.db.head"), path.with_name("second.db.head"))
        _closed(path.with_name("second.db"))
    with _ledger() as (_, path):
        path.chmod(0o444)
        _closed(path)
        path.chmod(0o644)


def ledger_files_are_their_owners() -> None:
    before = os.umask(0)
    try:
        with _ledger() as (_, path):
            assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}
    finally:
        os.umask(before)


def ledger_follows_no_link(name: str) -> None:
    """Neither the draft of its head, whatever its name, nor its head, nor the database itself."""
    with _ledger() as (ledger, path), mock.patch("secrets.token_hex", return_value="0"):
        victim, place = path.with_name("victim"), path.with_name(name)
        if place.exists():
            place.rename(victim)
        else:
            victim.write_text("precious")
        before = victim.read_bytes()
        os.symlink(victim, place)
        with contextlib.suppress(LedgerError):
            ledger.charge("c", [_charge()])
        assert victim.read_bytes() == before
        assert not path.with_name("study.db.head").is_symlink() or name == "study.db.head"
        if name != "study.db.head.0.new":
            _closed(path)


def ledger_keeps_its_cap() -> None:
    with _ledger() as (ledger, path):
        whole = rho_of(2, 1e-5)
        for amount in (whole, whole - 59):
            with contextlib.suppress(BudgetError):
                ledger.charge(f"{amount}", [_charge(amount)])
        assert Ledger.open(path).fits == 2
        ledger.charge("last", [_charge(whole - 60)])
        assert Ledger.open(path).spent.rho == whole / PICO


def ledger_mixes_nothing() -> None:
    """Neither relations nor units, and no charge of paper mode unless it was opened for them."""
    with _ledger() as (ledger, _):
        calls = [
            ([_charge(neighbors="add_remove")], False),
            ([_charge(unit="id (at most 5 rows)")], False),
            ([_charge()], True),
        ]
        for number, (charges, published) in enumerate(calls):
            with contextlib.suppress(LedgerError):
                ledger.charge(f"{number}", charges, published=published)
        assert ledger.fits == 2


def charges_are_on_the_disk_when_they_return() -> None:
    with _ledger() as (ledger, path):
        ledger.charge("c", [_charge()])
        assert Ledger.open(path).fits == 3


def charges_stay_when_the_disk_fails() -> None:
    """No head, no release; and what was committed stays spent."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with _ledger() as (ledger, _):
        with mock.patch("privcausal.accounting.store._write_whole", full):
            try:
                ledger.charge("c", [_charge()])
            except LedgerError:
                pass
            else:
                raise AssertionError("a charge returned without its head")
        assert ledger.fits == 3


def fits_are_charged_before_rows_are_read() -> None:
    """A fit that fails on its rows stays paid for; one that is refused costs nothing."""
    data = frame(ordinary(300, 1))

    def fail(*_: Any) -> None:
        raise ValueError("broken")

    with _ledger() as (ledger, _):
        with (
            mock.patch.object(passes.Passes, "_assign", fail),
            contextlib.suppress(PrivcausalError),
        ):
            pc.private("Y ~ T", data, bounds={"Y": (-2, 3)}, eps=0.1, ledger=ledger)
        assert ledger.fits == 3
        with contextlib.suppress(PrivcausalError), testing.zero_noise():
            pc.private("Y ~ T", data, bounds={"Y": (-2, 3)}, eps=0.1, ledger=ledger)
        assert ledger.fits == 3
        before = ledger.spent.rho
        found = pc.private("Y ~ T", data, bounds={"Y": (-2, 3)}, eps=0.1, ledger=ledger)
        assert ledger.fits == 4
        assert ledger.spent.rho - before >= found.guarantee.rho * (1 - 1e-6)


def plans_cost_what_they_promise() -> None:
    """Every stage's noise is paid for, of parts that run in parallel the dearest."""
    for split, unit in (("full", None), ("disjoint", None), ("crossfit", None), ("disjoint", "P")):
        options: dict[str, Any] = {"control": pc.Control(split=split)} | (
            {"unit": unit, "max_rows": 1} if unit else {}
        )
        # at this eps the second half's stages sum to one unit more than the first's
        options |= {"formula": FORMULA, "learner": "r", "bounds": BOUNDS, "eps": 2.7}
        made = options | {"base": "linear"}
        found = fit(made, frame(ordinary(61, 2))).result
        assert found is not None  # a plan that costs too much is refused
        plan = found.estimate.plan
        parts = {s.part for s in plan.stages} - {"all"} or {"all"}
        spent = {p: sum(s.rho for s in plan.stages if s.part in (p, "all")) for p in parts}
        worst = sum(spent.values()) if unit else max(spent.values())
        assert plan.rho_cap == rho_of(2.7, 1e-5, gdp=True)
        assert worst <= plan.rho <= plan.rho_cap


# -- what is printed -----------------------------------------------------------------------------


def prices_stay_true(count: int) -> None:
    """What is printed of a price is true of it."""
    check_numbers(count)


def one_price_is_no_scale() -> None:
    """400 of 576 amounts are 29.99, the others unseen up to 500: no cut may trust the tail."""
    bounds, sd = Interval(0.0, 500.0), 23.0
    rest = np.linspace(40.0, 480.0, 176)
    y = np.r_[np.zeros(63_424), np.full(400, 29.99), rest]
    edges = ranges.outcome_edges(bounds)
    counts = np.bincount(np.searchsorted(edges, y), minlength=len(edges)).astype(float)
    assert ranges.read_look(counts, sd, bounds).reach > 400
