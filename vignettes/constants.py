"""The tables of the page of constants: values from the code, and their reasons.

Reasons of weights stand in ``weights.csv``, and all others in docstrings.
``python vignettes/constants.py`` prints them. The site shows them when it is built.
"""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from privcausal import estimators
from privcausal.estimators import averages, base, boosting, dpcate, published
from privcausal.estimators.budget import Step
from privcausal.inference.priors import PRIORS
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Budget, Request, StageKey
from privcausal.request.schema import Schema

STEPS: dict[str, tuple[Step, ...]] = {
    **{kind.name: kind.steps for kind in estimators.learner_kinds()},
    "tau(x)": (base.CATE_MARGINALS, *averages.AVERAGE_STEPS),
    "r (dpebm)": boosting.TWO_STAGES,
    "s (dpebm)": boosting.MEAN_FIRST,
    "t (dpebm)": boosting.ONE_STAGE,
    "dpcate (nn)": dpcate.NETWORK_STEPS,
    "paper": published.PUBLISHED_STEPS,
}
"""Lists of steps by learner, as named in ``weights.csv``; "tau(x)" are those of all learners of it,
and "r (dpebm)" those of learners "dr" and "x" on that base, too."""
SEVERAL = SimpleNamespace(arms="***", formula=SimpleNamespace(instruments="**"))
"""What a request has of several arms and instruments, named "*"."""
PLACES = """\
estimators.budget:TOP_BOUNDS
estimators.budget:TOP_NUISANCE
estimators.budget:TOP_EFFECT
estimators.budget:TOP_AVERAGE
estimators.budget:LABELS_DELTA
estimators.budget:MARGINALS_WEIGHT, MOST_MARGINALS
estimators.budget:PRODUCT_ROWS
estimators.first_stages:RANGE_CELLS
vault.queries.moments:BINS
inference.population:SIZE
inference.population:MARGINAL_CENTRES, MARGINAL_SPREADS
inference.population:NARROWEST_MARGINAL, WIDEST_MARGINAL
inference.ranges:UNIFORM_ODDS
inference.population:ALL_NOISE
inference.population:HIDDEN
inference.population:LEAST_EIGENVALUE
inference.ranges:LUCKY
inference.ranges:SHARE_BEYOND
inference.ranges:STRETCH
inference.ranges:LOOK_BINS
inference.ranges:CENTRES, SPREADS
inference.ranges:STANDS_OUT
inference.ranges:TAILS
inference.regression:FIXED_POINT_ROUNDS
inference.regression:FAR_VARIANCE, FAR_NOISE
inference.regression:TRIED
features.functions:PRODUCT_SDS
estimators.nuisances:CURVES
estimators.nuisances:ADDITIVE
inference.cuts:SHAPE_OCTAVES
inference.cuts:SHAPE_CUTS
inference.cuts:TAIL, COMPANY, LONE
inference.cuts:NEAR_BINS
inference.cuts:RESIDUAL_SCALES
estimators.meta:LEAST_RMS
estimators.meta:ERROR_POINTS
inference.regression:NEGLIGIBLE
inference.regression:PRIOR_SCALES
inference.regression:MIXTURE_ROUNDS, MIXTURE_STEPS
inference.regression:KEPT
estimators.meta:HIDING
estimators.averages:FACTORS
inference.ranges:PARTS, OCTAVES
inference.ranges:POINT
inference.ranges:MOSTLY
inference.cuts:SCORE_HALF_OCTAVES
inference.ranges:INDEX
inference.ranges:ERROR
inference.ranges:LUCK, CELLS_APART
inference.ranges:RUNS
inference.ranges:MERGE_RATIO
inference.ranges:CUTS
inference.cuts:SIGNED_HALF_OCTAVES
inference.ranges:FEW_OUTSIDE, OUTSIDE_SDS
inference.cuts:UNFORESEEN
inference.cuts:MEAN_FACTOR
inference.cuts:MEAN_SDS
inference.cuts:NEAREST
inference.cuts:SCALES
inference.cuts:START_SDS, LEAST_START
inference.cuts:MISFIT
inference.cuts:TAIL_SDS, LONG_TAIL_SDS
inference.cuts:LONG_FROM
inference.cuts:OUTLIER
inference.cuts:SIZE_SD, SPARSE_SIZE_SD
inference.cuts:SHOWN_SIZE_SD
inference.cuts:COMMON
inference.cuts:LEAST_COUNT_SDS
inference.cuts:HIDDEN_MORE
inference.cuts:SCALE_CELLS
inference.cuts:CORE_CELLS, LEAST_CELLS
vault.queries.sums:ADDED_SQUARES
vault.queries.sums:MASS_COST
inference.effects:FEW_SDS
inference.effects:FAR_BOUND
inference.cuts:LEAST_KEPT
"""
"""Modules with the names of constants, one row of the table each."""


