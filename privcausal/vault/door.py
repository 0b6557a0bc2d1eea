"""The vault's door: rows go in once, and numbers come out only through `release` and `select`.

Each passes one function that adds noise to exact integers at a planned price.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from privcausal.accounting.charge import PARALLEL, PICO, Charge, Cost, Release
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    DataError,
    LedgerError,
    PrivcausalError,
    SchemaError,
)
from privcausal.spec.cell_table import CellTable
from privcausal.spec.columns import Header, LabelColumns
from privcausal.spec.features import Design, Remembered, Space
from privcausal.spec.groups import Group
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import FOLDS, Request
from privcausal.spec.schema import Interval, Schema
from privcausal.typing import Frame, Integers, Mask, Vector
from privcausal.vault import noise
from privcausal.vault.batch import Batch, Layout, RawBatch, RawColumn, reads_labels
from privcausal.vault.declared import Declared, DeclaredFit
from privcausal.vault.exact import THREADS, ExactSum, in_threads
from privcausal.vault.job import Job, in_parts
from privcausal.vault.mechanisms.base import Mechanism, Query, Solution
from privcausal.vault.mechanisms.boosting import Boosting
from privcausal.vault.mechanisms.labels import LabelSelection
from privcausal.vault.mechanisms.network import PrivateNetwork
from privcausal.vault.mechanisms.objective import PublishedLogits
from privcausal.vault.mechanisms.published import PublishedAte
from privcausal.vault.mechanisms.published_cate import (
    AddNoise,
    Process,
    PublishedAnswers,
    PublishedProcess,
)
from privcausal.vault.sealed import Sealed
from privcausal.vault.sources.aggregates import Aggregates
from privcausal.vault.sources.base import Table, Unreadable, at_least_one, nothing
from privcausal.vault.sources.lazy import Lazy, is_lazy
from privcausal.vault.sources.memory import Memory
from privcausal.vault.sources.spark import Spark, is_spark
from privcausal.vault.sources.stored import Stored, is_relation, open_path, open_relation
from privcausal.vault.sources.units import MarkedBlock, Marks
from privcausal.vault.split import first_rows, parts

BATCH = 1 << 15
"""Rows a batch: products of 2 x 16 bits sum exactly in float64, a few columns stay in cache, and
threads seldom wait for the interpreter."""

KEEP_ROWS = 1 << 18
"""Up to here cleaned batches, and what functions gave on them, are kept between passes."""

KEEP_HELD = 1 << 20
"""The same for rows that are in memory anyway: some 300 bytes a row and six columns."""

KEEP_VALUES = 1 << 24
"""The same for what fitted functions gave, three numbers a row, where rows are read anew."""

KEEP_NUMBERS = 1 << 25
"""Where the batches are kept, so are matrices of up to so many entries, of 32 bits."""

MOST_ROWS = 1 << 30
"""Rows whose sums int64 holds with their noise: a row adds at most 2^32 to a coordinate."""

SUMS = ("gam", "linear", "none")
"""Bases that need nothing of the rows but sums; "none" is that of cells and arms."""

SAFETY = 1.0 + 2.0**-40
"""Noise scales are raised by this, far more than the rounding of the floats they come from."""


P = ParamSpec("P")
R = TypeVar("R")


def _guard(step: Callable[P, R], public: type[PrivcausalError]) -> Callable[P, R]:
    """The step, of whose failures only the `public` ones keep their words."""

    @wraps(step)
    def inside(*args: P.args, **options: P.kwargs) -> R:
        refused: BaseException | None = None
        try:
            with np.errstate(all="ignore"):
                return step(*args, **options)
        except KeyboardInterrupt:
            refused = KeyboardInterrupt("interrupted; what was charged stays spent")
        except SystemExit:
            refused = SystemExit(1)  # what it was given to say may be a value
        except GeneratorExit:
            refused = GeneratorExit()
        except BaseException as error:  # a panic of polars is no Exception
            if not noise.current().real:
                raise  # with test noise nothing is private, and the fault can be found
            if isinstance(error, Unreadable):
                refused = DataError(*error.args)
            elif isinstance(error, public):
                refused = error.with_traceback(None)
                refused.__cause__ = refused.__context__ = None
        del args, options
        # raised here, not in the handler: the other exception would hang on it as its context
        if refused is not None:
            raise refused
        raise DataError(
            "a step on the rows failed, and its message could quote one. What was charged stays "
            "spent. Whoever holds the data sees the fault by the same call within "
            "privcausal.testing.zero_noise(): do not publish that"
        )

    return inside


def opening(step: Callable[P, R]) -> Callable[P, R]:
    """A step before the first row, on names, types and files: our own errors are told as they are.

    Those of other libraries may quote a value all the same, and are told in constant words.
    """
    return _guard(step, PrivcausalError)


def guarded(step: Callable[P, R]) -> Callable[P, R]:
    """A step on rows, all of whose failures are told in the same words, our own errors too.

    A message of NumPy's may quote a value, that of a memory error the number of rows, and the
    frames of a traceback hold arrays of rows, which some tools print. One of ours quotes none, but
    which of them was raised could depend on a row. So what can be refused without rows is refused
    before this; and of what happens in here only a table that cannot be read (`Unreadable`) has
    words of its own. Nor may NumPy warn or raise where a row's value leaves the range of floats,
    whatever the caller's `numpy.seterr` asks for.
    """
    return _guard(step, Unreadable)


def spending(
    step: Callable[Concatenate[Vault, Stage, P], R],
) -> Callable[Concatenate[Vault, str, P], R]:
    """A guarded step that spends a stage, which is taken from the plan before rows are touched."""
    inside = guarded(step)

    @wraps(step)
    def outside(vault: Vault, stage: str, /, *args: P.args, **options: P.kwargs) -> R:
        return inside(vault, vault._take(stage, *args[:1]), *args, **options)

    return outside


Watch: TypeAlias = Callable[[str, float | None, str], None]
"""Told the stage, and the share of its "rows" or "rounds" it has done (None: not public)."""


class Ledger(Protocol):
    """What the vault needs of a ledger."""

    @property
    def delta(self) -> float: ...

    def charge(self, run: str, charges: Sequence[Charge], published: bool = False) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Source(Sealed):
    """An opened table, before its plan is known; only its header is public."""

    rows: Table

    @property
    def header(self) -> Header:
        return self.rows.header

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing reads these rows any more, typed or not."""
        self.rows.close()


