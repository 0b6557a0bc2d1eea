"""Formulas: what is read, what is refused and how it says so, and that nothing ever runs."""

from __future__ import annotations

import copy
import pickle
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from fit_helpers import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privcausal.errors import FormulaError
from privcausal.features.design import formulaic_terms
from privcausal.request.formula import ENVIRONMENT, FUNCTIONS, CausalFormula, Factor, Term, quoted


def expanded(formula: CausalFormula) -> str:
    """The formula with nothing left to expand."""
    parts = [" + ".join(map(str, part)) or "1" for part in (formula.modifiers, formula.controls)]
    return " | ".join([f"{quoted(formula.outcome)} ~ {quoted(formula.treatment)}", *parts])


# formula, names of the modifiers, names of the controls
GOOD = [
    ("Y ~ T", [], []),
    ("Y~T", [], []),
    ("  Y  ~\n T |\t", [], []),
    ("Y ~ T | 1", [], []),
    ("Y ~ T | 1 | W", [], ["W"]),
    ("Y ~ T | | W", [], ["W"]),
    ("Y ~ T | X1", ["X1"], []),
    ("Y ~ T | X1 |", ["X1"], []),
    ("Y ~ T | X1 + X2", ["X1", "X2"], []),
    ("Y ~ T | 1 + X1 + X2", ["X1", "X2"], []),
    ("Y ~ T | X1 + 1", ["X1"], []),
    ("Y ~ T | + X1", ["X1"], []),
    ("Y ~ T | X1 + X1", ["X1"], []),
    ("visit ~ mailed | age + C(region) | income", ["age", "C(region)"], ["income"]),
    ("Y ~ T | X | X + W", ["X"], ["W"]),
    ("Y ~ T | a:b | b:a + a", ["a:b"], ["a"]),
    ("Y ~ T | a:b", ["a:b"], []),
    ("Y ~ T | a*b", ["a", "b", "a:b"], []),
    ("Y ~ T | a:b + a", ["a", "a:b"], []),
    ("Y ~ T | a:a", ["a"], []),
    ("Y ~ T | a*b - a:b", ["a", "b"], []),
    ("Y ~ T | a*b*c", ["a", "b", "c", "a:b", "a:c", "b:c", "a:b:c"], []),
    ("Y ~ T | (a + b + c)**2", ["a", "b", "c", "a:b", "a:c", "b:c"], []),
    ("Y ~ T | (a + b)^2 - a:b", ["a", "b"], []),
    ("Y ~ T | (a + b):c", ["a:c", "b:c"], []),
    ("Y ~ T | a + (b + (c))", ["a", "b", "c"], []),
    ("Y ~ T | a - b", ["a"], []),
    ("Y ~ T | a + b - b", ["a"], []),
    ("Y ~ T | C(g):x", ["C(g):x"], []),
    ("Y ~ T | C( g )", ["C(g)"], []),
    ("Y ~ T | C (g)", ["C(g)"], []),
    ("Y ~ T | C(g, ref='A')", ["C(g)"], []),
    ('Y ~ T | C(g, ref="A|B (~)") + x', ["C(g)", "x"], []),
    ("Y ~ T | C(g, ref=-1)", ["C(g)"], []),
    ("Y ~ T | I(x^2)", ["I(x ** 2)"], []),
    ("Y ~ T | I(x**2) + I(x ** 2)", ["I(x ** 2)"], []),
    ("Y ~ T | I(x^2 + 1)", ["I(x ** 2 + 1)"], []),
    ("Y ~ T | I((x - 18) / (95 - 18))", ["I((x - 18) / (95 - 18))"], []),
    ("Y ~ T | I(x / z)", ["I(x / z)"], []),
    ("Y ~ T | I(-x * 1e3)", ["I(-x * 1000.0)"], []),
    ("Y ~ T | log(x) + exp(x) + sqrt(x)", ["log(x)", "exp(x)", "sqrt(x)"], []),
    ("Y ~ T | log(x + 1):z", ["log(x + 1):z"], []),
    ("Y ~ T | I(log(x)**2)", ["I(log(x) ** 2)"], []),
    ("Y ~ T | poly(x, 2) + poly(x, degree=2)", ["poly(x, 2)"], []),
    ("Y ~ T | bs(x)", ["bs(x)"], []),
    ("Y ~ T | bs(x, df=6) + bs(x, 6)", ["bs(x, df=6)"], []),
    ("Y ~ T | bs(x, degree=2, df=4)", ["bs(x, df=4, degree=2)"], []),
    ("Y ~ T | bs(x, knots=[20, 40])", ["bs(x, knots=[20.0, 40.0])"], []),
    ("Y ~ T | bs(x, df=5):C(g)", ["bs(x, df=5):C(g)"], []),
    ("Y ~ T | s(x) + s(z, k=6)", ["s(x)", "s(z, k=6)"], []),
    ("Y ~ T | s(x, k=6, knots=(1, 2))", ["s(x, k=6, knots=[1.0, 2.0])"], []),
    ("Y ~ T | `my col` + log(`my col`)", ["my col", "log(`my col`)"], []),
    ("`the y` ~ `the t` | x", ["x"], []),
    ("Y ~ T | x.1 + C(`x.1`)", ["x.1", "C(`x.1`)"], []),
    ("Y ~ T | `a:b` + `2x` + `Income (USD)`", ["`a:b`", "2x", "Income (USD)"], []),
    ("Y ~ T | größe + 年齢 + log(größe)", ["größe", "年齢", "log(größe)"], []),
    ("Y ~ T | class + in", ["class", "in"], []),
    ("eps ~ s | C + log", ["C", "log"], []),
    ("Y ~ T | x | C(g)*x", ["x"], ["C(g)", "C(g):x"]),
    ("Y ~ T | a/b", ["a", "a:b"], []),
    ("Y ~ T | b %in% a", ["a", "a:b"], []),
    ("Y ~ T | a/(b + c)", ["a", "a:b", "a:c"], []),
    ("Y ~ T | (a + b)/c", ["a", "b", "a:b:c"], []),
    ("Y ~ T | a:b:c:d", ["a:b:c:d"], []),
    ("Y ~ T | np.log(x) + I(np.sin(x) + abs(z))", ["log(x)", "I(sin(x) + abs(z))"], []),
    ("Y ~ T | log2(x) + log10(x) + log1p(x)", ["log2(x)", "log10(x)", "log1p(x)"], []),
    ("Y ~ T | expm1(x) + cos(x) + tan(x / 2)", ["expm1(x)", "cos(x)", "tan(x / 2)"], []),
    ("Y ~ T | scale(x) + center(x)", ["scale(x)", "center(x)"], []),
    ("Y ~ T | scale(x, 40, scale=12)", ["scale(x, 40, scale=12)"], []),
    ("Y ~ T | poly(x, 3, raw=True)", ["poly(x, 3, raw=True)"], []),
    ("Y ~ T | C(g, contr.sum) + C(h, contr.diff)", ["C(g, contr.sum)", "C(h, contr.diff)"], []),
    ("Y ~ T | C(g, contr.treatment('v'))", ["C(g)"], []),
    ("Y ~ T | C(g, contr.treatment) + C(g, Treatment)", ["C(g)"], []),
    ("Y ~ T | C(g, levels=['w', 'v', 'u'])", ["C(g)"], []),
    ("Y ~ T | cr(x, 4) + cs(x, df=5)", ["cr(x, df=4)", "cs(x, df=5)"], []),
    ("Y ~ T | cc(x, df=4, constraints='center')", ["cc(x, df=4, constraints='center')"], []),
    ("Y ~ T | bs(x, 6, include_intercept=True)", ["bs(x, df=6, include_intercept=True)"], []),
    ("Y ~ T | I((x > 1) & ~(z <= 1))", ["I((x > 1) & ~(z <= 1))"], []),
    ("Y ~ T | I((x > 1) * z)", ["I((x > 1) * z)"], []),
]

