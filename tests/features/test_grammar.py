"""Every row of the guide's table of terms, and values equal to formulaic's on the skeleton."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fit_helpers import privcate
from hypothesis import given, settings
from hypothesis import strategies as st

import privcausal as pc
from privcausal.features.design import Design, formulaic_terms
from privcausal.request.formula import ENVIRONMENT, CausalFormula
from privcausal.request.schema import Schema
from privcausal.testing import zero_noise

GUIDE = Path(__file__).parents[2] / "vignettes" / "reference" / "guide.md"
BOUNDS: dict[str, Any] = {"Y": (0, 1), "x": (0, 10), "z": (-1, 2), "w": (1, 3), "g": [*"abc"]}


def table() -> list[tuple[str, str]]:
    """Term and what the guide says of it."""
    section = GUIDE.read_text(encoding="utf-8").split("## Terms", maxsplit=1)[1]
    found = []
    for line in section.split("\n## ", maxsplit=1)[0].splitlines():
        if line.startswith("| `"):
            term, says = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            found.append((term.strip("`").replace("\\|", "|"), says))
    return found


def rows(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({name: rng.uniform(*BOUNDS[name], n) for name in ("x", "z", "w")})
    frame["g"] = rng.choice(["a", "b", "c"], n)
    frame["T"] = rng.integers(0, 2, n)
    frame["Y"] = np.clip(0.05 * frame["x"] + 0.2 * frame["T"] + rng.uniform(0, 0.3, n), 0, 1)
    return frame


def fitted(term: str, frame: Any, **options: Any) -> Any:
    bounds = {k: v for k, v in BOUNDS.items() if not (k == "g" and "levels=" in term)}
    text = term if " ~ " in term else f"Y ~ T | {term}"
    return privcate(text, frame, bounds=bounds, learner="r", base="linear", **options, exact=True)


AS_IN_R = [
    "x + z + x:z",
    "x*z*w*C(g)",
    "C(g)/x",
    "C(g, contr.sum)",
    "C(g, contr.helmert)",
    "C(g, contr.poly)",
    "log(w) + log10(w) + np.log2(w)",
    "log1p(x) + expm1(z) + sqrt(x)",
    "abs(z) + sin(x) + cos(x)",
    "scale(x, 40, 12)",
    "poly(x, 3)",
    "poly(x, 3, raw=True)",
    "bs(x, knots=[2, 5])",
]
"""The guide names these terms without a row."""
ACCEPTED = AS_IN_R + [term for term, says in table() if says == "yes"]
REFUSED = [(term, says) for term, says in table() if says != "yes"]


@pytest.mark.parametrize("term", ACCEPTED)
def test_a_term_of_the_guide_fits(term: str) -> None:
    fit = fitted(term, rows())
    assert np.isfinite(fit.predict(rows(5))["estimate"]).all()


@pytest.mark.parametrize(("term", "reason"), REFUSED)
def test_a_refused_term_says_the_guides_reason(term: str, reason: str) -> None:
    with pytest.raises(pc.PrivcausalError) as caught:
        fitted(term, rows())
    assert reason.removeprefix("no: ") in str(caught.value)


@pytest.mark.slow
def test_files_and_other_frames(tmp_path: Path, reloaded: Any) -> None:
    term = "cr(x, df=4) + C(g, contr.sum) + I(x > 3) + scale(z) + log10(w)"
    frame = rows()
    frame.to_parquet(tmp_path / "rows.parquet")
    fit = fitted(term, frame)
    again = reloaded(fit)
    odd = frame.head(6).copy()
    odd.loc[0, "x"], odd.loc[1, "x"], odd.loc[2, "z"], odd.loc[3, "g"] = np.nan, np.inf, -1e9, None
    told = fit.predict(odd)["estimate"]
    assert np.array_equal(told, again.predict(odd)["estimate"], equal_nan=True)
    for other in (pl.from_pandas(frame), str(tmp_path / "rows.parquet")):
        own = fitted(term, other).predict(frame.head(6))["estimate"]
        np.testing.assert_allclose(own, fit.predict(frame.head(6))["estimate"], rtol=1e-9)


@pytest.mark.parametrize(
    ("outcome", "function"),
    [("log(W)", np.log), ("I(W > 2)", lambda w: w > 2), ("I(3 - W**2)", lambda w: 3 - w**2)],
)
@pytest.mark.parametrize("learner", ["private", "r", "adum"])
def test_a_function_of_the_outcome_is_a_column_made_beforehand(
    outcome: str, function: Any, learner: str, reloaded: Any
) -> None:
    """Rows are cut to the bounds, then mapped; the domain is what the function has on them."""
    frame = rows(400).assign(W=lambda d: d["w"] + 3 * d["T"] - 1)  # beyond (1, 3) on both sides
    own = function(np.clip(frame["W"], 1, 3)).astype(float)
    ends = sorted(float(function(np.float64(end))) for end in (1, 3))
    ask = pc.private if learner == "private" else pc.privcate
    options = {} if learner == "private" else {"learner": learner}
    given = {"x": (0, 10), "W": (1, 3), "own": tuple(ends)}
    with zero_noise():
        fit = ask(f"{outcome} ~ T | x", frame, bounds=given, **options)
        same = ask("own ~ T | x", frame.assign(own=own), bounds=given, **options)
    columns = ["estimate", "std_error"]
    told, wanted = (f.tidy()[columns].to_numpy(float) for f in (fit, same))
    np.testing.assert_allclose(told, wanted, rtol=1e-5, atol=1e-7)
    assert outcome.replace(" ", "") in str(fit.summary()).replace(" ", "")
    assert reloaded(fit).tidy().equals(fit.tidy())


@pytest.mark.slow
def test_a_function_of_the_outcome_is_planned_as_its_own_column() -> None:
    given: dict[str, Any] = {"x": (0, 10), "W": (1, 9)}
    made = {"x": (0, 10), "own": (0.0, float(np.log(9)))}
    plans = [
        pc.plan(f"{text} ~ T | x", n=2000, eps=1, bounds=bounds).table
        for text, bounds in (("log(W)", given), ("own", made))
    ]
    pd.testing.assert_frame_equal(*plans, rtol=1e-6)


TERMS = [
    "log10(w)", "log2(w)", "np.log1p(x)", "expm1(z)", "abs(z)", "sin(x)", "cos(x)", "tan(z / 2)",
    "scale(x)", "center(z)", "poly(x, 3, raw=True)", "poly(z, 2)", "C(g, contr.sum)",
    "C(g, contr.helmert)", "C(g, contr.poly)", "C(g, contr.diff)", "cc(x, df=4)",
    "cr(w, df=5, constraints='center')", "bs(x, knots=[2, 5])", "I((x > 3) & (z < 1))",
    "x:z:w:C(g)",
]  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=3, unique=True), st.integers(0, 10**6))
@settings(deadline=None, database=None, max_examples=60)
def test_values_are_formulaics_on_the_skeleton(terms: list[str], seed: int) -> None:
    """Every kept column, unscaled, is formulaic's own, learnt from the public skeleton alone."""
    from formulaic import model_matrix

    formula = CausalFormula.parse(f"Y ~ T | {' + '.join(terms)}")
    design = Design(formula.terms, Schema.of(BOUNDS), full_rank=True)
    rng = np.random.default_rng(seed)
    frame: dict[str, Any] = {v: rng.uniform(*BOUNDS[v], 20) for v in "xzw"}
    frame["g"] = rng.integers(0, 3, 20)
    skeleton, data = design._skeleton(), design._as_frame({v: frame[v] for v in design.variables})
    spec = model_matrix(
        formulaic_terms(formula.terms), skeleton, context=ENVIRONMENT, na_action="ignore"
    ).model_spec
    theirs = spec.get_model_matrix(data, context=ENVIRONMENT).astype(float)
    got = design.scaled({v: frame[v] for v in design.variables}, 20)
    for j, column in enumerate(design.columns):
        own = column.scale(theirs[column.name].to_numpy())
        np.testing.assert_allclose(got[:, j], own, rtol=0, atol=1e-12)


ROW_MAPS = [
    *TERMS, "cr(x, df=5, constraints='center')", "cs(x, df=4, constraints='center')",
    "cc(x, df=5, constraints='center')", "cr(x, df=30, constraints='center')", "cs(x, df=30)",
    "bs(x, df=9, degree=5)", "poly(x, 5)",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("term", ROW_MAPS)
def test_a_rows_values_are_the_same_bits_in_any_block(term: str) -> None:
    """Alone, with one or two others, or with all: else a row's value would tell of others."""
    formula = CausalFormula.parse(f"Y ~ T | {term}")
    design = Design(formula.terms, Schema.of(BOUNDS), full_rank=True)
    rng = np.random.default_rng(7)
    frame: dict[str, Any] = {v: rng.uniform(*BOUNDS[v], 120) for v in "xzw"}
    frame["g"] = rng.integers(0, 3, 120)
    frame = {v: frame[v] for v in design.variables}
    whole = design.scaled(frame, 120)
    for size in (1, 2, 3, 7):
        blocks = [
            design.scaled({v: c[k : k + size] for v, c in frame.items()}, min(size, 120 - k))
            for k in range(0, 120, size)
        ]
        assert np.concatenate(blocks).tobytes() == whole.tobytes()
