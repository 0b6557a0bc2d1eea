"""The formula ``Y ~ T | modifiers | controls``, which is read and checked but never run.

A formula may come from an untrusted source, and formulaic runs Python code that it contains, partly
while parsing. Each factor, one column or one function of columns, is therefore checked against an
allow-list. Formulaic's parser, which expands the terms, receives placeholders instead of factors.

Each factor is read with Python's own parser and checked node by node. The check evaluates no code.
An accepted factor is a function of one row and of public constants: arithmetic, comparisons and
elementary functions of columns. It can therefore be fitted to a public skeleton and then applied to
rows.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import operator
import re
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from privcausal.errors import FormulaError, SchemaError
from privcausal.request.schema import (
    NO_SUCH_FIELD,
    Binary,
    Domain,
    Interval,
    Levels,
    Schema,
    label_key,
    level_names,
)
from privcausal.typing import Integers, Mask, Matrix, Vector

# -- terms of results -------------------------------------------------------------------------

TermKind = Literal[
    "effect", "late", "mean", "ratio", "reduced form", "first stage", "slope", "coefficient"
]


@dataclass(frozen=True)
class Place:
    """All rows, or a level of a factor (a column or a kind of time), or a comparison."""

    factor: str = ""
    level: str | None = None

    def __str__(self) -> str:
        return self.factor if self.level is None else f"{self.factor}[{self.level}]"


@dataclass(frozen=True)
class ResultTerm:
    """A term of a result. Its text is the name that results show.

    A slope is per unit of its `column`. A coefficient is in the outcome's unit, such as the
    difference between two levels. `of` is the estimand, arm or column, and empty if there is only
    one. A mean outcome is that of the `arm`.
    """

    kind: TermKind
    of: str
    place: Place = Place()
    arm: int | None = None
    column: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.of, str(self.place))))

    @property
    def is_effect(self) -> bool:
        """Whether it has the scale of an effect, unlike mean outcomes, ratios and first stages."""
        return self.kind in ("effect", "late", "slope", "coefficient")


ATE_TERM, PLR_TERM = ResultTerm("effect", "ATE"), ResultTerm("effect", "PLR")


def late_terms(instruments: Sequence[str]) -> tuple[ResultTerm, ...]:
    """The LATE, then slopes of outcome and treatment on the instruments."""
    kinds: tuple[TermKind, ...] = ("reduced form", "first stage")
    labels = [f"[{name}]" for name in instruments] if len(instruments) > 1 else [""]
    slopes = (ResultTerm(kind, kind + label) for kind in kinds for label in labels)
    return (ResultTerm("late", "LATE"), *slopes)


def in_places(terms: Sequence[ResultTerm], places: Sequence[Place]) -> tuple[ResultTerm, ...]:
    """Each term in each place. A single term is not named."""
    named = terms if len(terms) > 1 else [replace(term, of="") for term in terms]
    return tuple(replace(term, place=place) for term in named for place in places)


# -- expressions ------------------------------------------------------------------------------

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


# -- factors ----------------------------------------------------------------------------------

# Declared subgroups: their notation and their rows.


class Condition(NamedTuple):
    """Rows with `column == level`, or with `column` compared to a number."""

    column: str
    comparison: Literal["==", "!=", ">=", "<=", ">", "<"]
    value: str | float


class Group(NamedTuple):
    """A declared subgroup: the rows of all its comparisons.

    A column name, for all levels of the column, has one comparison, with the value "".
    """

    place: Place
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return unique(part.column for part in self.parts)


def group_columns(groups: str | Iterable[Any]) -> tuple[str, ...]:
    """Columns of these groups, each once, in order of first use."""
    texts = (groups,) if isinstance(groups, str) else groups
    return unique(name for text in texts for name in parse_group(text).columns)


def parse_group(text: Any) -> Group:
    """Parse a group such as ``"age >= 65 & sex == F"``, ``"0 <= x < 5"``, or a bare column name.

    A bare column name gives a comparison with an empty value. Its levels come from the schema.
    """
    if not isinstance(text, str) or not text.strip():
        raise SchemaError("groups= must contain column names or comparisons such as 'age >= 65'.")
    pieces = text.split("&")
    if not all(_COMPARISON.search(piece) for piece in pieces):  # & is part of a label
        pieces = [text]
    parts = []
    for typed in pieces:
        if not _COMPARISON.search(typed):
            parts.append(Condition(typed.strip(), "==", ""))
            continue
        piece = re.sub(r"^\s*\((.*)\)\s*$", r"\1", typed)
        equal: Any = next((symbol for symbol in ("==", "!=") if symbol in piece), "")
        if equal:
            column, _, value = (part.strip() for part in piece.partition(equal))
            triples = [(column, equal, value)]
        else:  # two comparisons for a column between two numbers
            *sides, last = (side.strip() for side in _COMPARISON.split(piece))
            *first, symbol = _COMPARISON.findall(piece)
            triples = [(sides[-1], symbol, last)]
            if len(sides) > 2 or any(other[0] != symbol[0] for other in first):
                raise SchemaError(f"Group {text!r} must have the form '0 <= column < 5'.")
            triples += [(sides[1], _FLIPPED[other], sides[0]) for other in first]
        if not all(column and value for column, _, value in triples):
            raise SchemaError(f"Group {text!r} must have the form 'column >= 65'.")
        for column, comparison, value in triples:
            try:
                right: str | float = float(value)
            except ValueError:
                if comparison not in ("==", "!="):
                    raise SchemaError(f"Group {text!r} must compare with a number.") from None
                right = value.strip("'\"")
            if isinstance(right, float) and not math.isfinite(right):
                raise SchemaError(f"Group {text!r} must compare with a finite number.")
            parts.append(Condition(column, comparison, right))
    return Group(Place(text.strip()), tuple(parts))


_COMPARISON = re.compile("==|!=|>=|<=|>|<")
_FLIPPED: Mapping[str, Any] = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}


def resolve_groups(texts: Sequence[str], schema: Schema) -> tuple[Group, ...]:
    """Check groups against the schema and expand bare columns to one group per level.

    Each text gives groups that do not overlap, so a row is in at most one of them.
    """
    groups: list[Group] = []
    for text in texts:
        group = parse_group(text)
        for name in group.columns:
            if name not in schema:
                raise SchemaError(f"Group {text!r} requires a declared domain for {name!r}.")
        if group.parts[0].value == "":
            (column,) = group.columns
            domain = schema[column]
            if isinstance(domain, Interval):
                raise numeric_group(column)
            for label in level_names(domain):
                groups.append(Group(Place(column, label), (Condition(column, "==", label),)))
        else:
            parts = (_checked(part, str(group.place), schema[part.column]) for part in group.parts)
            groups.append(group._replace(parts=tuple(parts)))
    seen = set()
    for group in groups:
        if (rows := frozenset(group.parts)) in seen:
            raise SchemaError(f"Group {str(group.place)!r} is declared twice.")
        seen.add(rows)
    return tuple(groups)


def numeric_group(column: str) -> SchemaError:
    """The error for a bare numeric column."""
    return SchemaError(
        f"Group {column!r} is numeric. Write a comparison such as '{column} >= 65'. If the column "
        f"is 0/1, declare bounds={{{column!r}: [0, 1]}}."
    )


def _checked(part: Condition, label: str, domain: Domain) -> Condition:
    """The comparison, with the label on its right-hand side in the form of `label_key`."""
    if isinstance(domain, Interval):
        if isinstance(part.value, str):
            raise SchemaError(
                f"Group {label!r} must compare with a number, as its column is numeric."
            )
        return part
    value = str(label_key(part.value))
    if isinstance(domain, Binary):
        if value not in (*domain.zeros, *domain.ones):
            raise SchemaError(f"Group {label!r} must compare with {domain.zero} or {domain.one}.")
    elif part.comparison not in ("==", "!="):
        raise SchemaError(f"Group {label!r} must use == or !=, because it compares levels.")
    elif value not in domain.labels:
        raise SchemaError(
            f"Group {label!r} uses an undeclared level. Declared levels: "
            f"{', '.join(domain.labels)}."
        )
    return part._replace(value=value)


def group_mask(group: Group, frame: Mapping[str, Vector | Integers], schema: Schema) -> Mask:
    """Mask of the rows that belong to the group, shape (n,), from the columns' cleaned values."""
    inside = []
    for part in group.parts:
        values, domain = frame[part.column], schema[part.column]
        if isinstance(domain, Levels):
            same = values == domain.labels.index(str(part.value))
            inside.append(np.asarray(same if part.comparison == "==" else ~same))
            continue
        if isinstance(domain, Binary) and isinstance(part.value, str):
            number = 1.0 if part.value in domain.ones else 0.0
        else:
            number = float(part.value)
        inside.append(np.asarray(_COMPARE[part.comparison](values, number)))
    return np.asarray(np.logical_and.reduce(inside))