# message, right sides of "Y ~ T | "; beside those of `wrong_calls.txt`
WRONG = {
    "The outcome 'Y' is also on the right": ["Y"],
    "The treatment 'T' is also among": ["X | C(T)"],
    "intercept cannot be removed": ["0", "0 + X", "-1 + X", "X -+ 1", "X | W - 1"],
    "Write I(2 * x)": ["X + 2", "2:X"],
    "is not a term": ["(1 + X)", "(lambda: 1)()"],
    "starts with a digit": ["0.5*X"],
    "in backticks": ["2X"],
    "cannot be read": [
        "X Z",
        "X +",
        "X + * Z",
        "(X | Z)",
        "(X ~ Z)",
        "X %in%",
        "X /",
        "I(x; z)",
        "I(x # z)",
        "C(class)",
    ],
    "Parentheses do not match": ["(X", "X)"],
    "backtick is not closed": ["`X"],
    "is empty": ["``"],
    "followed by a whole number": ["X**", "X**Z", "X**2**2"],
    "must be from 1 to 4": ["X**5", "(a+b+c+d+e+f+g+h)**8", "X**0"],
    "allowed only in %in%": ["X % Z"],
    "more than 4 factors": ["a*b*c*d*e", "a/b/c/d/e", ":".join(f"x{i}" for i in range(200))],
    "more than 500 terms": [
        "*".join("abcdefghijklmnopqrstuvwx"),
        " + ".join(f"x{i}" for i in range(501)),
        "(" + " + ".join(f"x{i}" for i in range(40)) + ")**2",
    ],
    "more than 10,000 characters": ["x + " * 3_000 + "x"],
    "nested too deep": ["(" * 60 + "x" + ")" * 60, "I(" + "-" * 200 + "x)"],
    "longer than 1,000 characters": ["I(x" + " + x" * 400 + ")"],
    "requires the column names": ["."],
    "never run": ["{__import__('os').system('true')}"],
    "is not allowed": [
        "__import__('os').system('true')",
        "I(__import__('os').system('true'))",
        "open('x')",
        "eval('1')",
        "x.mean()",
        "log(x).mean()",
    ],
    "two underscores": ["I(__builtins__)", "__class__"],
    "A dot is not allowed": ["I(x.values)", "I((x).y)", "I(np.pi * x)"],
    "one column name": ["C(x.y)", "C(*g)", "C(log(x))", "C()"],
    "Square brackets": ["x[0]"],
    "Only numbers, columns and": [
        "I(lambda: 1)",
        "I([y for y in x])",
        "I(x := 1)",
        "I((x := 1))",
        "I(f'{x}')",
        "I(x % 2)",
        "I(x // 2)",
        "I(x @ z)",
    ],
    "does not work on columns": ["I(x if x else z)"],
    "do not work on columns": ["I(x and z)"],
    "Chained comparisons are not allowed": ["I(1 < x < 3)", "I(x > 3 & z < 2)", "I(x in z)"],
    "A comparison is not a number": [
        "I((x > 3) + (z > 3))",
        "I(-(x > 3))",
        "I((x > 3)**2)",
        "I((x > 3) > 0)",
        "log(x > 3)",
    ],
    "comparison uses no column": ["I(x * (1 > 2))"],
    "a column with a number": ["I(x == z)", "I(2 * x == 3)"],
    "Only plain numbers": [
        "I(x > 'a')",
        "I('x')",
        "I(x + True)",
        "I(x + None)",
        "I(x * 2j)",
        "I(x + 1e999)",
    ],
    "& | ~ combine comparisons": ["I(~x)"],
    "Arguments with *": ["I(*x)"],
    "accepts one argument": ["I()", "I(x, z)", "I(x=1)", "I(**x)"],
    "uses no column": ["I(3)"],
    "divides by zero": ["I(x / (1 - 1))"],
    "not finite, or too large": ["I(x + log(-1))", "I(x + (-8)**0.5)", "I(x * (((9**9)**9)**9))"],
    "An exponent must be a number up to 10": ["I(x * 9**9**9)"],
    "An exponent must be a number": ["I(x**z)", "I(x**100)"],
    "cannot be used in a function": ["I(`class`)"],
    "In 'pd.log(x)': Write log(x)": ["pd.log(x)"],
    "Write log(x)": ["np.linalg.log(x)"],
    "Write sin(x)": ["np.random.sin(x)"],
    "Write exp(x)": ["exp2(x)"],
    "Write I(x**2)": ["np.power(x, 2)"],
    "Write C(x) as its own term": ["I(C(x))"],
    "Write poly(x) as its own term": ["log(poly(x, 2))"],
    "a number other than 0": ["scale(x, 40, 0)", "scale(x, z)"],
    "accepts only a column, center=": ["scale(x, ddof=0)"],
    "must be one column name": ["scale(log(x))", "poly(log(x), 2)"],
    "accepts only a column.": ["center(x, 2)"],
    "Write scale(x)": ["standardize(x)"],
    "declare its levels": ["hashed(g, levels=10)"],
    "Write cs(x, df=5)": ["cs(x)"],
    "df must be a whole number from 3 to 30": ["cc(x, df=2)"],
    "at least two knots": ["cr(x, knots=[1])"],
    "constraints must be 'center' or None": ["cr(x, df=4, constraints='x')"],
    "sum to 1": ["cr(x, df=4):C(g)"],
    "spline is not available": ["te(x, z)"],
    "Write s(x) or I(x > 3)": ["pd.cut(x, 3)"],
    "Text in quotes is allowed only as a label": ["'x'", '"x"'],
    "'=' is allowed only inside": ["x = 1"],
    "'&' is not allowed": ["x & z"],
    "';' is not allowed": ["x; import os"],
    "C(x, ref='label')": ["C(g, contr.custom([1]))", "C(g, contr.sum.__class__)", "C(g, sum)"],
    "contr.diff": ["C(g, Diff)"],
    "accepts no arguments": ["C(g, contr.sum(1))"],
    "no reference label": ["C(g, contr.sum, ref='A')"],
    "accepts one label": ["C(g, contr.treatment(z='A'))", "C(g, contr.treatment('A'), ref='B')"],
    "Treatment() accepts one label": ["C(g, Treatment(base='A', reference='B'))"],
    "two or more different labels": [
        "C(g, levels=['A'])",
        "C(g, levels=x)",
        "C(g, levels=['A', 'A'])",
    ],
    "two lists of levels": ["C(g, levels=['A', 'B']) + x:C(g, levels=['B', 'A'])"],
    "accepts only a column": ["C(g, ref='A', ref='B')"],
    "one declared label": ["C(g, ref='')", "C(g, ref=x)", "C(g, ref=None)"],
    "both a column and a function": [
        "contr + C(g, contr.sum)",
        "C + C(g)",
        "log + I(log(x) + 1)",
        "`log(x)` + log(x)",
    ],
    "two reference labels": ["C(g, ref='A') + C(g, ref='B'):x"],
    "The degree is missing": ["poly(x)"],
    "degree must be a whole number from 1 to 5": ["poly(x, 6)"],
    "degree must be a whole number": ["poly(x, 2.0)", "poly(x, True)", "poly(x, z)"],
    "raw must be True or False": ["poly(x, 2, raw=1)"],
    "plus 1 if include_intercept=True": ["bs(x, df=3, include_intercept=True)"],
    "accepts only a column, degree=": ["poly(x, 2, degree=2)"],
    "df must be a whole number from 1 to 30": ["bs(x, df=31)"],
    "at least 3: the degree": ["bs(x, df=2)"],
    "cannot be combined": ["bs(x, df=6, knots=[1])"],
    "increasing numbers": [
        "bs(x, knots=[])",
        "bs(x, knots=[2, 1])",
        "bs(x, knots=[1, z])",
        "bs(x, knots=z)",
        "bs(x, knots=[i for i in z])",
    ],
    "accepts only a column, df=": ["bs(x, lower_bound=0)", "bs(x, **z)"],
    "df must be a whole number": ["bs(x, *z)"],
    "k must be a whole number from 3 to 30": ["s(x, k=31)"],
    "accepts only a column, k=": ["s(x, 6)", "s(x, z)"],
    "s() cannot be part of an interaction": ["s(x):C(g)"],
    "too similar": ["poly(`a b`, 2) + a_b", "C(`a b`) + C(`a-b`)"],
    "quotation mark in its name": ["`a'b`"],
    "read as the intercept": ["`1`", "Intercept"],
    "invisible character": ["`a\nb`", "x\x00", "x\u202e", "x\ud800"],
    "backslash": ["x\\n"],
    "NFKC": ["\uff49\uff4d\uff50\uff4f\uff52\uff54", "I(\uff3f\uff3fimport\uff3f\uff3f)"],
    "is not allowed in a formula": ["x − z"],
}
BAD = [(f"Y ~ T | {right}", message) for message, parts in WRONG.items() for right in parts]
BAD += [
    ("Y | T", "start with an outcome and ~"),
    ("Y | X ~ T", "start with an outcome and ~"),
    ("Y ~ | X", "treatment is missing"),
    ("Y ~ T ~ X", "one ~ and at most two |"),
    ("poly(Y, 2) ~ T | X", "cannot be the outcome. Write one column, or a function of one"),
    ("1 ~ T | X", "The outcome must be one column name"),
    ("Y ~ T * X", "after a bar"),
    ("Y ~ . | X", "The treatment must be one column name"),
    ("Y ~ C(T) | X", "declare its labels"),
    ("Y ~ factor(T) | X", "declare its labels"),
    ("Y ~ i(T) | X", "declare its labels"),
    ("Y ~ log(T) | X", "The treatment must be one column name"),
    ("__import__('os').system('true').x() ~ T", "The outcome must be one column name"),
]


