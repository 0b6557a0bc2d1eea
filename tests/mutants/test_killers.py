"""What only planted faults ask for: checks that no other folder's tests make."""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import privcausal as pc
from privcausal import testing
from privcausal.accounting import price, rho_of
from privcausal.auditing import loss_bound
from privcausal.errors import CapabilityError, DataError, FormulaError, PrivcausalError
from privcausal.estimators.budget import as_coded
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Constant
from privcausal.inference.effects import Answers
from privcausal.request.formula import CausalFormula
from privcausal.request.partition import Axis
from privcausal.request.schema import Schema
from privcausal.vault import ArmHistogram, CellSums, OfCovariates, Outcome, open_source, open_vault
from privcausal.vault.guard import guarded
from privcausal.vault.published import PublishedEBM
from privcausal.vault.sources import spark

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
from replay_helpers import Pair, check

BOUNDS: dict[str, Any] = {"Y": (-2, 3), "X1": (-1, 1), "X2": (0, 10)}


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    columns = {"Y": rng.uniform(-2, 3, rows), "T": rng.integers(0, 2, rows)}
    return pd.DataFrame(columns | {"X1": rng.uniform(-1, 1, rows), "X2": rng.uniform(0, 10, rows)})


def batch(data: pd.DataFrame, formula: str) -> Any:
    """The rows of a table as a fit's vault reads them."""
    bounds = BOUNDS | {"T": (0, 1)}
    with testing.seeded_noise(1):
        plan = pc.private(formula, table(40), bounds=bounds, base="linear").estimate.plan
    vault = open_vault(open_source(data), plan, None, "run")
    vault.set_layout(as_coded(Schema.of(bounds), plan.request), (), ())
    (rows,) = vault._passes.batches()
    return rows


def test_values_stay_in_their_domains() -> None:
    """What is missing or infinite counts nothing."""
    columns = {"Y": [np.inf, 1e300, np.nan, -2.0, 3.0], "T": [1, 1, 0, 0, 1]}
    columns |= {"X1": [0.5, 9.0, 0.0, -7.0, 0.5], "X2": [1e308, -np.inf, np.nan, -1e-9, 10.5]}
    data = pd.DataFrame(columns)
    rows = batch(data, "Y ~ T | X1 + X2")
    assert ((rows.y >= -2) & (rows.y <= 3)).all()
    for name in ("X1", "X2"):
        lo, hi = BOUNDS[name]
        assert ((rows.rows.frame[name] >= lo) & (rows.rows.frame[name] <= hi)).all()
    assert rows.complete.tolist() == [False, False, False, True, True]


class Cells:
    """Cells of which a row may be in none, or in one that is not there."""

    size, description = 2, "two cells"

    def cell(self, rows: Any) -> Any:
        return np.arange(len(rows["X"])) - 1


def test_a_row_beyond_a_table_is_missing() -> None:
    terms, schema = CausalFormula.parse("Y ~ T | C(X) + Z").terms, {"X": ["a", "b"], "Z": (0, 1)}
    made = Design(terms, Schema.of(schema), full_rank=False)
    rows = Rows({"X": np.array([-1, 0, 1, 2, 9]), "Z": np.linspace(0, 1, 5)}, 5, by_column=True)
    column = np.array([len(made) - 1])
    points = Answers((), 1.0, made, column, np.array([[-1.0]]), np.ones(1), np.ones(1))
    assert np.isfinite(rows.scaled(made)).all()
    assert np.isnan(points(rows)).tolist() == [False, True, True, True, True]
    assert Axis("X", labels=("a", "b")).part(rows.frame["X"]).tolist() == [-1, 0, 1, -1, -1]
    five = batch(table(5), "Y ~ T | X1")
    five.complete[:] = True
    nowhere = ArmHistogram(OfCovariates(Constant(np.nan), 1.0), np.array([0.2, 0.8]), "x")
    assert not nowhere.integers(five).any()
    five.rows.frame["X"] = np.zeros(5)
    cells = CellSums(Cells(), Outcome(0, 1), "substitute", "laplace", "count_sum", False)  # type: ignore[arg-type]
    assert cells.integers(five)[4:].sum() == 2


