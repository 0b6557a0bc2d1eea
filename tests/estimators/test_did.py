"""Differences in differences: the textbook's numbers, the rule for units, words and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import made_again, private, seedable
from hypothesis import given, settings
from hypothesis import strategies as st
from test_estimands import Seen
from textbook import textbook

import privcausal as pc
from privcausal.errors import PrivcausalError
from privcausal.testing import seeded_noise

BOUNDS: dict[str, Any] = {"Y": (-5, 10), "X": (0, 1), "Z": (-1, 1), "G": ["a", "b"]}
FORMULA = "Y ~ T | X + Z"


def study(n: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Two rows of each unit; who is treated, and how Y would change, depend on X. The ATT is 1."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0, 1, n), rng.uniform(-1, 1, n)
    d = (rng.random(n) < 0.3 + 0.4 * x).astype(int)
    before = 2 + x + 2 * d + rng.normal(0, 1, n)
    after = before + 0.5 + x - 0.3 * z + d + rng.normal(0, 0.5, n)
    columns = {"id": np.tile(np.arange(n), 2), "year": np.repeat([2018, 2019], n)}
    columns |= {"Y": np.r_[before, after].clip(-5, 10), "T": np.r_[np.zeros(n, int), d]}
    columns |= {"X": np.r_[x, rng.uniform(0, 1, n)], "Z": np.tile(z, 2)}
    frame = pd.DataFrame(columns | {"G": np.tile(np.where(x < 0.5, "a", "b"), 2)})
    return frame.sample(frac=1.0, random_state=1)


@seedable
def did(frame: Any, formula: str = FORMULA, **options: Any) -> Any:
    options = {"bounds": BOUNDS, "periods": (2018, 2019), "time": "year", "unit": "id", **options}
    return pc.did(formula, frame, **options)


def noiseless(frame: Any, formula: str = FORMULA, **options: Any) -> Any:
    with textbook():
        return did(frame, formula, **options)


def changes(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each unit with one row of each year that was not treated before, by pandas."""
    wide = frame[frame["year"].isin([2018, 2019])]
    once = ~wide.duplicated(["id", "year"], keep=False)
    one, two = (wide[once & (wide["year"] == year)].set_index("id") for year in (2018, 2019))
    both = one.join(two[["Y", "T"]], rsuffix="_after", how="inner")
    both = both[both["T"] == 0].assign(Y=lambda b: b["Y_after"] - b["Y"], T=lambda b: b["T_after"])
    return both[["Y", "T", "X", "Z", "G"]].dropna()


# -- without noise -------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
def test_without_covariates_it_is_ols_with_an_interaction(relation: str) -> None:
    frame = study()
    treated = frame[frame["year"] == 2019].set_index("id")["T"]
    long = frame.assign(treat=frame["id"].map(treated), post=(frame["year"] == 2019).astype(int))
    ols = smf.ols("Y ~ treat + post + treat:post", long).fit()
    fit = noiseless(frame, "Y ~ T", neighbors=relation, groups=["G"])
    assert fit.params["ATT"] == pytest.approx(ols.params["treat:post"], abs=1e-6)
    # the change by unit is what OLS takes to be two independent rows
    own = smf.ols("Y ~ T", changes(frame)).fit(cov_type="HC2")
    assert fit.ate["std_error"].iloc[0] == pytest.approx(own.bse["T"], rel=1e-5)
    for label in ("a", "b"):
        inside = smf.ols("Y ~ T", changes(frame).query("G == @label")).fit()
        assert fit.gate.loc[f"G[{label}]", "estimate"] == pytest.approx(
            inside.params["T"], abs=1e-6
        )


def sant_anna_zhao(y: Any, t: Any, e: Any, mu0: Any, *, normed: bool = False) -> float:
    """E[(w1 - w0)(dY - mu0)] with w1 = D / E[D] and w0 = (1 - D) e / (1 - e) over its mean."""
    odds = (1 - t) * e / (1 - e)
    w0 = odds / (odds.mean() if normed else t.mean())
    return float(np.mean((t / t.mean() - w0) * (y - mu0)))