def refusal(text, columns=None):
    with refused(FormulaError, ".") as caught:
        CausalFormula.parse(text, columns)
    return str(caught.value)


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_formulas(text, message):
    begin = time.process_time()
    said = refusal(text)
    assert message in said
    assert len(said) < 300
    assert time.process_time() - begin < 2


def test_parts_and_names():
    formula = CausalFormula.parse("visit ~ mailed | age + C(g):log(`my inc`) | C(h) + age:w")
    assert (formula.outcome, formula.treatment) == ("visit", "mailed")
    assert formula.variables == ("visit", "mailed", "age", "g", "my inc", "h", "w")
    assert formula.effect_variables == ("age", "g", "my inc")
    assert formula.categorical == ("g", "h")
    assert formula.terms == formula.modifiers + formula.controls
    assert formula.modifiers[1].variables == ("g", "my inc")
    assert formula.modifiers[1].factors == (
        Factor("C(g)", "categorical", ("g",)),
        Factor("log(`my inc`)", "function", ("my inc",), total=False),
    )


def test_text_is_kept_with_white_space_made_even():
    formula = CausalFormula.parse(" Y ~  T |\n `a  b`  +\u00a0x ")
    assert str(formula) == formula.text == "Y ~ T | `a  b` + x"
    assert formula.effect_variables == ("a  b", "x")


