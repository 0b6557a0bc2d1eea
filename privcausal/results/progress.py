"""A bar on stderr that moves with a fit's stages, and tells the share of rows or rounds done."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

TICK = 1.0
"""Seconds between two looks at the clock: within a long stage, as of boosting, it goes on."""

FORMAT = "{desc}: {bar}| {n_fmt}/{total_fmt} stages [{elapsed}]"


Tell = Callable[[str, float | None, str], None]


@contextmanager
def stage_bar(names: Sequence[str], shown: bool) -> Iterator[Tell | None]:
    """What is to be told of each stage and of the share of what it has done of its rows or rounds.

    None where nothing is shown.

    Parameters
    ----------
    names : sequence of str
        All planned stages in order; one that is not needed in the end is passed over.
    """
    if not shown:
        yield None
        return
    bars: list[Any] = []

    def tell(name: str, share: float | None, of: str) -> None:
        if not bars:  # not before there is something to wait for: arguments may be refused
            bars.append(_bar(len(names)))
        (bar,) = bars
        text = name if not share or share == 1 else f"{name}, {share:.0%} of the {of}"
        if text == bar.desc:
            return
        bar.set_description_str(text, refresh=False)
        bar.n = max(bar.n, names.index(name))
        bar.refresh()

    try:
        with _clock(bars):
            yield tell
        for bar in bars:
            bar.set_description_str("done", refresh=False)
            bar.n = bar.total
            bar.refresh()
    finally:
        for bar in bars:
            bar.close()


@contextmanager
def _clock(bars: Sequence[Any]) -> Iterator[None]:
    """Draws the bars anew at each tick, with the time elapsed, whatever the fit is busy with."""
    over = Event()

    def tick() -> None:
        while not over.wait(TICK):
            for bar in bars:
                bar.refresh()

    thread = Thread(target=tick, name="privcausal progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bar(total: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without widgets has the plain bar
        from tqdm.auto import tqdm

        return tqdm(total=total, dynamic_ncols=True, bar_format=FORMAT)
