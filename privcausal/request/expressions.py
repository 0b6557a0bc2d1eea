"""Arithmetic, comparisons and elementary functions of the columns of one row, and their values."""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from privcausal.errors import FormulaError

# Calls in a formula. They are read with Python's own parser and never run.

MAX_FACTOR = 1_000
"""Maximum number of characters in one factor."""
MAX_NUMBER = 1e100
MAX_BASIS = 30

ELEMENTARY = ("log", "log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs", "sin", "cos", "tan")
"""Functions of one number."""
FUNCTIONS = (*("C", "I", *ELEMENTARY, "scale", "center"), *("poly", "bs", "cr", "cs", "cc", "s"))
"""Names of functions that a formula may call."""
CALLABLE = ("I", *ELEMENTARY)
"""Functions that may be nested in one another."""

NAME_PATTERN = r"[^\W\d]\w*(?:\.\w+)*"
"""Pattern of column names that need no back-quotes."""
STRING = r"\"[^\"]*\"|'[^']*'"


# Names


def quoted(name: str) -> str:
    """Column name in the form used between operators of a formula."""
    return name if re.fullmatch(NAME_PATTERN, name) else f"`{name}`"


def short(text: str) -> str:
    """Excerpt of the formula for a message."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in order of first use."""
    return tuple(dict.fromkeys(names))


def alias(name: str) -> str:
    """The identifier that formulaic substitutes for a back-quoted name inside a function."""
    if name.isidentifier():
        return name
    base = re.sub(r"\W", "_", name)
    return f"_{base}" if base[0].isdigit() else base


def checked_name(name: str) -> str:
    """Return the name if formulaic reads it as we do; otherwise raise `FormulaError`."""
    if not name.strip() or any(c.isspace() and c != " " for c in name):
        raise FormulaError("A column name in backticks is empty or contains a tab or line break.")
    if any(c in name for c in "'\"`"):
        raise FormulaError(f"Column {short(name)} has a quotation mark in its name. Rename it.")
    if name.startswith("__"):
        raise FormulaError(f"Column {short(name)} starts with two underscores. Rename it.")
    if name in ("1", "Intercept"):
        raise FormulaError(f"A column named {name!r} would be read as the intercept. Rename it.")
    return name


# From text to call


class TypedCall(NamedTuple):
    """A call as typed, its syntax tree, and the columns behind placeholder names in the tree."""

    text: str
    name: str
    node: ast.Call
    names: Mapping[str, str]

    def refuse(self, why: str) -> FormulaError:
        return FormulaError(f"In {short(self.text)}: {why}")

    def column(self, node: ast.Name) -> str:
        """The column that a name denotes. The node is rewritten in formulaic's notation."""
        name = checked_name(self.names.get(node.id, node.id))
        if keyword.iskeyword(name) or not alias(name).isidentifier():
            raise self.refuse(f"Column {short(name)} cannot be used in a function. Rename it.")
        node.id = name if name.isidentifier() else f"`{name}`"
        return name

    def first(self) -> str:
        """The first argument, which must be a single column."""
        if not self.node.args or not isinstance(self.node.args[0], ast.Name):
            raise self.refuse(f"The first argument must be one column name. Write {self.name}(x).")
        return self.column(self.node.args[0])

    def given(self, allowed: Sequence[str], positional: Sequence[str]) -> dict[str, ast.expr]:
        """The other arguments, by name."""
        rest = self.node.args[1:]
        pairs = [*zip(positional, rest, strict=False)]
        pairs += [(str(k.arg), k.value) for k in self.node.keywords]
        arguments = dict(pairs)
        if (
            len(rest) > len(positional)
            or len(arguments) < len(pairs)
            or not set(arguments) <= set(allowed)
        ):
            *first, last = ["a column", *(_SHOWN.get(name, f"{name}=") for name in allowed)]
            hint = f"{', '.join(first)} and {last}" if first else last
            raise self.refuse(f"{self.name}() accepts only {hint}.")
        return arguments


_SHOWN = {"contr.": "a contrast"}
"""Arguments whose name is not a keyword, as shown in messages."""

_INNER = re.compile(rf"{STRING}|`(?P<name>[^`]*)`|(?P<power>\^)")


