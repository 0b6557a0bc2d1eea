"""PrivATE as published: its numbers, its claim, where the claim fails, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import test_real_data
from fit_helpers import made_again, refused, seedable
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted
from tied_trees import Stump, tied

import privcausal as pc
from privcausal.estimators import published
from privcausal.testing import recorded, zero_noise

BASE = pc.bases.Sklearn(LogisticRegression(), LinearRegression())
FORMULA = "Y ~ T | X1 + C(G)"
BOUNDS = {"Y": (-1, 3), "X1": (0, 10), "G": ["a", "b"]}
PUBLISHED_WIDTH = 0.4326
"""Half-width of the 95 % interval on RHC at eps = 0.5 (the paper's Table 2)."""


def study(n: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, g = rng.uniform(0, 10, n), rng.choice(["a", "b"], n)
    t = (rng.random(n) < 0.3 + 0.04 * x).astype(int)
    y = 0.1 * x + 0.5 * t + 0.3 * (g == "b") + rng.normal(0, 0.2, n)
    return pd.DataFrame({"Y": np.clip(y, -1, 3), "T": t, "X1": x, "G": g})


@seedable
def paper(frame: pd.DataFrame, base: Any = BASE, formula: str = FORMULA, **options: Any) -> Any:
    return pc.paper.private(formula, frame, base=base, **{"eps": 1.0, "bounds": BOUNDS, **options})


def constants(n: int, value: float = 0.5, **options: Any) -> Any:
    """A trial whose nuisances are constants whatever the rows are: gamma is known by hand."""
    rng = np.random.default_rng(n)
    frame = pd.DataFrame({"Y": rng.random(n), "T": rng.integers(0, 2, n), "X1": rng.random(n)})
    base = pc.bases.Sklearn(LogisticRegression(), DummyRegressor(strategy="constant", constant=0.5))
    bounds = {"Y": (0, 1), "X1": (0, 1)}
    chosen: dict[str, Any] = {"propensity": value, "bounds": bounds, **options}
    return paper(frame, base, "Y ~ T | X1", **chosen), frame


# -- limit: the textbook's numbers -----------------------------------------------------------


def by_hand(frame: pd.DataFrame, clip: float = 0.1) -> tuple[float, float, Any]:
    """AIPW mean, mean squared deviation and largest influence, by scikit-learn alone."""
    x = np.column_stack([frame["X1"] / 10, frame["G"] == "a", frame["G"] == "b"]).astype(float)
    t, y = frame["T"].to_numpy(), frame["Y"].to_numpy()
    e = LogisticRegression().fit(x, t)
    means = [KernelRidge(alpha=0.1, kernel="rbf").fit(x[t == a], y[t == a]) for a in (0, 1)]

    def score(x: Any, t: Any, y: Any) -> Any:
        p = np.clip(e.predict_proba(x)[:, 1], clip, 1 - clip)
        mu0, mu1 = (np.clip(m.predict(x), -1, 3) for m in means)
        return mu1 - mu0 + t * (y - mu1) / p - (1 - t) * (y - mu0) / (1 - p)

    scores = score(x, t, y)
    tau = scores.mean()
    u = np.linspace(0, 1, 2001)
    grid = [np.column_stack([u, np.full(2001, a), np.full(2001, b)]) for a, b in ((1, 0), (0, 1))]
    grid.append(np.column_stack([u, 0 * u, 0 * u]))  # a label that nobody declared
    ends = [np.abs(score(g, a, b) - tau).max() for g in grid for a in (0, 1) for b in (-1, 3)]
    return tau, ((scores - tau) ** 2).mean(), max(ends)


def k(n: int, eps: float, delta: float) -> float:
    return 5 * np.sqrt(2 * np.log(n) * np.log(2 / delta)) / (eps * n)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1)])
def test_estimate_and_width_are_those_of_the_paper(shares: tuple[float, float]) -> None:
    frame, n = study(), 600
    tau, square, gamma = by_hand(frame)
    given = dict(zip(("effect", "variance"), shares, strict=True))
    with recorded(3) as noise:
        paper(frame, pc.bases.Sklearn.kernel(), shares=given)
    first, second = noise.calls
    unit, square_unit = 40 * 2.0**-30, 80**2 * 2.0**-30  # |score| <= 4 / 0.1
    assert first.exact[0] * unit == pytest.approx(tau, abs=1e-7)
    assert second.exact[0] * square_unit == pytest.approx(square, abs=1e-5)
    a, b = shares
    # the search climbs to gamma, and the grid by hand reaches it to a thousandth
    sd = gamma * k(n, a, a * 1e-5)
    assert first.query.scale * unit == pytest.approx(sd, rel=1e-3)
    assert second.query.scale * square_unit == pytest.approx(
        max(gamma**2 - square, square) * k(n, b, b * 1e-5), rel=3e-3
    )
    fit = paper(frame, pc.bases.Sklearn.kernel(), shares=given, exact=True)
    assert fit.params["ATE"] == pytest.approx(tau, abs=1e-7)
    variance = square + gamma**2 * 50 * np.log(n) * np.log(2 / (a * 1e-5)) / (n * a**2)
    assert fit.bse["ATE"] == pytest.approx(np.sqrt(variance / n), rel=1e-3)


