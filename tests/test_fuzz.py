"""Random formulas, schemas, options and frames: declared errors only, before anything is spent."""

from __future__ import annotations

import string
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wrong_calls import CANARY, RARE, told

import privcausal as pc
from privcausal import testing
from privcausal.errors import FormulaError, PrivcausalError, SchemaError
from privcausal.request.formula import CausalFormula

QUIET = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
OFTEN = settings(QUIET, max_examples=300)
BOUNDS: dict[str, Any] = {"Y": (0, 1), "X1": (0, 10), "G": ["a", "b"]}
NAMES = ("Y", "T", "X1", "G", "nope", "`two words`", "_", "X1.__class__", "1", "2.5", "'a'")


def study(n: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    columns = {"Y": rng.random(n), "T": rng.integers(0, 2, n), "X1": rng.uniform(0, 10, n)}
    frame = pd.DataFrame(columns | {"G": rng.choice(["a", "b"], n)})
    frame.loc[3, ["Y", "X1"]] = CANARY
    frame.loc[3, "G"] = RARE
    return frame


class Spent:
    """Stands in for a ledger, and counts what reaches it."""

    delta, epsilon, dataset = 1e-5, 1.0, "study"
    remaining = SimpleNamespace(epsilon=0.5)

    def __init__(self) -> None:
        self.charges = 0

    def charge(self, run: str, charges: Any, published: bool = False) -> None:
        self.charges += 1


def refused(call: Callable[[], Any]) -> PrivcausalError | None:
    """The declared error of a call, if there is one; any other is a defect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except PrivcausalError as error:
            return error
    return None


def check_fit(formula: Any, data: Any, **options: Any) -> None:
    """A fit, or a declared error that quotes no row and came before anything was spent."""
    spent = Spent()
    fit = pc.privcate if "learner" in options else pc.private
    error = refused(lambda: fit(formula, data, ledger=spent, **options))
    if error is not None:
        assert "77310" not in told(error)
        assert RARE not in told(error)
        assert spent.charges == 0, str(error)


# -- formulas --------------------------------------------------------------------------------

FUNCTIONS = ("log", "exp", "sqrt", "s", "C", "bs", "poly", "I", "scale", "center", "eval", "open")
terms = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*:/^"), inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        st.tuples(st.sampled_from(FUNCTIONS), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, st.integers(0, 9)).map(lambda t: f"({t[0]})**{t[1]}"),
        st.tuples(inner, inner).map(lambda t: f"bs({t[0]}, df={t[1]})"),
        inner.map(lambda t: f"C({t}, ref='a')"),
    ),
    max_leaves=8,
)
formulas = st.one_of(
    st.tuples(terms).map(lambda t: f"Y ~ T | {t[0]}"),
    st.tuples(terms, terms).map(lambda t: f"Y ~ T | {t[0]} | {t[1]}"),
    st.tuples(terms, terms, terms).map(lambda t: f"{t[0]} ~ {t[1]} | {t[2]}"),
)
noise_of_text = st.one_of(
    st.text(max_size=40),
    st.text(string.ascii_letters + string.punctuation + " 0123456789", max_size=60).map(
        lambda t: f"Y ~ T | {t}"
    ),
)


@pytest.mark.slow
@OFTEN
@given(formulas | noise_of_text)
def test_any_text_is_a_formula_or_an_error(text: str) -> None:
    error = refused(lambda: CausalFormula.parse(text, ("Y", "T", "X1", "G")))
    assert error is None or (isinstance(error, FormulaError) and str(error))


@pytest.mark.slow
@QUIET
@given(formulas)
def test_a_formula_gives_a_fit_or_an_error_that_costs_nothing(text: str) -> None:
    check_fit(text, study(), bounds=BOUNDS, base="linear", learner="s")


CODE = [
    "__import__('os').system('touch {0}')",
    "open('{0}', 'w')",
    "{{__import__('os').system('touch {0}')}}",
    "I(__import__('pathlib').Path('{0}').touch())",
    'C(exec(\'open("{0}", "w")\'))',
    'eval(\'open("{0}", "w")\')',
    "(lambda: open('{0}', 'w'))()",
    "X1.__class__.__mro__[-1].__subclasses__()",
    "X1.__init__.__globals__['__builtins__']['open']('{0}', 'w')",
    "[open('{0}', 'w') for _ in (1,)]",
    "I(X1 if open('{0}', 'w') else X1)",
    "bs(X1, knots=[open('{0}', 'w')])",
    "C(G, ref=open('{0}', 'w'))",
    'f\'{{open("{0}", "w")}}\'',
    "np.save('{0}', X1)",
    "@open('{0}', 'w')",
    "X1 + (y := open('{0}', 'w'))",
    "`X1`.to_csv('{0}')",
    "exec(compile('open(1)', '', 'exec'))",
    "log(X1, out=open('{0}', 'w'))",
    "s(X1, df=__import__('os').getpid())",
    "poly(X1, degree=breakpoint())",
    "X1\nimport os",
    "X1; open('{0}', 'w')",
]


@pytest.mark.parametrize("code", CODE)
def test_code_in_groups_and_names_never_runs(code: str, tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = code.format(target)
    wrong = [{"groups": [text]}, {"groups": [f"X1 >= {text}"]}, {"propensity": text}]
    for options in (*wrong, {"unit": text, "max_rows": 1}):
        with pytest.raises(PrivcausalError):
            pc.private("Y ~ T | X1", study(), bounds=BOUNDS, **options)
    assert not target.exists()


# -- schemas and options ---------------------------------------------------------------------

numbers = st.integers(-(2**70), 2**70) | st.floats() | st.complex_numbers()
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.binary(max_size=3)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.sets(st.text(max_size=3), max_size=3),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@OFTEN
@given(st.dictionaries(st.sampled_from(["Y", "X1", "G", "T"]) | st.text(max_size=4), anything))
def test_any_bounds_are_a_schema_or_an_error(bounds: dict[str, Any]) -> None:
    error = refused(lambda: pc.Schema.of(bounds))
    assert error is None or (isinstance(error, SchemaError) and str(error))
    if error is None:
        schema = pc.Schema.of(bounds)
        assert pc.Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.slow
@QUIET
@given(st.sampled_from(["Y", "X1", "G", "T"]), anything)
def test_any_domain_gives_a_fit_or_an_error_that_costs_nothing(name: str, domain: Any) -> None:
    check_fit("Y ~ T | X1 + C(G)", study(), bounds=BOUNDS | {name: domain}, base="linear")


OPTIONS = (
    "learner", "base", "eps", "delta", "neighbors", "unit", "max_rows", "propensity",
    "groups", "control",
)  # fmt: skip


@pytest.mark.slow
@settings(QUIET, max_examples=60)
@given(st.sampled_from(OPTIONS), anything)
def test_any_option_gives_a_fit_or_an_error_that_costs_nothing(name: str, value: Any) -> None:
    options = {"learner": "s", "base": "linear", "bounds": BOUNDS} | {name: value}
    check_fit("Y ~ T | X1 + C(G)", study(), **options)


PLAN = ("n", "eps", "width", "delta", "outcome_sd", "r2", "treated", "alpha", "power", "learner")


@pytest.mark.slow
@settings(QUIET, max_examples=60)
@given(st.sampled_from(PLAN), scalars)
def test_any_question_gives_a_plan_or_an_error(name: str, value: Any) -> None:
    options = {"n": 50, "base": "linear", "bounds": BOUNDS} | {name: value}
    error = refused(lambda: str(pc.plan("Y ~ T | X1", **options)))
    assert error is None or str(error)


# -- frames ----------------------------------------------------------------------------------

columns = st.one_of(
    st.lists(scalars, min_size=6, max_size=6).map(lambda v: pd.Series(v, dtype=object)),
    st.lists(anything, min_size=6, max_size=6).map(lambda v: pd.Series(v, dtype=object)),
    st.sampled_from(["int8", "uint64", "float16", "float32", "bool", "complex64"]).map(
        lambda t: pd.Series(np.arange(6) % 2).astype(t)
    ),
    st.sampled_from(["Int64", "boolean", "Float32", "string", "category", "str"]).map(
        lambda t: pd.Series([0, 1, 0, 1, 1, 0]).astype(t)
    ),
    st.just(pd.Series(pd.date_range("2020", periods=6))),
    st.just(pd.Series(pd.arrays.SparseArray([0, 0, 1, 0, 0, 1]))),
    st.just(pd.Series(pd.interval_range(0, 6, 6))),
)


@pytest.mark.slow
@settings(QUIET, max_examples=30)
@given(st.sampled_from(["Y", "T", "X1", "G"]), columns)
def test_any_column_gives_a_fit_or_an_error_that_costs_nothing(name: str, column: Any) -> None:
    """With the types that are public, and whatever values: they never decide."""
    data = study(6).assign(**{name: column})
    domains = BOUNDS | ({"T": pc.Binary()} if name == "T" else {})
    # a ledger takes no test noise
    with testing.seeded_noise(1):
        error = refused(
            lambda: pc.private("Y ~ T | X1 + C(G)", data, base="linear", bounds=domains, eps=20)
        )
    if error is not None:
        assert data[name].dtype != object, str(error)
        assert "77310" not in told(error)


names = st.lists(
    st.one_of(st.sampled_from(["Y", "T", "X1", "G"]), st.text(max_size=6), st.integers()),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(QUIET, max_examples=60)
@given(names)
def test_any_names_give_a_fit_or_an_error_that_costs_nothing(given_names: list[Any]) -> None:
    data = pd.DataFrame(np.full((4, len(given_names)), 0.5), columns=given_names)
    check_fit("Y ~ T | X1", data, bounds=BOUNDS, base="linear")
    check_fit("Y ~ T | .", data, bounds=None, base="linear", eps=50.0)