@opening
def read(data: Frame) -> Source:
    """Open a frame, a path to files, or a DuckDB relation; nothing is released."""
    if isinstance(data, str | os.PathLike):
        return Source(open_path(data))
    if is_spark(data):
        return Source(Spark(data))
    if is_lazy(data):
        return Source(Lazy(data))
    return Source(open_relation(data) if is_relation(data) else Memory(data))


def typed(source: Source, labels: LabelColumns) -> Source:
    """The table with types for its columns, where it has none of its own (CSV)."""
    return Source(source.rows.typed(labels))


def hold(table: CellTable, header: Header) -> Source:
    """An aggregated table in the place of rows."""
    return Source(Aggregates(table, header))


@guarded
def public_size(source: Source, request: Request) -> int | None:
    """Number of rows, or of units: public under substitution, None under add_remove."""
    if request.trust.neighbors == "add_remove" or isinstance(source.rows, Aggregates):
        return None
    if request.trust.unit is None:
        return source.rows.size()
    if isinstance(source.rows, Spark | Stored):
        return source.rows.units(request.trust.unit)
    codes = _unit_column(source.rows, request.trust.unit).codes
    assert codes is not None
    return len(np.unique(codes[codes >= 0]))  # a categorical column has labels that no row has


def check_columns(header: Header, names: Sequence[str]) -> None:
    """Every named column exists and has a type that can be read."""
    for name in names:
        header.refuse_unknown(name)
        if header.kinds[name] == "other":
            raise DataError(f"column {name!r} has a type that cannot be read; convert it first")


def check_types(header: Header, request: Request) -> None:
    """Numeric bounds need numeric columns: data types are public, so this may be said."""
    for name in request.columns:
        domain = request.schema.get(name)
        text = header.kinds[name] == "text" and name not in header.objects
        if isinstance(domain, Interval) and text:
            raise SchemaError(
                f"column {name!r} holds text but has numeric bounds; convert the column to "
                f"numbers, or declare its levels: bounds={{{name!r}: ['a', 'b']}}"
            )
    treatment = request.formula.treatment
    if header.kinds[treatment] == "text" and request.schema.get(treatment) is None:
        raise SchemaError(
            f"treatment {treatment!r} holds text; declare its two labels, the reference first: "
            f"bounds={{{treatment!r}: ['control', 'treated']}}"
        )


def open_vault(
    source: Source,
    plan: Plan,
    ledger: Ledger | None,
    run: str,
    watch: Watch | None = None,
    *,
    published: bool = False,
) -> Vault:
    """Charge the whole plan to the ledger, then hand out the vault.

    `watch` is told of each stage and how far it has come: in rows, where their number is public, or
    in rounds. `published` says that what is asked of the rows comes from a published fit, and so is
    proven no better; a plan of ``mode="paper"`` is published by itself. All charges are committed
    before any row is read; a fit that fails later stays paid for.
    """
    source_of_noise = noise.current()
    _check_base(source.rows, plan)
    _check_order(source.rows, plan.request)
    _check_same(source.rows, plan.request)
    _check_size(source.rows, plan)
    if plan.request.trust.unit is None:  # to count units, rows must be read
        _check_parts(public_size(source, plan.request), plan)
    if ledger is not None:
        if not callable(getattr(ledger, "charge", None)):
            raise LedgerError(
                f"ledger= takes a Ledger, not a value of type {type(ledger).__name__}; write "
                "ledger=pc.Ledger('study.db', 'study', eps=2)"
            )
        if not source_of_noise.real:
            raise LedgerError("a ledger takes no fit made with test noise: it would not be private")
        paper = plan.request.mode == "paper"
        # a delta that is spent only has to be left; one at which rho is converted must be the same
        converted = plan.rho > 0 and not paper
        if converted and ledger.delta != plan.request.budget.delta:
            raise LedgerError(
                f"the ledger counts at delta={ledger.delta:g} and this fit asks for "
                f"delta={plan.request.budget.delta:g}; fit with the ledger's"
            )
        ledger.charge(
            run, [_planned(stage, plan) for stage in plan.stages], published=paper or published
        )
    return Vault(source, plan, source_of_noise, watch)


