"""The allow-list of formula factors: one column, or one function of columns.

Each factor is read with Python's own parser and checked node by node. The check evaluates no code.
An accepted factor is a function of one row and of public constants. It can therefore be fitted to
a public skeleton and then applied to rows.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from privcausal.errors import SchemaError
from privcausal.request import expressions
from privcausal.request.schema import (
    Binary,
    Domain,
    Interval,
    Levels,
    Schema,
    label_key,
    level_names,
)
from privcausal.request.terms import Place
from privcausal.typing import Integers, Mask, Matrix, Vector

# Declared subgroups: their notation, and the rows that belong to them.


class Condition(NamedTuple):
    """Rows with `column == level`, or with `column` compared to a number."""

    column: str
    comparison: Literal["==", "!=", ">=", "<=", ">", "<"]
    value: str | float


class Group(NamedTuple):
    """A declared subgroup: the rows of all its comparisons."""

    place: Place
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return expressions.unique(part.column for part in self.parts)

    @property
    def bare(self) -> bool:
        """Whether it is a column name, for all levels of the column."""
        return self.parts[0].value == ""


def group_columns(groups: str | Iterable[Any]) -> tuple[str, ...]:
    """Columns of these groups, each once, in order of first use."""
    texts = (groups,) if isinstance(groups, str) else groups
    return expressions.unique(name for text in texts for name in parse_group(text).columns)


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
        if group.bare:
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
            return expressions.quoted(self.expr)
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
    return Factor(name, "numeric", (expressions.checked_name(name),))


def call_factor(text: str) -> Factor:
    """Factor of a call such as ``log(x + 1)``.

    Raise `FormulaError` if any part of the call is not on the allow-list.
    """
    call = expressions.read_call(text)
    build = _BUILDERS.get(call.name)
    if build is None:
        raise call.refuse(expressions.advice(call.name, call.node.args))
    return build(call)


# From call to factor, one builder per function


CONTRASTS = ("treatment", "sum", "helmert", "poly", "diff")
_SPELLINGS = {f"contr.{name}": name for name in CONTRASTS} | {
    name.title(): name for name in CONTRASTS[:3]
}
"""Contrasts as in formulaic and as in patsy, which names the columns of Poly and Diff otherwise."""


def _categorical(call: expressions.TypedCall) -> Factor:
    name = call.first()
    arguments = call.given(["contr.", "ref", "levels"], ["contr."])
    ref = _label(call, arguments["ref"]) if "ref" in arguments else None
    levels: tuple[str, ...] = ()
    if "levels" in arguments:
        node = arguments["levels"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        levels = expressions.unique(_label(call, item) for item in items)
        if len(levels) < 2 or len(levels) < len(items):
            raise call.refuse(
                "levels= must list two or more different labels. Write levels=['A', 'B']."
            )
    written, kind, typed = ast.unparse(call.node.args[0]), "categorical", ""
    if "contr." in arguments:
        # The contrast and its reference: ``Treatment("A")`` is equivalent to ``C(x, ref="A")``.
        node = arguments["contr."]
        inner = node if isinstance(node, ast.Call) else None
        contrast = _SPELLINGS.get(expressions.path_of(inner.func if inner else node) or "")
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


def _label(call: expressions.TypedCall, node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else expressions.constant(node)
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


_CUBIC = _Basis("spline", {"df": (3, expressions.MAX_BASIS)}, ["df"], ["constraints"])
_BS = {"df": (1, expressions.MAX_BASIS), "degree": (1, MAX_DEGREE)}
_BASES: Mapping[str, _Basis] = {
    "poly": _Basis("poly", {"degree": (1, MAX_DEGREE)}, ["degree"], ["raw"]),
    "bs": _Basis("spline", _BS, ["df"], ["include_intercept"]),
    **dict.fromkeys(("cr", "cs", "cc"), _CUBIC),
    "s": _Basis("smooth", {"k": (3, expressions.MAX_BASIS)}),
}
_YES = {"constraints": "center"}
"""Value of a yes/no option that is not False. The default is True."""


def _basis(call: expressions.TypedCall) -> Factor:
    basis = _BASES[call.name]
    name = call.first()
    with_knots = () if basis.kind == "poly" else ("knots",)
    arguments = call.given([*basis.limits, *with_knots, *basis.flags], basis.positional)
    options: dict[str, Option] = {}
    for key, (low, high) in basis.limits.items():
        if key in arguments:
            number = expressions.constant(arguments[key])
            if not isinstance(number, int) or not low <= number <= high:
                raise call.refuse(f"{key} must be a whole number from {low} to {high}.")
            options[key] = number
    if "knots" in arguments:
        node = arguments["knots"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        values = [expressions.constant(item) for item in items]
        knots = tuple(float(v) for v in values if v is not None)
        complete = 0 < len(knots) == len(values) <= expressions.MAX_BASIS
        if not complete or not all(a < b for a, b in pairwise(knots)):
            raise call.refuse(
                f"knots must be a list of 1 to {expressions.MAX_BASIS} increasing numbers. Write "
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


def _check_spline(call: expressions.TypedCall, options: Mapping[str, Any]) -> None:
    knots = len(options.get("knots", ()))
    if "df" in options and knots:
        raise call.refuse("df and knots cannot be combined. Write one or the other.")
    if call.name != "bs":
        if "df" not in options and knots < 2:
            raise call.refuse(f"Write {call.name}(x, df=5), or at least two knots.")
        if knots + 2 > expressions.MAX_BASIS:
            raise call.refuse(
                f"A spline can have at most {expressions.MAX_BASIS} functions. Use fewer knots."
            )
        return
    degree = options.get("degree", 3)
    least = degree + options.get("include_intercept", 0)
    if options.get("df", least) < least:
        raise call.refuse(
            f"df must be at least {least}: the degree, plus 1 if include_intercept=True."
        )
    if knots + least > expressions.MAX_BASIS:
        raise call.refuse(
            f"A spline can have at most {expressions.MAX_BASIS} functions. Use fewer knots."
        )


def _scaled(call: expressions.TypedCall) -> Factor:
    """``scale(x)`` or ``scale(x, 40, 12)``. Means and deviations are of the declared domain."""
    name = call.first()
    allowed = ("center", "scale") if call.name == "scale" else ()
    for key, node in call.given(allowed, allowed).items():
        plain = isinstance(node, ast.Constant) and isinstance(node.value, bool)
        if not plain and (
            expressions.constant(node) is None
            or (key == "scale" and not expressions.constant(node))
        ):
            raise call.refuse(
                f"{key} must be True, False or a number other than 0. Write scale(x, 40, 12)."
            )
    return Factor(ast.unparse(call.node), "function", (name,))


def _function(call: expressions.TypedCall) -> Factor:
    columns: list[str] = []
    value = expressions.arithmetic(call, call.node, columns)
    if not columns:
        raise call.refuse(
            "The expression uses no column. Remove it; the intercept is always included."
        )
    options = (("cuts", tuple(sorted({*value.cuts}))),) if value.cuts else ()
    names = expressions.unique(columns)
    return Factor(ast.unparse(call.node), "function", names, value.total, options=options)


_BUILDERS: Mapping[str, Callable[[expressions.TypedCall], Factor]] = {
    "C": _categorical,
    **dict.fromkeys(("I", *expressions.ELEMENTARY), _function),
    **dict.fromkeys(("scale", "center"), _scaled),
    **dict.fromkeys(_BASES, _basis),
}
