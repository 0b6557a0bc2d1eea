"""The laboratory's own arithmetic: laws and their truths, halves, rows, tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fits
import kinds
import limits
import numpy as np
import pandas as pd
import populations
import pytest
import run
import shown
import verdicts
from families import FAMILIES
from kinds import cells, drawn

CALL = ["--cells", "1", "--reps", "4", "--methods", "private,plain"]


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("u", [-1.0, 0.7])
def test_moments_are_those_of_draws(name: str, u: float) -> None:
    """Each of 16 x 2 tests is false at 5 standard errors in one of a million runs or so; the
    error of a variance is estimated from the draws."""
    rng = np.random.default_rng(len(name))
    family = FAMILIES[name](rng)
    y = family.draw(rng, np.full(1_000_000, u)).astype(float)
    mean, variance = (float(m) for m in family.moments(np.array(u)))
    low, high = family.support
    assert low <= y.min() and y.max() <= high
    assert abs(y.mean() - mean) < 5 * np.sqrt(variance / len(y))
    squares = (y - mean) ** 2
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(len(y))


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", kinds.LAWS)
def test_the_oracle_is_right_and_rows_lie_within_their_bounds(kind: str) -> None:
    """The oracle's mean over 200,000 rows is within 5 of its standard errors (false: 6e-7)."""
    for number in (0, 1):
        cell = drawn("laws", kind, number)
        known = populations.population(cell.law)
        found = populations.sample(cell.law, 200_000, number)
        assert abs(found.oracle - known.truth) < 5 * known.sd / np.sqrt(200_000)
        assert known.error < 0.02 * known.sd / np.sqrt(cell.n)  # no part of an interval
        assert abs(found.frame["T"].mean() - cell.law.share) < 5 * np.sqrt(0.25 / 200_000)
        for name, public in cell.bounds.items():
            values = found.frame[name]
            labels = isinstance(public, list)
            assert (values.isin(public) if labels else values.between(*public)).all()


@pytest.mark.slow
def test_confounding_moves_the_plain_difference_where_it_should() -> None:
    """... and by lot it does not: the bias of a difference in means, in oracle half-widths."""
    for kind in ("confounding linear", "confounding products", "confounding transforms"):
        moved = [_moved(drawn("laws", kind, number)) for number in range(10)]
        assert np.median(np.abs(moved)) > 0.5
    for kind in ("trial", "confounding none"):
        assert max(abs(_moved(drawn("laws", kind, number))) for number in range(10)) < 1e-6


def _moved(cell: kinds.Cell) -> float:
    return populations.population(cell.law).moved / fits.oracle_half(cell)


def test_aa_cells_have_no_effect_and_the_same_rest() -> None:
    for kind in ("threshold rules", "outcome counts"):
        cell, aa = drawn("laws", kind, 3), drawn("aa", kind, 3)
        assert populations.population(aa.law).truth == 0 and aa.lot
        assert (aa.n, aa.formula, aa.bounds, aa.law.share) == (
            cell.n, cell.formula, cell.bounds, cell.law.share,
        )  # fmt: skip


def test_looser_bounds_hold_the_tight_ones() -> None:
    for kind in ("outcome bounds x20", "covariate bounds x20"):
        cell = drawn("laws", kind, 0)
        tight = replace(cell, loose_outcome=1.0, loose_covariates=1.0).bounds
        pairs = [(b, tight[x]) for x, b in cell.bounds.items() if isinstance(b, tuple)]
        for (low, high), (at, end) in pairs:
            assert low <= at + 1e-9 and end - 1e-9 <= high
        ratios = {round((b[1] - b[0]) / (t[1] - t[0]), 6) for b, t in pairs}
        assert ratios == {1.0, 20.0}


# -- halves ----------------------------------------------------------------------------------------


def test_the_halves_are_fixed() -> None:
    """Numbers that belong to a half must never change: rows of the other were not to be seen."""
    kind = "outcome normal"
    assert [c.number for c in cells("laws", "build", kind, 6)] == BUILD
    both = {c.number for half in kinds.HALVES for c in cells("laws", half, kind, 40)}
    assert both >= set(range(60)) and drawn("laws", kind, BUILD[0]).half == "build"


BUILD = [0, 4, 5, 6, 8, 10]


def test_the_reporting_half_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    call = [*CALL, "--kinds", "trial", "--half", "report", "--out", str(tmp_path / "rows.csv")]
    assert run.main(call) == 2
    monkeypatch.setattr(fits, "commit", lambda: "0123456789+")
    assert run.main([*call, "--report"]) == 2
    assert not (tmp_path / "rows.csv").exists()


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    call = [*CALL, "--kinds", "trial", "--out", str(file)]
    assert run.main(call) == 0
    whole = fits.read(file)
    assert len(whole) == 8 and (whole["failed"] == "").all()
    file.write_text(file.read_text()[:-9])  # stopped while it wrote
    assert run.main(call) == 0
    again = fits.read(file)
    kept = again.merge(whole, on=[*fits.KEYS, "estimate", "low", "high80"])
    assert len(again) == len(kept) == 8  # seeded: the same numbers
    file.write_text(file.read_text().replace(fits.code(), "0000000000"))
    assert run.main(call) == 2  # rows of other code are not mixed