_COMPARE = {
    "==": np.equal, "!=": np.not_equal, ">=": np.greater_equal, "<=": np.less_equal,
    ">": np.greater, "<": np.less,
}  # fmt: skip


class Partitions(NamedTuple):
    """Sets of groups that partition the rows: their sums add up to the sum over all rows."""

    # One row per set, shape (q, 1 + G): 1 for all rows, -1 for each group of the set. Multiplied by
    # the sums over all rows and over the groups, it gives the sum over the remaining rows, which
    # are in none of the set's groups.
    identities: Matrix
    # Whether there are certainly no remaining rows. Otherwise, there may be rows with an undeclared
    # label or a missing value.
    certain: Mask


def partitions(groups: Sequence[Group], schema: Schema, needed: Collection[str]) -> Partitions:
    """One set for each column whose every declared value is in exactly one of its groups.

    Parameters
    ----------
    needed : collection of str
        Columns whose values are present in every complete case. A row with a missing value in
        another column is still counted, but belongs to none of that column's groups. A row with an
        undeclared label is also counted without a group, except in groups with ``!=``, and unless
        ``Levels(..., other=True)`` has a level for it.
    """
    identities, certain = [], []
    for columns in dict.fromkeys(group.columns for group in groups if len(group.columns) == 1):
        members = [j for j, group in enumerate(groups) if group.columns == columns]
        (column,) = columns
        domain = schema[column]
        # One cleaned value of each kind that the groups distinguish: declared values, then others
        examples: list[Any]
        if isinstance(domain, Levels):
            examples = [np.arange(len(domain.labels)), np.array([] if domain.other else [-1])]
        elif isinstance(domain, Binary):
            examples = [np.array([0.0, 1.0]), np.zeros(0)]
        else:
            cuts = [float(part.value) for j in members for part in groups[j].parts]
            ends = np.unique(np.clip([domain.lo, domain.hi, *cuts], domain.lo, domain.hi))
            examples = [np.r_[ends, 0.5 * (ends[:-1] + ends[1:])], np.zeros(0)]
        inside = [
            np.sum([group_mask(groups[j], {column: values}, schema) for j in members], axis=0)
            for values in examples
        ]
        if not (inside[0] == 1).all():
            continue
        identities.append(np.zeros(1 + len(groups)))
        identities[-1][0], identities[-1][[1 + j for j in members]] = 1.0, -1.0
        present = schema.complete or column in needed
        certain.append(present and bool((inside[1] == 1).all()))
    return Partitions(np.reshape(identities, (-1, 1 + len(groups))), np.array(certain, bool))


MAX_DEGREE = 5

FactorKind: TypeAlias = Literal[
    "numeric", "categorical", "contrast", "function", "spline", "poly", "smooth"
]
LABEL_KINDS = "categorical", "contrast"
"""Kinds of factors that use a column of labels."""
Option: TypeAlias = int | tuple[float, ...]


