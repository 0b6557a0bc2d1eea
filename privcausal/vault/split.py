"""Which rows a stage reads, decided without looking at their values."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from privcausal.typing import Integers, Mask, Neighbors, Vector


def parts(
    size: int,
    shares: Sequence[float],
    *,
    neighbors: Neighbors,
    entropy: int,
    units: Integers | None,
    names: Sequence[str],
) -> Integers:
    """Part of each row, shape (n,), in proportion of `shares`.

    By index with fixed sizes under substitution; by independent coins under add_remove, where
    fixed sizes would move other rows when one leaves (Niu et al.'s Theorem 6 then fails); by
    coins keyed on the unit's own identifier where there are units.

    Coins are independent and all of one law. So a unit that takes another's place may be given
    its coin, and the rows that stay when one leaves may keep theirs: the law of the output is the
    same mixture over coins, and a mixture is no easier to tell apart than its worst member. With
    the coins fixed, neighbours differ in one part only.
    """
    cut = np.cumsum(np.asarray(shares, float)) / sum(shares)
    if units is not None:
        coins = np.append(_keyed_coins(entropy, names), 0.0)[units]
        return np.searchsorted(cut[:-1], coins, side="right").astype(np.int64)
    rng = np.random.default_rng(entropy)  # splits need independence of the data, not secrecy
    if neighbors == "add_remove":
        return np.searchsorted(cut[:-1], rng.random(size), side="right").astype(np.int64)
    place = rng.permutation(size)
    return np.searchsorted(np.floor(cut[:-1] * size), place, side="right").astype(np.int64)


def _keyed_coins(entropy: int, names: Sequence[str]) -> Vector:
    keyed = hashlib.blake2b(key=entropy.to_bytes(16, "little", signed=False), digest_size=8)

    def digest(name: str) -> bytes:
        own = keyed.copy()
        own.update(name.encode("utf-8", "replace"))
        return own.digest()

    return np.frombuffer(b"".join(map(digest, names)), "<u8") / 2.0**64


def first_rows(units: Integers, max_rows: int) -> Mask:
    """The first `max_rows` rows of each unit, and no row without a unit.

    Whether a row is kept depends on its own unit's rows only.
    """
    order = np.argsort(units, kind="stable")
    ranked = units[order]
    place = np.arange(len(units))
    starts = np.ones(len(units), bool)
    starts[1:] = ranked[1:] != ranked[:-1]
    rank = place - np.maximum.accumulate(np.where(starts, place, 0))
    keep = np.zeros(len(units), bool)
    keep[order] = rank < max_rows
    return keep & (units >= 0)