def test_frozen_equal_hashable_and_picklable():
    one, two = (CausalFormula.parse("Y ~ T | C(g, ref='A') + bs(x, df=5)") for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    with pytest.raises(AttributeError):
        one.outcome = "Z"


def test_the_record_checks_itself():
    term = CausalFormula.parse("A ~ B | Y").modifiers[0]
    with pytest.raises(FormulaError, match="also on the right"):
        CausalFormula("Y ~ T | Y", "Y", "T", (term,))


TOTAL = "I(x**2 - 3*x + 1); I(+x * -x); I(x**0); I(x**2.0); I(x / 10); I(x * log(10))"
PARTIAL = "I(1 / x); I(x / x); I(x**-1); I(x**0.5); I(x**(1/2)); I(2 * log(x)); log(x); exp(x)"


@pytest.mark.parametrize(
    ("text", "kind", "total"),
    [
        ("x", "numeric", True),
        ("C(x)", "categorical", True),
        *((text, "function", True) for text in TOTAL.split("; ")),
        *((text, "function", False) for text in PARTIAL.split("; ")),
        ("I(x + 2**0.5)", "function", True),
        ("sqrt(x**2)", "function", False),
        ("poly(x, 3)", "poly", True),
        ("bs(x, df=5)", "spline", True),
        ("s(x)", "smooth", True),
    ],
)
def test_kind_and_total(text, kind, total):
    (factor,) = CausalFormula.parse(f"Y ~ T | {text}").modifiers[0].factors
    assert (factor.kind, factor.total, factor.variables) == (kind, total, ("x",))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("poly(x, 3)", (("degree", 3),)),
        ("bs(x)", ()),
        ("bs(x, degree=2, knots=[-1, 2.5])", (("degree", 2), ("knots", (-1.0, 2.5)))),
        ("s(x, knots=[1, 2], k=4)", (("k", 4), ("knots", (1.0, 2.0)))),
    ],
)
def test_options(text, options):
    assert CausalFormula.parse(f"Y ~ T | {text}").modifiers[0].factors[0].options == options