def _check_order(rows: Table, request: Request) -> None:
    """Parts of the rows and rows of a unit are known by position."""
    if isinstance(rows, Spark):
        if request.split != "full" and request.trust.unit is None:
            raise CapabilityError(
                f"split={request.split!r} needs a stable key on a Spark DataFrame, where rows that "
                "are computed again must not change their part: name the unit of each row, "
                "unit='patient_id', or a column that is different in every row, with max_rows=1"
            )
        return
    if not rows.ordered and (request.split != "full" or request.trust.unit is not None):
        what = "unit=" if request.split == "full" else f"split={request.split!r}"
        raise CapabilityError(
            f"{what} needs rows that come in one order each time they are read, which a DuckDB "
            "relation or a LazyFrame does not promise: write it to a file, "
            "relation.write_parquet('rows.parquet') or frame.sink_parquet('rows.parquet'), and "
            "pass its path"
        )


def _check_same(rows: Table, request: Request) -> None:
    """Each sum computes a Spark DataFrame anew, so that nothing in it may be drawn by lot."""
    unit = () if request.trust.unit is None else (request.trust.unit,)
    if isinstance(rows, Spark) and not rows.repeats((*request.columns, *unit)):
        raise CapabilityError(
            "the Spark DataFrame is computed anew for each sum, and by its plan it may have other "
            "rows each time: it holds rand(), uuid() or another function that is not "
            "deterministic; a limit, a sample, dropDuplicates(), the first or any value of a "
            "group, or a window that numbers rows, which all depend on the order of rows; or too "
            "many fields for its plan to be seen whole (spark.sql.debug.maxToStringFields). Write "
            "it to files once, frame.write.parquet('rows'), and read those; nothing was spent"
        )


def _check_base(rows: Table, plan: Plan) -> None:
    """Bases that are not sums over rows hold all of them, and that is for rows in memory."""
    if not rows.held and (plan.base not in SUMS or plan.request.mode == "paper"):
        what = "mode='paper'" if plan.base in SUMS else f"base {plan.base!r}"
        raise CapabilityError(
            f"{what} needs the rows in memory, and these are read in blocks: take base='gam' or "
            "base='linear' with learner 'r', 'dr', 's', 't' or 'x', or learner='adum', which need "
            "sums alone; or pass a data frame, as pandas.read_parquet gives it. Nothing was spent"
        )


def _check_size(rows: Table, plan: Plan) -> None:
    """There are rows, and not too many; ``mode="paper"`` needs a number of them.

    Their number may be told where it is public, and elsewhere nobody asks: no rows are rows too,
    and sums are cut to what 64 bits hold.
    """
    if plan.request.trust.neighbors != "substitute":
        if plan.least_rows:
            raise CapabilityError("a least number of rows is for tables whose number is public")
        return
    size = rows.size()
    if size == 0:
        raise DataError("the data have no rows")
    if size > MOST_ROWS:
        raise CapabilityError(
            f"tables of more than {MOST_ROWS:,} rows cannot be summed exactly; nothing was spent"
        )
    if size < plan.least_rows and plan.request.below_minimum == "refuse":
        raise BudgetError(
            f"mode='paper' needs at least {plan.least_rows} rows for this eps, delta, shares and "
            "split: with fewer the published claim does not even hold with nuisances known "
            "beforehand. Nothing was "
            "spent. Ask for a larger eps, or write below_minimum='published', which every output "
            "then tells"
        )


def _check_parts(size: int | None, plan: Plan) -> None:
    """Parts of a public number of rows, or units, hold as many as the plan asks for."""
    least = min(part_shares(plan)) * (size or 0)
    if size is not None and least < plan.least_part:
        raise DataError(
            f"the smallest part of the rows would hold {int(least)} of {size}, and at least "
            f"{plan.least_part} are needed; nothing was spent. Use more rows, or split='full'"
        )


def _planned(stage: Stage, plan: Plan) -> Charge:
    name, _, query = stage.name.partition(": ")
    return Charge(
        stage=name,
        query=_marked(query or name, stage),
        mechanism="planned",
        rows=stage.rows,
        neighbors=plan.request.trust.neighbors,
        sensitivity=float("nan"),  # of a score these are known only once its cut is
        noise_sd=float("nan"),
        cost=Cost(stage.charged, stage.epsilon, stage.delta),
        unit=plan.request.trust.protected,
    )


