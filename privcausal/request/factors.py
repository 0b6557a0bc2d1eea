"""The allow-list of formula factors: one column, or one function of columns.

Each factor is read with Python's own parser and checked node by node; nothing is evaluated. What
passes is a function of one row and of public constants, so it can be materialised on a public
skeleton and then applied to rows.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from privcausal.errors import FormulaError
from privcausal.request.header import label_key
from privcausal.stored import stored

MAX_FACTOR = 1_000
"""Characters of one factor."""
MAX_DEPTH = 50
"""Brackets inside brackets."""
MAX_POWER = 10
MAX_NUMBER = 1e100
MAX_DEGREE = 5
MAX_BASIS = 30

Kind: TypeAlias = Literal["numeric", "categorical", "function", "spline", "poly", "smooth"]
Option: TypeAlias = int | tuple[float, ...]

NAME = r"[^\W\d]\w*(?:\.\w+)*"
"""A column name that needs no back-quotes."""
STRING = r"\"[^\"]*\"|'[^']*'"


@stored
@dataclass(frozen=True)
class Factor:
    """One column, or one public function of the columns of a row.

    Attributes
    ----------
    expr
        The text that formulaic evaluates; for a bare name, the column's name.
    kind
        "numeric" for a bare name, "categorical" for C(), "function" for I, log, exp and sqrt,
        "spline" for bs, "poly" for poly, "smooth" for s.
    variables
        The columns it uses, in order of first use.
    total
        Whether it is finite for every finite input, overflow apart: not so for log, exp, sqrt,
        division by a column and powers other than 0, 1, 2, ...
    ref
        The reference label of ``C(x, ref="A")``; `expr` is ``C(x)`` with or without it.
    options
        The numbers given to poly, bs and s, such as ``(("k", 6), ("knots", (20.0, 40.0)))``.
    """

    expr: str
    kind: Kind
    variables: tuple[str, ...]
    total: bool = True
    ref: str | None = None
    options: tuple[tuple[str, Option], ...] = ()

    def __str__(self) -> str:
        """The factor as one would type it."""
        if self.kind == "numeric":
            return quoted(self.expr)
        return self.expr if self.ref is None else f"{self.expr[:-1]}, ref={self.ref!r})"


def bare_factor(name: str) -> Factor:
    """A column as it is."""
    return Factor(name, "numeric", (checked_name(name),))


def call_factor(text: str) -> Factor:
    """The factor that a call such as ``log(x + 1)`` stands for.

    Raises
    ------
    FormulaError
        Unless every part of it is on the allow-list.
    """
    call = _call(text)
    build = _BUILDERS.get(call.name)
    if build is None:
        raise call.refuse(_advice(call.name))
    return build(call)


# Names


def quoted(name: str) -> str:
    """A column name as a formula has it between operators."""
    return name if re.fullmatch(NAME, name) else f"`{name}`"


def short(text: str) -> str:
    """Text of the formula as shown in a message."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names in order of first use."""
    return tuple(dict.fromkeys(names))


def alias(name: str) -> str:
    """The identifier that formulaic puts in place of a back-quoted name inside a function."""
    if name.isidentifier():
        return name
    base = re.sub(r"\W", "_", name)
    return f"_{base}" if base[0].isdigit() else base


def checked_name(name: str) -> str:
    """The name, if formulaic reads it as we do; `FormulaError` otherwise."""
    if not name.strip() or any(c.isspace() and c != " " for c in name):
        raise FormulaError("a column name in back-quotes is empty or broken over lines")
    if any(c in name for c in "'\"`"):
        raise FormulaError(f"column {short(name)} has a quote in its name; rename it")
    if name.startswith("__"):
        raise FormulaError(f"column {short(name)} starts with two underscores; rename it")
    if name in ("1", "Intercept"):
        raise FormulaError(f"a column called {name!r} would be taken for the intercept; rename it")
    return name


# Text -> call