@dataclass(frozen=True)
class Factor:
    """One column, or one public function of the columns of a row."""

    expr: str  # The text that formulaic evaluates. For a bare name, it is the column's name.
    # "numeric" for a bare name, "categorical" for C(), and "contrast" for C(x, contr.sum) and other
    # contrasts. "spline" for bs, cr, cs and cc, "poly" for poly, "smooth" for s. "function" for I,
    # elementary functions, scale and center.
    kind: FactorKind
    variables: tuple[str, ...]  # The columns used, in order of first use
    # Whether any bounds are allowed: the factor is finite for every finite input, except for
    # overflow, and compares with no number that may lie outside the bounds. Not total are log, exp,
    # sqrt, tan, division by a column and powers other than 0, 1, 2, ...
    total: bool = True
    # The reference label of ``C(x, ref="A")``. `expr` is ``C(x)`` with or without it.
    ref: str | None = None
    # The numbers passed to bases, such as ``(("k", 6), ("knots", (20.0, 40.0)))``, and the numbers
    # compared with columns, ``(("cuts", (3.0,)),)``
    options: tuple[tuple[str, Option], ...] = ()
    # The labels of ``C(x, levels=["A", "B"])``, which declare the levels of x. They are not in
    # `expr` either.
    levels: tuple[str, ...] = ()
    # The text that names the factor in results, if it is not `expr`: ``C(x, Sum)``, the spelling of
    # patsy for ``C(x, contr.sum)``
    typed: str = ""

    def __str__(self) -> str:
        """The factor as a user would type it."""
        if self.kind == "numeric":
            return quoted(self.expr)
        words = [] if self.ref is None or self.typed else [f"ref={self.ref!r}"]
        words += [f"levels={[*self.levels]}"] if self.levels else []
        return f"{', '.join([(self.typed or self.expr)[:-1], *words])})"

    @property
    def sums_to_one(self) -> bool:
        """Whether its functions sum to one, like the intercept; formulaic checks bs() only."""
        cubic = self.kind == "spline" and not self.expr.startswith("bs(")
        return cubic and "constraints" not in dict(self.options)


def bare_factor(name: str) -> Factor:
    """Factor of a bare column."""
    return Factor(name, "numeric", (checked_name(name),))


def call_factor(text: str) -> Factor:
    """Factor of a call such as ``log(x + 1)``.

    Raise `FormulaError` if any part of the call is not on the allow-list.
    """
    call = read_call(text)
    build = _BUILDERS.get(call.name)
    if build is None:
        raise call.refuse(advice(call.name, call.node.args))
    return build(call)


# From call to factor, one builder per function


CONTRASTS = ("treatment", "sum", "helmert", "poly", "diff")
_SPELLINGS = {f"contr.{name}": name for name in CONTRASTS} | {
    name.title(): name for name in CONTRASTS[:3]
}
"""Contrasts as in formulaic and as in patsy, which names the columns of Poly and Diff otherwise."""


