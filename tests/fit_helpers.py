"""Calls whose noise `seed=` fixes and `exact=True` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest import mock

import numpy as np

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise


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
def spied(owner: Any, name: str) -> Iterator[list[tuple[Any, Any]]]:
    """The arguments and the result of each call of a function, which stays as it is."""
    calls: list[tuple[Any, Any]] = []
    function = getattr(owner, name)

    def spy(*args: Any, **options: Any) -> Any:
        calls.append((args, result := function(*args, **options)))
        return result

    with mock.patch.object(owner, name, spy):
        yield calls
