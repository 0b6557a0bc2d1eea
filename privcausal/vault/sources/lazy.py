"""Rows of a polars LazyFrame, collected in batches by the streaming engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from privcausal.spec.columns import Header, LabelColumns, header
from privcausal.typing import Integers
from privcausal.vault.sources import stored


class Lazy(stored.Stored):
    """A query that polars runs anew for each pass; only the columns asked for are computed."""

    __slots__ = ()

    def __init__(self, frame: Any) -> None:
        # rows of a query may come in another order each time
        super().__init__(frame, ordered=False, columns=header_of(frame))

    def size(self) -> int:
        if self._size is None:
            self._size = int(stored.read(self._count))
        return self._size

    def _count(self) -> Any:
        import polars as pl

        return self._relation.select(pl.len()).collect(engine="streaming").item()

    def _stream(self, names: Sequence[str]) -> Iterator[Any]:
        batches = stored.read(lambda: _collected(self._relation.select(list(names))))
        while (batch := stored.read(lambda: next(batches, None))) is not None:
            yield from batch.to_arrow().to_batches()

    def typed(self, labels: LabelColumns) -> Lazy:
        return self

    def counted(self, statement: str, wanted: Sequence[tuple[str, bool]]) -> Integers | None:
        return None


def _collected(query: Any) -> Iterator[Any]:
    if hasattr(query, "collect_batches"):
        return iter(query.collect_batches(chunk_size=stored.STREAM, engine="streaming"))
    # older versions of polars hold the columns asked for
    return iter(query.collect(engine="streaming").iter_slices(stored.STREAM))


def is_lazy(value: object) -> bool:
    """Whether this is a polars LazyFrame, without importing polars."""
    kind = type(value)
    return kind.__name__ == "LazyFrame" and kind.__module__.startswith("polars")


def header_of(frame: Any) -> Header:
    """Names and kinds, from an empty frame of the query's types."""
    import narwhals as nw

    empty = frame.collect_schema().to_frame(eager=True)
    return header(nw.from_native(empty, eager_only=True))