@pytest.mark.slow
def test_rows_with_a_missing_value_are_left_out() -> None:
    frame = study()
    holes = frame.copy()
    holes.loc[5, "Y"], holes.loc[9, "X1"] = np.nan, np.nan
    with zero_noise():
        one, other = paper(holes), paper(frame.drop(index=[5, 9]))
    assert one.params["ATE"] == pytest.approx(other.params["ATE"], abs=1e-8)
    assert one.bse["ATE"] == pytest.approx(other.bse["ATE"], rel=1e-6)
    assert one.estimate.size == 600  # how many were left out is told nowhere


def test_a_known_propensity_is_used_and_gamma_is_exact() -> None:
    """e = 0.2 and both means 1/2: the score is t (y - .5) / .2 - (1 - t) (y - .5) / .8."""
    with recorded(0) as noise:
        _, frame = constants(500, 0.2)
    y, t = frame["Y"] - 0.5, frame["T"]
    tau = float((t * y / 0.2 - (1 - t) * y / 0.8).mean())
    unit = 5 * 2.0**-30
    assert noise.calls[0].exact[0] * unit == pytest.approx(tau, abs=1e-7)
    gamma = 2.5 + abs(tau)
    assert noise.calls[0].query.scale * unit == pytest.approx(gamma * k(500, 0.5, 5e-6), rel=1e-6)


# -- law ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_variance_is_never_negative() -> None:
    """At n = 60 its noise is far larger than it: half of the draws are cut at zero."""
    with recorded(0) as noise:
        fit, _ = constants(60)
    floor = noise.calls[0].query.scale * 2 * 2.0**-30
    errors = [constants(60)[0].bse["ATE"] for _ in range(40)]
    assert min(errors) == pytest.approx(floor, rel=1e-9)  # 2^-40 that none of 40 is cut
    assert fit.bse["ATE"] >= floor * (1 - 1e-9)


# -- neighbours: where the claim fails, and where it does not -----------------------------------


CELLS = {"Y": (0, 1), "X1": (0, 1), "X2": (0, 1)}


def real_epsilon(one: Any, other: Any, delta: float) -> float:
    """ln((P(A) - delta) / P'(A)) over half-lines A, for N(exact, scale^2) under two tables."""
    (low, s), (high, r) = sorted((float(c.exact[0]), float(c.query.scale)) for c in (one, other))
    at = high + r * np.linspace(-3, 5, 801)
    tail = norm.sf(at, high, r)
    good = tail > 2 * delta
    return float(np.max(np.log(tail[good] - delta) - norm.logsf(at[good], low, s)))


def test_estimated_nuisances_break_the_claim() -> None:
    """Two tables that differ in one outcome: the real epsilon is above 30 where 1 is claimed."""
    calls = []
    for first in (0.0, 1.0):
        with recorded(0) as noise:
            fit = paper(
                tied(8000, first), pc.bases.Sklearn(LogisticRegression(), Stump()),
                "Y ~ T | X1 + X2", bounds=CELLS, propensity=0.5,
            )  # fmt: skip
        assert fit.plan.least_rows < 8000
        calls.append(noise.calls[0])
    estimates = sorted(float(c.exact[0]) * 2 * 2.0**-30 for c in calls)
    assert estimates == pytest.approx([3 / 8, 5 / 8], abs=1e-3)
    assert real_epsilon(*calls, delta=1e-5) > 30


