"""Algorithm 1 of Niu et al. (2022): parts, transforms, what is declared, and what is said of it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import refused, seedable
from learners_contract import BOUNDS, FORMULA, study, tau

import privcausal as pc
from privcausal.estimators import FirstStage, TwoStage

SEEN: list[dict[str, Any]] = []


@dataclass
class Means:
    """Least squares with nothing private about it, which remembers what it was given."""

    guarantee: Any = (1.0, 1e-5)
    coef: Any = field(default=None)

    def fit(self, x: Any, target: Any, *, bounds: Any, weight: Any) -> Means:
        SEEN.append({"x": x, "target": target, "bounds": bounds, "weight": weight})
        root = np.ones(len(x)) if weight is None else np.sqrt(weight)
        columns = np.column_stack([np.ones(len(x)), x])
        self.coef = np.linalg.lstsq(columns * root[:, None], target * root, rcond=None)[0]
        return self

    def predict(self, x: Any) -> Any:
        return np.column_stack([np.ones(len(x)), x]) @ self.coef


def option(**options: Any) -> TwoStage:
    made = {"effect": Means(), "propensity": Means(), "outcome": Means()} | options
    return TwoStage(**made)


@seedable
def fit(learner: Any, data: Any = None, **options: Any) -> Any:
    SEEN.clear()
    options = {"eps": 1.0, "bounds": BOUNDS, **options}
    return pc.paper.two_stage(FORMULA, study(4000) if data is None else data, learner, **options)


def gap(found: Any) -> float:
    """The mean distance from the effect at new points."""
    new = study(500, seed=3)
    return float(np.abs(found.predict(new)["estimate"] - tau(new["X1"], new["G"])).mean())


@pytest.mark.parametrize("transform", ["dr", "r"])
def test_finds_the_effect_of_a_linear_study(transform: str) -> None:
    found = fit(option(transform=transform))
    assert gap(found) < 0.05
    assert found.predict(study(9))["conf_low"].isna().all()  # it came without a law of its error


def test_one_stage_gives_a_constant() -> None:
    found = fit(TwoStage(Means(), transform="s"))
    effect = found.predict(study(50, seed=3))["estimate"]
    assert np.ptp(effect) < 1e-9
    assert effect.iloc[0] == pytest.approx(0.5 + 0.2 / 3, abs=0.03)
    assert len(SEEN) == 1
    assert len(SEEN[0]["x"]) == 4000


def test_parts_do_not_depend_on_the_treatment() -> None:
    """Flipping one treatment moves no row to another part, as a stratified split would."""
    data = study(400).assign(X2=np.arange(400) / 40)
    other = data.assign(T=np.where(np.arange(400) == 7, 1 - data["T"], data["T"]))
    parts = []
    for table in (data, other):
        fit(option(), table, seed=5)
        parts.append([np.round(call["x"][:, -1] * 400).astype(int).tolist() for call in SEEN[:2]])
    assert parts[0] == parts[1]


@pytest.mark.slow
def test_sizes_are_random_where_the_number_of_rows_is_private() -> None:
    sizes = set()
    for _ in range(6):
        fit(option(), study(300), neighbors="add_remove")
        sizes.add(tuple(len(call["x"]) for call in SEEN))
        assert sum(len(call["x"]) for call in SEEN) == 300
    assert len(sizes) > 1  # the same six times: below 1e-6


def test_targets_are_cut_to_public_bounds() -> None:
    fit(option(), propensity_clip=0.2)
    first, second, last = SEEN
    assert set(np.unique(first["target"])) == {0.0, 1.0}
    assert second["bounds"] == (-2.0, 3.0)
    assert last["bounds"] == (-25.0, 25.0)  # the range 5 over the clip 0.2
    assert np.abs(last["target"]).max() <= 25.0


def test_weights_of_the_residual_transform() -> None:
    fit(option(transform="r"))
    assert SEEN[0]["weight"] is None
    assert ((SEEN[2]["weight"] >= 0) & (SEEN[2]["weight"] <= 1)).all()


def test_a_transform_of_ones_own() -> None:
    def difference(y: Any, t: Any, first: Any) -> Any:
        return first["mu1"] - first["mu0"] + 0 * y

    with pytest.raises(pc.CapabilityError, match="target_bounds"):
        option(transform=difference)
    found = fit(option(transform=difference, target_bounds=(-1.0, 1.0)))
    assert SEEN[2]["bounds"] == (-1.0, 1.0)
    assert found.plan.learner == "two-stage own"


# -- any number of first stages ----------------------------------------------------------------


def squares(y: Any, t: Any, first: Any) -> Any:
    return (y - np.where(t == 1, first["mu1"], first["mu0"])) ** 2


def scored(y: Any, t: Any, first: Any) -> Any:
    """The doubly robust score; what other stages gave is there too."""
    assert {"v", "w"} <= set(first)
    e, mu0, mu1 = first["e"], first["mu0"], first["mu1"]
    return mu1 - mu0 + t * (y - mu1) / e - (1 - t) * (y - mu0) / (1 - e)


def four(**options: Any) -> TwoStage:
    first = {
        "e": FirstStage(Means(), "treatment"), "mu": FirstStage(Means(), with_treatment=True),
        "v": FirstStage(Means(), squares, target_bounds=(0.0, 25.0)), "w": FirstStage(Means()),
    }  # fmt: skip
    made = {"first": first, "transform": scored, "target_bounds": (-25.0, 25.0)} | options
    return TwoStage(Means(), **made)


def test_four_first_stages_find_the_effect() -> None:
    """The transform is that of "dr", so k = 4 must do as well as k = 2 (rows for it: as many)."""
    found = fit(four())
    assert gap(found) < 0.07
    assert [stage.query for stage in found.plan.stages[:-1]] == ["e", "mu", "v", "w"]
    assert set(found.nuisances) == {"propensity", "outcome", "mu0", "mu1"}


@pytest.mark.parametrize(
    ("make", "shares"), [(option, (0.2, 0.3, 0.5)), (four, (0.1, 0.2, 0.15, 0.05, 0.5))]
)
def test_parts_are_disjoint_and_of_the_asked_sizes(make: Any, shares: tuple[float, ...]) -> None:
    data = study(1000).assign(X2=np.arange(1000) / 100)
    fit(make(sample_shares=shares), data)
    assert [len(call["x"]) for call in SEEN] == [round(1000 * share) for share in shares]
    # X2 numbers the rows; it is the last column of the nuisances', the effect has none of it
    rows = [np.round(call["x"][:, -1] * 1000).astype(int).tolist() for call in SEEN[:-1]]
    assert len({row for part in rows for row in part}) == 500


def test_a_stage_sees_what_earlier_ones_gave() -> None:
    fit(four())
    # Squared residuals: the noise's 0.15^2, and Var(tau) times Var(T) or so that mu cannot fit. The
    # rows of a part are random: the mean is .0282 with an sd of .0015, so five sds (1e-6) each way.
    assert 0.0208 < SEEN[2]["target"].mean() < 0.0356
    assert SEEN[2]["bounds"] == (0.0, 25.0)


@pytest.mark.parametrize("places", [(0, 1, 4), (0, 1, 2, 3, 4)])
def test_the_guarantee_is_the_least_of_all_stages(places: tuple[int, ...]) -> None:
    """Theorem 6: min{f_1, ..., f_k, f_effect}**, charged once whatever k is."""
    every = [
        pc.TradeOff.from_dp(0.5, 1e-6), pc.TradeOff.from_gaussian(0.2),
        pc.TradeOff.from_dp(0.2, 5e-6), pc.TradeOff.from_dp(0.7, 0.0), pc.TradeOff.from_dp(1, 1e-5),
    ]  # fmt: skip
    parts = [every[k] for k in places]
    first = {
        "e": FirstStage(Means(every[0]), "treatment"),
        "mu": FirstStage(Means(every[1]), with_treatment=True),
        "v": FirstStage(Means(every[2]), squares, target_bounds=(0.0, 25.0)),
        "w": FirstStage(Means(every[3])),
    }
    own: dict[str, Any] = {"transform": scored, "target_bounds": (-25.0, 25.0)}
    if len(places) == 5:
        learner = TwoStage(Means(every[4]), first=first, **own)
    else:
        learner = option(
            propensity=Means(every[0]), outcome=Means(every[1]), effect=Means(every[4])
        )
    promise = (found := fit(learner)).guarantee
    alpha = np.linspace(0, 1, 101)
    least = np.min([f(alpha) for f in parts], axis=0)
    assert (promise.trade_off(alpha) <= least + 1e-12).all()
    whole = pc.TradeOff.minimum(*parts)(alpha)
    assert promise.trade_off(alpha) == pytest.approx(whole, abs=1e-9)
    assert (promise.kind, promise.epsilon, promise.delta) == ("published", 1.0, 1e-5)
    assert "Theorem 6" in promise.statement
    assert "declare" in promise.statement
    assert found.budget["epsilon"].sum() == pytest.approx(1.0)
    dear = {**first, "w": FirstStage(Means((1.5, 0.0)))}
    with pytest.raises(pc.BudgetError, match="declare"):
        fit(TwoStage(Means(), first=dear, **own))
    assert not SEEN


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_a_row_changes_one_of_five_parts(neighbors: str) -> None:
    data = study(500).assign(G=study(500)["G"].astype(object))
    other = data.copy()
    for name in ("Y", "T", "X1", "X2"):
        other.loc[7, name] = 1.0
    seen = []
    for table in (data, other):
        with pc.testing.seeded_noise(5):
            frozen = {"e": FirstStage(Frozen(), "treatment"), "v": FirstStage(Frozen()),
                      "mu": FirstStage(Frozen(), with_treatment=True)}  # fmt: skip
            last = FirstStage(Frozen(), squares, target_bounds=(0, 25))
            learner = TwoStage(
                Frozen(), first=frozen | {"w": last}, transform=scored, target_bounds=(-25.0, 25.0),
            )  # fmt: skip
            fit(learner, table, neighbors=neighbors)
        seen.append([np.column_stack([call["x"], call["target"]]) for call in SEEN])
    changed = [(a != b).any(axis=1).sum() for a, b in zip(*seen, strict=True)]
    assert sorted(changed) == [0, 0, 0, 0, 1]


def test_one_and_no_first_stage() -> None:
    def plug_in(y: Any, t: Any, first: Any) -> Any:
        return first["mu1"] - first["mu0"] + 0 * y

    def weighted(y: Any, t: Any, first: Any) -> Any:
        return y * (t - first["e"]) / (first["e"] * (1 - first["e"]))

    one = {"mu": FirstStage(Means(), with_treatment=True)}
    found = fit(TwoStage(Means(), first=one, transform=plug_in, target_bounds=(-5, 5)))
    assert len(SEEN) == 2
    # one coefficient of the treatment: the outcome's regression knows the average effect alone
    new = study(500, seed=3)
    truth = tau(new["X1"], new["G"]).mean()
    assert found.predict(new)["estimate"].mean() == pytest.approx(truth, abs=0.05)
    with pytest.raises(pc.CapabilityError, match="no nuisance models"):
        _ = found.nuisances
    none = TwoStage(Means(), first={}, transform=weighted, target_bounds=(-10, 10))
    data, coin = study(20_000), np.random.default_rng(1).integers(0, 2, 20_000)
    trial = data.assign(T=coin, Y=data["Y"] + (coin - data["T"]) * tau(data["X1"], data["G"]))
    assert gap(fit(none, trial, propensity=0.5)) < 0.05
    assert [len(call["x"]) for call in SEEN] == [20_000]


def test_a_known_propensity_takes_no_rows() -> None:
    fit(four(), study(1000), propensity=0.5)
    assert len(SEEN) == 4
    assert sum(len(call["x"]) for call in SEEN) == 1000


# -- guarantee -------------------------------------------------------------------------------


def test_the_ledger_is_charged_what_is_declared_to_the_last_digit() -> None:
    """A delta that passes what was asked for by less than is refused is still paid."""
    found = fit(option(effect=Means((1.0, 1e-5 * (1 + 9e-7)))))
    assert 10_000_009 <= found.plan.delta <= 10_000_010


def test_test_noise_guarantees_nothing() -> None:
    found = fit(option(), exact=True)
    assert found.guarantee.kind == "none"
    assert found.guarantee.trade_off is None


def test_a_ledger_takes_it_as_published_only(tmp_path: Any) -> None:
    plain = pc.Ledger(tmp_path / "a.db", "a", eps=2)
    with pytest.raises(pc.LedgerError, match="allow_published"):
        fit(option(), ledger=plain)
    open_one = pc.Ledger(tmp_path / "b.db", "b", eps=2, allow_published=True)
    fit(option(), ledger=open_one)
    assert open_one.spent.epsilon == pytest.approx(1.0, rel=1e-6)
    assert open_one.spent.kind == "published"


def test_first_stages_are_released_and_free(tmp_path: Any) -> None:
    """Remark 4: all of them, under the price of the whole."""
    ledger = pc.Ledger(tmp_path / "a.db", "a", eps=2, allow_published=True)
    found, new = fit(option(), ledger=ledger), study(50, seed=3)
    spent, events = ledger.spent, len(ledger.history)
    assert set(found.nuisances) == {"propensity", "outcome", "mu0", "mu1"}
    for _ in range(3):  # as often as one likes
        assert all(np.isfinite(f(new)).all() for f in found.nuisances.values())
    assert found.nuisances["mu1"](new).corr(new["X1"]) > 0.3
    assert (ledger.spent, len(ledger.history)) == (spent, events)


# -- the paper's own -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("learner", ["s", "dr", "r"])
def test_paper_mode_runs_interpret(learner: str) -> None:
    data = study(600)
    found = pc.paper.dpebm(FORMULA, data, learner=learner, eps=8.0, bounds=BOUNDS)
    assert np.isfinite(found.predict(data)["estimate"]).all()
    assert found.guarantee.kind == "published"
    assert "computed from the rows" in found.guarantee.statement
    text = str(found.summary())
    assert "NOT PROVEN" in text
    assert "pc.paper.dpebm(" in found.call
    assert f"learner={learner!r}" in found.call
    with pytest.raises(pc.CapabilityError, match="JSON"):
        found.save("nowhere.json")


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["dr", "r"])
def test_paper_mode_clips_only_if_asked(learner: str) -> None:
    """Noise at a small epsilon takes estimates beyond the range of the outcome."""
    data, found = study(900), {}
    for clip in (False, True):
        with pc.testing.seeded_noise(3):
            fit_ = pc.paper.dpebm(
                FORMULA, data, learner=learner, eps=0.02, bounds=BOUNDS, clip=clip
            )
        found[clip] = fit_.predict(data)["estimate"].abs().max()
        assert ("clip=True" in fit_.call) == clip
    width = BOUNDS["Y"][1] - BOUNDS["Y"][0]
    assert found[True] <= width < found[False]


@pytest.mark.slow
def test_paper_mode_draws_its_shapes() -> None:

    found = pc.paper.dpebm(
        FORMULA, study(600), learner="dr", eps=8.0, bounds=BOUNDS, propensity_clip=0.1
    )
    assert found.plot("effect") is not None
    with pytest.raises(pc.CapabilityError, match="separate private estimator"):
        found.to_interpret()
    assert found.nuisances["propensity"](study(20)).between(0.1, 0.9).all()


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["lots", (1.0,)])
def test_a_guarantee_is_two_numbers_or_a_trade_off(guarantee: Any) -> None:
    with pytest.raises(pc.CapabilityError, match="guarantee"):
        option(effect=Means(guarantee))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"groups": ["G"]}, pc.CapabilityError, "groups"),
        ({"split": "crossfit"}, pc.CapabilityError, "split"),
        ({"shares": {"effect": 0.5}}, pc.CapabilityError, "shares"),
        ({"bounds": None}, pc.SchemaError, "cannot estimate bounds"),
    ],
)
def test_calls_it_does_not_cover(options: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        fit(option(), **options)
    assert not SEEN


def test_what_is_declared_is_asked_for_by_its_own_call() -> None:
    with pytest.raises(pc.CapabilityError, match=r"pc\.paper\.two_stage"):
        pc.privcate(FORMULA, study(100), learner=option(), bounds=BOUNDS)


def test_parts_too_small_are_refused_before_anything_is_spent(unspent: pc.Ledger) -> None:
    with pytest.raises(pc.DataError, match="at least 20"):
        fit(option(), study(79), ledger=unspent)
    fit(option(), study(80))


def test_a_missing_propensity_estimator() -> None:
    with pytest.raises(pc.CapabilityError, match="propensity="):
        fit(option(propensity=None))
    found = fit(option(propensity=None), propensity=0.5)
    assert len(SEEN) == 2
    assert [round(s.rows, 3) for s in found.plan.stages] == [0.333, 0.667]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("step", ["fit", "predict"])
def test_a_failing_estimator_says_its_name_and_stage_and_nothing_of_the_rows(
    step: str, declared: bool
) -> None:
    class Loud(Means):
        def fit(self, x: Any, y: Any, **_: Any) -> Any:
            if step == "fit":
                raise ValueError(f"row {x[0]} {y[0]}")

        def predict(self, x: Any) -> Any:
            raise ValueError(f"row {x[0]}")

    made = pc.learners.WithGuarantee(Loud(), 1.0, 1e-5) if declared else Loud()
    where = ", in predict" * (step == "predict")
    words = f"^Loud failed in the stage 'nuisance: outcome'{where}[.] "
    with refused(pc.DataError, words, "row ["):
        fit(option(outcome=made))
    with pytest.raises(ValueError, match="row"), pc.testing.zero_noise():
        fit(option(outcome=made))


# -- estimators with the interface of scikit-learn ------------------------------------------------


class Plain:
    """Least squares as scikit-learn has it; `two` is a classifier's answer for both classes."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Plain:
        SEEN.append({"x": X, "target": y, "weight": sample_weight})
        self.model = Means().fit(X, y, bounds=None, weight=sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


class PlainClassifier(Plain):
    def predict_proba(self, X: Any) -> Any:
        one = np.clip(self.predict(X), 0, 1)
        return np.column_stack([1 - one, one])


def declared(estimator: Any) -> Any:
    return pc.learners.WithGuarantee(estimator, eps=1.0, delta=1e-5)


@pytest.mark.parametrize("transform", ["dr", "r"])
def test_estimators_of_scikit_learn_get_columns_and_targets_in_fixed_ranges(transform: str) -> None:
    made = {"effect": declared(Plain()), "outcome": declared(Plain())}
    found = fit(option(**made, propensity=declared(PlainClassifier()), transform=transform))
    assert gap(found) < 0.05
    for call in SEEN:
        assert 0 <= call["x"].min() <= call["x"].max() <= 1
        assert -1 <= call["target"].min() <= call["target"].max() <= 1
    assert (SEEN[-1]["weight"] is not None) == (transform == "r")


def test_a_classifier_always_sees_both_classes() -> None:
    """Whether a part has a treated row must not be seen from an error."""
    made = {"effect": declared(Plain()), "outcome": declared(Plain())}
    fit(option(**made, propensity=declared(PlainClassifier())), study(400).assign(T=0))
    assert len(SEEN[0]["target"]) == 100 + 2
    assert SEEN[0]["target"][-2:].tolist() == [0, 1] and (SEEN[0]["x"][-2:] == 0.5).all()


def test_a_declared_estimator_checks_itself() -> None:
    class Weightless:
        def fit(self, X: Any, y: Any) -> Any: ...

        def predict(self, X: Any) -> Any: ...

    with pytest.raises(pc.CapabilityError, match="fit has sample_weight"):
        option(effect=declared(Weightless()), transform="r")
    for stage in ("effect", "outcome"):
        with pytest.raises(pc.CapabilityError, match="PlainClassifier is a classifier"):
            option(**{stage: declared(PlainClassifier())})


def test_interprets_own_estimators() -> None:
    """DP-EBMs at a large eps find the effect."""
    from interpret.privacy import DPExplainableBoostingClassifier as Classifier
    from interpret.privacy import DPExplainableBoostingRegressor as Regressor

    def boosted(kind: Any, columns: int, **options: Any) -> Any:
        box = dict.fromkeys(range(columns), (0.0, 1.0))
        own: dict[str, Any] = {"epsilon": 200.0, "delta": 1e-5, "privacy_bounds": box}
        made = kind(**own, max_rounds=60, learning_rate=0.1, **options)
        return pc.learners.WithGuarantee(made, eps=200.0, delta=1e-5)

    target = {"privacy_target_min": -1.0, "privacy_target_max": 1.0}
    made = TwoStage(
        boosted(Regressor, 4, **target), boosted(Classifier, 5), boosted(Regressor, 6, **target)
    )
    found = fit(made, eps=200.0)
    assert "DPExplainableBoostingRegressor" in found.budget.to_string()
    assert gap(found) < 0.3  # an effect of zero is .56 away


def test_diffprivlibs_own_estimators() -> None:
    """Its regression is nearly singular with a column for each level, so errors are large."""
    models = pytest.importorskip("diffprivlib.models", exc_type=ImportError)

    def linear() -> Any:
        made = models.LinearRegression(epsilon=200.0, bounds_X=(0, 1), bounds_y=(-1, 1))
        return pc.learners.WithGuarantee(made, eps=200.0)

    first = models.GaussianNB(epsilon=200.0, bounds=(0, 1))
    found = fit(
        TwoStage(linear(), pc.learners.WithGuarantee(first, eps=200.0), linear()), eps=200.0
    )
    assert "GaussianNB" in found.budget.to_string()
    assert found.predict(study(500, seed=3))["estimate"].abs().max() <= 50  # the declared bounds


def test_the_users_object_learns_nothing() -> None:
    mine = Means()
    fit(option(effect=mine))
    assert mine.coef is None


def test_what_an_estimator_has_learned_is_not_handed_on() -> None:
    """It may hold rows: it is asked, not copied or pickled."""
    found = fit(TwoStage(Means(), transform="s"))
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(pc.PrivacyBreach):
            way(found)
    with pytest.raises(pc.PrivacyBreach):
        str(found.estimate.effect.function)


@pytest.mark.parametrize("transform", ["dr", "r", "s"])
def test_a_row_that_becomes_incomplete_changes_one_row(transform: str) -> None:
    """Replay under substitution: the estimators' tables are as long, and differ in one row."""
    data = study(400)
    row = dict.fromkeys(("Y", "T", "X1", "X2"), 1.0)
    tables = [data.assign(G=data["G"].astype(object)) for _ in range(3)]
    for table, changes in zip(tables, ({}, row, {"X1": np.nan}), strict=True):
        for name, value in changes.items():
            table.loc[7, name] = value
    seen = []
    for table in (*tables, tables[0].assign(Y=tables[0]["Y"].where(tables[0].index != 7))):
        fit(
            option(effect=Frozen(), propensity=Frozen(), outcome=Frozen(), transform=transform),
            table,
            seed=5,
        )
        seen.append([np.column_stack([call["x"], call["target"]]) for call in SEEN])
    whole, other, lost, without_outcome = seen
    for changed in (other, lost, without_outcome):
        assert [len(x) for x in changed] == [len(x) for x in whole]
        assert sum((a != b).any(axis=1).sum() for a, b in zip(whole, changed, strict=True)) == 1
    # whatever else an incomplete row holds
    assert all(np.array_equal(a, b) for a, b in zip(lost, without_outcome, strict=True))


@dataclass
class Frozen(Means):
    """Gives the same whatever it was given: one's answer to another's rows."""

    def predict(self, x: Any) -> Any:
        return np.full(len(x), 0.4)


def test_incomplete_rows_hold_public_values() -> None:
    data = study(400).copy()
    data.loc[:, "X1"] = np.nan
    fit(option(transform="r"), data)
    assert sum(len(call["x"]) for call in SEEN) == 400
    for call, target in zip(SEEN, (0.0, 0.5, 0.0), strict=True):
        assert set(np.unique(call["x"])) <= {0.0, 0.5}
        assert (call["target"] == target).all()
    assert (SEEN[2]["weight"] == 1.0).all()


def test_incomplete_rows_are_left_out_where_their_number_is_private() -> None:
    data = study(400).copy()
    data.loc[:99, "X1"] = np.nan
    fit(option(), pd.DataFrame(data), neighbors="add_remove")
    assert sum(len(call["x"]) for call in SEEN) == 300


def test_what_was_not_checked_is_not_said_to_be() -> None:
    def own(y: Any, t: Any, first: Any) -> Any:
        return y - y.mean()

    for learner in (option(), option(transform=own, target_bounds=(-1.0, 1.0))):
        statement = fit(learner).guarantee.statement
        assert "or that each prediction depends on one row only" in statement
    assert "did not check that the target" in statement