def shown(value: Any) -> str:
    return ", ".join(f"{v:g}" for v in (value if isinstance(value, tuple) else (value,)))


def least(step: Step) -> float:
    """Its weight, or the least weight if it depends on the number of rows."""
    formula, schema = CausalFormula.parse("Y ~ T | X"), Schema({"Y": (0, 1), "X": (0, 1)})
    request = Request(formula, schema, Budget(1.0))
    return step.weight(request) if callable(step.weight) else step.weight


def weights(learner: str) -> list[list[str]]:
    """Stage, weight and reason of each step; a step without a reason is a KeyError.

    A stage with several weights under different conditions has one reason for all, or one for each.
    """
    reasons: dict[str, list[str]] = {}
    with Path(__file__).with_name("weights.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if learner in row["learners"].split("; "):
                reasons.setdefault(row["stage"], []).append(row["reason"])
    table = []
    for step in STEPS[learner]:
        key = step.key if isinstance(step.key, StageKey) else step.key(cast("Any", SEVERAL))[0]
        left = reasons[key]
        why = left.pop(0) if len(left) > 1 else left[0]
        table.append([str(key), shown(least(step)), why])
    return table


@lru_cache(maxsize=64)
def docstrings(path: str, inside: str = "") -> dict[str, str]:
    """The docstring after each constant of a module, or of a class in it."""
    body = ast.parse(Path(path).read_text(encoding="utf-8")).body
    if inside:
        (body,) = (n.body for n in body if isinstance(n, ast.ClassDef) and n.name == inside)
    found = {}
    for node, text in pairwise(body):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            names = (n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name))
            found |= dict.fromkeys(names, " ".join(str(text.value.value).split()))
    return found


def of_learner_r() -> list[list[str]]:
    """Of learner "r", with the marginals before and the averages after it."""
    marginals, *rest = weights("tau(x)")
    return [marginals, *weights("r"), *rest]


def priors() -> list[list[str]]:
    """In the order of the code. A constant without a reason is a KeyError."""
    why = docstrings(inspect.getfile(type(PRIORS)), type(PRIORS).__name__)
    names = sorted((n for n in dir(PRIORS) if not n.startswith("_")), key=list(why).index)
    return [[f"`{name}`", shown(getattr(PRIORS, name)), why[name]] for name in names]


def others() -> list[list[str]]:
    found = []
    for place in PLACES.splitlines():
        module, _, names = place.partition(":")
        code = importlib.import_module(f"privcausal.{module}")
        why = {docstrings(inspect.getfile(code))[name] for name in names.split(", ")}
        values = ", ".join(shown(getattr(code, name)) for name in names.split(", "))
        found.append([f"`{place}`", values, *why])
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def text() -> str:
    """The tables in Markdown, each below its heading."""
    parts = [
        "## Weights of the stages", table(["stage", "weight", "reason"], of_learner_r()),
        "## Priors and allowances", table(["name", "value", "reason"], priors()),
        "## Thresholds, grids and guards", table(["place", "value", "reason"], others()),
    ]  # fmt: skip
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(text())