@dataclass(frozen=True)
class _Call:
    """A call as typed, its syntax tree, and the columns that stand-in names have in the tree."""

    text: str
    name: str
    node: ast.Call
    names: Mapping[str, str]

    def refuse(self, why: str) -> FormulaError:
        return FormulaError(f"{short(self.text)}: {why}")

    def column(self, node: ast.Name) -> str:
        """The column a name stands for; the node is rewritten as formulaic reads it."""
        name = checked_name(self.names.get(node.id, node.id))
        if keyword.iskeyword(name) or not alias(name).isidentifier():
            raise self.refuse(f"column {short(name)} cannot be used in a function; rename it")
        node.id = name if name.isidentifier() else f"`{name}`"
        return name

    def first(self) -> str:
        """The first argument, which must be one column."""
        if not self.node.args or not isinstance(self.node.args[0], ast.Name):
            raise self.refuse(f"the first argument must be one column name; write {self.name}(x)")
        return self.column(self.node.args[0])

    def given(self, allowed: Sequence[str], positional: Sequence[str]) -> dict[str, ast.expr]:
        """The arguments after the first, by name."""
        rest = self.node.args[1:]
        pairs = [*zip(positional, rest, strict=False)]
        pairs += [(str(k.arg), k.value) for k in self.node.keywords]
        given = dict(pairs)
        if len(rest) > len(positional) or len(given) < len(pairs) or not set(given) <= set(allowed):
            hint = ", ".join(f"{name}=" for name in allowed)
            raise self.refuse(f"{self.name}() takes a column and {hint}, nothing else")
        return given

    def whole(self, node: ast.expr, name: str, low: int, high: int) -> int:
        value = _constant(node)
        if not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(f"{name} must be a whole number from {low} to {high}")
        return value

    def knots(self, node: ast.expr) -> tuple[float, ...]:
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        values = [_constant(item) for item in items]
        knots = tuple(float(v) for v in values if v is not None)
        rising = all(a < b for a, b in pairwise(knots))
        if not knots or len(knots) < len(values) or len(knots) > MAX_BASIS or not rising:
            raise self.refuse(f"knots must be 1 to {MAX_BASIS} rising numbers, knots=[20, 40]")
        return knots


_INNER = re.compile(rf"{STRING}|`(?P<name>[^`]*)`|(?P<power>\^)")


