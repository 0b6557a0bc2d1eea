"""The call that reproduces a fit, written from its request; and the state of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from privcausal.learners import LEARNERS, Learner, TwoStage
from privcausal.learners.bases import BASES, OTHERS, AnyBase
from privcausal.learners.estimators import Sklearn
from privcausal.learners.from_cells import CellRequest
from privcausal.spec.request import Request, Trust
from privcausal.spec.schema import Binary, Interval, Levels, Schema

if TYPE_CHECKING:
    from privcausal.accounting import Ledger


def call_text(learner: Learner, base: AnyBase, request: Request) -> str:
    """Python source of the call; options at their defaults are left out."""
    name = "privcate" if request.estimand == "CATE" else "private"
    options: list[tuple[str, Any]] = []
    if name == "privcate":
        options.append(("learner", _Source(_option(learner, LEARNERS, "pc.learners"))))
    if base != BASES["gam"]:
        options.append(("base", _Source(_option(base, {**BASES, **OTHERS}, "pc.bases"))))
    budget, trust = request.budget, request.trust
    options += [("eps", budget.epsilon), ("delta", budget.delta)]
    if len(request.schema) or request.schema.complete:
        options.append(("bounds", _Source(_bounds(request.schema))))
    default = "CATE" if name == "privcate" else "ATE"
    chosen: dict[str, tuple[Any, Any]] = {  # value, default
        "estimand": (request.estimand, default),
        "neighbors": (trust.neighbors, Trust().neighbors),
        "unit": (trust.unit, None),
        "max_rows": (trust.max_rows, 1),
        "propensity": (request.propensity, None),
        "propensity_clip": (request.clip, 0.1),
        "split": (request.split, "full"),
        "groups": (list(request.groups), []),
        "shares": (dict(budget.shares), {}),
        "cov_type": (request.cov_type, "nonrobust"),
        "tails": (request.tails, "cubic"),
        "mode": (request.mode, "proven"),
        "below_minimum": (request.below_minimum, "refuse"),
    }
    if request.queries is not None:
        options.append(("queries", _Source("queries")))
    options += [(key, value) for key, (value, usual) in chosen.items() if value != usual]
    written = "".join(f"    {key}={value!r},\n" for key, value in options)
    head = f"import privcausal as pc\n\npc.{name}(\n    {request.formula.text!r},\n    data,\n"
    return f"{head}{written})"


def cells_call(asked: CellRequest, noise: Mapping[str, float] | None) -> str:
    """Python source of a call of `from_cells`."""
    request = asked.request
    domain = request.schema[request.formula.outcome]
    by_name = asked.partition.variables == ("cell",)
    options: list[tuple[str, Any]] = []
    if by_name:
        options = [("cells", list(asked.names)), ("outcome", _Source(_domain(domain)))]
    else:
        options = [("cells", _Source("plan"))]
    options += [("eps", request.budget.epsilon), ("delta", request.budget.delta)]
    if noise is not None:
        options.append(("noise", dict(noise)))
    options.append(("learner", _Source(_option(asked.learner, {}, "pc.learners"))))
    options.append(("neighbors", request.trust.neighbors))
    if request.propensity is not None:
        options.append(("propensity", request.propensity))
    written = "".join(f"    {key}={value!r},\n" for key, value in options)
    return f"import privcausal as pc\n\npc.from_cells(\n    frame,\n{written})"


class _Source:
    """Text that stands for itself in generated code."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _option(option: Any, known: dict[str, Any], module: str) -> str:
    """The short name, or the option object with what differs from its defaults."""
    if isinstance(option, TwoStage):
        return option.source
    if isinstance(option, Sklearn):
        return f"{module}.{option.source}"
    if known.get(option.name) == option:
        return repr(option.name)
    changed = [
        f"{f.name}={getattr(option, f.name)!r}"
        for f in fields(option)
        if f.default is MISSING or getattr(option, f.name) != f.default
    ]
    return f"{module}.{type(option).__name__}({', '.join(changed)})"


LINE = 88
"""Characters of a line of code that need no side scroll."""


def _bounds(schema: Schema) -> str:
    """On one line where that is short, else a line for each column."""
    listed = [f"{name!r}: {_domain(schema[name])}" for name in schema]
    columns = ", ".join(listed)
    if len(columns) > LINE - len("    bounds={},"):
        columns = "".join(f"\n        {each}," for each in listed) + "\n    "
    return f"pc.Schema({{{columns}}}, complete=True)" if schema.complete else f"{{{columns}}}"


def _domain(domain: Interval | Levels | Binary) -> str:
    if isinstance(domain, Interval):
        return repr((domain.lo, domain.hi))
    if isinstance(domain, Levels):
        return repr(list(domain.labels))
    return f"pc.{domain!r}"


def ledger_line(ledger: Ledger | None) -> str | None:
    """``Ledger 'rhc': 1.91 of 2.00 left.`` as the summary prints it."""
    if ledger is None:
        return None
    return (
        f"Ledger {ledger.dataset!r}: {ledger.remaining.epsilon:.2f} of {ledger.epsilon:.2f} left."
    )
