"""Every public name and method has an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

import privcausal as pc

PLAIN = {
    "tvalues", "zvalues", "nobs", "model", "default_model_infos", "plan", "dataset", "epsilon",
    "delta", "allow_published", "fits", "columns", "get", "zero", "one", "zeros", "ones", "width",
    "mid", "labels", "passes", "verdict", "terms", "budget", "weak", "table", "affordable", "after",
    "charge", "label_columns", "refuse_misspelt", "from_noise", "minimum", "summary", "ate", "gate",
    "sensitivity", "overlap", "balance",
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
FUNCTIONS = {name: made for name, made in NAMES.items() if not inspect.isclass(made)}


def has_examples(made: Any) -> bool:
    return "Examples\n--------" in (inspect.getdoc(made) or "")


def ran(made: Any, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Run the examples of one docstring; the names that they define."""
    text = inspect.getdoc(made) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(known), name, None, 0)
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append, clear_globs=False)
    assert not said, "\n".join(said)
    return test.globs


@pytest.mark.parametrize("name", [*FUNCTIONS, "PrivcausalError"])
def test_the_example_of_a_function_runs(name: str) -> None:
    assert has_examples(NAMES[name])
    ran(NAMES[name], name, {"pc": pc})


@pytest.mark.parametrize("name", CLASSES)
def test_the_examples_of_a_class_run(name: str) -> None:
    """Those of methods use what the example of the class defines."""
    assert has_examples(CLASSES[name])
    known = ran(CLASSES[name], name, {"pc": pc})
    found = dict(reversed(list(members(CLASSES[name]))))
    lacking = [own for own, made in found.items() if not has_examples(made)]
    assert not {own.split(".")[1] for own in lacking} - PLAIN, lacking
    for own, made in found.items():
        shared = own.split(".")[0] in ("Result", "Exchange", "Disclosed", "ReleasedFit")
        if has_examples(made) and (name == "AteResult" or not shared):
            ran(made, own, known)


def test_a_wrong_example_is_found() -> None:
    def wrong() -> None:
        """Add.

        >>> 1 + 1
        3
        """

    with pytest.raises(AssertionError, match="Expected"):
        ran(wrong, "wrong", {})
