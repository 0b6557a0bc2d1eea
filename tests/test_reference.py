"""The site's reference holds every public name and every mechanism's proof."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import privcausal
import privcausal.estimators
from privcausal.vault import queries as mechanisms

PAGE = Path(__file__).parents[1] / "vignettes" / "reference" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = set(re.findall(r"auto(?:class|function|module):: ([\w.]+)", TEXT))
WHOLE = ("privcausal.errors", "privcausal.datasets", "privcausal.paper", "privcausal.testing")
"""Modules that are shown with their members."""


def test_every_public_name_is_in_the_reference() -> None:
    # shown by their contents
    modules = {"learners", "bases", "datasets", "errors", "paper", "testing"}
    errors = {name for name in privcausal.__all__ if hasattr(privcausal.errors, name)}
    wanted = set(privcausal.__all__) - modules - errors - {"__version__"}
    assert wanted <= SHOWN
    assert set(WHOLE) <= SHOWN


def test_every_option_object_is_in_the_reference() -> None:
    learners = {type(each).__name__ for each in privcausal.estimators.LEARNERS.values()}
    assert {f"privcausal.learners.{name}" for name in learners} <= SHOWN
    known = (*privcausal.bases.BASES.values(), *privcausal.bases.OTHERS.values())
    assert {f"privcausal.bases.{type(base).__name__}" for base in known} <= SHOWN


def test_every_proof_is_in_the_reference() -> None:
    proofs = set()
    for found in pkgutil.iter_modules(mechanisms.__path__, f"{mechanisms.__name__}."):
        module = importlib.import_module(found.name)
        for name, kind in vars(module).items():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and not name.startswith("_") and "Privacy\n" in (kind.__doc__ or ""):
                proofs.add(f"{module.__name__}.{name}")
    assert len(proofs) > 10
    assert proofs <= SHOWN


GUIDE = (Path(__file__).parents[1] / "vignettes" / "reference" / "guide.md").read_text(
    encoding="utf-8"
)


def pairs() -> list[tuple[str, str, str]]:
    """Learner, base, and what the guide says that they have."""
    section = GUIDE.split("## Available pairs", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    bases = re.findall(r'"(\w+)"', "".join(rows[0]))
    return [
        (name, base, cell.strip())
        for learners, *cells in rows[2:]
        for name in re.findall(r"\w+", learners)
        for base, cell in zip(bases, cells, strict=True)
    ]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("learner", "base", "has"), pairs())
def test_a_pair_has_what_the_guide_says(learner: str, base: str, has: str) -> None:
    study = privcausal.datasets.betlei_sine(2000)
    call = privcausal.private if learner == "private" else privcausal.privcate
    options = {} if learner == "private" else {"learner": learner}
    if learner in ("adum", "tm"):
        options["propensity"] = 0.5
    try:
        fit = call(study.formula, study.frame, base=base, eps=4, bounds=study.bounds, **options)
    except privcausal.CapabilityError:
        assert has == "no"
        return
    at = None if learner == "private" else fit.predict(study.frame.head(3))
    average = fit.estimate.averages is not None
    found = {
        "average": average,
        "slopes": average and learner != "private" and len(fit.blp) > 0,
        "band": at is not None and bool(at["std_error"].notna().all()),
        "pure ε": fit.guarantee.delta == 0,
    }
    assert has == ", ".join(what for what, there in found.items() if there)