def test_a_reference_label_holds_for_the_column():
    formula = CausalFormula.parse("Y ~ T | C(g) + C(h, ref=3.0) | C(g, ref='A'):x")
    assert formula.references == {"g": "A", "h": "3"}
    assert [f.ref for t in formula.terms for f in t.factors] == ["A", "3", "A", None]
    assert expanded(formula) == "Y ~ T | C(g, ref='A') + C(h, ref='3') | C(g, ref='A'):x"


COLUMNS = ["c", "Y", "b", "T", "a x", "d"]
DOTS = [
    ("Y ~ T | .", ["c", "b", "a x", "d"], []),
    ("Y ~ T | C(c) + .", ["C(c)", "b", "a x", "d"], []),
    ("Y ~ T | . | d", ["c", "b", "a x"], ["d"]),
    ("Y ~ T | d | .", ["d"], ["c", "b", "a x"]),
    ("Y ~ T | . | .", ["c", "b", "a x", "d"], []),
    ("Y ~ T | d*.", ["d", "c", "b", "a x", "d:c", "d:b", "d:a x"], []),
    ("Y ~ T | . - d", ["c", "b", "a x"], []),
    ("c ~ d | .", ["Y", "b", "T", "a x"], []),
]
"""Formulas of a table with these columns, among which a dot stands for the others."""


