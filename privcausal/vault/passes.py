"""Passes over the rows: make batches and compute exact sums, wherever the rows are stored.

This module does not add noise and does not handle costs. Its results go only to the `Vault` that
owns it.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from privcausal.features.design import Cache, Design, Space
from privcausal.request.formula import Group
from privcausal.request.request import Plan
from privcausal.request.schema import Schema
from privcausal.typing import Integers, Mask
from privcausal.vault.batch import Batch, Layout, dealt, first_rows, part_shares, reads_labels
from privcausal.vault.exit import ExactSum, SummedQueries
from privcausal.vault.guard import Opaque
from privcausal.vault.queries.cells import CellSums, ColumnHistograms, SurvivalScore
from privcausal.vault.sources import memory
from privcausal.vault.sources.cell_table import Aggregates
from privcausal.vault.sources.spark import RemoteSum, Spark
from privcausal.vault.sources.stored import MarkedBlock, Marks, Stored

S = TypeVar("S")
T = TypeVar("T")

BATCH = 1 << 15
"""Rows per batch. Products of 2 x 16 bits sum exactly in float64, a few columns fit into the cache,
and threads seldom wait for the interpreter.
"""

KEEP_ROWS = 1 << 18
"""Up to this many rows, cleaned batches and function values on them are kept between passes."""

KEEP_HELD = 1 << 20
"""The limit for rows already in memory: about 300 bytes per row with six columns."""

KEEP_VALUES = 1 << 24
"""The limit for values of fitted functions, three numbers per row, if rows are read again."""

KEEP_NUMBERS = 1 << 25
"""If batches are kept, matrices with up to this many 32-bit entries are kept too."""

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

THREADS = max(1, min(4, _CORES // 2))
"""Threads that process blocks, one for every two cores. With more threads, the interpreter switches
between them so often that a fit takes as long but uses half as much CPU time again.
"""

Watch: TypeAlias = Callable[[str, float | None, str], None]
"""Callback that receives the stage, the share done (None: not public), and "rows" or "rounds"."""


class Progress:
    """Report to a watch the share of the stage that is done, if it is public. Holds no rows."""

    def __init__(self, plan: Plan, watch: Watch | None) -> None:
        trust = plan.request.trust
        # The number of rows is public only if it does not depend on the units.
        self._public = trust.neighbors == "substitute" and trust.unit is None
        self._stage = ""
        self.watch = watch

    def start(self, stage: str) -> None:
        self._stage = stage
        if self.watch is not None:
            self.watch(stage, None, "rows")

    def rows(self, done: int, of: memory.RowSource) -> None:
        if self.watch is not None:
            # Counting may be a separate job. Count only if the number is public.
            countable = done and self._public
            self.watch(self._stage, done / max(of.size(), 1) if countable else None, "rows")

    def rounds(self, share: float) -> None:
        if self.watch is not None:
            self.watch(self._stage, share, "rounds")


class Passes(Opaque):
    """The rows of one fit, and the values computed from them.

    `entropy` is called only if the rows are split.
    """

    __slots__ = (
        "_batches", "_clusters", "_entropy", "_keep", "_layout", "_marks", "_part", "_plan",
        "_progress", "_rows", "_shares", "_spaces", "_values", "score",
    )  # fmt: skip

    def __init__(
        self, rows: memory.RowSource, plan: Plan, entropy: Callable[[], int], progress: Progress
    ) -> None:
        self._rows = rows
        self._plan = plan
        self._progress = progress
        self._layout: Layout | None = None
        self.score: SurvivalScore | None = None  # of the rows in later layouts
        self._batches: list[Batch] | None = None
        self._values: dict[tuple[int, int], Cache] = {}
        self._spaces: list[Space] = []  # They hold rows, as batches do.
        self._shares = part_shares(plan)
        self._entropy = entropy() if len(self._shares) > 1 else 0
        self._marks: Marks | None = None
        self._keep, self._part = self._assign()
        self._clusters: Integers | None = None
        if plan.request.cluster is not None:  # Whole columns are available: see `admission`.
            self._clusters = rows.column(plan.request.cluster.column, as_labels="units").codes

    def set_layout(
        self, schema: Schema, designs: Sequence[Design], groups: Sequence[Group]
    ) -> None:
        """Set the domains, designs, and groups used to clean rows from now on."""
        self._layout = Layout(self._plan.request, schema, tuple(designs), tuple(groups), self.score)
        self._batches, self._values = None, {}

    # -- which rows --------------------------------------------------------------------------

    def _assign(self) -> tuple[Mask, Integers]:
        """Mask of kept rows and their parts. Both are empty if DuckDB or Spark stores them.

        Each unit keeps at most max_rows rows.
        """
        trust, rows = self._plan.request.trust, self._rows
        if isinstance(rows, Stored) and trust.unit is not None:  # DuckDB keeps them.
            parts = self._dealt if len(self._shares) > 1 else None
            self._marks = rows.marks(trust.unit, trust.max_rows, parts)
        if isinstance(rows, Spark) or self._marks is not None:  # Spark's executors assign parts.
            return np.zeros(0, bool), np.zeros(0, np.int64)
        size = rows.size()
        codes: Integers | None = None
        names: tuple[str, ...] = ()
        keep = np.ones(size, bool)
        if trust.unit is not None:
            column = rows.column(trust.unit, as_labels="units")
            codes, names = column.codes, column.labels
            assert codes is not None
            keep = first_rows(codes, trust.max_rows)
        return keep, self._dealt(names, codes, size)

    def _dealt(
        self, names: Sequence[str], units: Integers | None = None, size: int | None = None
    ) -> Integers:
        """The part of each row; without a number of rows, the part of each unit."""
        if size is None:
            size, units = len(names), np.arange(len(names))
        if len(self._shares) == 1:
            return np.zeros(size, np.int64)
        return dealt(
            size,
            self._shares,
            neighbors=self._plan.request.trust.neighbors,
            entropy=self._entropy,
            units=units,
            names=names,
        )

    # -- batches -----------------------------------------------------------------------------

    def batches(self, part: int | None = None) -> Iterator[Batch]:
        """Cleaned rows. Rows outside the part are excluded (None: all rows)."""
        fresh = self._batches is None
        made = []
        for batch in self._batches or map(self._batch, self._marked(self._wanted)):
            if fresh and self._keeps:
                made.append(batch)
            yield batch if part is None else batch.only(part)
        if fresh:
            self._batches = made or None

    def none_complete(self) -> bool:
        """Whether the rows can be checked here, and all of them are incomplete."""
        if isinstance(self._rows, Aggregates | Spark):
            return False  # No rows are held here.
        return not any(batch.complete.any() for batch in self.batches())

    @property
    def _keeps(self) -> bool:
        """Whether the table is small enough to keep values computed from the rows."""
        return self._rows.size() <= (max(KEEP_ROWS, KEEP_HELD) if self._rows.held else KEEP_ROWS)

    @property
    def _wanted(self) -> tuple[tuple[str, bool], ...]:
        """Columns of the layout, and whether each is read as labels."""
        assert self._layout is not None
        kinds, schema = self._rows.header.kinds, self._layout.schema
        names = self._layout.variables
        return tuple((name, reads_labels(schema[name], kinds[name])) for name in names)

    def _marked(self, wanted: memory.Wanted, rows: int | None = None) -> Iterator[MarkedBlock]:
        """Blocks of rows, with a mask of kept rows and the part of each row."""
        blocks = self._rows.blocks(wanted, BATCH if rows is None else rows)
        # A table without rows has one block, which goes through the same steps as any other.
        first = next(blocks, (slice(0, 0), memory.no_rows(wanted)))
        blocks = chain([first], blocks)
        if self._marks is not None:
            return self._marks.beside(blocks)
        return ((at, columns, self._keep[at], self._part[at]) for at, columns in blocks)

    def _batch(self, block: MarkedBlock) -> Batch:
        at, columns, keep, part = block
        assert self._layout is not None
        clusters = None if self._clusters is None else self._clusters[at]
        return Batch(columns, part, keep, self._layout, clusters)

    # -- sums --------------------------------------------------------------------------------

    def raw_sum(self, mechanism: ColumnHistograms) -> Integers:
        """The sum over raw columns of all rows."""
        weight = () if mechanism.weight is None else (mechanism.weight,)
        wanted = tuple((name, False) for name in (*mechanism.variables, *weight))
        if isinstance(self._rows, Spark):
            return self._sent(mechanism, len(mechanism.units), wanted, None)
        total, done = ExactSum(len(mechanism.units)), 0
        for _, columns, keep, _ in self._marked(wanted):
            total.add(mechanism.integers(columns, keep))
            done += len(keep)
            self._progress.rows(done, self._rows)
        return total.value()

    def sums(self, queries: SummedQueries) -> list[list[Integers]]:
        """The sums of each mechanism over its parts of the rows, in one pass over them."""
        if isinstance(self._rows, Aggregates):
            table = self._rows.table
            cells = [mechanism for mechanism, _ in queries if isinstance(mechanism, CellSums)]
            count, steps = table.count.ravel(), table.steps.ravel()
            return [[mechanism.entries(count, steps, np.zeros(2))] for mechanism in cells]
        sizes = [len(parts) * len(mechanism.units) for mechanism, parts in queries]
        if isinstance(self._rows, Spark):
            total = self._sent(queries, sum(sizes), self._wanted, self._layout)
        else:
            total = self._summed(queries, sum(sizes))
        sums = np.split(total, np.cumsum(sizes)[:-1])
        return [np.split(s, len(parts)) for s, (_, parts) in zip(sums, queries, strict=True)]

    def _summed(self, queries: SummedQueries, size: int) -> Integers:
        """The sums over rows that are read here, in threads if there are many."""
        thread, free, taken = threading.local(), self._spaces, list[Space]()
        remembers = self._rows.ordered and not self._keeps and self._rows.size() <= KEEP_VALUES
        before, self._values = self._values, {}
        # The largest number of columns in any matrix that a mechanism builds from the rows
        width = max(getattr(getattr(m, "features", None), "size", 0) for m, _ in queries)
        keeps_matrices = self._keeps and self._rows.size() * width <= KEEP_NUMBERS

        def worked(block: MarkedBlock | Batch) -> tuple[Integers, Batch]:
            if not hasattr(thread, "space"):
                thread.space = free.pop() if free else Space()
                taken.append(thread.space)
            with np.errstate(all="ignore"):  # Pool threads do not inherit this.
                batch = block if isinstance(block, Batch) else self._batch(block)
                at = (0, 0) if isinstance(block, Batch) else (block[0].start, block[0].stop)
                batch.rows.cache |= before.pop(at, {})
                batch.rows.keeps_matrices = keeps_matrices
                with batch.rows.within(thread.space):
                    sums = [
                        mechanism.integers(batch if part is None else batch.only(part))
                        for mechanism, parts in queries
                        for part in parts
                    ]
            if remembers:  # Keep arrays, without the values that this pass did not use.
                self._values[at] = {
                    key: entry
                    for key, entry in batch.rows.cache.items()
                    if entry.lifetime == "used" and isinstance(entry.value, np.ndarray)
                }
            return np.concatenate(sums), batch

        total, done, made = ExactSum(size), 0, []
        blocks: Iterable[MarkedBlock | Batch] = self._batches or self._marked(self._wanted)
        threads = THREADS if self._rows.size() > KEEP_ROWS else 1
        results = map(worked, blocks) if threads == 1 else in_threads(worked, blocks, threads)
        for sums, batch in results:
            total.add(sums)
            if self._keeps:
                made.append(batch)
            done += len(batch.rows)
            self._progress.rows(done, self._rows)
        self._batches, self._spaces = made or None, taken
        return total.value()

    def tally(self, name: str) -> tuple[tuple[str, ...], Integers]:
        """Labels of a column, and the number of rows with each label."""
        if isinstance(self._rows, Spark):
            trust = self._plan.request.trust
            order = sorted(self._plan.request.columns)
            return self._rows.tally(name, trust.unit, trust.max_rows, order)
        counts: dict[str, int] = {}
        # Rows in memory share one list of labels, so they form one block.
        rows = max(self._rows.size(), 1) if self._rows.held else BATCH
        for _, columns, keep, _ in self._marked([(name, True)], rows):
            codes, labels = columns[name].codes, columns[name].labels
            assert codes is not None
            rows_with = np.bincount(codes[keep & (codes >= 0)], minlength=len(labels))
            for label, count in zip(labels, rows_with.tolist(), strict=True):
                counts[label] = counts.get(label, 0) + count
        return tuple(counts), np.array(list(counts.values()), np.int64)

    # -- sums computed by Spark's executors --------------------------------------------------

    def _sent(
        self,
        queries: SummedQueries | ColumnHistograms,
        size: int,
        wanted: tuple[tuple[str, bool], ...],
        layout: Layout | None,
    ) -> Integers:
        """Sums that Spark's executors compute over their own rows."""
        assert isinstance(self._rows, Spark)
        trust = self._plan.request.trust
        parts = layout is not None and len(self._shares) > 1
        job = RemoteSum(
            queries,
            size,
            wanted,
            layout,
            shares=self._shares,
            entropy=self._entropy,
            unit=trust.unit if parts else None,
        )
        # Run the job on no rows first. An error here occurs for every table, so it does not depend
        # on which executors have rows.
        unit = memory.no_rows([(job.unit, True)])[job.unit] if job.unit is not None else None
        job.integers(memory.no_rows(job.wanted), unit, 0, Space())
        order = sorted(self._plan.request.columns)  # The rows of a unit have no order.
        return self._rows.sums(job, BATCH, trust.unit, trust.max_rows, order)


