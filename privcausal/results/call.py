"""The call that reproduces a fit, written from its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from privcausal.learners import DPCATE, LEARNERS, Learner, TwoStage
from privcausal.learners.aggregates import CellRequest
from privcausal.learners.bases import BASES, OTHERS, AnyBase
from privcausal.learners.paper.betlei import PublishedADUM, PublishedTM
from privcausal.learners.paper.dpcate import PublishedDPCATE
from privcausal.request.request import Control, Request, Trust
from privcausal.request.schema import Binary, Interval, Levels, Schema


class _Source(str):
    """Code: an argument that is written as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def call_text(learner: Learner, base: AnyBase, request: Request) -> str:
    """Python source of the call; options at their defaults are left out."""
    name, options = _call(learner, base, request)
    return _written(name, request.formula.text, _Source("data"), **options)


def question(learner: Learner, base: AnyBase, request: Request) -> str:
    """What a ledger says that a fit asked: its call on one line, without data and bounds."""
    name, options = _call(learner, base, request)
    left = {key: value for key, value in options.items() if key not in ("eps", "delta", "bounds")}
    said = "".join(f", {key}={value!r}" for key, value in left.items())
    return f"{name}({request.formula.text!r}{said})"


def _call(learner: Learner, base: AnyBase, request: Request) -> tuple[str, dict[str, Any]]:
    """The name of a call, and its options."""
    budget, trust = request.budget, request.trust
    shares = dict(budget.shares) or None
    name, options = "private", dict[str, Any]()
    if request.mode == "paper":
        name, options = _printed(learner, request)
        own: list[tuple[str, Any, Any]] = [
            ("propensity_clip", request.clip, 0.1),
            ("shares", shares, None),
            ("below_minimum", request.below_minimum, "refuse"),
        ]
    else:
        if request.estimand == "OLS":
            name = "regress"
        elif request.estimand == "CATE":
            name, options = "privcate", {"learner": _option(learner, LEARNERS, "pc.learners")}
        control = Control(request.split, request.clip, shares, request.tails, request.cov_type)
        own = [("control", _Source(f"pc.Control({_changed(control)})"), "pc.Control()")]
    if base != BASES["gam"] and request.estimand != "OLS":
        options["base"] = _option(base, {**BASES, **OTHERS}, "pc.bases")
    options["eps"] = budget.epsilon
    if name not in ("paper.tm", "paper.adum"):
        options["delta"] = budget.delta
    if len(request.declared) or request.declared.complete:
        options["bounds"] = _bounds(request.declared)
    general: list[tuple[str, Any, Any]] = [  # option, value, default
        (
            "estimand",
            [request.estimand, *request.more] if request.more else request.estimand,
            request.estimand if name != "private" else "ATE",
        ),
        ("neighbors", trust.neighbors, Trust().neighbors),
        ("unit", trust.unit, None),
        ("max_rows", trust.max_rows, 1),
        ("propensity", request.propensity, None),
        ("weights", request.weights, None),
        ("groups", list(request.groups), []),
    ]
    if trust.panel is not None:  # its unit has no most rows, and its estimand is the ATT
        name, options["time"] = "did", trust.panel.time
        general = [line for line in general if line[0] != "estimand"]
    options |= {key: value for key, value, default in (*general, *own) if value != default}
    return name, options


def _printed(learner: Learner, request: Request) -> tuple[str, dict[str, Any]]:
    """Name of a call of `privcausal.paper`, and the options that only it has."""
    if isinstance(learner, TwoStage):
        options: dict[str, Any] = {"learner": _Source(learner.source)}
        if learner.weighting is None:
            return "paper.two_stage", options
        more = {} if learner.weighting == "published" else {"weighting": learner.weighting}
        return "paper.dpebm", options | more
    known = {PublishedDPCATE: "dpcate", PublishedADUM: "adum", PublishedTM: "tm"}
    name = known.get(type(learner), "private")
    queries = {} if request.queries is None else {"queries": _Source("queries")}
    return f"paper.{name}", queries | _not_default(learner)


def cells_call(asked: CellRequest, noise: Mapping[str, float] | None) -> str:
    """Python source of a call of `from_cells`."""
    request = asked.request
    options: dict[str, Any] = {"cells": _Source("plan")}
    if asked.partition.variables == ("cell",):
        domain = request.schema[request.formula.outcome]
        options = {"cells": list(asked.names), "outcome": _Source(_domain(domain))}
    options |= {"eps": request.budget.epsilon, "delta": request.budget.delta}
    if noise is not None:
        options["noise"] = dict(noise)
    options["learner"] = _option(asked.learner, {}, "pc.learners")
    options["neighbors"] = request.trust.neighbors
    if request.propensity is not None:
        options["propensity"] = request.propensity
    return _written("from_cells", _Source("frame"), **options)


def _written(name: str, /, *positional: Any, **options: Any) -> str:
    given = [*map(repr, positional), *(f"{key}={value!r}" for key, value in options.items())]
    lines = "".join(f"    {each},\n" for each in given)
    return f"import privcausal as pc\n\npc.{name}(\n{lines})"


def _option(option: Any, known: Mapping[str, Any], module: str) -> _Source:
    """The short name, or the option object with what differs from its defaults."""
    if isinstance(option, DPCATE) and option.queries is not None:
        score = "" if option.score == "r" else f"score={option.score!r}, "
        return _Source(f"{module}.DPCATE({score}queries=queries)")
    if hasattr(option, "source"):  # it holds what does not show itself
        return _Source(option.source)
    if known.get(option.name) == option:
        return _Source(repr(option.name))
    return _Source(f"{module}.{type(option).__name__}({_changed(option)})")


def _changed(option: Any) -> str:
    """The fields that are not at their defaults, as arguments."""
    return ", ".join(f"{name}={value!r}" for name, value in _not_default(option).items())


def _not_default(option: Any) -> dict[str, Any]:
    values = {f.name: (getattr(option, f.name), f.default) for f in fields(option)}
    return {k: value for k, (value, usual) in values.items() if usual is MISSING or value != usual}


LINE = 88
"""Characters of a line of code that need no side scroll."""


def _bounds(schema: Schema) -> _Source:
    """On one line where that is short, else a line for each column."""
    listed = [f"{name!r}: {_domain(schema[name])}" for name in schema]
    columns = ", ".join(listed)
    if len(columns) > LINE - len("    bounds={},"):
        columns = "".join(f"\n        {each}," for each in listed) + "\n    "
    bounds = f"{{{columns}}}"
    return _Source(f"pc.Schema({bounds}, complete=True)" if schema.complete else bounds)


def _domain(domain: Interval | Levels | Binary) -> str:
    if isinstance(domain, Interval):
        if domain.natural:
            return f"pc.Interval({domain.lo!r}, {domain.hi!r}, natural=True)"
        return repr((domain.lo, domain.hi))
    if isinstance(domain, Levels):
        return repr(list(domain.labels))
    return f"pc.{domain!r}"
