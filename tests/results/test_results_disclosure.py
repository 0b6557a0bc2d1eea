"""The reviewer's papers, a registry record, a privacy label and a checklist, come from the fit."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from results_fits import BOUNDS, FORMULA, study

import privcausal as pc
from privcausal.errors import CapabilityError
from privcausal.results.disclosure import EVIDENCE, SECTORS
from privcausal.results.guarantee import KINDS

ROOT = Path(__file__).parents[2]
PERSON = {
    "name": "Mailing & cost, \"2026\"", "curators": ["Post: Office"], "use": "- to decide #1",
    "region": "yes", "published": "2026-10-01",
}  # fmt: skip
"""What only a person knows, spelt so that careless YAML would read it as something else."""

WHOLE = {
    "": "url_slug status tier deployment",
    "deployment": "basic dp_variant privacy_loss deployment_model accounting implementation "
    "administrative",
    "basic": "name data_curators intended_use data_product_type data_product_region description "
    "publication_date data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources registry_authors",
}
"""All fields but `notes` at tier 3, by opendp/deployments-registry-data at 3e9c812."""

CHOICES = {
    "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    "model_name": {"Local", "Central", "Shuffle", "Federated"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
    "data_product_type": {"Summary statistics", "Machine learning model", "Dataset",
                          "Synthetic data", "Interactive API", "SQL queries"},
    "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy",
                            "Finance"},
    "status": {"Draft"}, "tier": {3},
}  # fmt: skip
"""What the schema lets stand in a field, of what a new record may say."""


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Fits with real noise: what was made with test noise has no papers."""
    frame = study(300)
    ledger = pc.Ledger(tmp_path_factory.mktemp("ledger") / "l.db", "post", eps=4, delta=1e-6)
    call = {"base": "linear", "bounds": BOUNDS}
    return {
        "rows": pc.private(FORMULA, frame, eps=2, **call),
        "units": pc.private(
            FORMULA, frame, eps=1.2345678, delta=1e-6, unit="pid", max_rows=2,
            neighbors="add_remove", ledger=ledger, **call,
        ),
        "bought": pc.private("cost ~ mailed | age", frame, eps=8),
        "published": pc.paper.private("cost ~ mailed | age", frame, eps=8, bounds=BOUNDS,
                                      below_minimum="published"),
    }  # fmt: skip


def record(fit: Any, folder: Path, **given: Any) -> tuple[dict[str, Any], str]:
    path = folder / "record.yaml"
    fit.registry(path, **PERSON | given)
    text = path.read_text(encoding="utf-8")
    return yaml.safe_load(text), text


def groups(node: dict[str, Any], name: str = "") -> dict[str, dict[str, Any]]:
    """Each group of fields by its name, the record itself under ""."""
    found = {name: node}
    for key, value in node.items():
        if isinstance(value, dict) and key != "privacy_parameters":
            found |= groups(value, key)
    return found


@pytest.mark.parametrize("name", ["rows", "units", "bought", "published"])
def test_a_record_passes_the_registrys_checks_at_tier_three(
    fits: dict[str, Any], name: str, tmp_path: Path
) -> None:
    """Fields, types, enumerations; no folded text; the slug as it is made there."""
    content, text = record(fits[name], tmp_path, sector="Government", sources="[site](x)")
    found = groups(content)
    assert {name: {*group} for name, group in found.items()} == {
        name: set(fields.split()) for name, fields in WHOLE.items()
    }
    for key, value in ((k, v) for group in found.values() for k, v in group.items()):
        assert value, key
        assert key not in CHOICES or value in CHOICES[key], key
        kind = {"tier": int, "data_curators": list, "registry_authors": list}.get(key, str)
        assert key in {*WHOLE, "privacy_parameters"} or type(value) is kind, key
    assert {*map(type, found["privacy_loss"]["privacy_parameters"].values())} == {float}
    date.fromisoformat(found["basic"]["publication_date"])
    styles = {token.style for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)}
    assert styles <= {None, '"', "'", "|"}
    assert text.startswith("url_slug: mailing-cost-2026--post-office-2026\n")
    assert not re.search(r"\\\\[^()]", str(content).replace("\\\\", "\\"))


def test_what_a_person_says_stays_text(fits: dict[str, Any], tmp_path: Path) -> None:
    content, _ = record(fits["rows"], tmp_path)
    basic = content["deployment"]["basic"]
    assert [basic["name"], basic["intended_use"], basic["data_product_region"]] == [
        PERSON["name"], PERSON["use"], PERSON["region"],
    ]  # fmt: skip
    assert content["deployment"]["administrative"]["registry_authors"] == PERSON["curators"]


def test_privacy_is_that_of_the_guarantee(fits: dict[str, Any], tmp_path: Path) -> None:
    for fit in fits.values():
        told, _ = record(fit, tmp_path)
        loss = told["deployment"]["privacy_loss"]
        found, promise = loss["privacy_parameters"], fit.guarantee
        assert promise.epsilon <= found["epsilon"] <= promise.epsilon * 1.001
        assert found.get("delta", 0.0) == promise.delta
        assert promise.statement in loss["privacy_parameters_details"]
        assert promise.neighbors in loss["privacy_unit_details"]
        assert f"{len(fit.plan.stages)} stages" in told["deployment"]["accounting"]["composition"]


