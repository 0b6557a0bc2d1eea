"""Audits of everything that releases: each primitive in the fits that use it, by both relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from privcausal.auditing.front import audit
from privcausal.auditing.result import AuditResult
from privcausal.learners import ADUM, DPCATE
from privcausal.learners.dpebm import DPEBM
from privcausal.learners.kernels import Kernel
from privcausal.typing import Neighbors

EPSILON = 8.0
"""A budget of mu = 1.5: at epsilon = 1, where mu is 0.25 and a query's part of it is less than a
tenth, ten thousand draws show nothing of it. What is released differs by its scale only."""

_CALL: dict[str, Any] = {"formula": "Y ~ T | X", "bounds": {"Y": (0, 1), "X": (0, 1)}}

CASES: Mapping[str, Mapping[str, Any]] = {
    "private": {"learner": "private", "base": "linear"},
    "private, off-centre": {
        "learner": "private", "base": "linear", "bounds": {"Y": (99, 100), "X": (0, 1)},
    },
    "trial": {"learner": "private", "formula": "Y ~ T"},
    "ATO": {"learner": "private", "base": "linear", "estimand": "ATO"},
    "r": {"learner": "r"},
    "dr": {"learner": "dr"},
    "s": {"learner": "s", "base": "linear"},
    "t": {"learner": "t", "base": "linear"},
    "x": {"learner": "x", "base": "linear"},
    "r, disjoint": {"learner": "r", "base": "linear", "split": "disjoint"},
    "r, crossfit": {"learner": "r", "base": "linear", "split": "crossfit"},
    "boosting": {"learner": "s", "base": DPEBM(rounds=10)},
    "kernel": {"learner": DPCATE(), "base": Kernel(ridge=5.0, functions=20)},
    "adum": {"learner": "adum", "eps": 1.0},
    "adum, count and sum": {"learner": ADUM(release="count_sum", cells=4), "eps": 1.0},
    "adum, gaussian": {"learner": ADUM(noise="gaussian")},
    "adum, kmeans": {"learner": ADUM(partition="kmeans", cells=3, rounds=2), "eps": 4.0},
    "tm": {"learner": "tm", "eps": 1.0},
}  # fmt: skip
"""Calls that together release by every additive mechanism, boosting and the kernel."""


def audit_case(
    name: str, neighbors: Neighbors, *, trials: int = 10_000, level: float = 1e-3
) -> AuditResult:
    """The audit of one of `CASES`."""
    call = {"eps": EPSILON, "rows": 8, **_CALL, **CASES[name]}
    return audit(**call, neighbors=neighbors, trials=trials, level=level)


def audit_all(*, trials: int = 10_000, level: float = 1e-3) -> AuditResult:
    """All of `CASES` by both relations, in one table; `level` is of all of it together."""
    lines, departed = [], None
    relations: tuple[Neighbors, ...] = get_args(Neighbors)
    for name in CASES:
        for neighbors in relations:
            own = level / (len(CASES) * len(relations))
            found = audit_case(name, neighbors, trials=trials, level=own)
            if found.departed is not None:
                departed = departed or f"{found.departed} ({name}, {neighbors})"
            place = f"{name}, {neighbors}"
            lines += [replace(line, query=f"{place}: {line.query}") for line in found.lines]
    return AuditResult("everything that releases", tuple(lines), level, "both", departed)