@pytest.mark.parametrize("base", ["linear", "gam"])
def test_with_covariates_it_is_the_doubly_robust_estimate(base: str) -> None:
    frame = study()
    own = changes(frame)
    fit = noiseless(frame, base=base)
    seen = Seen(fit, own, 0.1)
    exact = sant_anna_zhao(seen.y, seen.t, seen.capped, seen.mu0)
    assert fit.params["ATT"] == pytest.approx(exact, abs=1e-6)
    # with nuisances by least squares, found without the package
    x = np.c_[np.ones(len(own)), own["X"], own["Z"]]
    y, t = own["Y"].to_numpy(), own["T"].to_numpy()
    mu0 = x @ np.linalg.lstsq(x[t == 0], y[t == 0], rcond=None)[0]
    e = x @ np.linalg.lstsq(x, t.astype(float), rcond=None)[0]
    for normed in (False, True):
        found = sant_anna_zhao(y, t, e, mu0, normed=normed)
        assert fit.params["ATT"] == pytest.approx(found, abs=1e-3 if base == "linear" else 2e-2)
    # and not what ignores that trends depend on X
    naive = own.groupby("T")["Y"].mean()
    assert naive[1] - naive[0] > fit.params["ATT"] + 0.1


def test_it_is_the_effect_on_the_treated_of_changes() -> None:
    """To the last bit that of `private` on the rows that were made beforehand."""
    frame = study(600)
    own = changes(frame).sort_index(key=lambda names: names.astype(str)).reset_index()
    one = did(frame, groups=["G"], seed=4)
    options = {"unit": "id", "max_rows": 1, "bounds": BOUNDS | {"Y": (-15, 15)}}
    two = private(FORMULA, own, estimand="ATT", groups=["G"], **options, seed=4)
    assert one.tidy().equals(two.tidy())


def test_units_that_do_not_count() -> None:
    frame = study(400).sort_values(["id", "year"], ignore_index=True)
    frame[["Y", "X", "T"]] = frame[["Y", "X", "T"]].astype(float)
    frame.loc[0, "T"] = 1.0  # treated before
    frame.loc[2, "Y"] = frame.loc[5, "T"] = frame.loc[6, "X"] = np.nan  # of units 1, 2 and 3
    frame.loc[[9, 11], "X"] = np.nan  # after: not asked for
    more = [frame.iloc[[12, 15]], frame.iloc[20:30].assign(year=2020), frame.assign(year=np.nan)]
    odd = pd.concat([frame.drop(index=16), *more])  # units 6 and 7 twice, unit 8 once
    assert len(changes(odd)) == 400 - 7
    ols = smf.ols("Y ~ T", changes(odd).assign(Y=lambda d: d["Y"])).fit()
    with_x = noiseless(odd, "Y ~ T | X")
    assert with_x.estimate.averages.size == pytest.approx(393, abs=1e-6)
    plain = noiseless(odd[odd["id"] != 3], "Y ~ T")
    assert plain.params["ATT"] == pytest.approx(ols.params["T"], abs=1e-6)