@pytest.mark.slow
def test_private_nuisances_do_not_move_with_a_row() -> None:
    """The same tables, nuisances from the other half: the estimate moves by a score over n."""
    options: dict[str, Any] = {
        "bounds": CELLS, "propensity": 0.5, "base": "gam",
        "formula": "Y ~ T | X1 + X2",
    }  # fmt: skip
    with recorded(0) as first:
        paper(tied(8000, 0.0), **options)
    with recorded(0, frozen=first.calls) as second:
        paper(tied(8000, 1.0), **options)
    assert [c.query.name for c in first.calls] == [c.query.name for c in second.calls]
    unit = 2 * 2.0**-30
    *nuisances, effect, _ = zip(first.calls, second.calls, strict=True)
    moved = abs(int(effect[0].exact[0]) - int(effect[1].exact[0])) * unit
    # |score| <= 2 at e = 1/2, so one row moves the mean of 4,000 by at most 4 / 4000
    assert moved <= 4 / 4000 + 1e-8
    changed = [not np.array_equal(a.exact, b.exact) for a, b in nuisances]
    assert any(changed) != (moved > 0)  # the row is in one half only
    assert real_epsilon(*effect, delta=1e-5) < 0.5


# -- the claim, in every output --------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted() -> Any:
    return paper(study())


@pytest.fixture(scope="module")
def halves() -> Any:
    return paper(study(1200), "gam")


def test_the_guarantee_is_the_published_one(fitted: Any) -> None:
    promise = fitted.guarantee
    assert (promise.kind, promise.epsilon, promise.delta) == ("published", 1.0, 1e-5)
    assert promise.rho is None
    for words in ("not proven", "Lemma 4.2", "actual epsilon", "width of the interval also"):
        assert words in promise.statement
    assert "BELOW" not in promise.statement
    assert fitted.glance()["guarantee"].item() == "published"
    assert fitted.glance()["learner"].item() == "published"


@pytest.mark.slow
def test_every_output_says_published(fitted: Any, halves: Any, page_of: Any) -> None:
    for fit in (fitted, halves):
        for audience in ("technical", "public"):
            page = page_of(fit, audience)
            assert "CLAIMED, NOT PROVEN" in page
            assert "This guarantee is claimed, not proven." in page
        text = str(fit.summary())
        assert text.count("CLAIMED, NOT PROVEN") == 2
        assert max(map(len, text.splitlines())) <= 78
        assert "CLAIMED" in fit.summary().as_latex() and "CLAIMED" in fit.summary().as_html()
        assert "published" in repr(fit)
        fit.plot("coef"), fit.plot("budget")


def test_a_saved_fit_comes_back(fitted: Any, halves: Any, reloaded: Any) -> None:
    for fit in (fitted, halves):
        again = reloaded(fit)
        assert again.guarantee.kind == "published"
        assert again.guarantee.statement == fit.guarantee.statement
        pd.testing.assert_frame_equal(again.tidy(), fit.tidy())
        assert str(again.summary()) == str(fit.summary())


@pytest.mark.slow
def test_the_call_can_be_run_again(fitted: Any) -> None:
    kernel = paper(study(900), pc.bases.Sklearn.kernel())
    assert made_again(kernel, study(900)).call == kernel.call
    assert "Sklearn(propensity=LogisticRegression(), outcome=LinearRegression())" in fitted.call


def test_nuisances_that_are_not_private_are_nowhere(fitted: Any, tmp_path: Path) -> None:
    with pytest.raises(pc.CapabilityError, match="no nuisance models"):
        _ = fitted.nuisances
    for look in (fitted.overlap, fitted.balance):
        with pytest.raises(pc.CapabilityError, match="released no propensity"):
            look(study(), eps=1)
    fitted.save(tmp_path / "fit.json")
    document = json.loads((tmp_path / "fit.json").read_text())
    assert [len(values) for ((values, _),) in document["releases"].values()] == [1, 1]
    own = {"Own": {"values": []}}
    assert document["asked"]["RowRequest"]["base"]["Sklearn"] == {"propensity": own, "outcome": own}


@pytest.mark.slow
def test_no_noise_scale_leaves(fitted: Any, tmp_path: Path, page_of: Any) -> None:
    """gamma is an exact function of the rows: neither it nor a share of variance may be told."""
    assert fitted.budget["noise_sd"].isna().all() and fitted.budget["sensitivity"].isna().all()
    assert fitted.ate["se_sampling"].isna().all()
    assert "one variance" in str(fitted.summary(full=True))
    with recorded(0) as noise:
        fit = paper(study())
    fit.save(tmp_path / "fit.json")
    shown = (tmp_path / "fit.json").read_text() + page_of(fit)
    scale = noise.calls[0].query.scale * 40 * 2.0**-30
    for secret in (scale, scale**2, noise.calls[0].query.scale):
        assert f"{secret:.5g}" not in shown


def test_private_nuisances_are_released(halves: Any) -> None:
    e = halves.nuisances["propensity"](study(20))
    assert e.between(0.1, 0.9).all()
    assert "which is proven" in halves.guarantee.statement
    assert "Lemma 4.2" not in halves.guarantee.statement
    assert set(halves.budget["rows"]) == {0.5}
    # a look is no better than the fit that it goes through
    assert halves.overlap(study(1200), eps=1).guarantee.kind == "published"