def _marked(query: str, stage: Stage) -> str:
    return f"{query} {PARALLEL}" if stage.charged < stage.rho else query


class Vault(Sealed):
    """Opaque handle on the rows of one fit."""

    __slots__ = (
        "_batches",
        "_entropy",
        "_keep",
        "_layout",
        "_marks",
        "_noise",
        "_part",
        "_plan",
        "_rows",
        "_spaces",
        "_stage",
        "_unspent",
        "_values",
        "_watch",
        "real_noise",
        "size",
    )

    @guarded
    def __init__(
        self,
        source: Source,
        plan: Plan,
        noise_source: noise.NoiseSource,
        watch: Watch | None = None,
    ) -> None:
        self._rows = source.rows
        self._plan = plan
        self._noise = noise_source
        self._watch = watch
        self._unspent = {stage.name: stage for stage in plan.stages}
        self._layout: Layout | None = None
        self._batches: list[Batch] | None = None
        self._values: dict[tuple[int, int], Remembered] = {}
        self._spaces: list[Space] = []  # rows are in them, as they are in batches
        self.size = public_size(source, plan.request)
        self.real_noise = noise_source.real
        self._entropy, self._stage = 0, ""
        self._marks: Marks | None = None
        self._keep, self._part = self._assign()

    # -- which rows --------------------------------------------------------------------------

    def _assign(self) -> tuple[Mask, Integers]:
        """Which rows count (units cut to max_rows) and the part of each."""
        trust, shares = self._plan.request.trust, part_shares(self._plan)
        if isinstance(self._rows, Spark):  # by each executor, for its own rows
            self._entropy = self._noise.entropy() if len(shares) > 1 else 0
            return np.zeros(0, bool), np.zeros(0, np.int64)
        if isinstance(self._rows, Stored) and trust.unit is not None:  # by DuckDB, in its tables
            self._entropy = self._noise.entropy() if len(shares) > 1 else 0
            of_units = self._parts_of_units if len(shares) > 1 else None
            self._marks = self._rows.marks(trust.unit, trust.max_rows, of_units)
            return np.zeros(0, bool), np.zeros(0, np.int64)
        size = self._rows.size()
        codes: Integers | None = None
        names: tuple[str, ...] = ()
        keep = np.ones(size, bool)
        if trust.unit is not None:
            column = _unit_column(self._rows, trust.unit)
            codes, names = column.codes, column.labels
            assert codes is not None
            keep = first_rows(codes, trust.max_rows)
        if len(shares) == 1:
            return keep, np.zeros(size, np.int64)
        entropy = self._noise.entropy()
        return keep, parts(
            size, shares, neighbors=trust.neighbors, entropy=entropy, units=codes, names=names
        )

    def _parts_of_units(self, names: Sequence[str]) -> Integers:
        return parts(
            len(names), part_shares(self._plan), neighbors=self._neighbors, entropy=self._entropy,
            units=np.arange(len(names)), names=names,
        )  # fmt: skip

    # -- what is measured --------------------------------------------------------------------

    def arrange(self, schema: Schema, designs: Sequence[Design], groups: Sequence[Group]) -> None:
        """Fix the domains, designs and groups by which rows are cleaned from here on."""
        self._layout = Layout(self._plan.request, schema, tuple(designs), tuple(groups))
        self._batches, self._values = None, {}

    def _raw(self, names: Sequence[str]) -> Iterator[RawBatch]:
        for _, columns, keep, _ in self._marked([(name, False) for name in names]):
            yield RawBatch(columns, keep)

    def _wanted(self, layout: Layout) -> tuple[tuple[str, bool], ...]:
        kinds, schema = self._rows.header.kinds, layout.schema
        return tuple((name, reads_labels(schema[name], kinds[name])) for name in layout.variables)

    def _clean(self) -> Iterator[Batch]:
        if self._batches is not None:
            yield from self._batches
            return
        made = []
        for block in self._blocks():
            batch = self._batch(block)
            if self._keeps:
                made.append(batch)
            yield batch
        self._batches = made or None

    @property
    def _keeps(self) -> bool:
        """Whether there are few enough rows to keep what was made of them."""
        return self._rows.size() <= (max(KEEP_ROWS, KEEP_HELD) if self._rows.held else KEEP_ROWS)

    def _blocks(self) -> Iterator[MarkedBlock]:
        assert self._layout is not None
        return self._marked(self._wanted(self._layout))

    def _marked(
        self, wanted: Sequence[tuple[str, bool]], rows: int | None = None
    ) -> Iterator[MarkedBlock]:
        """Blocks of rows, which of them count, and the part of each."""
        blocks = at_least_one(self._rows.blocks(wanted, BATCH if rows is None else rows), wanted)
        if self._marks is not None:
            return self._marks.beside(blocks)
        return ((at, columns, self._keep[at], self._part[at]) for at, columns in blocks)

    def _batch(self, block: MarkedBlock) -> Batch:
        _, columns, keep, part = block
        assert self._layout is not None
        return Batch(columns, part, keep, self._layout)

    # -- what leaves -------------------------------------------------------------------------

    @spending
    def release(self, planned: Stage, mechanism: Mechanism) -> Release:
        """One noisy sum over the rows of the stage's part, at the stage's price."""
        self._refuse_nothing()
        return self._exit(planned, mechanism, self._sum(mechanism, self._select(planned.part)))

    @spending
    def release_solution(self, planned: Stage, solution: Solution) -> Release:
        """What is solved for on the rows of the stage's part, at the stage's price."""
        self._refuse_nothing()
        part = self._select(planned.part)
        counted = (b if part is None else b.only(part) for b in self._clean())
        return self._exit(planned, solution, solution.solve(counted))

    @spending
    def release_raw(
        self, planned: Stage, mechanism: Mechanism, variables: Sequence[str]
    ) -> Release:
        """The same over raw columns, before domains are known."""
        if isinstance(self._rows, Spark):
            wanted = tuple((name, False) for name in variables)
            return self._exit(planned, mechanism, self._sent(Job(mechanism, wanted, None))[0])
        total = ExactSum(len(mechanism.units))
        done = 0
        for batch in self._raw(variables):
            total.add(mechanism.integers(batch))  # type: ignore[arg-type]  # a raw mechanism
            done += len(batch.keep)
            self._tell(done)
        return self._exit(planned, mechanism, total.value())

    @spending
    def release_folds(self, planned: Stage, mechanism: Mechanism) -> tuple[Release, ...]:
        """One noisy sum per fold. Folds are disjoint, so together they cost the stage once.

        A unit that is replaced by one of another name may move: one fold loses its part v of the
        sum, another gains w, and the joint vector changes by sqrt(|v|^2 + |w|^2) <= sqrt(2) r, if r
        is the sensitivity to adding or removing. That must be no more than one sum changes by.
        """
        _check_move(mechanism.sensitivity("substitute"), mechanism.sensitivity("add_remove"))
        self._refuse_nothing()
        sums = self._sums(mechanism, tuple(range(FOLDS)))
        return tuple(self._exit(planned, mechanism, fold) for fold in sums)

    @spending
    def boost(self, planned: Stage, boosting: Boosting) -> Release:
        """All rounds of a boosting at the stage's price, each answered before the next is asked.

        The release's value holds the rounds' noisy sums, shape (rounds * width,). The budget shows
        them as the one Gaussian query that has their price.
        """
        self._refuse_nothing()
        return self._rounds(planned, boosting, self._select(planned.part))

    @spending
    def boost_folds(self, planned: Stage, boosting: Boosting) -> tuple[Release, ...]:
        """One boosting per fold. Folds are disjoint, so together they cost the stage once.

        Units that move between folds: as for `release_folds`, in each round.
        """
        _check_move(boosting.sensitivity("substitute"), boosting.sensitivity("add_remove"))
        self._refuse_nothing()
        return tuple(self._rounds(planned, boosting, fold) for fold in range(FOLDS))

    def _rounds(self, stage: Stage, boosting: Boosting, part: int | None) -> Release:
        neighbors, ones = self._neighbors, np.ones(boosting.width)
        whole = self._query(
            stage, boosting.query, ones, boosting.sensitivity(neighbors, whole=True)
        )
        one = boosting.sensitivity(neighbors) * self._plan.request.trust.max_rows
        query = noise.Query(boosting.query, ones, one, whole.scale)
        rows = [boosting.prepare(b if part is None else b.only(part)) for b in self._clean()]
        answers = []
        for number in range(boosting.rounds):
            total = sum((boosting.integers(r) for r in rows), np.zeros(boosting.shape, np.int64))
            exact = boosting.by_leaf(total, number)
            noisy = self._noise.gaussian(exact.ravel(), query) * boosting.unit
            step = boosting.step(noisy.reshape(exact.shape), number)
            for batch in rows:
                boosting.advance(batch, step)
            answers.append(noisy)
            if self._watch is not None:
                self._watch(stage.name, len(answers) / boosting.rounds, "rounds")
        charge = self._charge(
            stage, query.name, boosting.name,
            whole.sensitivity * boosting.unit, whole.scale * boosting.unit,
        )  # fmt: skip
        sd = np.tile(self._noise.sd(query) * boosting.unit, boosting.rounds)
        return Release(np.concatenate(answers), sd, charge)

    @spending
    def fit_declared(self, planned: Stage, order: DeclaredFit) -> tuple[Declared, Release]:
        """What a private estimator learns on the rows of the stage's part.

        It adds its own noise, and its guarantee is what it declares.
        """
        part = self._select(planned.part)
        batches = [b if part is None else b.only(part) for b in self._clean()]
        learned = order.run(batches, self._neighbors)
        unknown = float("nan")
        query = planned.name.partition(": ")[2]
        charge = self._charge(planned, query, order.name, unknown, unknown)
        return learned, Release(np.zeros(0), np.zeros(0), charge)

    def release_published(
        self, effect: str, variance: str, mechanism: PublishedAte
    ) -> tuple[Release, Release]:
        """An estimate and its squared standard error, at the price that a paper claims.

        No noise scale is told: it depends on the rows.
        """
        return self._published((self._take(effect), self._take(variance)), mechanism)

    @guarded
    def _published(
        self, stages: tuple[Stage, Stage], mechanism: PublishedAte
    ) -> tuple[Release, Release]:
        part = self._select(stages[0].part)
        batches = [b if part is None else b.only(part) for b in self._clean()]

        def add_noise(name: str, exact: float, unit: float, sd: float) -> float:
            whole = np.array([np.rint(exact / unit)], np.int64)
            query = noise.Query(name, np.ones(1), float("nan"), float(sd / unit * SAFETY))
            return float(self._noise.gaussian(whole, query)[0]) * unit

        values = mechanism.answer(batches, *stages, add_noise)
        words = ("AIPW mean", "squared error")
        unknown = float("nan")
        first, second = (
            Release(
                np.array([value]),
                np.array([unknown]),
                self._charge(stage, query, mechanism.name, unknown, unknown),
            )
            for value, stage, query in zip(values, stages, words, strict=True)
        )
        return first, second

    @spending
    def release_network(self, planned: Stage, order: PrivateNetwork) -> Release:
        """Weights of a network after noisy steps, at the (epsilon, delta) of its accountant."""
        self._refuse_nothing()
        part = self._select(planned.part)
        batches = [b if part is None else b.only(part) for b in self._clean()]

        def add_noise(exact: Integers, sensitivity: float, sd: float) -> Integers:
            query = noise.Query(order.query, np.ones(len(exact)), sensitivity, sd * SAFETY)
            return self._noise.gaussian(exact, query)

        weights = order.train(batches, self._neighbors, self._noise.coins, add_noise)
        # per step, in clipping norms
        moved, sd = order.sensitivity(self._neighbors), order.multiplier
        charge = self._charge(planned, order.query, order.name, moved, sd)
        return Release(weights, np.full(len(weights), np.nan), charge)

    @spending
    def release_answers(
        self, planned: Stage, mechanism: PublishedAnswers | PublishedLogits
    ) -> Release:
        """Numbers at the price that a paper claims; no noise scale is told."""
        values = mechanism.answer(*self._halves(), planned, claimed_noise(self._noise))
        return Release(values, np.full(len(values), np.nan), self._claimed(planned, mechanism))

    @spending
    def release_process(
        self, planned: Stage, mechanism: PublishedProcess
    ) -> tuple[Release, Process]:
        """A function to be asked point by point, at the price that a paper claims. It is secret."""
        process = mechanism.process(*self._halves(), planned, claimed_noise(self._noise))
        return Release(np.zeros(0), np.zeros(0), self._claimed(planned, mechanism)), process

    def _halves(self) -> tuple[list[Batch], list[Batch]]:
        batches = list(self._clean())
        return [b.only(0) for b in batches], [b.only(1) for b in batches]

    def _claimed(
        self, stage: Stage, mechanism: PublishedAnswers | PublishedProcess | PublishedLogits
    ) -> Charge:
        unknown = float("nan")
        return self._charge(stage, mechanism.query, mechanism.name, unknown, unknown)

    @spending
    def select(self, planned: Stage, selection: LabelSelection) -> Release:
        """Labels of an undeclared text column whose noisy counts pass the threshold, sorted."""
        labels, counts = self._tally(selection.column)
        # only labels of rows that count: of the other rows' labels a unit may bring any number,
        # and delta pays for max_rows of them
        names = sorted(label for label, c in zip(labels, counts, strict=True) if c)
        at = {label: code for code, label in enumerate(labels)}
        exact = counts[[at[name] for name in names]]
        query = self._query(
            planned,
            selection.query,
            np.ones(len(exact)),
            selection.sensitivity(self._neighbors) / selection.max_rows,
        )
        noisy = self._noise.gaussian(exact, query)
        passed = noisy >= selection.threshold(query.scale)
        found = tuple(name for name, p in zip(names, passed, strict=True) if p)
        charge = self._charge(
            planned, selection.query, selection.name, query.sensitivity, query.scale
        )
        return Release(np.zeros(0), np.zeros(0), charge, found)

    def _tally(self, name: str) -> tuple[tuple[str, ...], Integers]:
        if isinstance(self._rows, Spark):
            trust = self._plan.request.trust
            return self._rows.tally(name, trust.unit, trust.max_rows, self._order)
        counts: dict[str, int] = {}
        # rows in memory have one list of labels: they are one block
        rows = max(self._rows.size(), 1) if self._rows.held else BATCH
        for _, columns, keep, _ in self._marked([(name, True)], rows):
            codes, labels = columns[name].codes, columns[name].labels
            assert codes is not None
            found = np.bincount(codes[keep & (codes >= 0)], minlength=len(labels))
            for label, count in zip(labels, found.tolist(), strict=True):
                counts[label] = counts.get(label, 0) + count
        return tuple(counts), np.array(list(counts.values()), np.int64)

    @property
    def _order(self) -> tuple[str, ...]:
        """Columns by which the rows of a unit are sorted, where they have no order."""
        return tuple(sorted(self._plan.request.columns))

    @property
    def _neighbors(self) -> Any:
        return self._plan.request.trust.neighbors

    def _take(self, name: str, order: object = None) -> Stage:
        """The stage of this name, which is spent from here on, at a price that the order has."""
        if name not in self._unspent:
            raise BudgetError(f"stage {name!r} is not in the plan, or was spent already")
        stage = self._unspent[name]
        law = "gaussian" if stage.rho else "laplace"
        if isinstance(order, Query) and getattr(order, "law", law) != law:
            raise CapabilityError(
                f"the weights of {order.query!r} are for another noise than stage {name!r} has"
            )
        if isinstance(order, Mechanism | Solution) and not stage.rho:
            order.l1_sensitivity(self._neighbors)  # raises where it has none
        self._stage = name
        self._tell()
        return self._unspent.pop(name)

    def _tell(self, rows: int | None = None) -> None:
        """Of the stage and the rows it has read; None of them counts nothing."""
        if self._watch is not None:
            # how many rows there are is public only where it does not depend on the units
            trust = self._plan.request.trust
            public = trust.neighbors == "substitute" and trust.unit is None
            share = rows / max(self._rows.size(), 1) if rows and public else None
            self._watch(self._stage, share, "rows")

    def _select(self, part: str) -> int | None:
        """The number of a part of the rows, or None for all."""
        return None if part == "all" else _parts(self._plan).index(part)

    def _refuse_nothing(self) -> None:
        """With no noise at all, sums over no complete row are zero, and nothing divides by them."""
        probe = noise.Query("probe", np.ones(1), 1.0, 1.0)
        silent = not self.real_noise and not self._noise.sd(probe).any()
        # the one has no rows in any case, and the other none here
        silent = silent and not isinstance(self._rows, Aggregates | Spark)
        if silent and not any(batch.complete.any() for batch in self._clean()):
            raise DataError(
                "no row of the data is complete: without noise there is nothing to estimate. With "
                "the noise of a real fit nobody would be told"
            )

    def _sum(self, mechanism: Mechanism, part: int | None) -> Integers:
        request = self._plan.request
        if part is None and request.trust.unit is None and request.split == "full":
            counted = self._counted(mechanism)
            if counted is not None:
                return counted
        return self._sums(mechanism, (part,))[0]

    def _sums(self, mechanism: Mechanism, parts: tuple[int | None, ...]) -> list[Integers]:
        """The sums over some parts of the rows (None: all), in one pass."""
        if isinstance(self._rows, Spark):
            assert self._layout is not None
            trust, shares = self._plan.request.trust, part_shares(self._plan)
            unit = trust.unit if len(shares) > 1 else None
            wanted = self._wanted(self._layout)
            return self._sent(
                Job(mechanism, wanted, self._layout, parts, shares, self._entropy, unit)
            )

        spaces, free, taken = threading.local(), self._spaces, list[Space]()
        remembers = self._rows.ordered and not self._keeps and self._rows.size() <= KEEP_VALUES
        before, self._values = self._values, {}
        width = getattr(getattr(mechanism, "features", None), "size", 0)
        roomy = self._keeps and self._rows.size() * width <= KEEP_NUMBERS

        def streamed(block: MarkedBlock | Batch) -> tuple[Integers, Batch]:
            # threads of a pool do not have the caller's error state
            with np.errstate(all="ignore"):
                return worked(block)

        def worked(block: MarkedBlock | Batch) -> tuple[Integers, Batch]:
            if not hasattr(spaces, "own"):
                spaces.own = free.pop() if free else Space()
                taken.append(spaces.own)
            batch = block if isinstance(block, Batch) else self._batch(block)
            at = (0, 0) if isinstance(block, Batch) else (block[0].start, block[0].stop)
            batch.rows.before, batch.rows.roomy = before.pop(at, {}), roomy
            with batch.rows.within(spaces.own):
                sums = in_parts(mechanism, batch, parts)
            if remembers:  # what this pass made no use of is let go
                self._values[at] = batch.rows.remembered()
            return sums, batch

        total, done, made = ExactSum(len(parts) * len(mechanism.units)), 0, []
        blocks: Iterable[MarkedBlock | Batch] = self._batches or self._blocks()
        threads = THREADS if self._rows.size() > KEEP_ROWS else 1
        for sums, batch in in_threads(streamed, blocks, threads):
            total.add(sums)
            if self._keeps:
                made.append(batch)
            done += len(batch.rows)
            self._tell(done)
        self._batches, self._spaces = made or None, taken
        return np.split(total.value(), len(parts))

    def _sent(self, job: Job) -> list[Integers]:
        """Sums that Spark's executors make of their own rows, by part."""
        assert isinstance(self._rows, Spark)
        trust = self._plan.request.trust
        # what fails here fails for every table, and not only where an executor has a row
        unit = nothing([(job.unit, True)])[job.unit] if job.unit is not None else None
        job.integers(nothing(job.wanted), unit, 0, Space())
        total = self._rows.sums(job, BATCH, trust.unit, trust.max_rows, self._order)
        return np.split(total, len(job.parts))

    def _counted(self, mechanism: Mechanism) -> Integers | None:
        """The sum of all rows where the rows live, if they live where SQL runs."""
        layout = self._layout
        assert layout is not None
        kinds = self._rows.header.kinds
        wanted = [(n, reads_labels(layout.schema[n], kinds[n])) for n in layout.needed]
        statement = mechanism.statement(layout, frozenset(n for n, labels in wanted if labels))
        rows = None if statement is None else self._rows.counted(statement, wanted)
        return None if rows is None else mechanism.tallied(rows)

    def _query(self, stage: Stage, name: str, weights: Any, sensitivity: float) -> noise.Query:
        """Noise for one stage: sigma = Delta / sqrt(2 rho), Delta = max_rows x one row's change."""
        delta = sensitivity * self._plan.request.trust.max_rows
        sigma = delta / np.sqrt(2 * stage.rho / PICO) * SAFETY
        return noise.Query(name, weights, delta, float(sigma))

    def _pure(self, stage: Stage, name: str, weights: Any, sensitivity: float) -> noise.Query:
        """Laplace noise for a stage priced in epsilon: b = Delta / epsilon, Delta in l1."""
        delta = sensitivity * self._plan.request.trust.max_rows
        b = delta / (stage.epsilon / PICO) * SAFETY
        return noise.Query(name, weights, delta, float(b), "laplace")

    def _exit(self, stage: Stage, mechanism: Query, exact: Integers) -> Release:
        """The one place where private integers become an output."""
        if stage.rho:
            size, name = mechanism.sensitivity(self._neighbors), mechanism.name
            query = self._query(stage, mechanism.query, mechanism.weights, size)
            noisy = self._noise.gaussian(exact, query)
        else:
            size, name = mechanism.l1_sensitivity(self._neighbors), "discrete Laplace"
            query = self._pure(stage, mechanism.query, mechanism.weights, size)
            noisy = self._noise.laplace(exact, query)
        units = mechanism.units
        first = float(units[0])
        spread = query.scale
        if query.law == "laplace":
            spread = float(noise.standard_deviation(query)[0] * query.weights[0])
        charge = self._charge(stage, query.name, name, query.sensitivity * first, spread * first)
        return Release(noisy * units, self._noise.sd(query) * units, charge)

    def _charge(
        self, stage: Stage, query: str, mechanism: str, sensitivity: float, noise_sd: float
    ) -> Charge:
        return Charge(
            stage.name.partition(":")[0],
            _marked(query, stage),
            mechanism,
            self._neighbors,
            float(sensitivity),
            float(noise_sd),
            Cost(stage.charged, stage.epsilon, stage.delta),
            stage.rows,
            self._plan.request.trust.protected,
        )


