"""Array types, the two neighboring relations, and the three kinds of guarantee."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
"""A float64 array of shape (n,)."""

Matrix: TypeAlias = NDArray[np.float64]
"""A float64 array of shape (n, p)."""

Singles: TypeAlias = NDArray[np.float32]
"""A float32 array: temporary values of rows that need only single precision."""

Integers: TypeAlias = NDArray[np.int64]
"""An int64 array, usually of shape (m,): exact sums on a public grid."""

Mask: TypeAlias = NDArray[np.bool_]
"""A bool array of shape (n,)."""

Neighbors: TypeAlias = Literal["substitute", "add_remove"]
"""Neighboring tables: one unit replaced (n is public), or one unit added or removed."""

Kind: TypeAlias = Literal["proven", "published", "none"]
"""Basis of a guarantee: a proof, a claim made by others, or none (test noise)."""

Split: TypeAlias = Literal["full", "disjoint", "crossfit"]

Average: TypeAlias = Literal["ATE", "ATT", "ATO", "PLR", "LATE", "RMST", "risk"]
"""Average of the effect: over all rows, over the treated, or with overlap weights e (1 - e). PLR
is the slope of the partially linear model, whose treatment may be numeric or have several arms.
RMST and risk are averages over all rows for a survival outcome."""

Ratio: TypeAlias = Literal["RR", "OR"]
"""Risk ratio or odds ratio of the mean outcomes under treatment and control."""

OfMeans: TypeAlias = Literal["means"] | Ratio
"""The mean outcomes under control and treatment, or one of their ratios, which also give them."""

Frame: TypeAlias = Any
"""Any data frame that narwhals can read, or a mapping of column names to arrays."""
