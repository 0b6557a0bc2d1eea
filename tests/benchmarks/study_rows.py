"""Rows of a study: a Parquet file, and a CSV file beside it to which a running study appends."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd


def read_rows(file: Path, columns: Sequence[str], texts: Collection[str]) -> pd.DataFrame:
    """The rows of a Parquet file, then those beside it; a last line that was cut off is left out.

    All columns but `texts` are floats.
    """
    appended, found = file.with_suffix(".csv"), []
    if file.exists():
        found.append(pd.read_parquet(file).apply(_restored))
    if appended.exists():
        with appended.open(newline="", encoding="utf-8") as text:
            whole = [line for line in text if line.endswith("\n")]
        rows = [row for row in csv.reader(whole[1:]) if len(row) == len(columns)]
        found.append(pd.DataFrame(rows, columns=list(columns)))
    if not found:
        return pd.DataFrame(columns=list(columns))
    numbers = {column: float for column in columns if column not in texts}
    return pd.concat([part.astype(numbers) for part in found], ignore_index=True)


def store_rows(rows: pd.DataFrame, file: Path) -> None:
    """Write all rows to the Parquet file, and remove the CSV file."""
    small = rows.apply(_smallest)
    texts = [name for name in small if small[name].dtype.kind not in "fi"]
    small.to_parquet(
        file, index=False, compression="zstd", compression_level=19, use_dictionary=texts,
        column_encoding={n: "BYTE_STREAM_SPLIT" for n in small if small[n].dtype.kind == "f"},
    )  # fmt: skip
    file.with_suffix(".csv").unlink(missing_ok=True)


@contextmanager
def appending(
    file: Path, columns: Sequence[str], texts: Collection[str]
) -> Iterator[Callable[[Iterable[Sequence[object]]], None]]:
    """A function that appends rows at once; the end moves them into the Parquet file.

    A study that is killed leaves them in the CSV file, from which `read_rows` takes them.
    """
    if file.with_suffix(".csv").exists():  # killed, perhaps while a row was written
        store_rows(read_rows(file, columns, texts), file)
    with file.with_suffix(".csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)

        def append(rows: Iterable[Sequence[object]]) -> None:
            writer.writerows(rows)
            out.flush()

        try:
            yield append
        finally:
            out.flush()
            store_rows(read_rows(file, columns, texts), file)


def numbers_digest(numbers: Iterable[float]) -> str:
    """Eight hexadecimal digits that tell rows of one version of the code from those of another.

    `numbers` are what a method gives on small tables under seeded noise: code that is written
    otherwise and says the same, to three digits, keeps its rows.
    """
    digest = hashlib.sha256()
    for number in numbers:
        digest.update(f"{number:.3g} ".encode())
    return digest.hexdigest()[:8]


def _smallest(column: pd.Series) -> pd.Series:
    """Numbers in the smallest type that gives them back."""
    if column.dtype.kind not in "fi":
        return column
    if column.notna().all() and (column == column.round()).all():
        return pd.to_numeric(column.astype(np.int64), downcast="integer")
    single = column.astype(np.float32)
    return single if _restored(single).equals(column) else column


def _restored(column: pd.Series) -> pd.Series:
    """The short decimal numbers of which these are the nearest of single precision."""
    return column.astype(str).astype(float) if column.dtype == np.float32 else column