def read_call(text: str) -> TypedCall:
    if len(text) > MAX_FACTOR:
        raise FormulaError(f"{short(text)} is longer than {MAX_FACTOR:,} characters. Shorten it.")
    prefix = "q"
    while prefix in text:  # the user's names must differ from our placeholders
        prefix += "q"
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        if match["power"]:
            return "**"  # in Python, ^ binds less tightly than +
        if match["name"] is None:
            return match[0]
        name = f"{prefix}{len(names)}"
        names[name] = match["name"]
        return f" {name} "

    node: ast.expr | None = None
    with (
        suppress(SyntaxError, ValueError, RecursionError, MemoryError),
        warnings.catch_warnings(action="ignore"),  # for example 1if x, which is then refused
    ):
        node = ast.parse(_INNER.sub(plain, text), mode="eval").body
    called = path_of(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or called is None:
        raise FormulaError(f"{short(text)} cannot be read. Write C(x), log(x) or I(x**2).")
    for part in ast.walk(node):
        # np.log(x) becomes log(x), so that formulaic never reads an attribute.
        path = path_of(part.func) if isinstance(part, ast.Call) else None
        if path and path.removeprefix("np.") in ELEMENTARY:
            part.func = ast.Name(path.removeprefix("np."), ast.Load())  # type: ignore[attr-defined]
    return TypedCall(text, path_of(node.func) or "?", node, names)


def path_of(node: ast.expr) -> str | None:
    """A name, or names joined by dots, so that a message can advise log for np.log."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def constant(node: ast.expr) -> int | float | None:
    """The number that a node represents, or None."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return sign * value if abs(value) <= MAX_NUMBER else None


# Advice for error messages


WHY: Mapping[type[ast.expr], str] = {
    ast.Attribute: "A dot is not allowed. If the name of a column contains a dot, use backticks: "
    "`x.y`.",
    ast.Subscript: "Subscripts are not allowed. Write one column name.",
    ast.BoolOp: "'and' and 'or' do not work on columns. Write (x > 3) & (z < 2).",
    ast.IfExp: "'if' does not work on columns. Write I((x > 3) * z).",
    ast.Constant: "Only plain numbers are allowed here, not text, True, None or 1j.",
    ast.Starred: "Arguments with * are not allowed. Write each argument.",
}

_ADVICE: Mapping[str, str] = {
    "standardize": "Write scale(x) instead.",
    **dict.fromkeys(
        ("ns", "tp", "te", "ti", "t2"), "This spline is not available. Write cr(x, df=5) or s(x)."
    ),
    **dict.fromkeys(
        ("cut", "qcut"),
        "Write s(x) or I(x > 3), or add the bins to the data as a column with levels.",
    ),
    **dict.fromkeys(
        ("factor", "as.factor", "hashed", "Categorical"),
        "Write C(x), and declare its levels in bounds=.",
    ),
    **dict.fromkeys(
        ("exp2", "exp10"), "Write exp(x) instead, with a factor: exp(2.3026 * x) is 10**x."
    ),
    **dict.fromkeys(("power", "pow", "square"), "Write I(x**2) instead."),
    "lag": "A term can use values of its own row only. Add the lag to the data as a column.",
    "Q": "Write the column name in backticks: `{column}`.",
}


def advice(name: str, arguments: Sequence[ast.expr] = ()) -> str:
    last = name.rpartition(".")[2]
    if last in FUNCTIONS and name != last:
        return f"Write {last}(x) instead of {name}(x)."
    if name in CALLABLE:
        return f"{name}() accepts one argument. Write {name}(x)."
    if name in FUNCTIONS:
        return f"{name}() cannot be used inside another function. Write {name}(x) as its own term."
    text = _ADVICE.get(name) or _ADVICE.get(last)
    if text is None:
        return (
            "This function is not allowed, because it could use other rows or run code. Use "
            f"{', '.join(FUNCTIONS[:-1])} or {FUNCTIONS[-1]}."
        )
    first = arguments[0].value if arguments and isinstance(arguments[0], ast.Constant) else None
    return text.format(column=first if isinstance(first, str) else "my column")


MAX_DEPTH = 50
"""Maximum depth of nested brackets."""
MAX_POWER = 10


class Value(NamedTuple):
    """Result of checking an expression.

    `number` is its value if it uses no column. `total` says whether it is finite for every input.
    `truth` says whether it is true or false. `cuts` are the numbers compared with columns.
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
"""Functions that are finite for every finite argument. exp and expm1 overflow quickly."""
_COMPARED = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)


def arithmetic(call: TypedCall, node: ast.expr, columns: list[str], depth: int = 0) -> Value:
    """Check an expression and append the columns that it uses to `columns`."""

    def inside(part: ast.expr) -> Value:
        return arithmetic(call, part, columns, depth + 1)

    if depth > MAX_DEPTH:
        raise call.refuse("The expression is nested too deeply. Simplify it.")
    match node:
        case ast.Name():
            columns.append(call.column(node))
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
            value = inside(part) if name == "I" else _number(call, inside(part))
            if name != "I" and value.number is not None:
                function = math.fabs if name == "abs" else getattr(math, name)
                value = Value(_computed(call, function, value.number), total=True)
            elif name != "I":
                value = value._replace(total=value.total and name in _TOTAL)
            return value
        case ast.Call():
            raise call.refuse(advice(path_of(node.func) or "?", node.args))
    return _logic(call, node, inside)


def _logic(call: TypedCall, node: ast.expr, inside: Callable[[ast.expr], Value]) -> Value:
    match node:
        case ast.UnaryOp(op=ast.Invert()) | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
            values = [inside(part) for part in parts]
            if not all(value.truth for value in values):
                raise call.refuse(
                    "& | ~ combine comparisons in parentheses. Write (x > 3) & (z < 2)."
                )
            cuts = [cut for value in values for cut in value.cuts]
            return Value(None, total=False, truth=True, cuts=tuple(cuts))
        case ast.Compare(ops=[op], comparators=[right]) if isinstance(op, _COMPARED):
            sides = [inside(node.left), inside(right)]
            compared = [_number(call, side).number for side in sides]
            if None not in compared:
                raise call.refuse("The comparison uses no column. Remove it.")
            plain = isinstance(node.left, ast.Name) and constant(right) is not None
            if isinstance(op, ast.Eq | ast.NotEq) and not plain:
                # On a grid of the domain, two computed numbers are almost never equal.
                raise call.refuse(
                    "== and != compare a column with a number, as in x == 0. Otherwise, write "
                    "abs(x - z) < 1."
                )
            cuts = [c for side in sides for c in side.cuts]
            cuts += [c for c in compared if c is not None]
            return Value(None, total=False, truth=True, cuts=tuple(cuts))
        case ast.Compare():
            raise call.refuse("Chained comparisons are not allowed. Write (1 < x) & (x < 3).")
    raise call.refuse(
        WHY.get(type(node), "Only numbers, columns and + - * / ** > < & | ~ are allowed.")
    )


def _number(call: TypedCall, value: Value) -> Value:
    if value.truth:
        # NumPy adds truth values as "or", and does not define their minus, power or logarithm.
        raise call.refuse("A comparison is not a number here. Write I(1 * (x > 3)).")
    return value


def _operation(call: TypedCall, op: ast.operator, left: Value, right: Value) -> Value:
    total, cuts = left.total and right.total, left.cuts + right.cuts
    if not isinstance(op, ast.Mult | ast.Add | ast.Sub) or (left.truth and right.truth):
        left, right = _number(call, left), _number(call, right)
    if isinstance(op, ast.Div):
        total = total and right.number is not None
        if right.number == 0:
            raise call.refuse("The expression divides by zero.")
    if isinstance(op, ast.Pow):
        if right.number is None or abs(right.number) > MAX_POWER:
            raise call.refuse(f"An exponent must be a number up to {MAX_POWER}. Write x**2.")
        total = total and right.number.is_integer() and right.number >= 0
    if left.number is None or right.number is None:
        return Value(None, total, cuts=cuts)
    return Value(_computed(call, _OPERATORS[type(op)], left.number, right.number), total=True)


def _computed(call: TypedCall, function: Callable[..., Any], *numbers: float) -> float:
    """The value of a constant. Refuses 9**9**9 early, because it would run forever."""
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError):
        value = None
    if not isinstance(value, float) or not abs(value) <= MAX_NUMBER:
        raise call.refuse("A constant in the expression is not finite, or too large.")
    return value


# Functions that formulaic may call


def _tan_on_grid(x: Any) -> Any:
    """tan(x) on a grid. NaN if a pole lies between the ends, since the points may miss it."""
    turns = np.floor(np.asarray(x, np.float64) / np.pi + 0.5)
    same = np.ptp(turns) == 0 if np.isfinite(turns).all() else False
    return np.tan(x) if same else np.full(np.shape(x), np.nan)


# A warning about log(-1) would reveal that a row holds a negative number.
ENVIRONMENT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: np.errstate(all="ignore")(getattr(np, name)) for name in ELEMENTARY}
    | {"s": lambda x, **_: x}
)
"""All functions of a formula, except formulaic's own C, I, scale, center and bases.

``s(x)`` returns x here, because its basis is built from released numbers, not by formulaic.
"""
ON_GRID: Mapping[str, Callable[..., Any]] = MappingProxyType({**ENVIRONMENT, "tan": _tan_on_grid})
"""`ENVIRONMENT` for a grid over a whole domain; there, functions with a pole are not finite."""
