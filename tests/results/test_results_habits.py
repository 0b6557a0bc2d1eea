"""What users of statsmodels, fixest and grf type out of habit."""

from __future__ import annotations

import copy
import inspect
import pickle
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private
from results_fits import BOUNDS, FORMULA, proven, proven_average, study, variant
from scipy.stats import chi2, ncx2, norm

import privcausal as pc
from privcausal.errors import CapabilityError
from privcausal.inference.effects import covering, p_value
from privcausal.results.exchange import HINTS
from privcausal.testing import seeded_noise


def test_a_wald_test_of_one_term_is_its_z_test() -> None:
    fit = proven()
    found = fit.wald_test("age = 0")
    assert found.statistic == pytest.approx(chi2.isf(found.pvalue, 1))
    assert found.statistic < fit.blp.loc["age", "statistic"] ** 2  # clipping is allowed for
    assert found.pvalue.round(9) == pytest.approx(fit.blp.loc["age", "p_value"], abs=1e-8)
    shifted = fit.wald_test(f"ATE = {fit.conf_int().loc['ATE', 0]:.9f}")
    assert shifted.pvalue == pytest.approx(0.05, abs=1e-3)


def test_a_wald_test_of_several_terms() -> None:
    fit = proven()
    value, slopes = fit.blp["estimate"], fit.blp.index.tolist()
    every = fit.estimate.averages.cov[1 : 1 + len(slopes), 1 : 1 + len(slopes)]
    cov = pd.DataFrame(every, slopes, slopes)
    inverse = np.linalg.inv(cov)
    statistic, bias = float(value @ inverse @ value), fit.blp["max_bias"].to_numpy()
    signs = np.array(list(product((-1, 1), repeat=len(slopes))))
    worst = max((bias * sign) @ inverse @ (bias * sign) for sign in signs)
    for hypotheses in ([f"{term} = 0" for term in slopes], ", ".join(slopes)):
        found = fit.wald_test(hypotheses)
        assert found.df_denom == len(slopes)
        assert found.statistic == pytest.approx(chi2.isf(found.pvalue, len(slopes)))
        # no biases within their bounds make the p value too small
        assert 1 >= found.pvalue > ncx2.sf(statistic, len(slopes), worst)
        assert found.pvalue < ncx2.sf(statistic, len(slopes), 1.3 * worst)
    south, west = slopes[1:3]
    found = fit.wald_test(f"{south} = {west}")
    spread = cov.loc[south, south] + cov.loc[west, west] - 2 * cov.loc[south, west]
    shift = bias[1] + bias[2]
    p = ncx2.sf((value[south] - value[west]) ** 2 / spread, 1, shift**2 / spread)
    assert found.pvalue == pytest.approx(p)
    assert "chi2" in str(found)


def test_names_of_other_packages_lead_to_ours() -> None:
    fit = proven()
    for name, hint in HINTS.items():
        if not hasattr(type(fit), name):
            with pytest.raises(AttributeError, match="has no attribute") as caught:
                getattr(fit, name)
            assert str(caught.value).endswith(hint)
            assert not hasattr(fit, name)
            if hint.startswith("see "):  # and what is named is there
                target = hint.removeprefix("see ").split("(")[0].split(",")[0].split(" ")[0]
                assert hasattr(fit, target.split(".")[0]), hint
    with pytest.raises(AttributeError, match=r"for effects at new points, use pc\.privcate"):
        proven_average().predict  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_thing'$"):
        fit.no_such_thing  # noqa: B018


def test_what_is_there_and_fails_tells_its_own_reason() -> None:
    with pytest.raises(AttributeError, match=r"^nobs: the number of rows is private"):
        variant("add_remove").nobs  # noqa: B018
    with pytest.raises(CapabilityError, match="No average effects"):
        variant("no averages").params  # noqa: B018


def test_fits_are_copied_and_pickled_as_before() -> None:
    fit = proven()
    for again in (copy.copy(fit), copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        assert again.params.equals(fit.params)


# -- slips that cost budget, or make nonsense ------------------------------------------------


@pytest.mark.parametrize("schema", [dict, pc.Schema])
def test_columns_of_other_tables_may_be_declared_too(schema: Any) -> None:
    pc.private("cost ~ mailed | age", study(), bounds=schema(BOUNDS | {"ages": (0, 1)}))


@pytest.mark.parametrize("call", [pc.private, pc.privcate])
def test_a_treatment_coded_one_and_two_makes_itself_known(call: Any) -> None:
    rows = study().assign(mailed=study()["mailed"] + 1)
    with seeded_noise(3):
        fit = call("cost ~ mailed | age", rows, eps=4, bounds=BOUNDS)
    text = " ".join(str(fit).split())
    assert "One treatment arm is empty or too small to detect" in text
    assert "check its 0/1 coding" in text


@pytest.mark.parametrize("bias", [0.0, 0.1, 1.0, 5.0])
def test_p_values_agree_with_the_intervals(bias: float) -> None:
    """No effect is rejected at a level if and only if the interval of that level is without it."""
    estimates = np.linspace(-8, 8, 81) + 0.05
    one = np.ones_like(estimates)
    p = p_value(estimates, bias * one, one)
    for level in (0.1, 0.05, 1e-4):
        half = covering(float(norm.isf(level / 2)), bias * one, one)
        assert ((np.abs(estimates) > half) == (p < level)).all()


def test_a_fit_rejects_where_its_interval_is_without_zero() -> None:
    for seed in range(5):
        fit = private(
            "Y ~ T | X", clipped_study(seed), bounds={"Y": (0, 900), "X": (0, 1)}, seed=seed
        )
        table = fit.tidy()
        assert fit.estimate.averages.clipping[0] > 0
        without = (table["conf_low"] > 0) | (table["conf_high"] < 0)
        assert (without == (table["p_value"] < 0.05)).all()


def clipped_study(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, t = rng.random(3000), rng.integers(0, 2, 3000)
    return pd.DataFrame({"Y": rng.exponential(3 + t, 3000), "T": t, "X": x})


def test_every_public_method_refuses_an_unknown_keyword(tmp_path: Any) -> None:
    ledger = pc.Ledger(tmp_path / "l.db", "a", eps=1)
    plan = pc.plan(FORMULA, n=1000, eps=1, bounds=BOUNDS, base="linear")
    fit = proven()
    seen = 0
    for thing in (fit, proven_average(), ledger, plan, fit.summary(), pc.compare([fit])):
        for name in (n for n in dir(type(thing)) if not n.startswith("_")):
            method = inspect.getattr_static(type(thing), name)
            if inspect.isfunction(method):
                with pytest.raises(CapabilityError, match=rf"{name}\(\) has no argument tea="):
                    getattr(thing, name)(tea=1)
                seen += 1
    assert seen > 40
