"""Partitions for ADUM: what the user asked for, made before rows are read or by private k-means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from privcausal.errors import CapabilityError, SchemaError
from privcausal.learners.ground import Session
from privcausal.spec.partition import (
    Coordinates,
    Nearest,
    Product,
    RegularAxis,
    Tabulated,
    axis_of,
    check_size,
    product_of,
)
from privcausal.spec.schema import Interval, Schema
from privcausal.vault import ClusterSums, public_centres

GRID_POINTS = 1 << 16
"""Public points on which a function of the user's own is asked."""

FINE_PARTS = 1024
"""At most so many of them along one axis."""

MOST_AXES = 8
"""Features of a regular grid; with more, two parts each would be too many cells."""

FEW = 2.0
"""A cluster of fewer noise sds keeps its centre."""


def regular(schema: Schema, variables: tuple[str, ...], cells: int) -> Product:
    """About `cells` cells: equal parts of every number, all labels of the others."""
    numbers = [name for name in variables if isinstance(schema[name], Interval)]
    if len(numbers) > MOST_AXES:
        raise CapabilityError(
            f"a grid over {len(numbers)} numeric features has too many cells: name fewer in the "
            "formula, or declare some of them, partition={'age': 8}, or use partition='kmeans'"
        )
    labels = np.prod([axis_of(n, schema, 1).size for n in variables if n not in numbers])
    parts = max((cells / float(labels)) ** (1 / max(len(numbers), 1)), 1.0)
    least = 1 if len(numbers) == 1 else 2
    return product_of(schema, dict.fromkeys(variables, max(round(parts), least)))


def declared(schema: Schema, variables: tuple[str, ...], parts: Mapping[str, object]) -> Product:
    """The axes the user wrote down."""
    check_names(variables, parts)
    return product_of(schema, parts)


def check_names(variables: tuple[str, ...], parts: Mapping[str, object]) -> None:
    """Every part is one of an effect modifier."""
    for name in parts:
        if name not in variables:
            known = ", ".join(map(repr, variables))
            raise SchemaError(
                f"partition names {str(name)[:40]!r}, which is no effect modifier of the formula: "
                f"those are {known}"
            )


def tabulated(
    schema: Schema, variables: tuple[str, ...], function: Callable[[Any], Any]
) -> Tabulated:
    """The user's function as a table on a public grid: it never sees a row.

    It is called once, with a data frame of the middles of a fine grid over the declared domains
    (labels as texts), and gives a cell for each: a number or text, or None for no cell.
    """
    import pandas as pd

    labels = [axis_of(n, schema, 1).size for n in variables if not _numeric(schema, n)]
    numbers = max(len(variables) - len(labels), 1)
    parts = int((GRID_POINTS / float(np.prod(labels))) ** (1 / numbers))
    parts = int(np.clip(parts, 2, FINE_PARTS))
    grid = product_of(schema, dict.fromkeys(variables, parts))
    frame = pd.DataFrame(_middles(grid))
    codes, names = _asked(function, frame)
    if len(codes) != grid.size:
        raise CapabilityError(
            "partition= as a function takes a data frame of feature values and gives one cell for "
            "each of its rows"
        )
    check_size(float(len(names)))
    if not len(names):
        raise CapabilityError("partition= as a function gave no cell at all")
    return Tabulated(grid, codes.astype(np.int64), tuple(str(name) for name in names))


def _asked(function: Callable[[Any], Any], frame: Any) -> tuple[Any, Any]:
    """Codes and names of the cells that the user's function gives for public points."""
    import pandas as pd

    try:
        codes, names = pd.factorize(pd.Series(list(function(frame))), sort=False)
        return codes, names
    except Exception as error:  # of the user's own code, on values that are public
        raise CapabilityError(
            f"partition= as a function failed with {type(error).__name__}: it takes a data frame "
            "of feature values and gives one cell, a number or text, for each of its rows"
        ) from error


def _numeric(schema: Schema, name: str) -> bool:
    return isinstance(schema[name], Interval)


def _middles(grid: Product) -> dict[str, Any]:
    parts = np.unravel_index(np.arange(grid.size), [axis.size for axis in grid.axes])
    columns: dict[str, Any] = {}
    for axis, part in zip(grid.axes, parts, strict=True):
        if isinstance(axis, RegularAxis):
            columns[axis.name] = axis.lo + (part + 0.5) * ((axis.hi - axis.lo) / axis.parts)
        else:
            names = [axis.label(k).partition(" = ")[2] for k in range(axis.size)]
            columns[axis.name] = np.array(names, object)[part]
    return columns


CLUSTERS = "nuisance: clusters, round {}"


def clustered(session: Session, variables: tuple[str, ...], cells: int, rounds: int) -> Nearest:
    """Private k-means: centres move to noisy means for a fixed number of rounds."""
    coordinates = Coordinates(session.schema, variables)
    nearest = Nearest(coordinates, public_centres(coordinates, cells))
    for number in range(1, rounds + 1):
        law = "gaussian" if session.plan.stage(CLUSTERS.format(number)).rho else "laplace"
        sums = ClusterSums(nearest, law)
        release = session.release(CLUSTERS.format(number), sums)
        (total, count), noise = sums.split(release.value), float(release.noise_sd[-1])
        seen = count > max(FEW * noise, 1.0)
        centres = nearest.centres.copy()
        centres[seen] = np.clip(total[seen] / count[seen, None], -1.0, 1.0)
        nearest = Nearest(coordinates, centres)
    return nearest
