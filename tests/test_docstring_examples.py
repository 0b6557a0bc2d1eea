"""Every public name and method has an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import privcausal as pc

PLAIN = {
    "AuditResult.passes", "AuditResult.summary", "AuditResult.table",
    "Binary.one", "Binary.ones", "Binary.zero", "Binary.zeros", "Exchange.default_model_infos",
    "EventStudyResult.ate", "EventStudyResult.balance", "EventStudyResult.overlap",
    "EventStudyResult.sensitivity", "Exchange.model", "Exchange.nobs", "Exchange.tvalues",
    "Interval.mid", "Interval.width",
    "Ledger.affordable", "Ledger.after", "Ledger.allow_published", "Ledger.charge",
    "Ledger.dataset", "Ledger.delta", "Ledger.epsilon", "Ledger.fits", "Levels.labels",
    "PlanResult.budget", "PlanResult.passes", "PlanResult.summary", "PlanResult.weak",
    "Printed.summary", "RegressionResult.ate", "RegressionResult.balance", "RegressionResult.gate",
    "RegressionResult.overlap", "RegressionResult.sensitivity", "ReleasedFit.plan",
    "CateResult.get_prediction", "Exchange.cov_type", "GeneralizedResult.get_prediction",
    "RegressionResult.f_pvalue", "RegressionResult.fvalue", "RegressionResult.get_prediction",
    "Tested.df_model", "Tested.df_resid", "Tested.use_t",
    "ReleasedFit.zvalues", "Schema.columns", "Schema.get", "Schema.label_columns",
    "TradeOff.from_noise",
}  # fmt: skip
"""Methods that may do without one: fields, aliases, refusals, and what the package itself calls."""
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def function_of(member: Any) -> Any:
    """The function with the docstring."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", getattr(member, "func", member))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class and its bases in the package."""
    for base in kind.__mro__:
        if base.__module__.startswith("privcausal"):
            for name, member in vars(base).items():
                kinds = property | classmethod | staticmethod | cached_property
                if not name.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, kinds)
                ):
                    yield f"{base.__name__}.{name}", function_of(member)


NAMES = {name: getattr(pc, name) for name in pc.__all__ if callable(getattr(pc, name))}
CLASSES = {
    name: kind
    for name, kind in NAMES.items()
    if inspect.isclass(kind) and not issubclass(kind, BaseException | Warning)
}
MODULES = {name: getattr(pc, name) for name in pc.__all__ if inspect.ismodule(getattr(pc, name))}
FUNCTIONS = {name: made for name, made in NAMES.items() if not inspect.isclass(made)}


def has_examples(made: Any) -> bool:
    return "Examples\n--------" in (inspect.getdoc(made) or "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write their files into an empty folder."""
    monkeypatch.chdir(tmp_path)


def ran(made: Any, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Run the examples of one docstring; the names that they define."""
    text = inspect.getdoc(made) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(known), name, None, 0)
    assert all(doctest.SKIP not in each.options for each in test.examples), name
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append, clear_globs=False)
    assert not said, "\n".join(said)
    return test.globs


@pytest.mark.parametrize("name", [*FUNCTIONS, "PrivcausalError"])
def test_the_example_of_a_function_runs(name: str) -> None:
    assert has_examples(NAMES[name])
    if name == "declare_labels":
        pytest.importorskip("pyreadstat")
    ran(NAMES[name], name, {"pc": pc})


@pytest.mark.parametrize("name", MODULES)
def test_the_example_of_a_module_runs(name: str) -> None:
    assert has_examples(MODULES[name])
    ran(MODULES[name], name, {"pc": pc})


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_the_examples_of_a_class_run(name: str) -> None:
    """Those of methods use what the example of the class defines."""
    assert has_examples(CLASSES[name])
    known = ran(CLASSES[name], name, {"pc": pc})
    found = dict(reversed(list(members(CLASSES[name]))))
    lacking = [own for own, made in found.items() if not has_examples(made)]
    assert set(lacking) <= PLAIN
    for own, made in found.items():
        inherited = own.split(".")[0] != name  # what several results share runs once
        if has_examples(made) and (name == "AteResult" or not inherited):
            ran(made, own, known)


def test_a_wrong_example_is_found() -> None:
    def wrong() -> None:
        """Add.

        >>> 1 + 1
        3
        """

    with pytest.raises(AssertionError, match="Expected"):
        ran(wrong, "wrong", {})
