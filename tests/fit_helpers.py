"""Calls whose noise `seed=` fixes and `exact=True` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest import mock

import numpy as np
import pytest

import privcausal as pc
from privcausal.testing import Call, recorded, seeded_noise, zero_noise


def seedable(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, under noise from a seed, without noise, or as it is."""

    @wraps(call)
    def made(*args: Any, seed: int | None = None, exact: bool = False, **options: Any) -> Any:
        fixed = nullcontext() if seed is None else seeded_noise(seed)
        with zero_noise() if exact else fixed:
            return call(*args, **options)

    return made


private, privcate, regress = map(seedable, (pc.private, pc.privcate, pc.regress))
logit, poisson = map(seedable, (pc.logit, pc.poisson))


def missed(fits: Iterable[Any], truth: Any) -> Any:
    """How many of the fits have limits without the truth, for each of the first terms."""
    limits = np.array([fit.conf_int().to_numpy()[: np.size(truth)] for fit in fits])
    return (~((limits[..., 0] <= truth) & (truth <= limits[..., 1]))).sum(axis=0)


def made_again(fit: Any, data: Any, **noise: Any) -> Any:
    """The fit that its printed call makes of the data."""
    names: dict[str, Any] = {"data": data}
    seedable(exec)(fit.call.replace("\npc.", "\nfit = pc.", 1), names, **noise)
    return names["fit"]


def view_of(fit: Any) -> Any:
    """What its summary and its report are made from."""
    return fit._view()


@contextmanager
def refused(error: Any, words: str, *secrets: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block raises the error in these words, with no other behind it and without secrets."""
    with pytest.raises(error, match=words) as caught:
        yield caught
    # a foreign exception on ours would carry a foreign message into a traceback
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert not [each for each in secrets if str(each) in str(caught.value)]


def replayed(
    run: Callable[[Any], Any], one: Any, two: Any, seed: int = 5
) -> tuple[Any, Any, list[tuple[Call, Call]]]:
    """What runs on two tables return, the second with the first one's answers, and all queries."""
    with recorded(seed) as first:
        before = run(one)
    with recorded(seed, first.calls) as again:
        after = run(two)
    return before, after, list(zip(first.calls, again.calls, strict=True))


@contextmanager
def spied(owner: Any, name: str) -> Iterator[list[tuple[Any, Any]]]:
    """The arguments and the result of each call of a function, which stays as it is."""
    calls: list[tuple[Any, Any]] = []
    function = getattr(owner, name)

    def spy(*args: Any, **options: Any) -> Any:
        calls.append((args, result := function(*args, **options)))
        return result

    with mock.patch.object(owner, name, spy):
        yield calls
