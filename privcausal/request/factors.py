"""The allow-list of formula factors: one column, or one function of columns.

Each factor is read with Python's own parser and checked node by node; nothing is evaluated. What
passes is a function of one row and of public constants, so it can be materialised on a public
skeleton and then applied to rows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from privcausal.request.arithmetic import arithmetic
from privcausal.request.calls import (
    ELEMENTARY,
    MAX_BASIS,
    Call,
    advice,
    checked_name,
    constant,
    path_of,
    quoted,
    read_call,
    unique,
)
from privcausal.request.header import label_key
from privcausal.stored import stored

MAX_DEGREE = 5

Kind: TypeAlias = Literal[
    "numeric", "categorical", "contrast", "function", "spline", "poly", "smooth"
]
LABELLED = "categorical", "contrast"
"""Kinds of a column of labels."""
Option: TypeAlias = int | tuple[float, ...]


@stored
@dataclass(frozen=True)
class Factor:
    """One column, or one public function of the columns of a row.

    Attributes
    ----------
    expr
        The text that formulaic evaluates; for a bare name, the column's name.
    kind
        "numeric" for a bare name, "categorical" for C(), "contrast" for C(x, contr.sum) and the
        like, "spline" for bs, cr, cs and cc, "poly" for poly, "smooth" for s, "function" for I,
        elementary functions, scale and center.
    variables
        The columns it uses, in order of first use.
    total
        Whether it can do with any bounds: it is finite for every finite input, overflow apart (not
        so for log, exp, sqrt, tan, division by a column and powers other than 0, 1, 2, ...), and
        compares with no number that may lie outside of them.
    ref
        The reference label of ``C(x, ref="A")``; `expr` is ``C(x)`` with or without it.
    options
        The numbers given to bases, such as ``(("k", 6), ("knots", (20.0, 40.0)))``, and those that
        columns are compared with, ``(("cuts", (3.0,)),)``.
    levels
        The labels of ``C(x, levels=["A", "B"])``, which declare those of x; not in `expr` either.
    """

    expr: str
    kind: Kind
    variables: tuple[str, ...]
    total: bool = True
    ref: str | None = None
    options: tuple[tuple[str, Option], ...] = ()
    levels: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The factor as one would type it."""
        if self.kind == "numeric":
            return quoted(self.expr)
        shown = [] if self.ref is None else [f"ref={self.ref!r}"]
        shown += [f"levels={[*self.levels]}"] if self.levels else []
        return f"{', '.join([self.expr[:-1], *shown])})" if shown else self.expr

    @property
    def sums_to_one(self) -> bool:
        """Whether its functions do, as the intercept, which formulaic knows of bs() only."""
        cubic = self.kind == "spline" and not self.expr.startswith("bs(")
        return cubic and "constraints" not in dict(self.options)

    @property
    def evaluated(self) -> Factor:
        """The factor that formulaic sees."""
        return replace(self, ref=None, levels=())


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
    call = read_call(text)
    build = _BUILDERS.get(call.name)
    if build is None:
        raise call.refuse(advice(call.name))
    return build(call)


# Call -> factor, one builder per function


CONTRASTS = ("sum", "helmert", "poly", "diff")


def _categorical(call: Call) -> Factor:
    name = call.first()
    given = call.given(["contr.", "ref", "levels"], ["contr."])
    ref = _label(call, given["ref"]) if "ref" in given else None
    levels: tuple[str, ...] = ()
    if "levels" in given:
        node = given["levels"]
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        levels = unique(_label(call, item) for item in items)
        if len(levels) < 2 or len(levels) < len(items):
            raise call.refuse("levels are two or more different labels; write levels=['A', 'B']")
    shown, kind = ast.unparse(call.node.args[0]), "categorical"
    if "contr." in given:
        contrast = _contrast(call, given["contr."])
        if contrast == "treatment":
            ref = _base(call, given["contr."], ref)
        elif ref is not None:
            raise call.refuse(f"contr.{contrast} has no reference label; leave out ref=")
        else:
            shown, kind = f"{shown}, contr.{contrast}", "contrast"
    return Factor(f"C({shown})", cast("Kind", kind), (name,), ref=ref, levels=levels)


def _contrast(call: Call, node: ast.expr) -> str:
    path = path_of(node.func if isinstance(node, ast.Call) else node) or ""
    kind = path.removeprefix("contr.")
    if path == "Treatment":
        kind = "treatment"
    elif not path.startswith("contr.") or kind not in (*CONTRASTS, "treatment"):
        raise call.refuse(
            f'write C(x), C(x, ref="A"), C(x, levels=["A", "B"]) or C(x, contr.sum); contr. has '
            f"treatment, {', '.join(CONTRASTS)}"
        )
    if isinstance(node, ast.Call) and kind != "treatment" and (node.args or node.keywords):
        raise call.refuse(f"contr.{kind} takes nothing in brackets; declare scores as a column")
    return kind


def _base(call: Call, node: ast.expr, ref: str | None) -> str | None:
    """The reference of ``contr.treatment("A")``, which is ``C(x, ref="A")``."""
    if not isinstance(node, ast.Call):
        return ref
    labels = [*node.args, *(k.value for k in node.keywords if k.arg == "base")]
    if len(labels) != len(node.args) + len(node.keywords) or len(labels) > 1 or (labels and ref):
        raise call.refuse('contr.treatment takes one label, base="A"')
    return _label(call, labels[0]) if labels else ref


