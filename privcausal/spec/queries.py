"""Points at which an effect is asked for, declared in the call: they are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcausal.errors import CapabilityError, DataError
from privcausal.spec.columns import open_frame
from privcausal.spec.features import Design, Rows
from privcausal.spec.points import read_points
from privcausal.typing import Frame

MOST = 5000
"""More points than this are asked of the function, not one by one."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Columns of the points, as plain values.

    Attributes
    ----------
    columns : mapping
        Name to a tuple of numbers or labels.
    """

    columns: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, frame: Frame, wanted: tuple[str, ...]) -> Queries:
        """The `wanted` columns (the effect modifiers) of a frame.

        Raises
        ------
        DataError, CapabilityError
            A column is absent, there are no points, or too many.
        """
        table = open_frame(frame)
        for name in wanted:
            if name not in table.columns:
                raise DataError(f"queries= needs the column {name!r}: the effect depends on it")
        if not 1 <= table.shape[0] <= MOST:
            raise CapabilityError(
                f"queries= takes from 1 to {MOST} points; leave it out to release the whole "
                "function, which can be asked anywhere and without limit"
            )
        return cls({name: tuple(_plain(v) for v in table[name].to_list()) for name in wanted})

    def __len__(self) -> int:
        return max((len(values) for values in self.columns.values()), default=1)

    def rows(self, design: Design) -> Rows:
        """The points as rows of a design whose other variables are at a harmless value.

        Raises
        ------
        DataError
            A level was not declared, or a value is missing.
        """
        frame = self.columns or {"": (0.0,)}
        rows, present, _ = read_points(design, tuple(self.columns), frame)
        if not present.all():
            raise DataError("queries= has a missing value: every point needs all effect modifiers")
        return rows


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value