KINDS: dict[str, Any] = {
    "bool": (lambda y: y > 2.5, {}),
    "labels": (lambda y: np.where(y > 2.5, "yes", "no"), {"Y": ["no", "yes"]}),
    "0/1": (lambda y: (y > 2.5).astype(int), {"Y": [0, 1]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_of_two_values(kind: str) -> None:
    frame = study(800)
    coded, bounds = KINDS[kind]
    ols = smf.ols("Y ~ T", changes(frame.assign(Y=(frame["Y"] > 2.5).astype(float)))).fit()
    others = {name: BOUNDS[name] for name in "XZG"}
    labelled = frame.assign(Y=coded(frame["Y"]), T=frame["T"].map({0: "off", 1: "on"}))
    fit = noiseless(labelled, "Y ~ T", bounds=others | bounds | {"T": ["off", "on"]})
    assert fit.params["ATT"] == pytest.approx(ols.params["T"], abs=1e-6)
    head = fit.summary(full=True).tables[0]["value"]
    assert (head["Dep. variable"], head["Outcome bounds"]) == ("change in Y", "[-1, 1]")


def test_text_periods_and_levels_that_are_bought() -> None:
    frame = study(3000).assign(year=lambda d: np.where(d["year"] == 2018, "spring", "autumn"))
    bounds = {"year": ["spring", "autumn"], "Y": (-5, 10)}
    fit = noiseless(frame, "Y ~ T | C(G)", periods=None, eps=50.0, bounds=bounds)
    assert fit.schema["G"].values == ("a", "b")
    assert fit.params["ATT"] == pytest.approx(1.0, abs=0.2)
    again = noiseless(frame, "Y ~ T | C(G)", periods=None, bounds=fit.schema)  # which is declared
    assert "bounds" not in set(again.budget["stage"])
    head = again.summary(full=True).tables[0]["value"]
    assert (head["Dep. variable"], head["Outcome bounds"]) == ("change in Y", "[-15, 15]")


# -- what is said --------------------------------------------------------------------------------


def test_words() -> None:
    with seeded_noise(1):
        fit, plain = did(study()), did(study(), "Y ~ T")
    for one, shown in ((fit, "requires conditional parallel trends"), (plain, "no anticipation")):
        text = str(one.summary(full=True))
        assert "Private Difference-in-Differences" in text
        assert "change in Y" in text
        assert "[-15, 15]" in text
        assert "2018 to 2019" in text
        assert "at random" not in text
        assert "Units:" in text
        assert shown in " ".join(text.split())
        assert one.guarantee.unit == "one id (all rows)"
        assert "Sant'Anna" in one.methods
        assert not one.sensitivity().randomised
    assert "unmeasured confounding" not in str(fit.summary(full=True))


@pytest.mark.slow
def test_it_goes_where_results_go(page_of: Any, reloaded: Any) -> None:
    frame = study()
    fit = did(frame, groups=["G"], seed=2)
    assert made_again(fit, frame, seed=2).tidy().equals(fit.tidy())
    again = reloaded(fit)
    assert str(again.summary(full=True)) == str(fit.summary(full=True))
    assert again.glance().equals(fit.glance())
    assert "Difference-in-Differences" in page_of(fit)
    other = pc.compare({"DiD": fit, "loaded": again})
    assert "ATT" in str(other)
    with seeded_noise(3):
        assert len(again.balance(frame, eps=1.0).frame) >= 2


def test_the_ledger_holds_the_unit(tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=1.2, delta=1e-5)
    did(study(), ledger=ledger)
    assert set(ledger.history["unit"]) == {"id (all rows)"}
    with pytest.raises(pc.BudgetError, match="Not enough budget"):
        did(study(), ledger=ledger)


@pytest.mark.slow
def test_it_is_planned_as_the_fit_on_changes() -> None:
    fit = did(study(4000), seed=5)
    plan = pc.plan(
        FORMULA, n=4000, unit="id", max_rows=1, estimand="ATT", outcome_sd=0.6, r2=0.31,
        bounds=BOUNDS | {"Y": (-15, 15)},
    )  # fmt: skip
    low, high = fit.conf_int().loc["ATT"]
    # of the change's variance, 0.36, X explains 1/12 and Z 0.03
    assert float(plan.table["half-width to"].iloc[0]) / plan.planner.ends[1] == pytest.approx(
        (high - low) / 2, rel=0.5
    )


# -- refusals ------------------------------------------------------------------------------------

ODD = st.sampled_from(
    [0, 1, 2018, 2019, 2.5, -1e308, np.nan, np.inf, None, "2018", "77310.41", "yes", b"2019", True,
     pd.Timestamp("2018-01-01"), 10**400, (1, 2), 77310.41]
)  # fmt: skip
DTYPES = ("object", "float64", "int64", "bool", "str", "category", "datetime64[ns]", "Int64")


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_rows_hold_nothing_of_them_is_told(data: Any) -> None:
    """Any values of any type in the columns of units, periods and treatment."""
    n, kinds = 8, {name: data.draw(st.sampled_from(DTYPES)) for name in ("id", "year", "T")}
    told = []
    for _ in range(2):
        frame = pd.DataFrame({"Y": np.linspace(0, 1, n), "X": np.linspace(0, 1, n)})
        for name, dtype in kinds.items():
            cells = data.draw(st.lists(ODD, min_size=n, max_size=n))
            column = pd.Series(cells, dtype=object)
            try:
                frame[name] = column.astype(dtype)
            except Exception:  # this type does not hold these values
                values = {"category": "a", "str": "a", "datetime64[ns]": "2018-01-01"}
                frame[name] = pd.Series([values.get(dtype, 1)] * n).astype(dtype)
        with seeded_noise(1):
            try:
                did(frame, "Y ~ T | X", neighbors="add_remove")  # also how many there are
                told.append("")
            except PrivcausalError as error:
                told.append(f"{type(error).__name__}: {error}")
    assert told[0] == told[1]
    assert "77310" not in told[0]


@pytest.mark.parametrize("formula", ["Y ~ E", "Y ~ E | X"])
def test_the_ever_treated_are_told_to_be_multiplied_by_the_period(formula: str) -> None:
    """By the noisy count of treated units alone, all of which count as missing."""
    frame = study()
    frame["E"] = frame.groupby("id")["T"].transform("max")
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="must be 0 in the first period"):
        wrong = did(frame, formula)
    assert "df['treated'] * df['post']" in wrong.alerts["arm"]
    with seeded_noise(1):
        assert "arm" not in did(frame, formula.replace("E", "T")).alerts
