"""Calls whose noise `seed=` fixes and `exact=True` leaves out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

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
