"""The pages on learner "r": their constants, weights and places are those of the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import privcausal as pc
from privcausal import estimators
from privcausal.estimators.budget import Step
from privcausal.inference.priors import PRIORS
from privcausal.testing import seeded_noise

PAGES = Path(__file__).parents[1] / "vignettes"
sys.path.insert(0, str(PAGES))

import constants  # noqa: E402
import execute  # noqa: E402
from constants import STEPS, least, shown  # noqa: E402

TEXT = (PAGES / "explanation" / "r-learner-steps.md").read_text(encoding="utf-8")
CONSTANTS = f"\n{constants.text()}"
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(estimators.__path__, "privcausal.estimators.")
]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without their heads."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("| ")]
    cells = [
        [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", s)[1:-1]] for s in lines
    ]
    heads = {k - 1 for k, row in enumerate(cells) if set(row[0]) == {"-"}}
    return [row for k, row in enumerate(cells) if k not in heads and k - 1 not in heads]


TABLES = {part.splitlines()[0]: rows(part) for part in CONSTANTS.split("\n## ")[1:]}


def test_every_prior_has_a_value_and_a_reason() -> None:
    found = {name.strip("`"): rest for name, *rest in TABLES["Priors and allowances"]}
    assert set(found) == {name for name in dir(PRIORS) if not name.startswith("_")}
    for name, (value, why) in found.items():
        assert value == shown(getattr(PRIORS, name))
        assert why.endswith("."), name


def test_the_page_shows_the_weights_of_learner_r() -> None:
    first, *rest = STEPS["tau(x)"]
    steps = (first, *STEPS["r"], *rest)
    table = TABLES["Weights of the stages"]
    assert [row[:2] for row in table] == [[step.key, shown(least(step))] for step in steps]


@pytest.mark.parametrize("learner", STEPS)
def test_no_weight_is_without_a_reason(learner: str) -> None:
    assert all(why.endswith(".") for _, _, why in constants.weights(learner))


def steps_of(kind: type) -> list[Step]:
    steps = getattr(kind, "steps", ())
    return list(steps) if isinstance(steps, tuple) else []


def test_no_share_is_without_a_reason() -> None:
    """Of a group, in the code; and no list of steps is left out."""
    lists = [place for module in MODULES for place in vars(module).values()]
    steps = [step for kind in lists if isinstance(kind, type) for step in steps_of(kind)]
    assert len(steps) > 80
    assert set(steps) <= {step for known in STEPS.values() for step in known}
    for module in MODULES:
        lines = inspect.getsource(module).splitlines()
        for before, line in pairwise(lines):
            if re.match(r' +"(nuisance|effect|average)": [\d.]+,', line):
                assert "  # " in line or before.strip().startswith("# "), line


@pytest.mark.parametrize("row", TABLES["Thresholds, grids and guards"], ids=lambda row: row[0])
def test_other_constants_are_those_of_the_code(row: list[str]) -> None:
    place, value, why = row
    module, _, names = place.strip("`").partition(":")
    code = importlib.import_module(f"privcausal.{module}")
    assert value == ", ".join(shown(getattr(code, name)) for name in names.split(", "))
    assert why.endswith(".")


def test_the_page_shows_the_tables() -> None:
    page = PAGES / "reference" / "constants.md"
    text = execute.shown(page, page.read_text(encoding="utf-8"))
    assert CONSTANTS in text
    assert "```" not in text


@pytest.mark.slow
def test_stages_are_those_of_a_fit() -> None:
    """Their order, and the shares of rho by default."""
    study = pc.datasets.clinic(500)
    with seeded_noise(1):
        # n eps = 10,000: products have their whole budget
        fit = pc.privcate(study.formula, study.frame, bounds=study.bounds, learner="r", eps=20)
    stages = {stage.name: stage.rho for stage in fit.estimate.plan.stages}
    whole = sum(stages.values())
    table = {row[0]: row for row in rows(TEXT)}
    asked = [f"{r.charge.stage}: " for r in fit.estimate.releases]
    assert [name.split(": ")[0] + ": " for name in table] == asked
    narrative = (PAGES / "explanation" / "r-learner.md").read_text(encoding="utf-8")
    assert f"why a fit makes {len(table)} queries" in " ".join(narrative.split())
    assert {n: row[-1] for n, row in table.items()} == {
        name: f"{100 * rho / whole:.1f}" for name, rho in stages.items()
    }


def test_each_constant_is_used_on_the_page() -> None:
    for name in (row[0].strip("`") for row in TABLES["Priors and allowances"]):
        assert re.search(rf"\b{name}(?![a-z_])", TEXT), name


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([a-z_.]+:[\w.]+)`", TEXT + CONSTANTS))))
def test_each_place_exists(place: str) -> None:
    module, _, names = place.partition(":")
    found: Any = importlib.import_module(f"privcausal.{module}")
    for name in names.split("."):
        found = getattr(found, name)
