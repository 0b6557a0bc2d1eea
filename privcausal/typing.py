"""Array types, the two neighbour relations, and the three kinds of guarantee."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
"""A float64 array of shape (n,)."""

Matrix: TypeAlias = NDArray[np.float64]
"""A float64 array of shape (n, p)."""

Singles: TypeAlias = NDArray[np.float32]
"""A float32 array: temporary values of rows, for which single precision is enough."""

Integers: TypeAlias = NDArray[np.int64]
"""An int64 array, usually of shape (m,): exact sums on a public grid."""

Mask: TypeAlias = NDArray[np.bool_]
"""A bool array of shape (n,)."""

Neighbors: TypeAlias = Literal["substitute", "add_remove"]
"""Which tables are neighbours: one unit replaced (n public), or one unit added or removed."""

Kind: TypeAlias = Literal["proven", "published", "none"]
"""What a guarantee rests on: a proof, somebody else's claim, or nothing (test noise)."""

Split: TypeAlias = Literal["full", "disjoint", "crossfit"]

Average: TypeAlias = Literal["ATE", "ATT", "ATO", "PLR", "LATE"]
"""Which average of the effect: over all, over the treated, by overlap weights e (1 - e); or the
slope of the partially linear model, whose treatment may be a number or have several arms."""

Ratio: TypeAlias = Literal["RR", "OR"]
"""Of the mean outcomes under treatment and control: risk ratio or odds ratio."""

Frame: TypeAlias = Any
"""Any data frame that narwhals can read, or a mapping of column names to arrays."""