def test_the_price_is_epsilon_and_delta(fitted: Any, halves: Any) -> None:
    for fit in (fitted, halves):
        assert fit.budget["rho"].sum() == 0
        # the nuisances' half runs beside the other: what it costs by itself is not charged
        paid = fit.budget[~fit.budget["parallel"]]
        assert paid["stage"].tolist() == ["effect", "variance"]
        assert paid["epsilon"].sum() == pytest.approx(1, abs=1e-9)
        assert fit.budget["delta"].sum() == pytest.approx(1e-5, rel=1e-6)
        assert fit.plan.epsilon <= 10**12 and fit.plan.delta <= 10**7
    # the nuisances' half has all of epsilon to itself: its noise is that of rho(eps, delta)
    stages = [s for s in halves.plan.stages if s.part == "nuisance"]
    assert sum(s.rho for s in stages) == pytest.approx(halves.plan.rho_cap, rel=1e-6)


# -- the ledger --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ledger_refuses_it_unless_opened_for_it(tmp_path: Path) -> None:
    strict = pc.Ledger(tmp_path / "strict.db", "study", eps=3, delta=1e-4)
    with pytest.raises(pc.LedgerError, match="accepts only proven guarantees"):
        paper(study(), ledger=strict)
    assert strict.history.empty
    open_to_it = pc.Ledger(tmp_path / "open.db", "study", eps=3, delta=1e-4, allow_published=True)
    fit = paper(study(), ledger=open_to_it)
    assert open_to_it.spent.kind == "published"
    assert open_to_it.spent.epsilon == pytest.approx(1, abs=1e-3)
    assert open_to_it.spent.delta == pytest.approx(1e-5, rel=1e-6)
    paper(study(), eps=1.5, delta=2e-5, ledger=open_to_it)
    assert open_to_it.spent.epsilon == pytest.approx(2.5, abs=1e-3)
    with pytest.raises(pc.BudgetError, match="No budget was spent"):
        paper(study(), ledger=open_to_it)
    pc.private(FORMULA, study(), eps=0.3, delta=1e-4, bounds=BOUNDS, ledger=open_to_it)
    assert open_to_it.history["published"].tolist()[:4] == [True] * 4
    assert "Ledger 'study'" in str(fit.summary())
    open_to_it.verify()


# -- the minimum -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_minimum_is_that_of_each_share(unspent: pc.Ledger) -> None:
    """max(55, 8 (1 + 2 ln(2/delta_i)) / eps_i): 429 at eps = 1 and equal shares."""
    least = int(np.ceil(8 * (1 + 2 * np.log(2 / 5e-6)) / 0.5))
    strict = {"below_minimum": "refuse"}
    with pytest.raises(pc.BudgetError, match=f"at least {least} rows") as caught:
        paper(study(least - 1), ledger=unspent, **strict)
    assert "omit below_minimum='refuse'" in str(caught.value)
    fit = paper(study(least), **strict)
    assert fit.plan.least_rows == least and "below_minimum='refuse'" in fit.call
    assert "BELOW THE MINIMUM" not in fit.guarantee.statement
    small = paper(study(least - 1))
    assert f"BELOW THE MINIMUM: with fewer than {least} rows" in small.guarantee.statement
    assert "Treat it as not private" in small.guarantee.statement
    assert "BELOW THE MINIMUM" in str(small.summary()).replace("\n", " ")
    assert "below_minimum" not in small.call
    # a tenth of eps and delta for the variance: its theorem needs more rows
    tenth = int(np.ceil(8 * (1 + 2 * np.log(2 / 1e-6)) / 0.1))
    with pytest.raises(pc.BudgetError, match=f"at least {tenth} rows"):
        paper(study(600), shares={"effect": 0.9}, **strict)
    # the halves apply it to half of the rows
    with pytest.raises(pc.BudgetError, match=f"at least {2 * least} rows"):
        paper(study(2 * least - 1), "gam", **strict)
    with pytest.raises(pc.BudgetError, match="at least 55 rows"):
        paper(study(54), eps=200.0, **strict)


# -- what is refused, before anything is spent ---------------------------------------------------