@pytest.mark.slow
def test_a_fit_that_fails_covers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(fits.METHODS, "plain", broken)
    cell = drawn("laws", "trial", 0)
    (row,) = fits.rows(cell, [0], ["plain"], [1.0])
    named = dict(zip(fits.COLUMNS, row, strict=True))
    assert named["failed"] == "ZeroDivisionError"
    rows = _table([named])
    assert shown.by_cell(rows)["cover"].tolist() == [0.0]


# -- tables ----------------------------------------------------------------------------------------


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame[fits.NUMBERS] = frame[fits.NUMBERS].astype(float)
    frame[fits.WHOLE] = frame[fits.WHOLE].astype(int)
    return frame


def _made(method: str, half: float, size: int = 400, **other: Any) -> list[dict[str, Any]]:
    """Estimates whose errors are standard normal, with intervals of +- `half`."""
    errors = np.random.default_rng(1).standard_normal(size)
    fixed = dict.fromkeys(fits.COLUMNS, "") | {
        "study": "laws", "kind": "trial", "cell": 0, "n": 100, "loose_outcome": 1,
        "loose_covariates": 1, "eps": 1, "method": method, "p": 1, "truth": 0, "aim": 0,
        "oracle": 1, "oracle_half": 1.96, "notes": 0, "warnings": 0, "seconds": 1,
    }  # fmt: skip
    return [
        fixed | {"seed": k, "estimate": e, "low": e - half, "high": e + half, "low80": e - half,
                 "high80": e + half} | other
        for k, e in enumerate(errors)
    ]  # fmt: skip


def test_a_table_says_what_the_rows_hold() -> None:
    rows = _table([*_made("private", 2 * 1.96), *_made("plain", 1.96)])
    found = shown.by_cell(rows)
    line = shown.by_kind(found[found["method"] == "private"], found).loc["ALL"]
    assert line["cover"] > 0.99 and line["width"] == pytest.approx(2)
    assert line["factor"] == pytest.approx(0.5, abs=0.06)
    assert line["rmse/plain"] == pytest.approx(1)
    held = found.loc[found["method"] == "plain", "cover"].item()
    assert abs(held - 0.95) < 0.055  # 5 standard errors


def test_rejections_are_counted() -> None:
    few = shown.rejections(_table(_made("private", 1.96, study="aa")))
    many = shown.rejections(_table(_made("private", 1.0, study="aa")))
    assert few["p"].max() > 1e-6 > many["p"].max()
    assert many["cells above"].tolist() == [1, 1]


def test_growth_is_starred() -> None:
    rows = [
        row
        for cell in range(6)
        for n, half in ((100, 1.0 + cell / 100), (400, 1.2 + cell / 100))
        for row in _made("private", half, 20, cell=cell, n=n)
    ]
    assert "1.20*" in shown.text(_table(rows), 0)


def test_verdicts_name_the_kinds_that_miss() -> None:
    rows = _table(
        [
            *_made("private", 1.96, 200, kind="trial"),
            *_made("private", 1.0, 200, kind="threshold rules"),
        ]
    )
    found = shown.by_cell(rows)
    said = verdicts.verdicts(found, shown.by_kind(found, found).drop(index=shown.TOTALS))
    assert [verdict.holds for verdict in said[:2]] == [False, False]
    assert "threshold rules" in said[0].text and "trial" not in said[0].text
    assert not any("plain" in verdict.text for verdict in said)


def test_two_versions_of_the_code_are_compared_where_both_have_rows() -> None:
    new = _table(_made("private", 1.0, 50, code="new"))
    old = _table([*_made("private", 2.0, 80, code="old"), *_made("plain", 2.0, 80, code="old")])
    said = shown.beside(new, old)
    assert "x 0.50" in said and "plain" not in said


# -- limits ----------------------------------------------------------------------------------------


def _spread(scale: float, half: float) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    wide = half * (1 + 0.01 * rng.random(20))
    return pd.DataFrame({"half": wide, "error": scale * rng.standard_normal(20)})


def test_a_rise_is_seen_and_a_fall_is_not() -> None:
    up = limits.rise(_spread(1, 1), _spread(4, 2))
    down = limits.rise(_spread(4, 2), _spread(1, 1))
    assert up["half rises"] and up["rmse rises"]
    assert up["rmse"] == pytest.approx(4) == 1 / down["rmse"]
    assert not down["half rises"] and not down["rmse rises"]


def test_tails_are_measured_from_the_median() -> None:
    mse = np.r_[np.ones(990), np.full(10, 7.0)]
    said = list(map(str, limits.tail("law", mse, 2.0)))
    assert "1.00% of fits above 1.1" in said[0]  # a root of 7 is above 2.2, of 1 is not
    assert [text[:4] for text in said[1:]] == ["PASS", "FAIL"]