@pytest.mark.parametrize(("text", "modifiers", "controls"), GOOD + DOTS)
def test_good_formulas(text, modifiers, controls):
    formula = CausalFormula.parse(text, COLUMNS if (text, modifiers, controls) in DOTS else None)
    assert [t.name for t in formula.modifiers] == modifiers
    assert [t.name for t in formula.controls] == controls
    again = CausalFormula.parse(expanded(formula))
    assert expanded(again) == expanded(formula)
    assert (again.modifiers, again.controls) == (formula.modifiers, formula.controls)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("Y ~ T | .", ["Y", "T"], "all columns are used"),
        ("Y ~ T | .", ["Y", "T", 3], "plain column names"),
        ("Y ~ T | .", ["Y", "T", "a\x00"], "plain column names"),
        ("Y ~ T | .", ["Y", "T", "a`b"], "quotation mark in its name"),
        ("Y ~ T | .", ["Y", "T", "__class__"], "two underscores"),
        ("Y ~ T | .", ["Y", "T", *(f"x{i}" for i in range(501))], "more than 500 terms"),
        ("Y ~ T | .**2", ["Y", "T", *(f"x{i}" for i in range(40))], "more than 500 terms"),
        ("Y ~ T | .**3", ["Y", "T", *(f"x{i}" for i in range(400))], "more than 500 terms"),
        ("Y ~ T | agee", ["Y", "T", "age", "sex"], "Column 'agee' is not in the data"),
        ("Y ~ T | agee", ["Y", "T", "age", "sex"], "Similar columns: 'age'."),
        ("Z ~ T", ["Y", "T"], "Column 'Z' is not in the data"),
        ("Y ~ T | my col", ["Y", "T", "my col"], "Write `my col`."),
        ("Y ~ my col | X", ["Y", "X", "my col"], "Write `my col`."),
        ("my col ~ T | X", ["X", "T", "my col"], "Write `my col`."),
        ("Y ~ T | C(my col)", ["Y", "T", "my col"], "Write `my col`."),
        ("Y ~ T | my-col", ["Y", "T", "my-col"], "Similar columns: `my-col`."),
        ("Y ~ T | `my cols`", ["Y", "T", "my col"], "Similar columns: `my col`."),
        ("Y ~ T | C(np)", ["Y", "T"], "'np' is not in the data. Columns of the data: 'Y', 'T'."),
    ],
)
def test_column_names_are_checked(text, columns, message):
    assert message in refusal(text, columns)


def test_columns_may_be_any_sequence():
    index = pd.Index(COLUMNS)
    assert CausalFormula.parse("Y ~ T | .", index) == CausalFormula.parse("Y ~ T | .", COLUMNS)


# formulaic evaluates what is left, and learns from the skeleton only


def frame(formula, lo, hi, rows):
    data = {name: np.linspace(lo, hi, rows) for name in formula.variables[2:]}
    for name in formula.categorical:
        data[name] = pd.Categorical.from_codes(np.arange(rows) % 3, categories=["u", "v", "w"])
    return pd.DataFrame(data, index=range(rows))


@pytest.mark.parametrize("text", [g[0] for g in GOOD if g[1] and "knots" not in g[0]])
def test_terms_materialise_on_a_skeleton_and_learn_nothing_later(text):
    from formulaic import model_matrix

    formula = CausalFormula.parse(text)
    skeleton, rows = frame(formula, 0.1, 2, 60), frame(formula, 0.5, 1, 9)
    both = pd.concat([rows, frame(formula, 0.1, 2, 5)], ignore_index=True)
    terms = formulaic_terms(formula.modifiers)
    fitted = model_matrix(terms, skeleton, context=ENVIRONMENT, na_action="ignore")
    spec = fitted.model_spec
    state = repr(spec.transform_state)
    alone = np.asarray(spec.get_model_matrix(rows, context=ENVIRONMENT), dtype=float)
    among = np.asarray(spec.get_model_matrix(both, context=ENVIRONMENT), dtype=float)
    assert "Intercept" in fitted.columns
    assert len({frozenset(f.expr for f in t.factors) for t in spec.formula}) == len(spec.formula)
    assert np.isfinite(alone).all()
    np.testing.assert_array_equal(alone, among[:9])
    assert repr(spec.transform_state) == state