def test_each_kind_of_fit_is_told_apart(fits: dict[str, Any], tmp_path: Path) -> None:
    told = {name: record(fit, tmp_path)[0]["deployment"] for name, fit in fits.items()}
    public = {name: t["dp_variant"]["unprotected_quantities"] for name, t in told.items()}
    assert "the number of rows" in public["rows"]
    assert "the number of" not in public["units"]
    assert told["units"]["privacy_loss"]["privacy_unit"] == "One pid (at most 2 rows)"
    assert "'post'" in told["units"]["deployment_model"]["release_type_details"]
    assert "No ledger" in told["rows"]["deployment_model"]["release_type_details"]
    tuned = "preprocessing_and_hyperparameter_tuning"
    assert "estimated privately" in told["bought"]["implementation"][tuned]
    assert "estimated privately" not in told["rows"]["implementation"][tuned]
    assert "CLAIMED, NOT PROVEN" in told["published"]["privacy_loss"]["privacy_parameters_details"]
    for key in ("mechanisms", "justification"):
        assert "not proven" in told["published"]["implementation"][key]
        assert "not proven" not in told["rows"]["implementation"][key]


def test_a_table_with_noise_of_its_maker_is_said_to_be_one(tmp_path: Path) -> None:
    cells = {
        "cell": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1],
        "count": [899.3, 101.2, 498.8, 503.0], "sum": [88.1, 21.7, 51.0, 99.9],
    }  # fmt: skip
    fit = pc.from_cells(pd.DataFrame(cells), ["a", "b"], eps=1, noise={"count": 3, "sum": 3})
    told = record(fit, tmp_path)[0]["deployment"]
    assert "already contained noise" in told["accounting"]["composition"]
    assert told["dp_variant"]["variant_name"] == "Pure DP"
    assert "delta" not in told["privacy_loss"]["privacy_parameters"]
    assert "not proven" in told["implementation"]["mechanisms"]
    assert "CLAIMED, NOT PROVEN" in str(fit.label())


def test_a_refused_record_leaves_no_file(fits: dict[str, Any], tmp_path: Path) -> None:
    for name, given in (("record.yaml", {"curators": []}), ("My record.yaml", {})):
        with pytest.raises(CapabilityError, match=r"curators=|a-z, 0-9"):
            fits["rows"].registry(tmp_path / name, **PERSON | given)
    assert not list(tmp_path.iterdir())


def test_sectors_are_the_registrys() -> None:
    assert CHOICES["data_product_sector"] == {*SECTORS}


@pytest.mark.parametrize("name", ["rows", "units", "bought", "published"])
def test_the_label_is_one_page(fits: dict[str, Any], name: str) -> None:
    fit = fits[name]
    label = fit.label(name="Mailing", curator="Post", contact="post@example.org")
    text = label.as_text()
    assert len(text.splitlines()) <= 60
    assert all(len(line) <= 78 for line in text.splitlines())
    for word in (
        "Mailing",
        "post@example.org",
        KINDS[fit.guarantee.kind],
        f"{fit.guarantee.delta:g}",
    ):
        assert word in text
    assert "<table" in label.as_html()
    assert ("CLAIMED, NOT PROVEN" in text) is (name == "published")


def planned(**call: Any) -> Any:
    whole = BOUNDS | {"smoker": [False, True]}
    return pc.plan(FORMULA, bounds=whole, base="linear", **{"n": 2000, "eps": 1.5} | call)


@pytest.mark.slow
def test_the_checklist_answers_from_the_plan() -> None:
    found = str(planned(neighbors="add_remove", unit="pid", max_rows=3).checklist())
    flat = " ".join(found.split())
    assert "epsilon 1.5, delta 1e-05" in flat
    assert "One pid (at most 3 rows)" in flat
    assert "Budget of a fit: " in flat
    assert "Public: the declared domains" in flat
    assert "Public: the number of rows" in " ".join(str(planned().checklist()).split())
    least, most = planned().table[["half-width from", "half-width to"]].iloc[0]
    assert f"+/- {least:.3g} to {most:.3g} (in about 80% of fits)" in " ".join(
        str(planned().checklist()).split()
    )
    pure = pc.plan("cost ~ mailed | ward", n=2000, eps=2, bounds=BOUNDS, learner="adum")
    assert "Pure DP: epsilon 2." in str(pure.checklist())
    for head in EVIDENCE:
        assert f"\n{head}\n" in found


@pytest.mark.slow
def test_a_checklist_of_several_fits_says_what_is_the_same_once() -> None:
    plan = planned(eps=[1, 2])
    flat = " ".join(str(plan.checklist()).split())
    assert "epsilon 1, delta 1e-05." in flat
    assert "epsilon 2, delta 1e-05." in flat
    for eps, width in zip((1, 2), plan.table["half-width to"], strict=True):
        assert f"at eps = {eps}, the expected 95% interval of the average effect" in flat
        assert f" to {width:.3g} (in about 80% of fits)" in flat
    assert flat.count("Public: the number of rows") == flat.count("The noise is the same") == 1


def test_what_the_checklist_points_to_exists() -> None:
    for places in EVIDENCE.values():
        for place in places.split(", "):
            assert (ROOT / place).exists(), place


def test_a_checklist_of_several_prices_rounds_each_up() -> None:
    plan = pc.plan("Y ~ T", n=1000, eps=[1 / 3, 1.2345678], bounds={"Y": (0, 1)})
    text = " ".join(str(plan.checklist()).split())
    assert "at eps = 0.3334, the" in text
    assert "at eps = 1.235, the" in text