def _label(call: Call, node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else constant(node)
    key = label_key(value) if isinstance(value, str | int | float) else None
    if not key or ("'" in key and '"' in key):
        raise call.refuse('a label is text or a number; write ref="A": one declared label')
    return key


class _Basis(NamedTuple):
    """Kind, limits of whole-number options, those given by position, and options yes or no."""

    kind: Kind
    limits: Mapping[str, tuple[int, int]]
    positional: Sequence[str] = ()
    flags: Sequence[str] = ()


_CUBIC = _Basis("spline", {"df": (3, MAX_BASIS)}, ["df"], ["constraints"])
_BASES: Mapping[str, _Basis] = {
    "poly": _Basis("poly", {"degree": (1, MAX_DEGREE)}, ["degree"], ["raw"]),
    "bs": _Basis(
        "spline", {"df": (1, MAX_BASIS), "degree": (1, MAX_DEGREE)}, ["df"], ["include_intercept"]
    ),
    **dict.fromkeys(("cr", "cs", "cc"), _CUBIC),
    "s": _Basis("smooth", {"k": (3, MAX_BASIS)}),
}
_YES = {"constraints": "center"}
"""What an option is when it is not False; True if it is not here."""


def _basis(call: Call) -> Factor:
    basis = _BASES[call.name]
    name = call.first()
    with_knots = () if basis.kind == "poly" else ("knots",)
    given = call.given([*basis.limits, *with_knots, *basis.flags], basis.positional)
    options: dict[str, Option] = {
        key: call.whole(given[key], key, *ends)
        for key, ends in basis.limits.items()
        if key in given
    }
    if "knots" in given:
        options["knots"] = call.knots(given["knots"])
    options |= {flag: 1 for flag in basis.flags if flag in given and _flag(call, flag, given[flag])}
    if basis.kind == "poly" and "degree" not in options:
        raise call.refuse("the degree is missing; write poly(x, 2)")
    if basis.kind == "spline":
        _check_spline(call, options)
    shown = [f"{key}={_written(key, value)}" for key, value in options.items()]
    if basis.kind == "poly":
        shown[0] = str(options["degree"])
    expr = f"{call.name}({', '.join([ast.unparse(call.node.args[0]), *shown])})"
    total = basis is not _CUBIC or "knots" not in options
    return Factor(expr, basis.kind, (name,), total, options=tuple(options.items()))


def _flag(call: Call, flag: str, node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    yes = _YES.get(flag, True)
    no = None if flag in _YES else False
    if value is not yes and value is not no and not (isinstance(yes, str) and value == yes):
        raise call.refuse(f"{flag} is {yes!r} or {no!r}")
    return value is not no


def _written(key: str, value: Option) -> str:
    if isinstance(value, tuple):
        return str([*value])
    flag = key in ("raw", "include_intercept", "constraints")
    return repr(_YES.get(key, True)) if flag else str(value)


def _check_spline(call: Call, options: Mapping[str, Any]) -> None:
    knots = len(options.get("knots", ()))
    if "df" in options and knots:
        raise call.refuse("df and knots exclude each other; write one of them")
    if call.name != "bs":
        if "df" not in options and knots < 2:
            raise call.refuse(f"write {call.name}(x, df=5), or two knots or more")
        if knots + 2 > MAX_BASIS:
            raise call.refuse(f"a spline has at most {MAX_BASIS} functions; give fewer knots")
        return
    degree = options.get("degree", 3)
    least = degree + options.get("include_intercept", 0)
    if options.get("df", least) < least:
        raise call.refuse(f"df must be at least the degree, {degree}, and one for the intercept")
    if knots + least > MAX_BASIS:
        raise call.refuse(f"a spline has at most {MAX_BASIS} functions; give fewer knots")


def _scaled(call: Call) -> Factor:
    """``scale(x)`` or ``scale(x, 40, 12)``: means and deviations are of the declared domain."""
    name = call.first()
    allowed = ("center", "scale") if call.name == "scale" else ()
    given = call.given(allowed, allowed)
    for key, node in given.items():
        plain = isinstance(node, ast.Constant) and isinstance(node.value, bool)
        if not plain and (constant(node) is None or (key == "scale" and not constant(node))):
            raise call.refuse(
                f"{key} is True, False or a number other than 0; write scale(x, 40, 12)"
            )
    return Factor(ast.unparse(call.node), "function", (name,))


def _function(call: Call) -> Factor:
    found: list[str] = []
    value = arithmetic(call, call.node, found)
    if not found:
        raise call.refuse("it uses no column; leave it out, the intercept is always there")
    options = (("cuts", tuple(sorted({*value.cuts}))),) if value.cuts else ()
    return Factor(ast.unparse(call.node), "function", unique(found), value.total, options=options)


_BUILDERS: Mapping[str, Callable[[Call], Factor]] = {
    "C": _categorical,
    **dict.fromkeys(("I", *ELEMENTARY), _function),
    **dict.fromkeys(("scale", "center"), _scaled),
    **dict.fromkeys(_BASES, _basis),
}
