"""A bar on stderr that moves with the stages of a fit: their names are public, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FORMAT = "{desc}: {bar}| {n_fmt}/{total_fmt} stages [{elapsed}]"


@contextmanager
def stage_bar(names: Sequence[str], shown: bool) -> Iterator[Callable[[str], None] | None]:
    """What is to be told the name of each stage as it begins, or None where nothing is shown.

    Parameters
    ----------
    names : sequence of str
        All planned stages in order; one that is not needed in the end is passed over.
    """
    if not shown:
        yield None
        return
    bars: list[Any] = []

    def begin(name: str) -> None:
        if not bars:  # not before there is something to wait for: arguments may be refused
            bars.append(_bar(len(names)))
        (bar,) = bars
        bar.set_description_str(name, refresh=False)
        bar.n = max(bar.n, names.index(name))
        bar.refresh()

    try:
        yield begin
        for bar in bars:
            bar.set_description_str("done", refresh=False)
            bar.n = bar.total
            bar.refresh()
    finally:
        for bar in bars:
            bar.close()


def _bar(total: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without widgets has the plain bar
        from tqdm.auto import tqdm

        return tqdm(total=total, dynamic_ncols=True, bar_format=FORMAT)
