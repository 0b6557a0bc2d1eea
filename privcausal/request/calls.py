"""A call in a formula, read with Python's own parser and never run."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from privcausal.errors import FormulaError

MAX_FACTOR = 1_000
"""Characters of one factor."""
MAX_NUMBER = 1e100
MAX_BASIS = 30

ELEMENTARY = (
    *("log", "log2", "log10", "log1p", "exp", "expm1", "sqrt"),
    *("abs", "sin", "cos", "tan"),
)
"""Functions of one number."""
FUNCTIONS = (
    *("C", "I", *ELEMENTARY, "scale", "center"),
    *("poly", "bs", "cr", "cs", "cc", "s"),
)
"""The names a formula may call."""
CALLABLE = ("I", *ELEMENTARY)
"""Those that may stand inside one another."""

NAME = r"[^\W\d]\w*(?:\.\w+)*"
"""A column name that needs no back-quotes."""
STRING = r"\"[^\"]*\"|'[^']*'"


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
class Call:
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
        value = constant(node)
        if not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(f"{name} must be a whole number from {low} to {high}")
        return value

    def knots(self, node: ast.expr) -> tuple[float, ...]:
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        values = [constant(item) for item in items]
        knots = tuple(float(v) for v in values if v is not None)
        rising = all(a < b for a, b in pairwise(knots))
        if not knots or len(knots) < len(values) or len(knots) > MAX_BASIS or not rising:
            raise self.refuse(f"knots must be 1 to {MAX_BASIS} rising numbers, knots=[20, 40]")
        return knots


_INNER = re.compile(rf"{STRING}|`(?P<name>[^`]*)`|(?P<power>\^)")


def read_call(text: str) -> Call:
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
    path = path_of(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or path is None:
        raise FormulaError(f"{short(text)} cannot be read; write C(x), log(x) or I(x**2)")
    for part in ast.walk(node):
        # np.log(x) is log(x): no attribute is left for formulaic to read
        own = path_of(part.func) if isinstance(part, ast.Call) else None
        if own and own.removeprefix("np.") in ELEMENTARY:
            part.func = ast.Name(own.removeprefix("np."), ast.Load())  # type: ignore[attr-defined]
    return Call(text, path_of(node.func) or "?", node, names)


def _syntax(code: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # about 1if x, which is refused right after
            return ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def path_of(node: ast.expr) -> str | None:
    """A name, or names joined by dots, so that np.log can be answered with log."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def constant(node: ast.expr) -> int | float | None:
    """The number a node writes, or None."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return sign * value if abs(value) <= MAX_NUMBER else None


# Advice


WHY: Mapping[type[ast.expr], str] = {
    ast.Attribute: "attributes are never read; write a name with a dot in back-quotes, `x.y`",
    ast.Subscript: "subscripts are never read; write one column name",
    ast.BoolOp: "'and' and 'or' ask for one truth value; write (x > 3) & (z < 2)",
    ast.IfExp: "'if' asks for one truth value; write I((x > 3) * z)",
    ast.Constant: "only plain numbers are read here; leave out text, True, None and 1j",
    ast.Starred: "write plain arguments, without *",
}

_ADVICE: Mapping[str, str] = {
    "standardize": "write scale(x)",
    **dict.fromkeys(
        ("ns", "tp", "te", "ti", "t2"), "formulaic has no such spline; write cr(x, df=5) or s(x)"
    ),
    **dict.fromkeys(("cut", "qcut"), "write s(x), I(x > 3), or make it a column with levels"),
    **dict.fromkeys(
        ("factor", "as.factor", "hashed", "Categorical"), "write C(x) and declare levels in bounds"
    ),
    **dict.fromkeys(("exp2", "exp10"), "write exp(x), with a factor inside if you like"),
    **dict.fromkeys(("power", "pow", "square"), "write I(x**2)"),
    "lag": "a row must not see other rows; make it a column beforehand",
    "Q": "write the column's name in back-quotes, `my column`",
}


def advice(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in FUNCTIONS and name != last:
        return f"write {last}(x)"
    if name in CALLABLE:
        return f"write {name}(x), with one argument"
    if name in FUNCTIONS:
        return f"write {name}(x) by itself, not inside another function"
    known = _ADVICE.get(name) or _ADVICE.get(last)
    return known or (
        "this function is not on the list, since it could see other rows or run code; "
        f"write {', '.join(FUNCTIONS[:-1])} or {FUNCTIONS[-1]}"
    )