def test_large_designs_are_refused(limits: Any) -> None:
    terms = CausalFormula.parse("Y ~ T | C(X)").terms
    with limits(MOST_ENTRIES=1 << 14), pytest.raises(FormulaError):
        Design(terms, Schema.of({"X": ["a", "b", "c", "d"]}), full_rank=True)


def test_private_numbers_of_rows_are_not_asked() -> None:
    """A plan with a least number of rows is refused, or not, whatever their number."""
    with testing.seeded_noise(1):
        plan = pc.private("Y ~ T", table(9), bounds=BOUNDS, neighbors="add_remove").plan
    refused = []
    for rows in (30, 31):
        try:
            open_vault(open_source(table(rows)), replace(plan, least_rows=31), None, "run")
        except PrivcausalError as error:
            refused.append(str(error))
    assert len(refused) in (0, 2)
    assert len(set(refused)) <= 1


@pytest.mark.parametrize("target", [np.zeros(0), np.zeros(3), np.ones(1)])
def test_a_published_classifier_has_rows_of_both_classes(target: Any) -> None:
    order = PublishedEBM(1.0, 1e-5, classification=True)
    _, classes, _ = order._with_public_rows(np.zeros((len(target), 2)), target, (0.0, 1.0), None)
    assert set(classes) == {0.0, 1.0}


def test_bounds_of_audits_hold() -> None:
    """They are above the truth no more often than stated: 0.3, and 165 times in 400 by chance."""
    rng = np.random.default_rng(3)
    over = sum(loss_bound(rng.normal(size=300), rng.normal(size=300), 0.3) > 0 for _ in range(400))
    assert over <= binom.ppf(1 - 1e-6, 400, 0.3)


def test_fits_are_charged_before_rows_are_read(tmp_path: Path, broken: Any) -> None:
    """A fit that fails on its rows stays paid for."""
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=2)
    failing = broken("vault.passes.Passes._assign", ValueError("broken"))
    with failing, pytest.raises(PrivcausalError):
        pc.private("Y ~ T", table(300), bounds={"Y": (-2, 3)}, eps=0.1, ledger=ledger)
    assert ledger.fits == 1


@pytest.mark.parametrize("split", ["full", "disjoint", "crossfit", "units"])
def test_plans_cost_what_they_promise(split: Any) -> None:
    """Every stage's noise is paid for, of parts that run in parallel the dearest."""
    options: dict[str, Any] = {"unit": "P", "max_rows": 1} if split == "units" else {}
    control = pc.Control(split="disjoint" if split == "units" else split)
    data = table(61).assign(P=np.linspace(0.2, 0.7, 61).round(2))
    with testing.seeded_noise(2):  # at this eps the second half's stages sum to one unit more
        fit = pc.privcate(
            "Y ~ T | X1 + X2", data, base="linear", bounds=BOUNDS, eps=2.7, control=control,
            **options,
        )  # fmt: skip
    plan = fit.estimate.plan
    parts = {s.part for s in plan.stages} - {"all"} or {"all"}
    spent = {p: sum(s.rho for s in plan.stages if s.part in (p, "all")) for p in parts}
    assert plan.rho_cap == rho_of(2.7, 1e-5, gdp=True)
    total = sum(spent.values()) if split == "units" else max(spent.values())
    assert total <= plan.rho <= plan.rho_cap


def test_groups_pay_for_their_rows() -> None:
    """A row is in one of two groups or in none."""
    call: dict[str, Any] = {"formula": "Y ~ T | X", "bounds": {"Y": (0, 1), "X": (0, 1)}}
    call |= {"base": "linear", "groups": ["X >= 0.5"], "eps": 8.0, "rows": 8, "trials": 2}
    seen = pc.audit(**call, neighbors="add_remove")
    assert seen.passes, seen