@pytest.mark.parametrize(
    "factor",
    [
        Factor("__import__('os').getcwd()", "function", ("x",)),
        Factor("I(open('x'))", "function", ("x",)),
        Factor("scale(z)", "function", ("x",)),
        Factor("C(g, contr.custom(open('x')))", "contrast", ("g",)),
        Factor("I(x > 3)", "function", ("x",), total=False),
        Factor("log(z)", "function", ("x",), total=False),
        Factor("log(x)", "categorical", ("x",), total=False),
        Factor("poly(x, 2)", "poly", ("x",)),
    ],
)
def test_a_factor_that_was_not_parsed_is_never_evaluated(factor):
    with pytest.raises(FormulaError):
        formulaic_terms([Term(factor.expr, (factor,))])


def test_arithmetic_is_what_it_says():
    from formulaic import model_matrix

    formula = CausalFormula.parse("Y ~ T | I(x^2 + 1) + log(x) + I(x * 10**10 / `a b`) + s(x, k=5)")
    data = pd.DataFrame({"x": [1.0, 2.0], "a b": [2.0, 4.0]})
    got = np.asarray(model_matrix(formulaic_terms(formula.terms), data, context=ENVIRONMENT))
    np.testing.assert_allclose(got.T, [[1, 1], [2, 5], [0, np.log(2)], [5e9, 5e9], [1, 2]])


def test_functions_give_no_warning_about_a_value():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("log", "sqrt"):
            assert np.isnan(ENVIRONMENT[name](np.array([-1.0]))).all()
        assert np.isinf(ENVIRONMENT["exp"](np.array([1e6]))).all()


def test_why_names_that_are_too_alike_are_refused():
    """formulaic then forgets what it learnt on the skeleton and learns from the rows."""
    from formulaic import model_matrix

    skeleton = pd.DataFrame({"a b": np.linspace(0, 1, 9), "a_b": np.linspace(0, 1, 9)})
    spec = model_matrix("poly(`a b`, 2)", skeleton).model_spec
    # rows ten times smaller give the same columns
    small, large = (np.asarray(spec.get_model_matrix(rows)) for rows in (skeleton / 10, skeleton))
    np.testing.assert_allclose(small, large, atol=1e-12)
    assert "too similar" in refusal("Y ~ T | poly(`a b`, 2) + a_b")


# Nothing runs


WATCHED = {"exec", "import", "open", "os.system", "subprocess.Popen"}
WATCHED |= {"builtins.breakpoint", "builtins.input"}