def test_no_proven_call_takes_a_published_mechanism(unspent: pc.Ledger) -> None:
    """Or its claim would be called proven, and charged to a ledger that refuses it."""
    kinds = published.Published, published.PublishedDPCATE
    kinds += published.PublishedADUM, published.PublishedTM
    for learner in (kind() for kind in kinds):
        with pytest.raises(pc.CapabilityError, match="unknown"):
            pc.privcate(FORMULA, study(), learner=learner, bounds=BOUNDS, ledger=unspent)
        with pytest.raises(pc.CapabilityError, match="unknown"):
            pc.plan(FORMULA, n=600, learner=learner, bounds=BOUNDS)


class Nothing(BaseEstimator):
    """An estimator without methods."""


@pytest.mark.parametrize(
    ("propensity", "outcome", "words"),
    [
        (KernelRidge(), KernelRidge(), r"propensity=.*KernelRidge does not have predict_proba"),
        (Nothing(), KernelRidge(), "Nothing does not have fit and predict_proba"),
        (LogisticRegression(), Nothing(), r"outcome=.*Nothing does not have fit and predict"),
        (MLPClassifier(verbose=True), KernelRidge(), "prints information about"),
        (make_pipeline(MLPClassifier(verbose=1)), KernelRidge(), "prints information about"),
    ],
)
def test_estimators_are_checked_when_they_are_named(
    propensity: Any, outcome: Any, words: str
) -> None:
    with pytest.raises(pc.CapabilityError, match=words):
        pc.bases.Sklearn(propensity, outcome)


@pytest.mark.slow
def test_the_papers_two_bases() -> None:
    kernel, network = pc.bases.Sklearn.kernel(), pc.bases.Sklearn.network()
    assert (kernel.outcome.alpha, kernel.outcome.kernel) == (0.1, "rbf")
    for estimator in (network.propensity, network.outcome):
        assert estimator.hidden_layer_sizes == (32,) and estimator.activation == "tanh"
        assert estimator.solver == "sgd" and estimator.alpha == 0.1
    assert kernel.source == "pc.bases.Sklearn.kernel()"
    assert network.source == "pc.bases.Sklearn.network()"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 200 epochs are too few, which is about the rows
        fit = paper(study(), network)
    assert np.isfinite(fit.params).all()


# -- nothing of the rows comes out by another way --------------------------------------------------


@pytest.mark.slow
def test_the_users_estimators_learn_nothing() -> None:
    mine = pc.bases.Sklearn(LogisticRegression(), LinearRegression())
    paper(study(), mine)
    for estimator in (mine.propensity, mine.outcome):
        with pytest.raises(Exception, match="not fitted"):
            check_is_fitted(estimator)


class Talkative(LinearRegression):
    """Refuses to fit, quoting a row."""

    def fit(self, x: Any, y: Any) -> Any:
        raise ValueError(f"bad value {float(y[0])!r}")


def test_an_estimator_that_fails_is_told_in_constant_words() -> None:
    frame = study()
    with refused(pc.DataError, "A step on the rows failed", "bad value"):
        paper(frame, pc.bases.Sklearn(LogisticRegression(), Talkative()))


@pytest.mark.parametrize(
    ("frame", "eps"),
    [
        *((study().assign(T=arm), 1.0) for arm in (0, 1)),
        *((study(rows), 20.0) for rows in (1, 2, 3, 10)),
    ],
)
def test_one_arm_alone_and_tiny_tables_are_noise_and_no_error(frame: Any, eps: float) -> None:
    fit = paper(frame, eps=eps)
    assert np.isfinite(fit.params).all() and (fit.bse > 0).all()


# -- against the paper's own numbers ------------------------------------------------------------


@test_real_data.needs_rhc
@pytest.mark.slow
def test_half_widths_on_rhc_are_those_of_table_2_within_a_factor() -> None:
    """With Table 1's shares: 1.29 times the published width, plus noise; 1.75 is 10 sd away."""
    options = {"eps": 0.5, "bounds": test_real_data.BOUNDS, "shares": {"effect": 0.9}}
    kernel, formula = pc.bases.Sklearn.kernel(), test_real_data.FORMULA
    fit = paper(test_real_data.patients(), kernel, formula, **options)
    width = norm.ppf(0.975) * fit.bse["ATE"]
    assert PUBLISHED_WIDTH / 1.5 < width < PUBLISHED_WIDTH * 1.75


def test_intervals_are_not_cut_to_possible_effects() -> None:
    """As printed: at little budget they are wider than any effect."""
    study = pc.datasets.private_ate(1, 3000, 2)
    fit = pc.paper.private(study.formula, study.frame, eps=0.05, bounds=study.bounds)
    low, high = fit.conf_int().loc["ATE"]
    assert (high - low) / 2 == pytest.approx(1.959964 * fit.bse["ATE"], rel=1e-6)
    assert high - low > 2 * 5  # the bounds are 5 apart
