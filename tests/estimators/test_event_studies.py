"""Event studies: the numbers of R's did, the rule for units, small cohorts, words and refusals."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import made_again, view_of
from scipy.stats import chi2, norm

import privcausal as pc
from privcausal.errors import PrivcausalError
from privcausal.testing import seeded_noise, zero_noise

REFERENCE = Path(__file__).parents[1] / "reference"
BOUNDS: dict[str, Any] = {"lemp": (0, 12), "first.treat": [0, 2004, 2006, 2007]}
CALL: dict[str, Any] = {
    "unit": "countyreal", "time": "year", "cohort": "first.treat",
    "periods": [2003, 2004, 2005, 2006, 2007], "bounds": BOUNDS,
}  # fmt: skip


def mpdta() -> pd.DataFrame:
    return pd.read_csv(REFERENCE / "mpdta.csv")


def study(frame: Any, formula: str = "lemp ~ 1", **options: Any) -> Any:
    return pc.did(formula, frame, **{**CALL, **options})


def noiseless(frame: Any, **options: Any) -> Any:
    with zero_noise():
        return study(frame, **options)


def noisy(seed: int = 1, **options: Any) -> Any:
    with warnings.catch_warnings(), seeded_noise(seed):
        warnings.simplefilter("ignore")
        return study(mpdta(), **options)


def estimates(fit: Any) -> pd.Series[float]:
    return pd.concat([fit.params, fit.gate["estimate"]])


@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
@pytest.mark.parametrize("controls", ["nevertreated", "notyettreated"])
def test_without_noise_the_numbers_are_those_of_did(controls: str, relation: Any) -> None:
    want = pd.read_csv(REFERENCE / "att_gt.csv", index_col="term")
    fit = noiseless(mpdta(), control_group=controls, neighbors=relation)
    found = estimates(fit)[want.index]
    which = "never" if controls == "nevertreated" else "later"
    np.testing.assert_allclose(found, want[which], atol=1e-6)
    if controls == "nevertreated":
        np.testing.assert_allclose(found.round(4), want["printed"], atol=1e-9)
        assert fit.pretrends().pvalue == pytest.approx(0.16812, abs=5e-6)  # as did prints
        assert fit.pretrends().df_denom == 5


def test_standard_errors_are_those_of_influence_functions() -> None:
    """The mean square of the influence function of each effect, and of the overall average."""
    frame = mpdta()
    y = frame.pivot(index="countyreal", columns="year", values="lemp")
    first, fit = frame.groupby("countyreal")["first.treat"].first(), noiseless(frame)
    psi, never = {}, first.eq(0)
    pairs = [(g, t) for g in (2004, 2006, 2007) for t in range(2004, 2008)]
    for g, t in pairs:
        change, own = y[t] - y[g - 1 if t >= g else t - 1], first.eq(g)
        left = [one * (change - change[one].mean()) / one.mean() for one in (own, never)]
        psi[g, t] = left[0] - left[1]
        se = np.sqrt((psi[g, t] ** 2).mean() / len(y))
        assert fit.bse[f"ATT({g}, {t})"] == pytest.approx(se, rel=1e-5)
    after = [(g, t) for g, t in pairs if t >= g]
    total = sum(first.eq(g).mean() for g, _ in after)
    overall = fit.gate.loc["overall"]
    whole = sum(
        first.eq(g).mean() * psi[g, t]
        + (first.eq(g) - first.eq(g).mean()) * (fit.params[f"ATT({g}, {t})"] - overall["estimate"])
        for g, t in after
    )
    assert overall["std_error"] == pytest.approx(
        np.sqrt((whole**2).mean() / len(y)) / total, rel=1e-5
    )


@pytest.mark.slow
def test_tables_aggregates_and_a_saved_fit(page_of: Any, reloaded: Any) -> None:
    fit = noisy(eps=8)
    again = reloaded(fit)
    assert isinstance(again, pc.EventStudyResult)
    for kind in ("event", "cohort", "calendar", "overall"):
        pd.testing.assert_frame_equal(fit.aggregate(kind), again.aggregate(kind))
    own = fit.aggregate("event")
    assert own.index.tolist() == ["-3", "-2", "-1", "0", "1", "2", "3", "average"]
    assert fit.aggregate("calendar").index.tolist() == [*map(str, range(2004, 2008)), "average"]
    assert fit.aggregate("overall").index.tolist() == ["overall"]
    band = fit.aggregate("event", simultaneous=True)
    assert (band["conf_high"] - band["estimate"] > own["conf_high"] - own["estimate"]).all()
    assert fit.plot_data("event").index.tolist() == own.index[:-1].tolist()
    assert len(fit.plot().lines) > 0
    text = str(fit.summary(full=True))
    for words in ("Private Event Study", "2003 to 2007", "nevertreated", "event[-1]"):
        assert words in text
    assert "cohort='first.treat'" in fit.call
    assert "Callaway" in fit.methods.split("References")[1]
    assert fit.budget["query"].tolist() == ["histogram of sizes of paths", "sums by cohort"]
    page = page_of(fit)
    assert page.index("overall") < page.index("ATT(")
    assert "ATT(2004, 2005)" in page
    _, first, *_ = fit.summary().tables
    assert list(first.index) == ["overall", *(f"event[{at}]" for at in own.index)]
    assert first["estimate"].iloc[0] == fit.aggregate("overall")["estimate"].iloc[0]
    assert "Sources of uncertainty of overall" in " ".join(text.split())
    assert (made_again(fit, mpdta(), seed=1).params == fit.params).all()


@pytest.mark.parametrize(
    ("periods", "events"),
    [
        ([2003, 2005, 2007], ["-2", "0", "2", "average"]),
        ([2003, 2005, 2006], ["-1", "0", "1", "average"]),
        ([0.5, 0.75, 1.25], ["-0.5", "0", "0.5", "average"]),
        ([202311, 202312, 202401], ["-1", "0", "1", "average"]),  # months: no plain numbers
        (["2003-01-01", "2004-01-01", "2005-01-01"], ["-1", "0", "1", "average"]),
    ],
)
def test_event_time_has_the_unit_of_the_periods(periods: list[Any], events: list[str]) -> None:
    frame = mpdta()
    frame = frame[frame["year"] < 2006]
    frame["first"] = np.where(frame["first.treat"].eq(2004), periods[1], periods[2])
    frame["first"] = frame["first"].astype(type(periods[0])).where(frame["first.treat"] > 0, "0")
    frame["wave"] = frame["year"].map(dict(zip([2003, 2004, 2005], periods, strict=True)))
    options = {"time": "wave", "cohort": "first", "periods": periods, "eps": 8}
    levels = [str(value) for value in ("0", *periods[1:])]
    with seeded_noise(1):
        fit = study(frame, **options, bounds={"lemp": (0, 12), "first": levels})
    assert fit.aggregate("event").index.tolist() == events
    assert f"event[{events[-2]}]" in str(fit.summary())
    assert np.isfinite(fit.contrast(f"event[{events[-2]}]").frame["estimate"].iloc[0])


def test_cohorts_that_are_too_small() -> None:
    """An empty cohort has the widest interval; averages leave it out, and an alert names it."""
    frame = mpdta()
    frame = frame[frame["first.treat"] != 2004]
    with pytest.warns(pc.PrivcausalWarning, match="'2004'"), seeded_noise(2):
        fit = study(frame, eps=8)
    assert "cohorts" in fit.alerts
    limits = fit.conf_int().loc["ATT(2004, 2004)"]
    assert limits.tolist() == [-12, 12]
    assert np.isnan(fit.aggregate("event").loc["3", "estimate"])
    with seeded_noise(2):
        others = fit.aggregate("overall").iloc[0]
    assert others["std_error"] < 0.2
    assert fit.plot_data("event").index.tolist()[-1] == "1"
    without = frame[frame["first.treat"] == 0]
    with warnings.catch_warnings(), seeded_noise(2):
        warnings.simplefilter("ignore")
        nothing = study(without, eps=8)
    assert (nothing.conf_int() == [-12, 12]).all(axis=None)
    assert "No cohort" in view_of(nothing).headline[0]


@pytest.mark.slow
def test_the_intervals_cover() -> None:
    """z values of ATT(2007, .) over fits of one table, whose noise is the only error."""
    exact, z = noiseless(mpdta()).params, []
    for seed in range(8):
        fit = noisy(seed, eps=8)
        part = [k for k, term in enumerate(fit.params.index) if "2007, " in term]
        sd = np.sqrt(np.diag(fit.estimate.averages.privacy)[part])
        bias = fit.estimate.averages.clipping[part]
        z += ((np.abs((fit.params - exact).iloc[part]) - bias).clip(lower=0) / sd).tolist()
    assert np.max(z) < norm.isf(1e-6)
    assert np.median(z) < 1.0


def test_twice_the_epsilon_that_a_refusal_names_gives_estimates() -> None:
    """Of 500 units the smaller cohort has 131; detection needs 63, at a noise sd of 21."""
    with pytest.raises(pc.BudgetError, match="For 4 cohorts of equal size") as refused:
        study(mpdta(), eps=0.1)
    enough = re.search(r"eps=([\d.]+)\. No budget was spent", str(refused.value))
    assert enough is not None
    with seeded_noise(1):
        fit = study(mpdta(), eps=2 * float(enough[1]))
    assert fit.tidy()["estimate"].notna().any()


YEARS, FIRST = np.arange(2003, 2008), np.array([0, 2004, 2006, 2007])


def drifting(rng: np.random.Generator, slope: float, size: int = 2500) -> pd.DataFrame:
    """A panel like mpdta whose treated cohorts drift by `slope` a year."""
    own = rng.choice(FIRST, size, p=[0.6, 0.1, 0.15, 0.15])[:, None]
    y = rng.normal(6, 1.2, size)[:, None] + (0.03 + slope * (own > 0)) * (YEARS - 2003)
    y = y - 0.05 * ((own > 0) & (own <= YEARS)) + rng.normal(0, 0.15, y.shape)
    return pd.DataFrame(
        {
            "countyreal": np.repeat(np.arange(size), 5), "year": np.tile(YEARS, size),
            "first.treat": np.repeat(own, 5), "lemp": y.ravel(),
        }
    )  # fmt: skip


def drifted(rng: np.random.Generator, slope: float, seed: int) -> Any:
    with warnings.catch_warnings(), seeded_noise(seed):
        warnings.simplefilter("ignore")
        return study(drifting(rng, slope), eps=1)


@pytest.mark.slow
def test_pretrends_keep_their_power_and_their_size() -> None:
    """At a size of 5%, 12 rejections or more in 40 panels have a probability below 1e-6."""
    rng = np.random.default_rng(3)
    rejected, lost = 0, []
    for seed in range(40):
        fit = drifted(rng, 0.0, seed)
        test, found = fit.pretrends(), fit.estimate.averages
        at = [i for i, name in enumerate(fit.params.index) if name[10:14] < name[4:8]]
        value = found.estimate[at]
        plain = chi2.sf(value @ np.linalg.solve(found.cov[np.ix_(at, at)], value), len(at))
        lost.append(test.pvalue / plain)
        rejected += test.pvalue < 0.05
    assert rejected < 12
    assert np.median(lost) < 1.2


@pytest.mark.slow
def test_the_drift_of_a_pretrend_test_is_rejected_four_times_in_five() -> None:
    """At a power of 80%, 16 rejections of 40 have a chance below 1e-6; at 24%, 27 or more do."""
    rng = np.random.default_rng(4)
    drift = drifted(rng, 0.0, 0).pretrends().drift
    whole, half = (
        sum(drifted(rng, slope, seed).pretrends().pvalue < 0.05 for seed in range(40))
        for slope in (drift, drift / 2)
    )
    assert whole > 16
    assert half < 27


def test_the_drift_of_one_period_is_2_8_standard_errors_a_year() -> None:
    """The normal quantiles of 97.5% and 80% add up to 2.80; the base is two years earlier."""
    frame = mpdta()
    frame = frame[frame["year"].isin([2003, 2005, 2007]) & frame["first.treat"].isin([0, 2007])]
    fit = noiseless(
        frame, periods=[2003, 2005, 2007], bounds={**BOUNDS, "first.treat": ["0", "2007"]}
    )
    assert fit.pretrends().drift == pytest.approx(2.8016 / 2 * fit.bse.iloc[0], rel=1e-3)


# -- plans ---------------------------------------------------------------------------------------

PLANNED: dict[str, Any] = {"unit": "id", "time": "t", "cohort": "g", "periods": [1, 2, 3, 4]}
SHAPE: dict[str, Any] = {"Y": (0, 10), "g": [0, 3, 4]}


def units(n: int, seed: int) -> pd.DataFrame:
    """Outcomes of sd 1.5, half of whose variance is constant within units."""
    rng = np.random.default_rng(seed)
    first, own = rng.choice([0, 3, 4], n, p=[0.5, 0.25, 0.25]), rng.normal(5, 1.06, n)
    waves = [
        pd.DataFrame({
            "id": np.arange(n), "t": t, "g": first,
            "Y": (own + rng.normal(0, 1.06, n) + 0.5 * ((first > 0) & (t >= first))).clip(0, 10),
        })
        for t in PLANNED["periods"]
    ]  # fmt: skip
    return pd.concat(waves)


def test_two_numbers_are_labels_of_cohorts() -> None:
    with seeded_noise(1):
        one, two = (
            pc.did("Y ~ 1", units(500, 1), eps=8, bounds=SHAPE | {"g": given}, **PLANNED)
            for given in ([0, 3], ["0", "3"])
        )
    assert one.params.index.tolist() == two.params.index.tolist()
    table = pc.compare({"study": one})
    shown = table.frame["term"].tolist()
    assert shown[:3] == ["overall", "event[-1]", "event[0]"]
    assert pc.compare({"study": one}, terms=["ATT(3, 3)", "overall"]).frame.shape[0] == 2


def test_an_event_study_is_planned() -> None:
    """Half-widths of the overall effect and of the effects by cohort, beside those of fits."""
    for n, eps in ((1000, 1.0), (4000, 4.0)):
        plan = pc.plan("Y ~ 1", n=n, eps=eps, bounds=SHAPE, outcome_sd=1.5, r2=0.5, **PLANNED)
        widths = []
        for seed in range(3):
            with seeded_noise(seed):
                fit = pc.did("Y ~ 1", units(n, seed), eps=eps, bounds=SHAPE, **PLANNED)
            widths.append(fit.estimate.averages.half_widths(1.959964))
        assert plan.terms["term"].tolist() == list(fit.estimate.averages.names)
        usual = np.median(widths, axis=0)
        ratio = pd.Series(usual / plan.planner.at(n, eps).half_width(0.05))
        assert ratio.between(0.75, 1.33).all()
        assert (plan.terms["half-width from"] <= usual).all()
        assert (usual <= plan.terms["half-width to"]).all()
        assert plan.table["half-width to"][0] == plan.terms["half-width to"].iloc[-1]
        assert (plan.table["half-width to"] > plan.table["half-width from"]).all()
    text = " ".join(str(plan.summary()).split())
    assert "Plan of a Private Event Study" in text
    assert "interval of the overall effect" in text
    assert "50% of the outcome's variance is constant within units" in text
    assert "each id has one row in each period" in text


@pytest.mark.parametrize(
    ("periods", "early", "late"),
    [
        ([2018, 2019, 2020], 2017, 2021),
        (["2018-01", "2018-02", "2018-03"], "2017-12", "2018-04"),
        (["2018Q1", "2018Q2", "2018Q3"], "2017-Q4", "2018-Q4"),
        (["2018-01-31", "2018-03-31", "2018-06-30"], "2017-06-30", "2019-01-31"),
    ],
)
def test_a_level_before_the_periods_is_not_never_treated(
    periods: list[Any], early: Any, late: Any
) -> None:
    def plan(level: Any) -> None:
        pc.plan(
            "y ~ 1", n=5000, eps=4, unit="i", time="t", cohort="g", periods=periods,
            bounds={"y": (0, 1), "g": [level, periods[1]]},
        )  # fmt: skip

    with pytest.raises(PrivcausalError, match=f"^Level {early} of 'g' does not come after"):
        plan(early)
    for never in (0, late, "never", "inf"):
        plan(never)


def test_the_summary_names_the_never_treated_level() -> None:
    assert "first.treat = 0" in str(noisy(eps=8).summary(full=True))