def _categorical(call: TypedCall) -> Factor:
    name = call.first()
    arguments = call.given(["contr.", "ref", "levels"], ["contr."])
    ref = _label(call, arguments["ref"]) if "ref" in arguments else None
    levels: tuple[str, ...] = ()
    if "levels" in arguments:
        node = arguments["levels"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        levels = unique(_label(call, item) for item in items)
        if len(levels) < 2 or len(levels) < len(items):
            raise call.refuse(
                "levels= must list two or more different labels. Write levels=['A', 'B']."
            )
    written, kind, typed = ast.unparse(call.node.args[0]), "categorical", ""
    if "contr." in arguments:
        # The contrast and its reference: ``Treatment("A")`` is equivalent to ``C(x, ref="A")``.
        node = arguments["contr."]
        inner = node if isinstance(node, ast.Call) else None
        contrast = _SPELLINGS.get(path_of(inner.func if inner else node) or "")
        if contrast is None:
            raise call.refuse(
                "This contrast is unknown. Write C(x), C(x, ref='label') for another reference, "
                f"C(x, levels=['A', 'B']), or C(x, {', '.join(_SPELLINGS)})."
            )
        if contrast != "treatment" and inner and (inner.args or inner.keywords):
            raise call.refuse(
                "This contrast accepts no arguments. Add custom scores to the data as a column."
            )
        if contrast != "treatment" and ref is not None:
            raise call.refuse("This contrast has no reference label. Remove ref=.")
        if contrast == "treatment" and inner:
            words = [k.value for k in inner.keywords if k.arg in ("base", "reference")]
            labels = [*inner.args, *words]
            several = len(labels) > 1 or len(words) < len(inner.keywords)
            if several or (labels and ref):
                raise call.refuse(
                    f"{ast.unparse(inner.func)}() accepts one label, the reference, and no ref= "
                    "beside it."
                )
            ref = _label(call, labels[0]) if labels else ref
        typed = f"C({written}, {ast.unparse(node)})"
        if '"' in call.text and "'" not in call.text:
            typed = typed.replace("'", '"')
        if contrast != "treatment":
            written, kind = f"{written}, contr.{contrast}", "contrast"
    expr = f"C({written})"
    typed = "" if typed == expr else typed
    return Factor(expr, cast("FactorKind", kind), (name,), ref=ref, levels=levels, typed=typed)


def _label(call: TypedCall, node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else constant(node)
    key = label_key(value) if isinstance(value, str | int | float) else None
    if not key or ("'" in key and '"' in key):
        raise call.refuse("A label must be text in quotes or a number. Write one declared label.")
    return key


class _Basis(NamedTuple):
    """Kind, limits of whole-number options, positional options, and yes/no options."""

    kind: FactorKind
    limits: Mapping[str, tuple[int, int]]
    positional: Sequence[str] = ()
    flags: Sequence[str] = ()


_CUBIC = _Basis("spline", {"df": (3, MAX_BASIS)}, ["df"], ["constraints"])
_BS = {"df": (1, MAX_BASIS), "degree": (1, MAX_DEGREE)}
_BASES: Mapping[str, _Basis] = {
    "poly": _Basis("poly", {"degree": (1, MAX_DEGREE)}, ["degree"], ["raw"]),
    "bs": _Basis("spline", _BS, ["df"], ["include_intercept"]),
    **dict.fromkeys(("cr", "cs", "cc"), _CUBIC),
    "s": _Basis("smooth", {"k": (3, MAX_BASIS)}),
}
_YES = {"constraints": "center"}
"""Value of a yes/no option that is not False. The default is True."""


def _basis(call: TypedCall) -> Factor:
    basis = _BASES[call.name]
    name = call.first()
    with_knots = () if basis.kind == "poly" else ("knots",)
    arguments = call.given([*basis.limits, *with_knots, *basis.flags], basis.positional)
    options: dict[str, Option] = {}
    for key, (low, high) in basis.limits.items():
        if key in arguments:
            number = constant(arguments[key])
            if not isinstance(number, int) or not low <= number <= high:
                raise call.refuse(f"{key} must be a whole number from {low} to {high}.")
            options[key] = number
    if "knots" in arguments:
        node = arguments["knots"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        values = [constant(item) for item in items]
        knots = tuple(float(v) for v in values if v is not None)
        complete = 0 < len(knots) == len(values) <= MAX_BASIS
        if not complete or not all(a < b for a, b in pairwise(knots)):
            raise call.refuse(
                f"knots must be a list of 1 to {MAX_BASIS} increasing numbers. Write "
                "knots=[20, 40]."
            )
        options["knots"] = knots
    for flag in (flag for flag in basis.flags if flag in arguments):
        node = arguments[flag]
        value = node.value if isinstance(node, ast.Constant) else None
        yes = _YES.get(flag, True)
        no = None if flag in _YES else False
        if value is not yes and value is not no and not (isinstance(yes, str) and value == yes):
            raise call.refuse(f"{flag} must be {yes!r} or {no!r}.")
        if value is not no:
            options[flag] = 1
    if basis.kind == "poly" and "degree" not in options:
        raise call.refuse("The degree is missing. Write poly(x, 2).")
    if basis.kind == "spline":
        _check_spline(call, options)
    written = {key: str([*v]) if isinstance(v, tuple) else str(v) for key, v in options.items()}
    written |= {flag: repr(_YES.get(flag, True)) for flag in basis.flags if flag in options}
    words = [f"{key}={text}" for key, text in written.items()]
    if basis.kind == "poly":
        words[0] = written["degree"]
    expr = f"{call.name}({', '.join([ast.unparse(call.node.args[0]), *words])})"
    total = basis is not _CUBIC or "knots" not in options
    return Factor(expr, basis.kind, (name,), total, options=tuple(options.items()))


def _check_spline(call: TypedCall, options: Mapping[str, Any]) -> None:
    knots = len(options.get("knots", ()))
    if "df" in options and knots:
        raise call.refuse("df and knots cannot be combined. Write one or the other.")
    if call.name != "bs":
        if "df" not in options and knots < 2:
            raise call.refuse(f"Write {call.name}(x, df=5), or at least two knots.")
        if knots + 2 > MAX_BASIS:
            raise call.refuse(f"A spline can have at most {MAX_BASIS} functions. Use fewer knots.")
        return
    degree = options.get("degree", 3)
    least = degree + options.get("include_intercept", 0)
    if options.get("df", least) < least:
        raise call.refuse(
            f"df must be at least {least}: the degree, plus 1 if include_intercept=True."
        )
    if knots + least > MAX_BASIS:
        raise call.refuse(f"A spline can have at most {MAX_BASIS} functions. Use fewer knots.")


def _scaled(call: TypedCall) -> Factor:
    """``scale(x)`` or ``scale(x, 40, 12)``. Means and deviations are of the declared domain."""
    name = call.first()
    allowed = ("center", "scale") if call.name == "scale" else ()
    for key, node in call.given(allowed, allowed).items():
        plain = isinstance(node, ast.Constant) and isinstance(node.value, bool)
        if not plain and (constant(node) is None or (key == "scale" and not constant(node))):
            raise call.refuse(
                f"{key} must be True, False or a number other than 0. Write scale(x, 40, 12)."
            )
    return Factor(ast.unparse(call.node), "function", (name,))


def _function(call: TypedCall) -> Factor:
    columns: list[str] = []
    value = arithmetic(call, call.node, columns)
    if not columns:
        raise call.refuse(
            "The expression uses no column. Remove it; the intercept is always included."
        )
    options = (("cuts", tuple(sorted({*value.cuts}))),) if value.cuts else ()
    names = unique(columns)
    return Factor(ast.unparse(call.node), "function", names, value.total, options=options)


_BUILDERS: Mapping[str, Callable[[TypedCall], Factor]] = {
    "C": _categorical,
    **dict.fromkeys(("I", *ELEMENTARY), _function),
    **dict.fromkeys(("scale", "center"), _scaled),
    **dict.fromkeys(_BASES, _basis),
}


# -- the formula ------------------------------------------------------------------------------

# Tokens and parts of a formula. Calls stay whole, and `factors` reads them.

MAX_CHARACTERS = 10_000
MAX_INTERACTION = 4
"""Maximum number of factors in one term, and maximum power of a bracket."""


class Token(NamedTuple):
    kind: Literal["name", "call", "number", "operator"]
    text: str


_PLUS, _MINUS, _POWER, DOT = (Token("operator", symbol) for symbol in ("+", "-", "**", "."))

_SPACE = re.compile(rf"(`[^`]*`|{STRING})|\s+")
_BRACKET = re.compile(rf"`[^`]*`|{STRING}|[()]")
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<call>{NAME_PATTERN})\s*(?=\()
  | (?P<name>{NAME_PATTERN})
  | `(?P<quoted>[^`]*)`
  | (?P<number>[0-9]+)(?![\w.])
  | (?P<operator>\*\*|%in%|[-+*/:^().~|])
    )""",
    re.VERBOSE,
)

_STRANGERS = {
    "%": "'%' is allowed only in %in%. Write a:b for an interaction.",
    "{": "Python code in braces is never run. Write arithmetic as I(x * 2).",
    "[": "Square brackets are not allowed. Write one column name, in backticks if necessary.",
    "'": "Text in quotes is allowed only as a label, as in C(x, ref='A').",
    '"': 'Text in quotes is allowed only as a label, as in C(x, ref="A").',
    "`": "A backtick is not closed. Write `my column`.",
    "=": "'=' is allowed only inside a function, as in bs(x, df=5). Write ~ after the outcome.",
}


