"""Rows at kinks of hidden units; `python network_checks.py FILE` prints hashes, always the same."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from privcausal.features.functions import before, folded, logistic, split, start
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault.queries.boosting import CLIP_UNIT as UNIT
from privcausal.vault.queries.boosting import Adam, row_gradients


def at_kinks(w1: Matrix, b1: Vector, n: int) -> Matrix:
    """Points z in [-1, 1]^q with W1 z + b1 = 0 but for rounding, shape (n, q), q > 32."""
    inverse = np.linalg.pinv(w1)
    kept = np.eye(w1.shape[1]) - inverse @ w1
    z = np.random.default_rng(0).choice([-1.0, 1.0], (n, len(kept))) @ kept
    z *= 0.9 / np.abs(z).max(axis=1, keepdims=True)
    z -= inverse @ b1
    assert np.abs(z).max() <= 1.0
    return z


def weights_at(q: int, moved: bool = False) -> Vector:
    """Those that training starts from, or some with small shifts that are not zero."""
    weights = start(q)
    if moved:
        weights[32 * q : 32 * (q + 1)] = np.random.default_rng(1).normal(0, 0.01, 32)
    return weights


def kinky(q: int, n: int, moved: bool = False) -> tuple[Vector, Matrix, Vector]:
    """Weights, points of which all hidden units are within rounding of a kink, and targets."""
    weights = weights_at(q, moved)
    w1, b1, _, _ = split(weights, q)
    z = at_kinks(w1, b1, n)
    above = before(w1, b1, z)
    assert np.abs(above).max() < 1e-13
    assert 0.2 < np.mean(above > 0) < 0.8
    return weights, z, np.random.default_rng(2).choice([-1.0, 0.3, 1.0], n)


def check_rows_stand_alone(q: int, n: int, share: bool, moved: bool) -> None:
    """Each row's gradient is the same whole numbers alone, in every company and at every place."""
    weights, z, y = kinky(q, n, moved)

    def of(at: Any) -> Integers:
        return row_gradients(weights, z[at], y[at], share)

    alone = np.concatenate([of(slice(i, i + 1)) for i in range(n)], axis=1)
    assert np.abs(alone).max() > 0
    orders = [np.arange(m) for m in range(2, n + 1)]
    orders += [np.arange(n)[::-1], np.arange(0, n, 3), np.random.default_rng(3).permutation(n)]
    orders += [np.repeat(k, n) for k in (0, n - 1)]
    for at in orders:
        assert np.array_equal(of(at), alone[:, at])
    for kept in (slice(None, None, -1), slice(0, None, 3)):  # views, which are not copied
        assert np.array_equal(of(kept), alone[:, kept])
    columns = row_gradients(weights, np.asfortranarray(z), y, share)
    assert np.array_equal(columns, alone)


def check_sums_stand_alone(q: int, n: int) -> None:
    """The same of each float on the way."""
    weights, z, _ = kinky(q, n)
    w1, b1, w2, _ = split(weights, q)
    above = before(w1, b1, z)
    parts = w2[:, None] * np.maximum(np.random.default_rng(4).normal(size=(32, n)), 0)
    f = np.random.default_rng(5).normal(0, 9, n)
    for i in range(n):
        own = slice(i, i + 1)
        assert before(w1, b1, z[own]).tobytes() == above[:, own].tobytes()
        assert folded(parts[:, own]).tobytes() == folded(parts)[own].tobytes()
        assert logistic(f[own]).tobytes() == logistic(f)[own].tobytes()


def save_points(path: Path) -> None:
    """Weights and rows, at kinks and elsewhere: how they are found may depend on the machine."""
    rng = np.random.default_rng(6)
    for name, q in (("many", 300), ("some", 80)):
        np.savez(path.with_stem(f"{path.stem}_{name}"), *kinky(q, 127))
    z, y = rng.uniform(-1, 1, (127, 3)), rng.choice([-1.0, 1.0], 127)
    np.savez(path.with_stem(f"{path.stem}_few"), start(3), z, y)


def digest(path: Path) -> str:
    """Of gradients of such rows, and of weights after steps on noisy sums of them."""
    found = hashlib.sha256()
    rng = np.random.default_rng(7)
    for name, share in (("many", False), ("some", True), ("few", True)):
        with np.load(path.with_stem(f"{path.stem}_{name}")) as held:
            weights, z, y = held.values()
        learner = Adam(weights, 0.01)
        for _ in range(3):
            rows = row_gradients(learner.weights, z, y, share)
            found.update(rows.tobytes())
            noisy = rows.sum(axis=1) + rng.integers(-(2**33), 2**33, len(weights))
            learner.step(noisy / (UNIT * 128))
        found.update(learner.weights.tobytes())
    return found.hexdigest()


def dispatched() -> list[str]:
    """Instructions in use that NumPy can do without."""
    core: Any = np._core if hasattr(np, "_core") else np.core
    features = core._multiarray_umath.__cpu_features__
    return [name for name in core._multiarray_umath.__cpu_dispatch__ if features.get(name)]


if __name__ == "__main__":
    print(len(dispatched()), digest(Path(sys.argv[1])))