def _call(text: str) -> _Call:
    if len(text) > MAX_FACTOR:
        raise FormulaError(f"{short(text)} is longer than {MAX_FACTOR} characters; shorten it")
    prefix = "q"
    while prefix in text:  # no name of the user's may look like one of ours
        prefix += "q"
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        if match["power"]:
            return "**"  # in Python ^ binds looser than +
        if match["name"] is None:
            return match[0]
        name = f"{prefix}{len(names)}"
        names[name] = match["name"]
        return f" {name} "

    node = _syntax(_INNER.sub(plain, text))
    path = _path(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or path is None:
        raise FormulaError(f"{short(text)} cannot be read; write C(x), log(x) or I(x**2)")
    return _Call(text, path, node, names)


def _syntax(code: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about 1if x, which is refused right after
            return ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _path(node: ast.expr) -> str | None:
    """A name, or names joined by dots, so that np.log can be answered with log."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _constant(node: ast.expr) -> int | float | None:
    """The number a node writes, or None."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return sign * value if abs(value) <= MAX_NUMBER else None


# Call -> factor, one builder per function


def _categorical(call: _Call) -> Factor:
    name = call.first()
    keywords = call.node.keywords
    if len(call.node.args) > 1 or len(keywords) > 1 or any(k.arg != "ref" for k in keywords):
        raise call.refuse('write C(x) or C(x, ref="A"); declare the levels in bounds')
    ref = _label(call, keywords[0].value) if keywords else None
    return Factor(f"C({ast.unparse(call.node.args[0])})", "categorical", (name,), ref=ref)


def _label(call: _Call, node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else _constant(node)
    key = label_key(value) if isinstance(value, str | int | float) else None
    if not key or ("'" in key and '"' in key):
        raise call.refuse('the reference is one declared label; write ref="A"')
    return key


_BASES: Mapping[str, tuple[Kind, Mapping[str, tuple[int, int]], Sequence[str]]] = {
    "poly": ("poly", {"degree": (1, MAX_DEGREE)}, ["degree"]),
    "bs": ("spline", {"df": (1, MAX_BASIS), "degree": (1, MAX_DEGREE)}, ["df"]),
    "s": ("smooth", {"k": (3, MAX_BASIS)}, []),
}
"""Kind, limits of whole-number options, and those that may be given by position."""


def _basis(call: _Call) -> Factor:
    kind, limits, positional = _BASES[call.name]
    name = call.first()
    given = call.given([*limits, *(() if kind == "poly" else ("knots",))], positional)
    options: dict[str, Option] = {
        key: call.whole(given[key], key, *ends) for key, ends in limits.items() if key in given
    }
    if "knots" in given:
        options["knots"] = call.knots(given["knots"])
    if kind == "poly" and not options:
        raise call.refuse("the degree is missing; write poly(x, 2)")
    if kind == "spline":
        _check_spline(call, options)
    shown = [f"{k}={list(v) if isinstance(v, tuple) else v}" for k, v in options.items()]
    if kind == "poly":
        shown = [str(options["degree"])]
    expr = f"{call.name}({', '.join([ast.unparse(call.node.args[0]), *shown])})"
    return Factor(expr, kind, (name,), options=tuple(options.items()))


def _check_spline(call: _Call, options: Mapping[str, Any]) -> None:
    degree = options.get("degree", 3)
    if "df" in options and "knots" in options:
        raise call.refuse("df and knots exclude each other; write one of them")
    if options.get("df", degree) < degree:
        raise call.refuse(f"df must be at least the degree, {degree}")
    if len(options.get("knots", ())) + degree > MAX_BASIS:
        raise call.refuse(f"a spline has at most {MAX_BASIS} functions; give fewer knots")


def _function(call: _Call) -> Factor:
    found: list[str] = []
    value = _arithmetic(call, call.node, found)
    if not found:
        raise call.refuse("it uses no column; leave it out, the intercept is always there")
    return Factor(ast.unparse(call.node), "function", unique(found), total=value.total)


_BUILDERS: Mapping[str, Callable[[_Call], Factor]] = {
    "C": _categorical,
    **dict.fromkeys(("I", "log", "exp", "sqrt"), _function),
    **dict.fromkeys(_BASES, _basis),
}

FUNCTIONS = tuple(_BUILDERS)
"""The names a formula may call."""


# Arithmetic inside I, log, exp and sqrt


class _Value(NamedTuple):
    """Of an expression: its value if it uses no column, and whether it is total."""

    number: float | None
    total: bool


_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_ELEMENTARY: Mapping[str, Callable[[float], float]] = {
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
}


def _arithmetic(call: _Call, node: ast.expr, found: list[str], depth: int = 0) -> _Value:
    """Check an expression and append the columns it uses to `found`."""

    def inside(part: ast.expr) -> _Value:
        return _arithmetic(call, part, found, depth + 1)

    if depth > MAX_DEPTH:
        raise call.refuse("it is nested too deep; simplify it")
    match node:
        case ast.Name():
            found.append(call.column(node))
            return _Value(None, total=True)
        case ast.Constant() if (number := _constant(node)) is not None:
            return _Value(float(number), total=True)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign):
            value = inside(node.operand)
            minus = isinstance(sign, ast.USub) and value.number is not None
            return value._replace(number=-value.number) if minus else value  # type: ignore[operator]
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _operation(call, node.op, inside(node.left), inside(node.right))
        case ast.Call(func=ast.Name(id=name), args=[part], keywords=[]) if name in _CALLABLE:
            return _elementary(call, name, inside(part))
        case ast.Call():
            raise call.refuse(_advice(_path(node.func) or "?"))
    raise call.refuse(_WHY.get(type(node), "only numbers, columns and + - * / ** are read here"))


_CALLABLE = ("I", *_ELEMENTARY)


def _operation(call: _Call, op: ast.operator, left: _Value, right: _Value) -> _Value:
    total = left.total and right.total
    if isinstance(op, ast.Div):
        total = total and right.number is not None
        if right.number == 0:
            raise call.refuse("it divides by zero")
    if isinstance(op, ast.Pow):
        if right.number is None or abs(right.number) > MAX_POWER:
            raise call.refuse(f"a power must be a number up to {MAX_POWER}; write x**2")
        total = total and right.number.is_integer() and right.number >= 0
    if left.number is None or right.number is None:
        return _Value(None, total)
    return _Value(_computed(call, _OPERATORS[type(op)], left.number, right.number), total=True)


def _elementary(call: _Call, name: str, inner: _Value) -> _Value:
    if name == "I":
        return inner
    if inner.number is None:
        return _Value(None, total=False)
    return _Value(_computed(call, _ELEMENTARY[name], inner.number), total=True)


def _computed(call: _Call, function: Callable[..., Any], *numbers: float) -> float:
    """A constant's value, refused early: 9**9**9 would take for ever."""
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError):
        value = None
    if not isinstance(value, float) or not abs(value) <= MAX_NUMBER:
        raise call.refuse("its constants give no finite number")
    return value


# Advice


_WHY: Mapping[type[ast.expr], str] = {
    ast.Attribute: "attributes are never read; write a name with a dot in back-quotes, `x.y`",
    ast.Subscript: "subscripts are never read; write one column name",
    ast.Compare: "comparisons are not read; make it a column of its own, or use groups=",
    ast.Constant: "only plain numbers are read here; leave out text, True, None and 1j",
    ast.Starred: "write plain arguments, without *",
}

_LEARNT = "would be learnt from the rows"
_ADVICE: Mapping[str, str] = {
    **dict.fromkeys(
        ("scale", "center", "standardize"),
        f"means and scales {_LEARNT}; write x itself: its declared bounds scale it",
    ),
    **dict.fromkeys(
        ("cr", "cs", "cc", "ns", "tp", "te", "ti", "t2"),
        f"knots {_LEARNT}; declare bounds for x and write s(x) or bs(x, df=5)",
    ),
    **dict.fromkeys(
        ("cut", "qcut"), f"cut points {_LEARNT}; write s(x), or make it a column with levels"
    ),
    **dict.fromkeys(
        ("factor", "as.factor", "hashed", "Categorical"), "write C(x) and declare levels in bounds"
    ),
    **dict.fromkeys(("log2", "log10"), "write log(x); only the scale differs"),
    **dict.fromkeys(("exp2", "exp10"), "write exp(x), with a factor inside if you like"),
    **dict.fromkeys(("power", "pow", "square"), "write I(x**2)"),
    "log1p": "write log(1 + x)",
    "expm1": "write exp(x)",
    "lag": "a row must not see other rows; make it a column beforehand",
    "Q": "write the column's name in back-quotes, `my column`",
}


def _advice(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in FUNCTIONS and name != last:
        return f"write {last}(x)"
    if name in _CALLABLE:
        return f"write {name}(x), with one argument"
    if name in FUNCTIONS:
        return f"write {name}(x) by itself, not inside another function"
    known = _ADVICE.get(name) or _ADVICE.get(last)
    return known or (
        "this function is not on the list, since it could see other rows or run code; "
        f"write {', '.join(FUNCTIONS[:-1])} or {FUNCTIONS[-1]}"
    )


# What formulaic may call


def _quiet(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # a warning about log(-1) would reveal that a row holds a negative number
    def silent(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(x)

    return silent


ENVIRONMENT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"log": _quiet(np.log), "exp": _quiet(np.exp), "sqrt": _quiet(np.sqrt), "s": lambda x, **_: x}
)
"""All that a formula may call besides formulaic's own C, I, poly and bs.

``s(x)`` is x itself here: its basis is built from released numbers, not by formulaic.
"""
