"""Formulaic's cubic splines, their constraint absorbed in a fixed order of additions.

Formulaic multiplies matrices for that, and a matrix product may round a row otherwise where it
stands alone: then the values of one row would tell of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np


def _ordered(name: str) -> Callable[..., Any]:
    """The transform of this name, as formulaic calls it."""

    def spline(x: Any, *args: Any, _state: dict[str, Any], **options: Any) -> Any:
        from formulaic.materializers.types import FactorValues
        from formulaic.transforms import TRANSFORMS

        own = TRANSFORMS[name]
        unused = {key: options.pop(key) for key in ("_metadata", "_spec", "_context")}
        if not _state:  # on the public skeleton: knots and the constraint
            own(x, *args, _state=_state, **unused, **options)
        constraint = _state["constraints"]
        free = own(x, *args, _state={**_state, "constraints": None}, **unused, **options)
        if constraint is None:
            return free
        rotation, _ = np.linalg.qr(np.transpose(constraint), mode="complete")
        columns = {}
        for field, weights in enumerate(rotation[:, len(constraint) :].T, start=1):
            total = np.zeros(len(free[1]))
            for value, weight in zip(free.values(), weights, strict=True):
                total += value * weight
            columns[field] = total
        return FactorValues(
            columns, kind="numerical", spans_intercept=False, drop_field=0,
            format="{name}[{field}]", encoded=False,
        )  # fmt: skip

    spline.__is_stateful_transform__ = True  # type: ignore[attr-defined]
    spline.get_required_variables = lambda *_, **__: ()  # type: ignore[attr-defined]
    return spline


SPLINES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: _ordered(name) for name in ("cr", "cs", "cc")}
)