def test_units_of_a_file_stay_apart(tmp_path: Path) -> None:
    """One unit takes another's place, beside one that a float makes the same."""
    import pyarrow as pa
    import pyarrow.parquet

    files = []
    for first, y in ((Decimal(2**53), 0.0), (Decimal(7), 1.0)):
        ids = [first, Decimal(2**53 + 1), *map(Decimal, range(10, 40))]
        columns = {"Y": [y, 1.0, *[0.0, 1.0] * 15], "T": [1.0, 1.0, *[0.0, 1.0, 1.0] * 10]}
        made = pa.table(columns | {"id": pa.array(ids, pa.decimal128(38, 0))})
        files.append(tmp_path / f"{y}.parquet")
        pa.parquet.write_table(made, files[-1])
    call: dict[str, Any] = {"formula": "Y ~ T", "learner": "private", "bounds": {"Y": (0, 1)}}
    check(Pair("Parquet", call | {"eps": 1.0, "unit": "id", "max_rows": 1}, *files))


def ended(error: BaseException) -> BaseException | None:
    """How a step on rows ends that fails; it is guarded here, after a fault was planted."""

    @guarded
    def step() -> None:
        raise error

    try:
        step()
    except BaseException as stopped:
        return stopped
    return None


def test_failures_on_rows_are_told_in_one_way() -> None:
    kinds = (CapabilityError, DataError, ValueError)
    assert len({repr(ended(kind("row 17"))) for kind in kinds}) == 1


@pytest.mark.parametrize(
    ("kind", "expected"), [(BaseException, PrivcausalError), (SystemExit, SystemExit)]
)
def test_panics_are_told_in_constant_words(kind: Any, expected: Any) -> None:
    """A panic of polars is no Exception; and an exit carries no value."""
    stopped = ended(kind("Alice"))
    assert isinstance(stopped, expected)
    assert "Alice" not in str(stopped)


def test_networks_tell_their_grid() -> None:
    """The slack is that of the grid on which a step's sum moves by the clipping norm."""
    price.multiplier_for_replaced.cache_clear()
    data = pd.DataFrame({"Y": [0.0, 1.0] * 10, "T": [0, 0, 1, 1] * 5, "X": np.linspace(0, 1, 20)})
    call: dict[str, Any] = {"bounds": {"Y": (0, 1), "X": (0, 1)}, "eps": 4.0}
    slack = mock.Mock(wraps=price.rounding_slack)
    with mock.patch.object(price, "rounding_slack", slack), testing.recorded() as recorder:
        pc.privcate("Y ~ T | X", data, learner="dpcate", base=pc.bases.NN(epochs=1), **call)
    queries = [c.query for c in recorder.calls if c.query.name.startswith("network")]
    grids = [call.args for call in slack.call_args_list]  # also by what converts whole plans
    assert queries
    for query in queries:
        assert (len(query.weights), query.sensitivity / 2 / 4) in grids
        assert query.scale >= query.sensitivity / 2 / 4 >= 2.0**28


def test_outcomes_are_centred() -> None:
    """Half their range bounds them, wherever they lie."""
    rows: Any = SimpleNamespace(y=np.array([99.0, 99.5, 100.0]))
    assert (np.abs(Outcome(99.0, 100.0)(rows)) <= Outcome(99.0, 100.0).bound).all()


def test_no_rows_are_rows_too() -> None:
    """What stacks its blocks answers for a table without any."""
    bounds = BOUNDS | {"Y": pc.Binary()}
    pc.paper.tm("Y ~ T | X1", table(30).iloc[:0], bounds=bounds, neighbors="add_remove")


def test_charges_are_on_the_disk_when_they_return(tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=2)
    pc.private("Y ~ T", table(300), bounds={"Y": (-2, 3)}, eps=0.1, ledger=ledger)
    assert pc.Ledger.open(tmp_path / "study.db").fits == 1


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


def test_plans_of_spark_that_may_differ_each_time_are_known() -> None:
    for plan, same in PLANS.items():
        assert spark._repeats(f"{plan}\n   {RELATION}") is same, plan
