"""Saved fits come back whole, and nothing else is taken for one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from results_fits import VARIANTS, points, proven, variant

import privcausal as pc
from privcausal.errors import CapabilityError, DataError
from privcausal.results import stored as serial
from privcausal.stored import stored
from privcausal.testing import seeded_noise


@pytest.fixture
def document(tmp_path: Any) -> dict[str, Any]:
    variant("r on linear").save(tmp_path / "fit.json")
    made: dict[str, Any] = json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))
    return made


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip_is_exact(name: str, tmp_path: Any) -> None:
    fitted = variant(name)
    fitted.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
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


def test_charges_of_older_files_say_parallel_in_their_query(tmp_path: Any) -> None:
    variant("disjoint").save(tmp_path / "fit.json")

    def older(value: dict[str, Any]) -> dict[str, Any]:
        if "parallel" in value and value.pop("parallel"):
            value["query"] += " (parallel)"
        return value

    text = (tmp_path / "fit.json").read_text(encoding="utf-8")
    before = json.dumps(json.loads(text, object_hook=older))
    assert "(parallel)" in before and '"parallel"' not in before
    (tmp_path / "older.json").write_text(before, encoding="utf-8")
    pc.load(tmp_path / "older.json").save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text(encoding="utf-8") == text


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
def test_terms_of_older_files_are_read_from_their_names(kind: str, tmp_path: Any) -> None:
    with seeded_noise(1):
        fit = of_each_kind()[kind]()
    fit.save(tmp_path / "new.json")
    document = json.loads((tmp_path / "new.json").read_text(encoding="utf-8"))
    found, stored_ = fit.estimate.averages, document["body"]["estimate"]["fields"]["averages"]
    stored_["fields"]["terms"] = {"tuple": [*map(str, found.terms)]}
    stored_["fields"]["groups"] = {"tuple": [*map(str, found.groups)]}
    (tmp_path / "old.json").write_text(json.dumps(document), encoding="utf-8")
    for file in ("new.json", "old.json"):
        again = pc.load(tmp_path / file).estimate.averages
        assert again.terms == found.terms
        assert again.groups == found.groups


def test_a_proven_fit_stays_proven(tmp_path: Any) -> None:
    proven().save(tmp_path / "fit.json")
    again = pc.load(str(tmp_path / "fit.json"))
    assert again.guarantee.kind == "proven"
    again.report(tmp_path / "again.html")
    proven().report(tmp_path / "first.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "first.html").read_bytes()


def test_a_loaded_fit_draws_and_looks_again(tmp_path: Any) -> None:
    variant("r on gam").save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
    booster, first = again.to_interpret(), variant("r on gam").to_interpret()
    new = points()[["age", "ward", "smoker"]]
    assert booster.predict(new).tolist() == first.predict(new).tolist()


KNOWN = """
import pkgutil, importlib, privcausal.results.stored
from privcausal.stored import CLASSES
known = set(CLASSES)
for module in pkgutil.walk_packages(privcausal.__path__, "privcausal."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert "Estimate" in known
print(sorted(set(CLASSES) - known))
"""


def test_what_reads_files_knows_every_stored_class() -> None:
    """Whatever else was imported before."""
    found = subprocess.run(
        [sys.executable, "-c", KNOWN], check=False, capture_output=True, text=True
    )
    assert (found.stdout, found.returncode) == ("[]\n", 0), found.stderr


def test_a_class_that_is_not_stored_is_not_saved(tmp_path: Any) -> None:
    @dataclass(frozen=True)
    class Estimate:
        size: int

    with pytest.raises(TypeError, match="cannot be saved"):
        serial.save("CateResult", {"estimate": Estimate(3)}, tmp_path / "fit.json")
    assert not (tmp_path / "fit.json").exists()
    with pytest.raises(TypeError, match="another class"):
        stored(Estimate)


def test_the_file_is_plain_json_of_this_format(document: dict[str, Any]) -> None:
    assert set(document) == {"format", "version", "kind", "body"}
    assert document["format"] == "privcausal fit"
    assert document["kind"] == "CateResult"
    assert set(document["body"]) == {"estimate", "call", "ledger_line"}


def refuse(tmp_path: Any, content: str | bytes, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words):
        pc.load(path)


def test_no_file(tmp_path: Any) -> None:
    with pytest.raises(DataError, match="does not exist"):
        pc.load(tmp_path / "none.json")
    with pytest.raises(DataError, match="not a fit"):
        pc.load(tmp_path)


FOREIGN: dict[str, str | bytes] = {
    "empty": "", "cut": "{", "null": "null", "list": "[]", "number": "3", "bare": "{}",
    "text": '"privcausal fit"', "other": '{"format": "other"}', "bytes": b"\xff\xfe\x00",
    "deep": "[" * 99_999,
}  # fmt: skip


def test_a_file_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(DataError, match="does not exist"):
        pc.load(tmp_path / "fit.json")


@pytest.mark.parametrize("content", FOREIGN.values(), ids=list(FOREIGN))
def test_foreign_files(tmp_path: Any, content: str | bytes) -> None:
    refuse(tmp_path, content, "not a fit saved by privcausal")


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, [1]])
def test_other_versions(tmp_path: Any, document: dict[str, Any], version: Any) -> None:
    refuse(tmp_path, json.dumps(document | {"version": version}), "another version")


def damaged(document: dict[str, Any]) -> dict[str, Any]:
    """Documents that are wrong in one place each."""
    body, estimate = document["body"], document["body"]["estimate"]
    fields = estimate["fields"]

    def with_fields(**changes: Any) -> dict[str, Any]:
        new = estimate | {"fields": {k: v for k, v in (fields | changes).items() if v is not ...}}
        return document | {"body": body | {"estimate": new}}

    return {
        "no kind": {k: v for k, v in document.items() if k != "kind"},
        "kind": document | {"kind": "Schema"},
        "no body": {k: v for k, v in document.items() if k != "body"},
        "body": document | {"body": 3},
        "empty body": document | {"body": {}},
        "part of the body": document | {"body": {"estimate": estimate}},
        "more body": document | {"body": body | {"extra": 1}},
        "estimate": document | {"body": body | {"estimate": 3}},
        "another class": document | {"body": body | {"estimate": fields["plan"]}},
        "unknown class": document | {"body": body | {"estimate": estimate | {"class": "Popen"}}},
        "missing field": with_fields(plan=...),
        "unknown field": with_fields(code="import os"),
        "unknown tag": with_fields(plan={"call": "os.system"}),
        "dangling reference": with_fields(plan={"ref": 10**9}),
        "array type": with_fields(plan={"array": [1], "shape": [1], "dtype": "object"}),
        "array shape": with_fields(plan={"array": [1.0], "shape": [2], "dtype": "float64"}),
    }


def test_damaged_files(tmp_path: Any, document: dict[str, Any]) -> None:
    for name, content in damaged(document).items():
        try:
            refuse(tmp_path, json.dumps(content), "damaged|no fit")
        except BaseException as error:
            raise AssertionError(name) from error


def test_half_a_file(tmp_path: Any) -> None:
    variant("r on gam").save(tmp_path / "fit.json")
    whole = (tmp_path / "fit.json").read_text(encoding="utf-8")
    for share in (0.1, 0.5, 0.999):
        refuse(tmp_path, whole[: int(share * len(whole))], "not a fit")


def test_capabilities_are_the_saved_fits(tmp_path: Any) -> None:
    variant("no averages").save(tmp_path / "fit.json")
    with pytest.raises(CapabilityError, match="average"):
        _ = pc.load(tmp_path / "fit.json").params