class Watch:
    """Which audit events Python raised while it was on."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.on and event in WATCHED:
            self.seen.append((event, args))


WATCH = Watch()


def parse_or_refuse(text):
    try:
        return CausalFormula.parse(text)
    except FormulaError:
        return None


@pytest.fixture(scope="module")
def watch():
    for text in ["Y ~ T | C(g)*x + log(x)", "Y ~ T | x +", "Y ~ T | np.log(x)", "Y ~ T | I(x"]:
        parse_or_refuse(text)  # imports what it needs
    return WATCH


def watched(watch, text):
    watch.seen.clear()
    watch.on = True
    begin = time.process_time()
    try:
        formula = parse_or_refuse(text)
    finally:
        watch.on = False
    assert time.process_time() - begin < 2
    assert watch.seen == []
    return formula


def test_the_watch_sees(watch):
    watch.on = True
    eval("1 + 1")
    watch.on = False
    assert watch.seen
    watch.seen.clear()


ATTACKS = [
    "__import__('os').system('touch {0}')",
    "open('{0}', 'w')",
    'exec(\'open("{0}", "w")\')',
    "[open('{0}', 'w') for i in (1,)]",
    "(lambda: open('{0}', 'w'))()",
    "np.lib.npyio.open('{0}', 'w')",
    'f\'{{open("{0}", "w")}}\'',
    "().__class__.__base__.__subclasses__()",
    "C.__globals__['__builtins__']['open']('{0}', 'w')",
    "getattr(__builtins__, 'open')('{0}', 'w')",
    "open('{0}', 'w').x()",
    "I(__import__('pathlib').Path('{0}').touch())",
    "I(X1 if open('{0}', 'w') else X1)",
    "C(G, ref=open('{0}', 'w'))",
    "np.save('{0}', X1)",
    "@open('{0}', 'w')",
    "X1 + (y := open('{0}', 'w'))",
    "`X1`.to_csv('{0}')",
    "log(X1, out=open('{0}', 'w'))",
    "poly(X1, degree=breakpoint())",
    "X1\nimport os",
    "X1; open('{0}', 'w')",
]
PLACES = [
    "{} ~ T | X",
    "Y ~ {} | X",
    "Y ~ T | {}",
    "Y ~ T | X | {}",
    "Y ~ T | I({})",
    "Y ~ T | C({})",
    "Y ~ T | C(x, ref={})",
    "Y ~ T | C(x, {})",
    "Y ~ T | poly(x, {})",
    "Y ~ T | bs(x, knots=[{}])",
    "Y ~ T | s(x, k={})",
    "Y ~ T | {{{}}}",
    "Y ~ T | X:{}",
    "Y ~ T | (X + {})**2",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_code_in_a_formula_never_runs(watch, tmp_path, attack, place):
    canary = tmp_path / "ran"
    assert watched(watch, place.format(attack.format(canary))) is None
    assert not canary.exists()


SYMBOLS = [*"YTXabsx~|+-*:/^.()[]{},='\"`#@!%&;\\ \n\x00é年ﬁ²", "**", " + ", "Y ~ T | "]
CALLS = ["C(", "log(", "I(", "bs(", "poly(x, 2)", "s(x)", "knots=[", "ref='A'", "df=", "`my col`"]
PYTHON = ["lambda", "__import__", "('os')", ".system", "if", "else", "for", "in"]
PIECES = st.sampled_from(SYMBOLS + CALLS + PYTHON + ["1e9", "9**9", "0"])
QUICK = settings(max_examples=400, deadline=2_000, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@QUICK
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["{}", *PLACES]))
def test_fuzz_inside_a_formula(watch, text, place):
    watched(watch, place.format(text))


@pytest.mark.slow
@QUICK
@given(st.text(max_size=200))
def test_fuzz_any_text(watch, text):
    watched(watch, text)
    watched(watch, f"Y ~ T | `{text}` + I({text})")


NAMES = st.sampled_from(["a", "b", "c", "C(g)", "log(a)", "I(b**2)", "`d e`", "(a + b)", "1 + a"])
SUMS = st.lists(NAMES, min_size=1, max_size=5)


@pytest.mark.slow
@QUICK
@given(SUMS, st.sampled_from([" + ", " - ", "*", ":", "/", " %in% "]), SUMS)
def test_fuzz_agrees_with_formulaic(first, sign, second):
    """What we accept has formulaic's terms."""
    from formulaic import Formula

    part = " + ".join(first) + sign + "*".join(second)
    formula = parse_or_refuse(f"Y ~ T | {part}")
    if formula is not None:
        theirs = {frozenset(f.expr for f in t.factors) for t in Formula(part)} - {frozenset("1")}
        ours = [frozenset(f.expr for f in t.factors) for t in formula.modifiers]
        assert len(set(ours)) == len(ours)
        assert set(ours) == theirs


LONG = [
    "+" * 9_900 + "a",
    "-+" * 4_900 + "a",
    "a-" * 4_900 + "a",
    "a:" * 4_900 + "a",
    "+1" * 4_900,
    "a." * 4_900 + "a",
    "`" * 9_900,
    "'\"" * 4_900,
    "(" * 9_900,
    "()" * 4_900,
    "log(" * 2_400,
    "I(" + "(" * 480 + "x" + ")" * 480 + ")",
    "I(" + "x**" * 300 + "2)",
    "I(" + "9" * 990 + "*x)",
    "I(x" + ".y" * 490 + ")",
    "I(" + "[" * 990 + ")",
    " + ".join(f"log(x{i})" for i in range(480)),
    " + ".join(["(a + b + c + d + e + f + g + h + i + j + k + l + m + n)**3"] * 100),
    "(" * 30 + "a + b" + ")**3" * 30,
    "*".join(["(a + b + c + d + e + f + g)"] * 300),
]


@pytest.mark.parametrize("text", LONG)
def test_long_formulas_are_quick(watch, text):
    watched(watch, f"Y ~ T | {text}")


def test_every_function_has_a_good_example():
    for name in FUNCTIONS:
        assert any(f"{name}(" in text for text, *_ in GOOD)
