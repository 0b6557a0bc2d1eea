"""Saved fits come back whole, and nothing else is taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from results_fits import VARIANTS, points, proven, variant

import privcausal as pc
from privcausal.errors import CapabilityError, DataError
from privcausal.testing import seeded_noise


@pytest.fixture
def document(tmp_path: Any) -> dict[str, Any]:
    variant("r on linear").save(tmp_path / "fit.json")
    made: dict[str, Any] = json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))
    return made


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip_is_exact(name: str, reloaded: Any) -> None:
    fitted = variant(name)
    again = reloaded(fitted)
    assert type(again) is type(fitted)
    assert str(again.summary()) == str(fitted.summary())
    assert repr(again) == repr(fitted)
    assert again.call == fitted.call
    assert again.guarantee == fitted.guarantee
    exactly = {"check_exact": True}
    pd.testing.assert_frame_equal(again.budget, fitted.budget, **exactly)
    pd.testing.assert_frame_equal(again.glance(), fitted.glance(), **exactly)
    if name != "no averages":
        pd.testing.assert_frame_equal(again.cov_params(), fitted.cov_params(), **exactly)
        pd.testing.assert_frame_equal(again.gate, fitted.gate, **exactly)
        both = {"simultaneous": True}
        pd.testing.assert_frame_equal(again.conf_int(**both), fitted.conf_int(**both), **exactly)
    if isinstance(fitted, pc.CateResult):
        pd.testing.assert_frame_equal(again.predict(points()), fitted.predict(points()), **exactly)
        for key, function in fitted.nuisances.items():
            found = again.nuisances[key](points())
            pd.testing.assert_series_equal(found, function(points()), **exactly)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_fit_gives_the_same_bytes(name: str, tmp_path: Any) -> None:
    fitted, paths = variant(name), [tmp_path / f"{i}.json" for i in range(3)]
    fitted.save(paths[0])
    fitted.save(str(paths[1]))
    pc.load(paths[0]).save(paths[2])
    assert len({path.read_bytes() for path in paths}) == 1


def of_each_kind() -> dict[str, Callable[[], Any]]:
    study = pc.datasets.clinic(1500)
    frame = study.frame.assign(arm=[*"abc"] * 500, well=study.frame["recovery"] > 50)
    own = {"data": frame, "bounds": study.bounds | {"arm": ["a", "b", "c"]}, "eps": 4}
    groups = {"groups": ["ward", "age >= 65"]}
    years = pd.DataFrame({"id": np.repeat(range(300), 4), "year": [1, 2, 3, 4] * 300})
    years = years.assign(first=np.repeat([0, 3, 4] * 100, 4), Y=np.linspace(0, 1, 1200))
    return {
        "ratios": partial(pc.private, "well ~ programme", **own, **groups, estimand=["RR", "ATT"]),
        "arms": partial(pc.private, "recovery ~ arm | age", **own, **groups),
        "weights": partial(pc.private, "recovery ~ programme | age", **own, weights="bmi"),
        "slopes of arms": partial(pc.private, "recovery ~ arm | age", **own, estimand="PLR"),
        "instruments": partial(
            pc.private, "recovery ~ programme | age | programme ~ severity + bmi", **own,
            estimand="LATE",
        ),
        "effects": partial(pc.privcate, "recovery ~ programme | age*C(ward)", **own, **groups),
        "regression": partial(pc.regress, "recovery ~ age + C(ward) + bs(bmi, df=4)", **own),
        "cohorts": partial(
            pc.did, "Y ~ 1", years, eps=4, unit="id", time="year", cohort="first",
            periods=[1, 2, 3, 4], bounds={"Y": (0, 1), "first": [0, 3, 4]},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", of_each_kind())
def test_each_kind_is_computed_again_from_its_file(kind: str, tmp_path: Any) -> None:
    with seeded_noise(1):
        fit = of_each_kind()[kind]()
    fit.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
    assert again.estimate.averages.terms == fit.estimate.averages.terms
    assert str(again.summary(full=True)) == str(fit.summary(full=True))
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "fit.json").read_bytes()


@pytest.mark.parametrize("noisy", [False, True])
def test_a_table_of_cells_is_computed_again_and_an_exact_one_is_in_no_file(
    noisy: bool, tmp_path: Any
) -> None:
    table = {"cell": [*"aabb"], "arm": [0, 1] * 2, "count": [90, 110, 105, 95],
             "sum": [30123.5, 44321.5, 21987.5, 40765.5]}  # fmt: skip
    noise = {"noise": {"count": 3.0, "sum": 40.0}} if noisy else {}
    fit = pc.from_cells(pd.DataFrame(table), ["a", "b"], eps=1, outcome=(0, 500), **noise)
    fit.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
    assert str(again.summary(full=True)) == str(fit.summary(full=True))
    pd.testing.assert_frame_equal(again.cells, fit.cells, check_exact=True)
    pd.testing.assert_frame_equal(again.budget, fit.budget, check_exact=True)
    text = (tmp_path / "fit.json").read_text()
    exact = [
        repr(total - 250.0 * count)
        for count, total in zip(*[table[n] for n in ("count", "sum")], strict=True)
    ]
    assert [number in text for number in exact] == [noisy] * 4


@pytest.mark.parametrize("step", ["passes.Passes.sums", "passes.Passes.batches", "exit.Exit.noisy"])
def test_loading_reads_no_rows_and_draws_no_noise(step: str, reloaded: Any, broken: Any) -> None:
    fit = proven()
    with broken(f"vault.{step}", AssertionError("a load is no fit")):
        assert reloaded(fit).params.equals(fit.params)


def test_a_file_of_a_version_with_other_results_is_refused(tmp_path: Any, document: Any) -> None:
    """One whose plan has other prices, and one that computes something else."""
    words = "computes other results from these releases. Load it with that version"
    prices = [[name, 2 * rho, *rest] for name, rho, *rest in document["prices"]]
    refuse(tmp_path, json.dumps(document | {"prices": prices}), words)
    estimate, *rest = document["results"]
    refuse(tmp_path, json.dumps(document | {"results": [1.1 * estimate, *rest]}), words)
    last_bits = document | {"results": [estimate * (1 + 1e-9), *rest]}
    (tmp_path / "near.json").write_text(json.dumps(last_bits))
    assert pc.load(tmp_path / "near.json").params.iloc[0] == estimate


@pytest.mark.parametrize(("call", "pure"), [(pc.private, False), (pc.privcate, True)])
def test_a_guarantee_equals_itself_and_that_of_the_file(
    call: Callable[..., Any], pure: bool, reloaded: Any
) -> None:
    """In pure epsilon there is no rho; a trade-off function is equal if its knots are."""
    learner = {"learner": "adum"} if pure else {}
    study = pc.datasets.clinic(2000)
    fitted = call("recovery ~ programme | age", study.frame, eps=1, bounds=study.bounds, **learner)
    again = reloaded(fitted).guarantee
    assert fitted.guarantee == fitted.guarantee == again and hash(again) == hash(fitted.guarantee)
    assert (fitted.guarantee.rho is None) == pure == (fitted.guarantee.trade_off is None)
    assert np.isnan(fitted.glance()["rho"][0]) == pure
    half = call("recovery ~ programme | age", study.frame, eps=0.5, bounds=study.bounds, **learner)
    assert half.guarantee != again and half.guarantee.trade_off != pc.TradeOff.from_gaussian(1.0)


def test_a_loaded_fit_draws_and_looks_again(reloaded: Any) -> None:
    again = reloaded(variant("r on gam"))
    booster, first = again.to_interpret(), variant("r on gam").to_interpret()
    new = points()[["age", "ward", "smoker"]]
    assert booster.predict(new).tolist() == first.predict(new).tolist()


def test_the_file_holds_the_request_and_the_releases(document: dict[str, Any]) -> None:
    assert set(document) == {
        "format", "version", "asked", "size", "noise", "prices", "releases", "results", "call",
        "ledger_line",
    }  # fmt: skip
    assert document["format"] == "privcausal fit"
    fit = variant("r on linear")
    assert set(document["releases"]) == {stage.name for stage in fit.plan.stages}
    told = [answer for answers in document["releases"].values() for answer in answers]
    assert sorted(map(len, (values for values, _ in told))) == sorted(
        len(release.value) for release in fit.estimate.releases
    )


def refuse(tmp_path: Any, content: str | bytes, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words):
        pc.load(path)


FOREIGN: dict[str, str | bytes] = {
    "empty": "", "cut": "{", "null": "null", "list": "[]", "number": "3", "bare": "{}",
    "text": '"privcausal fit"', "other": '{"format": "other"}', "bytes": b"\xff\xfe\x00",
    "deep": "[" * 99_999,
}  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN.values(), ids=list(FOREIGN))
def test_foreign_files(tmp_path: Any, content: str | bytes) -> None:
    refuse(tmp_path, content, "not a fit saved by privcausal")


@pytest.mark.parametrize("version", [0, 1, 99, "2", None, [2]])
def test_other_versions(tmp_path: Any, document: dict[str, Any], version: Any) -> None:
    refuse(tmp_path, json.dumps(document | {"version": version}), "another version")


def damaged(document: dict[str, Any]) -> dict[str, Any]:
    """Documents that are wrong in one place each."""
    asked = document["asked"]["RowRequest"]

    def with_asked(**changes: Any) -> dict[str, Any]:
        new = {k: v for k, v in (asked | changes).items() if v is not ...}
        return document | {"asked": {"RowRequest": new}}

    return {
        **{f"no {name}": {k: v for k, v in document.items() if k != name} for name in (
            "asked", "size", "noise", "prices", "releases", "results", "call", "ledger_line"
        )},
        **{f"3 as {name}": document | {name: 3} for name in (
            "asked", "noise", "releases", "results", "call", "ledger_line"
        )},
        "more": document | {"extra": 1},
        "another class": document | {"asked": asked["request"]},
        "unknown class": document | {"asked": {"Popen": asked}},
        "two classes": document | {"asked": {"RowRequest": asked, "Request": asked["request"]}},
        "missing field": with_asked(learner=...),
        "unknown field": with_asked(code="import os"),
        "unknown tag": with_asked(learner={"call": "os.system"}),
        "a type": with_asked(kinds=[]),
    }  # fmt: skip


def test_damaged_files(tmp_path: Any, document: dict[str, Any]) -> None:
    for name, content in damaged(document).items():
        try:
            refuse(tmp_path, json.dumps(content), "damaged")
        except BaseException as error:
            raise AssertionError(name) from error


def test_a_file_written_before_an_option_existed(tmp_path: Any) -> None:
    """A new field of the request has a default, so files without it are read."""
    fit = variant("r on gam")
    fit.save(tmp_path / "fit.json")
    document = json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))
    for name in ("horizon", "cluster", "weights"):
        del document["asked"]["RowRequest"]["request"]["Request"][name]
    (tmp_path / "fit.json").write_text(json.dumps(document), encoding="utf-8")
    assert str(pc.load(tmp_path / "fit.json").summary()) == str(fit.summary())


def test_half_a_file(tmp_path: Any, document: dict[str, Any]) -> None:
    whole = json.dumps(document)
    for share in (0.1, 0.5, 0.999):
        refuse(tmp_path, whole[: int(share * len(whole))], "not a fit")


def test_capabilities_are_the_saved_fits(tmp_path: Any) -> None:
    variant("no averages").save(tmp_path / "fit.json")
    with pytest.raises(CapabilityError, match="average"):
        _ = pc.load(tmp_path / "fit.json").params


@pytest.mark.parametrize("place", ["nowhere/fit", ""])
def test_a_place_that_cannot_be_written_is_refused_in_words(place: str, tmp_path: Any) -> None:
    fit = variant("r on linear")
    for write, end in ((fit.save, ".json"), (fit.report, ".html")):
        with pytest.raises(DataError, match=r"cannot be written: .* Create its folder"):
            write(f"{tmp_path}/{place}{end}" if place else tmp_path)