def single_blas_thread() -> AbstractContextManager[object]:
    """Let the linear algebra of this process use one thread within the block."""
    limit: AbstractContextManager[object]
    limit = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
    return limit


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """Libraries of this process that have their own threads.

    A search takes milliseconds. It is repeated after an import, which may load another library.
    """
    return ThreadpoolController()


def in_threads(step: Callable[[S], T], blocks: Iterable[S], threads: int) -> Iterator[T]:
    """Yield step(block) for each block, in order, processing a few blocks at a time.

    The caller's thread reads the blocks, only a few ahead of those being processed. It also
    processes blocks itself, because a waiting thread would make the others switch the interpreter
    needlessly.
    """
    # Each thread computes its own products. Nested OpenBLAS threads would wait for each other.
    with warnings.catch_warnings(), single_blas_thread(), ThreadPoolExecutor(threads - 1) as pool:
        # Threads share the warning filters. A late reset would leave all warnings off.
        warnings.simplefilter("ignore")
        waiting: deque[Future[T]] = deque()
        for block in blocks:
            if sum(not future.done() for future in waiting) < threads:
                waiting.append(pool.submit(step, block))
            else:  # The other threads are busy.
                waiting.append(Future())
                waiting[-1].set_result(step(block))
            while waiting and (waiting[0].done() or len(waiting) > threads + 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
