"""Design columns: whatever labels and columns are called, none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.features.design import UNDECLARED_LABEL as MARKER
from privcausal.features.design import Design
from privcausal.features.functions import FEW_ROWS, combine
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Schema

ODD = ["<undeclared>", "undeclared", MARKER, f"a{MARKER}", f"<{MARKER}>", MARKER[:-1], MARKER[1:]]


def design(levels: list[str], right: str = "x + C(g)") -> Design:
    terms = CausalFormula.parse(f"y ~ t | {right}").terms
    schema = Schema({"x": (0, 1), "x<undeclared>": (0, 1), "g": levels})
    return Design(terms, schema, full_rank=False)


def test_the_label_of_undeclared_levels_cannot_be_typed() -> None:
    assert not MARKER.isprintable()


@pytest.mark.parametrize("odd", ODD)
def test_no_label_costs_its_column(odd: str) -> None:
    names = [column.name for column in design(["a", odd, "c"]).columns]
    assert names == ["x", *(f"C(g)[{label}]" for label in ("a", odd, "c"))]


def test_no_column_name_costs_a_column() -> None:
    assert len(design(["a", "b"], "`x<undeclared>` + `x<undeclared>`:C(g)")) == 3


@pytest.mark.parametrize("levels", [["a", "b"], ["a", *ODD]])
def test_an_undeclared_level_is_in_no_column(levels: list[str]) -> None:
    found = design(levels)
    codes = np.array([*range(len(levels)), -1])
    scaled = found.scaled({"x": np.full(len(codes), 0.5), "g": codes}, len(codes))
    indicators = scaled[:, [c.name != "x" for c in found.columns]]
    assert indicators.tolist() == [*np.eye(len(levels)).tolist(), [0.0] * len(levels)]
    assert not any(found._undeclared in column.name for column in found.columns)


def test_few_rows_give_the_bits_of_many() -> None:
    """Both ways to sum have one order."""
    rng = np.random.default_rng(4)
    phi, coef = rng.standard_normal((3 * FEW_ROWS, 90)), rng.standard_normal(90)
    whole = combine(phi, coef)
    for at in (slice(0, 1), slice(5, 66), slice(10, 10 + FEW_ROWS)):
        assert np.array_equal(combine(phi[at], coef), whole[at])
        assert np.array_equal(combine(np.asfortranarray(phi[at]), coef), whole[at])
    assert np.array_equal(combine(np.zeros((4, 0)), np.zeros(0)), np.zeros(4))
