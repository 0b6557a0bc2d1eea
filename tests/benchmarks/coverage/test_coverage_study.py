"""The studies' own arithmetic: verdicts, batches that are taken up again, baselines, truths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import budgets
import cells as running
import draws
import methods
import numpy as np
import pandas as pd
import private_lines
import pytest
import tables
from cells import Batch, Cell
from study_rows import read_rows, store_rows

import privcausal as pc
from privcausal.testing import zero_noise

PLAIN = "difference, no privacy"
CELLS = (Cell("trial", 60, 0.5, (PLAIN,), 0), Cell("trial", 90, 0.5, (PLAIN,), 50))


def found(covered: list[tuple[float, float, float]], repetitions: int = 1000) -> pd.DataFrame:
    rows = pd.DataFrame(covered, columns=list(tables.NOMINAL))
    return rows.assign(data="d", n=1, eps=1.0, repetitions=repetitions)


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worst", "few", "none"),
    # one standard error at 95 % and 1,000 repetitions is .00689
    [(0.945, True, True), (0.935, True, True), (0.930, True, True), (0.929, True, False)],
)
def test_one_cell_below(worst: float, few: bool, none: bool) -> None:
    """One in 21 coverages may lie two standard errors below, none three."""
    away = tables.nominal_verdicts(found([(0.8, 0.9, 0.95)] * 6 + [(0.8, 0.9, worst)]), 1000)
    assert [verdict.holds for verdict in away] == [none, few]


def test_two_of_twenty_one_are_too_many() -> None:
    low = found([(0.8, 0.9, 0.95)] * 6 + [(0.77, 0.9, 0.935)])
    assert [verdict.holds for verdict in tables.nominal_verdicts(low, 1000)] == [True, False]


def test_too_few_repetitions_are_no_verdict() -> None:
    first, *_ = tables.nominal_verdicts(found([(0.8, 0.9, 0.95)], 999), 1000)
    assert first.holds is None


def test_reasons() -> None:
    row = {"failed": 0, "bias": 0.5, "sd": 1.0, "rms_std_error": 0.9, "missed_and_noted": 0.25}
    assert "+0.50 sd, std err 0.90" in tables.reason(row)
    assert "25% of the misses" in tables.reason(row)
    assert "chance" in tables.reason(row | {"bias": 0.1, "rms_std_error": 1.0})


# -- rows ------------------------------------------------------------------------------------------


def test_a_study_that_was_stopped_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    running.run(CELLS, 3, 1, file)
    whole = running.read(file)
    assert whole.groupby("n").size().to_dict() == {60: 3, 90: 3}
    file.unlink()
    appended = file.with_suffix(".csv")
    whole.to_csv(appended, index=False, na_rep="nan")
    appended.write_text(appended.read_text()[:-7])  # stopped while it wrote
    assert len(running.read(file)) == 5
    running.run(CELLS, 5, 1, file)
    again = running.read(file)
    assert again.groupby("n")["repetition"].apply(sorted).tolist() == [[0, 1, 2, 3, 4]] * 2
    kept = again.merge(whole, on=[*running.KEYS, "estimate"])  # no noise: the same seed, the same
    assert len(kept) == 6
    assert not running.batches(CELLS, 5, again)


def test_rows_without_a_known_truth_are_read(tmp_path: Path) -> None:
    running.run(CELLS[:1], 1, 1, tmp_path / "rows.parquet")
    rows = running.read(tmp_path / "rows.parquet").assign(truth=float("nan"), in95=0)
    store_rows(rows, tmp_path / "rows.parquet")
    again = running.read(tmp_path / "rows.parquet")
    assert again["truth"].isna().all() and again["half_width"].notna().all()


def test_stored_rows_are_the_same_numbers(tmp_path: Path) -> None:
    numbers = pd.DataFrame(
        {"six": [0.123456, 123456e7], "more": [1 / 3, 2.0], "whole": [7.0, -70_000.0], "who": "me"}
    )
    numbers.loc[1, "six"] = np.nan
    store_rows(numbers, tmp_path / "rows.parquet")
    kept = pd.read_parquet(tmp_path / "rows.parquet").dtypes.astype(str)
    assert kept[["six", "more", "whole"]].tolist() == ["float32", "float64", "int32"]
    again = read_rows(tmp_path / "rows.parquet", list(numbers), ["who"])
    pd.testing.assert_frame_equal(again, numbers, check_exact=True)


def test_only_what_a_cell_lacks_is_run(tmp_path: Path) -> None:
    running.run(CELLS[:1], 2, 1, tmp_path / "rows.parquet")
    more = Cell("trial", 60, 0.5, (PLAIN, "difference"), 0)
    (first, second) = running.batches((more,), 3, running.read(tmp_path / "rows.parquet"))
    assert first == Batch(more, ("difference",), (0, 1))
    assert second == Batch(more, (PLAIN, "difference"), (2,))


def test_a_fit_that_fails_covers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(draw: Any, eps: float) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(methods.METHODS, PLAIN, broken)
    (row,) = running.run_batch(Batch(CELLS[0], (PLAIN,), (0,)))
    named = dict(zip(running.COLUMNS, row, strict=True))
    assert (named["in80"], named["in95"], named["failed"]) == (0, 0, "ZeroDivisionError")


def test_rows_of_other_code_are_seen(tmp_path: Path) -> None:
    running.run(CELLS[:1], 2, 1, tmp_path / "rows.parquet")
    rows = running.read(tmp_path / "rows.parquet")
    assert not running.stale(rows).any()
    assert running.stale(rows.assign(code=["00000000", rows["code"][1]])).tolist() == [True, False]


def test_the_code_of_a_row_is_what_it_says_and_not_how(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(draw: Any, eps: float) -> Any:
        yield from methods._welch(draw, eps)

    def wider(draw: Any, eps: float) -> Any:
        for fit in methods._welch(draw, eps):
            yield fit._replace(std_error=1.01 * fit.std_error)

    for name, method in (("again", again), ("wider", wider)):
        monkeypatch.setitem(methods.METHODS, name, method)
    assert methods.code("again") == methods.code(PLAIN) != methods.code("wider")


# -- baselines and truths --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("data", ["dataset 1", "dataset 2"])
def test_the_interval_without_privacy_is_about_paper_modes_mean(data: str) -> None:
    draw, base = draws.DRAWS[data](400, 0), pc.bases.Sklearn.kernel()
    with zero_noise():
        fit = pc.paper.private(
            draw.formula, draw.frame, bounds=draw.bounds, base=base,
            below_minimum="published",
        )  # fmt: skip
    mean, error = methods.aipw(draw, base)
    assert mean == pytest.approx(fit.params["ATE"], abs=1e-6)
    assert 0 < error < fit.bse["ATE"]


def test_runs_of_another_share_have_the_noise_of_the_theorem() -> None:
    """At 0.9 they are the stored ones; at half of it, noise is 1.8 times as large or more."""
    table = private_lines.rows("table1").groupby(["data", "method"])
    for data, base in private_lines.ARMS:
        stored = table.get_group((data, f"naive {base} 0.9"))
        same = private_lines.naive_runs(table, data, base, 0.9)
        for level, found in private_lines.coverages(same).items():
            assert found.mean() == stored[f"in{100 * level:.0f}"].mean()
        half = private_lines.naive_runs(table, data, base, 0.5)
        plain = table.get_group((data, f"standard {base}")).set_index("repetition")["estimate"]
        ratio = (half["estimate"] - plain) / (same["estimate"] - plain)
        assert ratio.to_numpy() == pytest.approx(1.8 * np.sqrt(np.log(4e5) / np.log(2e5 / 0.9)))


def test_the_fits_intervals_are_those_at_three_levels() -> None:
    """Of a normal estimate where nothing is cut; a bound of the bias is the same at every level."""
    draw = draws.DRAWS["trial"](500, 0)
    with zero_noise():
        (fit,) = methods.METHODS["difference"](draw, 1.0)
    halves = [(high - low) / 2 / fit.std_error for low, high in fit.limits]
    assert halves == pytest.approx([1.2816, 1.6449, 1.9600], abs=2e-2)
    assert sorted(halves) == halves


@pytest.mark.parametrize(("law", "bias"), [(draws._smooth, 0.0596), (draws._interacting, 0.0495)])
def test_simulated_patients(law: Any, bias: float) -> None:
    if not draws.RHC.exists():
        pytest.skip(f"needs {draws.RHC.name}, which is not shipped")
    x = draws._patients()
    e, baseline, tau = (np.asarray(part) for part in law(draws._units(x)))
    assert e.min() > 0.1 and e.max() < 0.9
    assert baseline.min() > 0 and (baseline + tau).max() < 1
    outcome = baseline + e * tau
    treated, control = np.average(baseline + tau, weights=e), np.average(baseline, weights=1 - e)
    assert treated - control - tau.mean() == pytest.approx(bias, abs=1e-4)
    assert 0.2 < outcome.mean() < 0.8
    columns = [draws.PATIENT_BOUNDS[name] for name in x.columns[2:-1]]
    inside = [x[name].between(*b).all() for name, b in zip(x.columns[2:-1], columns, strict=True)]
    assert all(inside) and set(x["cat1"]) <= set(draws.DISEASES)


# -- Figures 5 and 6 of PrivATE ------------------------------------------------------------------


def test_the_utility_of_figure_5_is_a_weighted_sum() -> None:
    """Of privacy and narrowness, each 0 to 1 over the grid; the naive interval has no privacy."""
    epsilons = [eps for _, eps in budgets.GRIDS["eps"]]
    widths = {"paper kernel 0.9": 1.0, "bootstrap kernel": 10.0, "naive kernel 0.9": 0.1}
    rows = pd.DataFrame(
        [
            {"n": budgets.ROWS, "eps": eps, "method": method, "half_width": width}
            for eps in epsilons
            for method, width in widths.items()
        ]
    )
    only_width, only_privacy = (budgets.utility(rows, weight) for weight in (0.0, 1.0))
    np.testing.assert_allclose(only_width.iloc[0], [0.5, 0.0, 1.0], atol=1e-12)
    assert (only_privacy["naive"] == 0).all()
    assert only_privacy["PrivATE"].iloc[[0, -1]].tolist() == [1, 0]
    half = budgets.utility(rows, 0.5)
    np.testing.assert_allclose(half, 0.5 * (only_width + only_privacy))


def test_parts_of_a_trial_have_a_difference_that_covers() -> None:
    """Without noise to speak of it is the mean of the parts' differences, and covers."""
    inside = []
    for seed in range(40):
        draw = draws.DRAWS["trial"](1000, seed)
        (fit,) = methods.METHODS["aggregated"](draw, 1e9)
        low, high = fit.limits[-1]
        inside.append(low <= draw.truth <= high)
    y, t = methods.arms(draw)
    assert fit.estimate == pytest.approx(y[t == 1].mean() - y[t == 0].mean(), abs=0.02)
    assert sum(inside) >= 30  # false alarm: 4e-6 at 95 %
    (noisy,) = methods.METHODS["aggregated"](draw, 0.5)
    width = draw.bounds["Y"][1] - draw.bounds["Y"][0]
    noise = np.sqrt(2) * 2 * width / methods.PARTS / 0.25  # Laplace, half of eps
    assert noisy.std_error >= noise