def checked_text(text: object, columns: Sequence[str] | None) -> str:
    """The formula with normalized white space, if Python and formulaic read it identically."""
    if not isinstance(text, str):
        raise FormulaError(f"A formula must be text, not {type(text).__name__}. Write 'Y ~ T | X'.")
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(f"The formula has more than {MAX_CHARACTERS:,} characters. Shorten it.")
    text = _SPACE.sub(lambda match: match[1] or " ", text).strip()
    if not is_plain(text):
        raise FormulaError(
            "The formula contains a backslash, an invisible character or an unusual form of a "
            "letter (not Unicode NFKC). Retype it, or rename the column."
        )
    # Names of two words need backticks.
    plain = re.sub(rf"`[^`]*`|{STRING}", " + ", text)
    for name in () if columns is None else columns:
        words = isinstance(name, str) and re.fullmatch(r"\w+( \w+)+", name)
        if words and re.search(rf"(?<![\w.]){name}(?![\w.])", plain):
            raise FormulaError(f"The name of column {name!r} requires backticks. Write `{name}`.")
    return text


def is_plain(text: str) -> bool:
    # Python reads a full-width x as x, but formulaic does not.
    hidden = any(unicodedata.category(c)[0] == "C" for c in text)
    return not hidden and "\\" not in text and unicodedata.is_normalized("NFKC", text)


