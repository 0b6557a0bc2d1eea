"""Arithmetic, comparisons and elementary functions of the columns of one row, and their values."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from privcausal.request.calls import (
    CALLABLE,
    ELEMENTARY,
    MAX_NUMBER,
    WHY,
    Call,
    advice,
    constant,
    path_of,
)

MAX_DEPTH = 50
"""Brackets inside brackets."""
MAX_POWER = 10


class Value(NamedTuple):
    """Of an expression: its value if it uses no column, and whether it is total.

    `truth` says that it is true or false; `cuts` are the numbers that columns are compared with.
    """

    number: float | None
    total: bool
    truth: bool = False
    cuts: tuple[float, ...] = ()


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_TOTAL = ("abs", "sin", "cos")
"""Functions that are finite wherever their argument is; exp and expm1 soon are not."""
_COMPARED = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)


def arithmetic(call: Call, node: ast.expr, found: list[str], depth: int = 0) -> Value:
    """Check an expression and append the columns it uses to `found`."""

    def inside(part: ast.expr) -> Value:
        return arithmetic(call, part, found, depth + 1)

    if depth > MAX_DEPTH:
        raise call.refuse("it is nested too deep; simplify it")
    match node:
        case ast.Name():
            found.append(call.column(node))
            return Value(None, total=True)
        case ast.Constant() if (number := constant(node)) is not None:
            return Value(float(number), total=True)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign):
            value = _number(call, inside(node.operand))
            minus = isinstance(sign, ast.USub) and value.number is not None
            return value._replace(number=-value.number) if minus else value  # type: ignore[operator]
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _operation(call, node.op, inside(node.left), inside(node.right))
        case ast.Call(func=ast.Name(id=name), args=[part], keywords=[]) if name in CALLABLE:
            return _elementary(call, name, inside(part))
        case ast.Call():
            raise call.refuse(advice(path_of(node.func) or "?"))
    return _logic(call, node, inside)


def _logic(call: Call, node: ast.expr, inside: Callable[[ast.expr], Value]) -> Value:
    match node:
        case ast.UnaryOp(op=ast.Invert()):
            return _joined(call, inside(node.operand))
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return _joined(call, inside(node.left), inside(node.right))
        case ast.Compare(ops=[op], comparators=[right]) if isinstance(op, _COMPARED):
            sides = node.left, right
            equal = isinstance(op, ast.Eq | ast.NotEq)
            return _compared(call, [inside(s) for s in sides], equal and not _plain(sides))
        case ast.Compare():
            raise call.refuse("one comparison at a time is read; write (1 < x) & (x < 3)")
    raise call.refuse(
        WHY.get(type(node), "only numbers, columns and + - * / ** > < & | ~ are read")
    )


def _number(call: Call, value: Value) -> Value:
    if value.truth:
        # NumPy adds truth values as "or", and has no minus, power or logarithm of them
        raise call.refuse("a truth value is no number here; write I(1 * (x > 3))")
    return value


def _joined(call: Call, *values: Value) -> Value:
    if not all(value.truth for value in values):
        raise call.refuse("& | ~ join comparisons, each in brackets; write (x > 3) & (z < 2)")
    return Value(None, total=False, truth=True, cuts=sum((v.cuts for v in values), ()))


def _plain(sides: tuple[ast.expr, ast.expr]) -> bool:
    """Whether a column itself is compared with a number."""
    return isinstance(sides[0], ast.Name) and constant(sides[1]) is not None


def _compared(call: Call, sides: list[Value], rounded: bool) -> Value:
    cuts = [_number(call, side).number for side in sides]
    if None not in cuts:
        raise call.refuse("it compares constants; leave it out")
    if rounded:
        # on a grid of the domain two computed numbers are hardly ever equal
        raise call.refuse(
            "== and != take a column and a number, as in x == 0; else write abs(x - z) < 1"
        )
    kept = [c for side in sides for c in side.cuts] + [c for c in cuts if c is not None]
    return Value(None, total=False, truth=True, cuts=tuple(kept))


def _operation(call: Call, op: ast.operator, left: Value, right: Value) -> Value:
    total, cuts = left.total and right.total, left.cuts + right.cuts
    if not isinstance(op, ast.Mult | ast.Add | ast.Sub) or (left.truth and right.truth):
        left, right = _number(call, left), _number(call, right)
    if isinstance(op, ast.Div):
        total = total and right.number is not None
        if right.number == 0:
            raise call.refuse("it divides by zero")
    if isinstance(op, ast.Pow):
        if right.number is None or abs(right.number) > MAX_POWER:
            raise call.refuse(f"a power must be a number up to {MAX_POWER}; write x**2")
        total = total and right.number.is_integer() and right.number >= 0
    if left.number is None or right.number is None:
        return Value(None, total, cuts=cuts)
    return Value(_computed(call, _OPERATORS[type(op)], left.number, right.number), total=True)


def _elementary(call: Call, name: str, inner: Value) -> Value:
    if name == "I":
        return inner
    inner = _number(call, inner)
    if inner.number is None:
        return inner._replace(total=inner.total and name in _TOTAL)
    function = math.fabs if name == "abs" else getattr(math, name)
    return Value(_computed(call, function, inner.number), total=True)


def _computed(call: Call, function: Callable[..., Any], *numbers: float) -> float:
    """A constant's value, refused early: 9**9**9 would take for ever."""
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError):
        value = None
    if not isinstance(value, float) or not abs(value) <= MAX_NUMBER:
        raise call.refuse("its constants give no finite number")
    return value


# What formulaic may call


def _quiet(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # a warning about log(-1) would reveal that a row holds a negative number
    def silent(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(x)

    return silent


def _branch(x: Any) -> Any:
    """tan(x) of a grid, NaN if a pole lies between its ends: the grid's points may miss it."""
    turns = np.floor(np.asarray(x, np.float64) / np.pi + 0.5)
    same = np.ptp(turns) == 0 if np.isfinite(turns).all() else False
    return np.tan(x) if same else np.full(np.shape(x), np.nan)


ENVIRONMENT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: _quiet(getattr(np, name)) for name in ELEMENTARY} | {"s": lambda x, **_: x}
)
"""All that a formula may call besides formulaic's own C, I, scale, center and bases.

``s(x)`` is x itself here: its basis is built from released numbers, not by formulaic.
"""
ON_GRID: Mapping[str, Callable[..., Any]] = MappingProxyType({**ENVIRONMENT, "tan": _branch})
"""The same for a grid that spans a domain, on which a function with a pole is not finite."""