def _check_move(substituted: float, removed: float) -> None:
    """A unit that moves to another fold changes both; see `Vault.release_folds`."""
    if substituted < np.sqrt(2.0) * removed * (1 - 1e-9):
        raise CapabilityError("this sum cannot be released by fold: a unit's move would cost more")


def claimed_noise(source: noise.NoiseSource) -> AddNoise:
    """Noise of a scale that is not proven, and not told. It holds no rows: a process keeps it."""

    def add(name: str, exact: Vector, unit: float, sd: float) -> Vector:
        whole = np.rint(exact / unit).astype(np.int64)
        query = noise.Query(name, np.ones(len(whole)), float("nan"), float(sd / unit * SAFETY))
        return np.asarray(source.gaussian(whole, query) * unit)

    return add


def _parts(plan: Plan) -> list[str]:
    """Names of the parts of the rows, in the order in which stages ask for them."""
    named = [part for part in dict.fromkeys(s.part for s in plan.stages) if part != "all"]
    return ["nuisance", *named] if named == ["effect"] else named


def part_shares(plan: Plan) -> tuple[float, ...]:
    """Shares of the rows by part: one part, a nuisance and an effect part, or folds."""
    split = plan.request.split
    if split == "disjoint":
        of = {s.part: s.rows for s in plan.stages}
        # estimators that read their half themselves have no stage
        return tuple(of.get(part, 1.0 - sum(of.values())) for part in _parts(plan))
    return (1.0 / FOLDS,) * FOLDS if split == "crossfit" else (1.0,)


def _unit_column(rows: Table, unit: str) -> RawColumn:
    return rows.column(unit, as_labels=True)