def tokens_of(text: str) -> list[Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            why = _STRANGERS.get(rest[0], f"{rest[0]!r} is not allowed in a formula. Remove it.")
            if rest[0].isdigit():
                why = (
                    f"{short(rest)} starts with a digit. Write a number inside I(), as "
                    "in I(0.5 * x), and such a column name in backticks, `2x`."
                )
            raise FormulaError(why)
        position = match.end()
        kind: Any = match.lastgroup
        if kind == "call":  # up to the bracket that closes it
            depth = 0
            for bracket in _BRACKET.finditer(text, position):
                depth += {"(": 1, ")": -1}.get(bracket[0], 0)
                if depth == 0:
                    position = bracket.end()
                    break
            else:
                excerpt = short(text[position:])
                raise FormulaError(f"The parenthesis in {excerpt} is not closed.")
            tokens.append(Token("call", text[match.start("call") : position]))
        elif kind in ("name", "quoted"):
            tokens.append(Token("name", checked_name(match[kind])))
        else:
            tokens.append(Token(kind, match[kind].replace("^", "**")))
    return tokens


# From tokens to parts


def parts_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split into outcome, treatment and at most two parts of covariates."""
    places, depth = _separators(tokens)
    separators = "".join(tokens[k].text for k in places)
    if depth:
        raise FormulaError("Parentheses do not match or are nested too deeply. Check ( and ).")
    if separators[:1] != "~":
        raise FormulaError("The formula must start with an outcome and ~. Write 'Y ~ T | X1 + X2'.")
    if separators not in ("~", "~|", "~||"):
        raise FormulaError(
            "The formula must have one ~ and at most two |. Write 'Y ~ T | X1 + X2 | W'."
        )
    return [list(tokens[a + 1 : b]) for a, b in pairwise([-1, *places, len(tokens)])]


def _separators(tokens: Sequence[Token]) -> tuple[list[int], int]:
    """Places of ~ and | outside brackets, and the final depth, which is 0 if brackets match."""
    places, depth = [], 0
    for k, (kind, text) in enumerate(tokens):
        if kind != "operator":
            continue
        if text in "~|" and depth == 0:
            places.append(k)
        depth += {"(": 1, ")": -1}.get(text, 0)
        if not 0 <= depth <= MAX_DEPTH:
            break
    return places, depth


def bare(part: Sequence[Token], role: Literal["outcome", "treatment", "instrument"]) -> str:
    if not part:
        raise FormulaError(f"The {role} is missing. Write 'Y ~ T | X1 + X2'.")
    if len(part) == 1 and part[0].kind == "name":
        return part[0].text
    if part[0].text.startswith(("C(", "factor(", "i(")) and role == "treatment":
        advice = (
            "Write the name alone, and declare its labels, the reference first: bounds={'T': "
            "['no', 'yes']}."
        )
    elif role == "treatment" and any(token.text in (":", "*") for token in part):
        advice = (
            "For a product, add a column such as D = treated * post to the data, and write "
            "'Y ~ D'. Write effect modifiers after a bar: 'Y ~ T | X1 + X2'."
        )
    elif role == "treatment":
        advice = "Write covariates after a bar: 'Y ~ T | X1 + X2'."
    elif role == "instrument":
        advice = "Join the names of several instruments by +, as in 'Y ~ T | X | T ~ Z1 + Z2'."
    else:
        advice = "Compute it in the data as a new column, and declare the bounds of that column."
    raise FormulaError(f"The {role} must be one column name. {advice}")


def check_numbers(part: Sequence[Token]) -> None:
    """Allow a number only as the intercept, alone in a sum, or as the power of a bracket."""
    for i, token in enumerate(part):
        after = part[i + 1] if i + 1 < len(part) else None
        if token == _POWER:
            repeated = part[i + 2 : i + 3] == [_POWER]
            if after is None or after.kind != "number" or repeated:
                raise FormulaError(
                    "** must be followed by a whole number. Write (a + b)**2 or I(x**2)."
                )
            if after.text not in map(str, range(1, MAX_INTERACTION + 1)):
                raise FormulaError(
                    f"The power of a sum must be from 1 to {MAX_INTERACTION}. Write (a + b)**2, or "
                    "I(x**4) for the power of a column."
                )
        elif token.kind == "number" and (not i or part[i - 1] != _POWER):
            signs = [*takewhile(lambda sign: sign in (_PLUS, _MINUS), reversed(part[:i]))]
            if token.text == "0" or (token.text == "1" and _MINUS in signs):
                raise FormulaError(
                    "The intercept cannot be removed. Without it, effects and nuisance models "
                    "would be 0 when all covariates are 0. Remove 0 or -1 from the formula."
                )
            alone = after in (None, _PLUS, _MINUS) and (signs or not i)
            if token.text != "1" or not alone:
                raise FormulaError(
                    f"The number {token.text[:9]} is not a term. Write I({token.text[:9]} * x)."
                )


MAX_TERMS = 500
MAX_PRODUCTS = 20_000
"""Maximum number of products that formulaic may form to expand `*`, `/`, `:` and `**`."""


@dataclass(frozen=True)
class Term:
    """A product of factors. One factor is a main effect. `name` is the text from formulaic."""

    name: str
    factors: tuple[Factor, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return unique(v for factor in self.factors for v in factor.variables)

    def __str__(self) -> str:
        """The term as a user would type it."""
        return ":".join(map(str, self.factors))


@dataclass(frozen=True)
class CausalFormula:
    """``outcome ~ treatment | effect modifiers | extra controls``, read and checked.

    Use `parse` to create it. Both parts of covariates have an intercept, which cannot be removed.
    Terms are in formulaic's order, main effects before interactions. Controls that are also
    modifiers are not repeated.
    """

    text: str  # The formula as typed, with normalized white space
    # `outcome`, `treatment`: column names. A regression has no treatment (an empty name).
    outcome: str
    treatment: str
    # `modifiers`, `controls`: terms of the second and the third part. Each may be empty.
    modifiers: tuple[Term, ...] = ()
    controls: tuple[Term, ...] = ()
    # The function of the outcome, such as log(Y) in ``log(Y) ~ T``; None for a bare column
    response: Factor | None = None
    # The columns of a last part ``| T ~ Z1 + Z2``, if there is one
    instruments: tuple[str, ...] = ()
    # The second column of an outcome ``Surv(time, event)``; otherwise an empty name
    event: str = ""
    # `terms`, `factors`: of the modifiers, then of the controls
    terms: tuple[Term, ...] = field(init=False, repr=False, compare=False)
    factors: tuple[Factor, ...] = field(init=False, repr=False, compare=False)
    # `causes`, `coded`: treatment and instruments; and columns that are 0/1 unless they are
    # declared, which are these and the event
    causes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    coded: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # All columns of the formula: outcome, treatment, then others in order of first use
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # `effect_variables`, `categorical`: columns that may modify the effect, and columns inside C()
    effect_variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    categorical: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # The variable compared given the covariates: the instrument if any, or the treatment. A
    # regression has none.
    assigned: str = field(init=False, repr=False, compare=False)
    # Reference labels named in the formula, and labels listed in it, by column
    references: dict[str, str] = field(init=False, repr=False, compare=False)
    levels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    # The outcome's name, or its function as a user would type it
    effect_on: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        outcome, treatment = self.outcome, self.treatment
        terms, causes = self.modifiers + self.controls, [treatment, *self.instruments]
        right = [name for term in terms for name in term.variables]
        factors, coded = [f for term in terms for f in term.factors], [*causes, self.event]
        labels = (f.variables[0] for f in factors if f.kind in LABEL_KINDS)
        typed = outcome if self.response is None else str(self.response)
        vars(self).update(
            terms=terms,
            factors=tuple(factors),
            causes=tuple(filter(None, causes)),
            coded=tuple(filter(None, coded)),
            variables=unique((outcome, *filter(None, coded), *right)),
            effect_variables=unique(v for t in self.modifiers for v in t.variables),
            categorical=unique(labels),
            assigned=self.instruments[0] if self.instruments else treatment,
            references={f.variables[0]: f.ref for f in factors if f.ref is not None},
            levels={f.variables[0]: f.levels for f in factors if f.levels},
            effect_on=f"Surv({outcome}, {self.event})" if self.event else typed,
        )
        if outcome == treatment:
            raise FormulaError(
                f"{outcome!r} is both outcome and treatment. Write 'Y ~ T | X1 + X2'."
            )
        if outcome in right:
            raise FormulaError(
                f"The outcome {outcome!r} is also on the right side. Remove it there."
            )
        if self.event and self.event in (outcome, treatment, *self.instruments, *right):
            raise FormulaError(
                f"The event column {self.event!r} also has another role. Write 'Surv(days, died) ~ "
                "T | X1'."
            )
        for instrument in self.instruments:
            if self.instruments.count(instrument) > 1:
                raise FormulaError(
                    f"The instrument {instrument!r} is written twice. Write it once."
                )
            if instrument in (outcome, treatment, *right):
                raise FormulaError(
                    f"The instrument {instrument!r} also has another role. Write 'Y ~ T | X | T ~ "
                    "Z'."
                )
        if treatment and treatment in right:
            raise FormulaError(
                f"The treatment {treatment!r} is also among the covariates. Remove it there. The "
                "effect already varies with every modifier."
            )
        check_terms(self)

    @classmethod
    def parse(
        cls,
        text: str,
        columns: Sequence[str] | None = None,
        *,
        quote: bool = True,
        advice: Mapping[str, str] = {},  # not modified
    ) -> CausalFormula:
        """Read a formula such as ``"visit ~ mailed | age + C(region) | income"``.

        Parameters
        ----------
        text
            Names and calls of `FUNCTIONS`, joined by ``+ - : * / %in% **`` and
            brackets. Put a name that is not an identifier in back-quotes.
        columns
            The public column names of the data. ``.`` means the columns that the formula does not
            use elsewhere, in this order. Names outside this list are refused.
        quote
            Whether that error may show columns that the formula does not name.
        advice
            What that error says of some names that are not columns.

        Raises
        ------
        FormulaError
            For any other text. The message says what to write instead.
        """
        text = checked_text(text, columns if quote else None)
        tokens = tokens_of(text)
        left, right = list[Token](), list[Token]()  # of a last part ``| T ~ Z``
        places, _ = _separators(tokens)
        separators = "".join(tokens[k].text for k in places)
        if len(separators) >= 3 and separators.endswith("|~"):
            bar, tilde = places[-2:]
            tokens, left, right = tokens[:bar], tokens[bar + 1 : tilde], tokens[tilde + 1 :]
        outcome, treatment, *covariates = parts_of(tokens)
        event, response = "", None
        if len(outcome) == 1 and re.match(r"Surv\s*\(", outcome[0].text):
            inside, sides = outcome[0].text.partition("(")[2][:-1], list[list[Token]]()
            with suppress(FormulaError):  # for example, of `died == 2`
                sides = [
                    tokens_of(side) for side in re.split(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)", inside)
                ]
            if [[token.kind for token in side] for side in sides] != [["name"], ["name"]]:
                raise FormulaError(
                    "Surv() takes two columns: the time of follow-up, and whether the event "
                    "occurred at that time. Write 'Surv(days, died) ~ T | X1 + X2'. If the event "
                    "is coded 1 and 2, declare the censored label first: bounds={'died': [1, 2]}."
                )
            y, event = sides[0][0].text, sides[1][0].text
        else:
            y, response = _outcome(outcome)
        t, z = bare(treatment, "treatment"), tuple[str, ...]()
        if left or right:
            if left != treatment:
                raise FormulaError(
                    "The part after the last bar must have the same treatment on its left side. "
                    "Write 'Y ~ T | X | T ~ Z'."
                )
            ends = [k for k, token in enumerate(right) if token == _PLUS]
            pieces = [right[a + 1 : b] for a, b in pairwise([-1, *ends, len(right)])]
            if len(pieces) > MAX_INSTRUMENTS:
                raise FormulaError(
                    f"A formula has at most {MAX_INSTRUMENTS} instruments. Keep the best."
                )
            z = tuple(bare(piece, "instrument") for piece in pieces)
        roles = tuple(filter(None, (y, t, *z, event)))
        factors, texts = _placeholders(covariates, roles, columns, quote=quote, advice=advice)
        modifiers, controls = (_terms(part, factors, texts) for part in [*covariates, [], []][:2])
        repeated = {frozenset(term.factors) for term in modifiers}
        controls = tuple(term for term in controls if frozenset(term.factors) not in repeated)
        return cls(
            text,
            outcome=y,
            treatment=t,
            modifiers=modifiers,
            controls=controls,
            response=response,
            instruments=z,
            event=event,
        )

    @classmethod
    def regression(
        cls,
        text: str,
        columns: Sequence[str] | None = None,
        *,
        quote: bool = True,
        advice: Mapping[str, str] = {},  # not modified
    ) -> CausalFormula:
        """Read ``"Y ~ X1 + C(g)"``, whose right side has only terms; otherwise like `parse`."""
        text = checked_text(text, columns if quote else None)
        outcome, *parts = parts_of(tokens_of(text))
        if len(parts) != 1:
            raise FormulaError("A regression formula has no bar. Write 'Y ~ X1 + X2'.")
        if not parts[0]:
            raise FormulaError(
                "The right side is missing. Write 'Y ~ X1 + X2', or 'Y ~ 1' for a mean."
            )
        y, response = _outcome(outcome)
        factors, texts = _placeholders(parts, (y,), columns, quote=quote, advice=advice)
        return cls(text, y, "", _terms(parts[0], factors, texts), (), response)

    @property
    def rest(self) -> tuple[str, ...]:
        """The columns that ``.`` denotes."""
        tokens = tokens_of(self.text)
        if DOT not in tokens:
            return ()
        read = {"name": bare_factor, "call": call_factor}
        used = {v for t in tokens if t.kind in read for v in read[t.kind](t.text).variables}
        return tuple(name for name in self.variables if name not in used)

    def __str__(self) -> str:
        return self.text


MAX_INSTRUMENTS = 10
"""Maximum number of instruments: each needs budget for its own nuisance model."""


def _outcome(part: Sequence[Token]) -> tuple[str, Factor | None]:
    """The outcome's column, and its function if there is one."""
    if len(part) != 1 or part[0].kind != "call":
        return bare(part, "outcome"), None
    factor = call_factor(part[0].text)
    if factor.kind != "function" or len(factor.variables) != 1:
        raise FormulaError(
            f"{short(factor.expr)} cannot be the outcome. Write one column, or a "
            "function of one column such as log(Y) or I(Y > 3)."
        )
    return factor.variables[0], factor


# Checks of the whole formula


def check_terms(formula: CausalFormula) -> None:
    """Refuse too many terms or factors, and names that formulaic would confuse in a function."""
    if len(formula.terms) > MAX_TERMS:
        raise FormulaError(f"The formula has more than {MAX_TERMS} terms. Shorten it.")
    for term in formula.terms:
        if len(term.factors) > MAX_INTERACTION:
            raise FormulaError(
                f"{short(term.name)} is an interaction of more than "
                f"{MAX_INTERACTION} factors. Write (a + b + c + d + e)**{MAX_INTERACTION} instead "
                "of a*b*c*d*e."
            )
        if len(term.factors) > 1 and any(f.kind == "smooth" for f in term.factors):
            raise FormulaError(
                f"{short(term.name)}: s() cannot be part of an interaction. Write bs(x, df=5):C(g)."
            )
        if len(term.factors) > 1 and any(f.sums_to_one for f in term.factors):
            raise FormulaError(
                f"{short(term.name)}: The functions of cr, cs and cc sum to 1, so "
                "their products with a factor repeat that factor. Write cr(x, df=5, "
                "constraints='center')."
            )
    functions = [f for f in formula.factors if f.kind != "numeric"]
    functions += [formula.response] if formula.response is not None else []
    called = {name for f in functions for names in _CALLED.findall(f.expr) for name in names}
    for name in formula.variables:
        if name in called:
            raise FormulaError(f"{name!r} is both a column and a function here. Rename the column.")
    aliases = {name: name for name in formula.variables}
    for name in (v for f in functions for v in f.variables):
        # If two names share an alias, formulaic makes a random one and finds no state saved
        # under it. It would then learn that state from the rows.
        if aliases.setdefault(alias(name), name) != name:
            raise FormulaError(
                f"The column names {name!r} and {aliases[alias(name)]!r} are too "
                "similar to be used in functions. Rename one."
            )


_CALLED = re.compile(rf"\b({'|'.join(FUNCTIONS)})\(|\b(contr)\.")


# From parts to terms


def _placeholders(
    parts: Sequence[Sequence[Token]],
    roles: Sequence[str],
    columns: Sequence[str] | None,
    *,
    quote: bool,
    advice: Mapping[str, str],
) -> tuple[dict[str, Factor], dict[Token, str]]:
    """The factor of each placeholder in formulaic's parser, and the placeholders of each token."""
    factors: dict[str, Factor] = {}
    names: dict[str, str] = {}  # expr to placeholder
    texts: dict[Token, str] = {}

    def add(factor: Factor) -> str:
        name = names.setdefault(factor.expr, f"f{len(names)}")
        previous = factors.get(name, factor)
        excerpt = short(factor.expr)
        if previous.kind != factor.kind:
            raise FormulaError(f"{excerpt} is both a column and a function. Rename the column.")
        if previous.ref and factor.ref and previous.ref != factor.ref:
            raise FormulaError(f"{excerpt} has two reference labels. Write only one ref=.")
        if previous.levels and factor.levels and previous.levels != factor.levels:
            raise FormulaError(f"{excerpt} has two lists of levels. Write only one levels=.")
        factors[name] = replace(
            previous,
            ref=previous.ref or factor.ref,
            levels=previous.levels or factor.levels,
            typed=previous.typed or factor.typed,
        )
        if len(factors) > MAX_TERMS:
            raise FormulaError(f"The formula has more than {MAX_TERMS} terms. Shorten it.")
        return name

    for part in parts:
        check_numbers(part)
        for token in part:
            if token.kind in ("name", "call") and token not in texts:
                read = bare_factor if token.kind == "name" else call_factor
                texts[token] = add(read(token.text))
    used = unique((*roles, *(v for f in factors.values() for v in f.variables)))
    for name in used:
        if columns is not None and name not in columns:
            if name in advice:
                raise FormulaError(f"{name!r} is not a column. {advice[name]}")
            raise _unknown(name, columns, quote=quote)
    if not any(DOT in part for part in parts):
        return factors, texts
    # the columns that `.` denotes
    if columns is None:
        raise FormulaError(
            "'.' requires the column names of the data. Name the covariates instead."
        )
    unused = unique(name for name in columns if name not in used)
    if not unused:
        raise FormulaError("'.' adds the unused columns, but all columns are used. Remove it.")
    if not all(isinstance(name, str) and is_plain(name) for name in unused):
        raise FormulaError(
            "'.' requires plain column names. Rename columns, or name the covariates."
        )
    texts[DOT] = f"({' + '.join([add(bare_factor(name)) for name in unused])})"
    return factors, texts


def _terms(
    part: Sequence[Token], factors: Mapping[str, Factor], texts: Mapping[Token, str]
) -> tuple[Term, ...]:
    """The terms of a part, main effects first."""
    if not part:
        return ()
    products = _expand(" ".join(texts.get(token, token.text) for token in part))
    terms = [tuple(factors[name] for name in product if name != "1") for product in products]
    ordered = []
    for term in sorted(filter(None, terms), key=len):
        names = (f"`{f.expr}`" if f.kind == "numeric" and ":" in f.expr else f.expr for f in term)
        ordered.append(Term(":".join(names), term))
    return tuple(ordered)


def _unknown(name: str, columns: Sequence[str], *, quote: bool) -> FormulaError:
    if not quote:
        return FormulaError(f"Column {short(name)} {NO_SUCH_FIELD}")
    names = [c for c in columns if isinstance(c, str)]
    parts = [c for c in names if c != name and name in re.findall(NAME_PATTERN, c)]
    close = parts[:3] or difflib.get_close_matches(name, names[:MAX_TERMS], n=3)
    listed = close or names[:10]
    # A name is in backticks if a formula needs them.
    typed = ", ".join(short(n) if quoted(n) == n else f"`{n[:60]}`" for n in listed)
    end = ", ..." if not close and len(names) > len(listed) else "."
    kind = "Similar columns" if close else "Columns of the data"
    return FormulaError(f"Column {short(name)} is not in the data. {kind}: {typed or 'none'}{end}")


def _expand(text: str) -> list[tuple[str, ...]]:
    """Expand placeholders with formulaic; returns the factors of each term."""
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(include_intercept=False)
    products, terms = 0, None
    try:
        tree = parser.get_ast(text)
        # Maximum number of terms of each node, and of products formed to get them. Not recursive,
        # because a + b + ... is deep.
        sizes: dict[int, int] = {}
        stack = [tree]
        while stack and products <= MAX_PRODUCTS:
            node = stack.pop()
            arguments = getattr(node, "args", ())
            if not all(id(a) in sizes for a in arguments):
                stack += [node, *arguments]
                continue
            inner = [sizes[id(a)] for a in arguments]
            symbol = node.operator.symbol if inner else ""
            if symbol == "**":
                made = size = inner[0] ** int(node.args[1].token)  # 1 to 4
            elif symbol in ("/", "in", "%in%"):
                size, made = sum(inner), max(inner)
            elif symbol in (":", "*"):
                made = inner[0] * inner[1]
                size = made if symbol == ":" else made + sum(inner)
            else:
                size, made = max(1, sum(inner)), 0
            sizes[id(node)] = size
            products += made
        if products <= MAX_PRODUCTS:
            terms = list(parser.get_terms_from_ast(tree, context={}).root)
    except Exception:  # whatever the cause, the formula is wrong, and we raise our own message
        pass
    # Raise outside the handler, so that the original exception is not attached.
    if products > MAX_PRODUCTS:
        raise FormulaError(f"The formula expands to more than {MAX_TERMS} terms. Shorten it.")
    if terms is None:
        raise FormulaError(
            "The formula cannot be read. Check its parentheses, and put + - * or : between terms."
        )
    return [tuple(factor.expr for factor in term.factors) for term in terms]
