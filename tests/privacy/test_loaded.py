"""A saved fit may come from anyone: what is in it tells nothing of a row but by its price."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_helpers import refused
from hostile_fits import (
    CALLS,
    CRAFTED,
    LOOKS,
    STRANGE,
    alike,
    crafted,
    document,
    edited,
    fitted,
    loaded,
    mutated,
    priced,
    seen,
    table,
    written,
)

import privcausal as pc
from privcausal.errors import CapabilityError, DataError
from privcausal.results import stored as serial
from privcausal.testing import seeded_noise

RELATIONS = ("substitute", "add_remove")
CASES = 30
"""Files of each kind of fit."""


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", CALLS)
def test_an_honest_file_is_loaded_and_its_looks_are_alike(kind: str, relation: Any) -> None:
    fit = loaded(document(kind, relation))
    assert fit is not None
    assert written(fit) == document(kind, relation)
    released = 0
    for look in LOOKS:
        released += bool(seen(fit, look, table())[1])
        one = seen(fit, look, table({}) if relation == "substitute" else table())
        for row in STRANGE:
            alike(fit, look, one, table(row))
    assert released >= (kind != "polynomials")


@pytest.fixture
def agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a file can state the results that its numbers lead to."""
    monkeypatch.setattr(serial, "_agree", lambda estimate, _: bool(serial._results(estimate)))


def test_noise_and_prices_follow_from_the_request_and_not_from_the_file(agreed: None) -> None:
    """A file states neither, but may ask for less noise: its price is then higher."""
    fit = loaded(document("cuts"))
    ask = "asked/RowRequest/request/Request/budget/Budget/epsilon"
    dearer = loaded(priced(json.loads(edited("cuts", ask, 2.0))))
    one, two = fit.budget, dearer.budget
    assert (two["noise_sd"] < one["noise_sd"]).all()
    assert (two["rho"] > one["rho"]).all()
    for lines in (one, two):
        bought = 0.5 * (lines["sensitivity"] / lines["noise_sd"]) ** 2
        assert bought.to_numpy() == pytest.approx(lines["rho"].to_numpy(), rel=1e-9)


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused(name: str) -> None:
    assert loaded(crafted(name)) is None


LIMITED = """
import resource, sys, time
import privcausal as pc
from privcausal.errors import DataError
import privcausal.results.stored, privcausal.learners, formulaic, scipy.stats, pandas
from privcausal.features.design import Design
pc.load(sys.argv[1])  # an honest file: what every load needs is there
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), used + (1 << 29)))
for path in sys.argv[2:]:
    start = time.process_time()
    try:
        pc.load(path)
        print("loaded")
    except DataError:
        print("refused", time.process_time() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux's")
def test_small_files_take_little_memory_and_time(tmp_path: Path) -> None:
    """Half a gigabyte beside what the package has, and a few seconds."""
    honest, paths = tmp_path / "honest.json", []
    honest.write_text(document("r by gam"))
    for number, name in enumerate(CRAFTED):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(crafted(name))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIMITED, str(honest), *map(str, paths)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == len(paths), done.stderr[-2000:]
    for name, line in zip(CRAFTED, lines, strict=True):
        assert line.startswith("refused"), name
        assert float(line.split()[1]) < 5, name


def test_a_file_larger_than_any_fit_is_not_read(tmp_path: Path, limits: Any) -> None:
    path = tmp_path / "fit.json"
    path.write_text(document("cells"))
    pc.load(path)
    with limits(LARGEST=1000), pytest.raises(DataError, match="not a fit"):
        pc.load(path)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", CALLS)
def test_whatever_a_file_holds_neighbours_look_alike(
    kind: str, relation: Any, agreed: None
) -> None:
    """Of the files that load, every look comes to the same, within the stated sensitivity."""
    rng = np.random.default_rng([list(CALLS).index(kind), RELATIONS.index(relation)])
    content, kept = document(kind, relation), 0
    for number in range(CASES):
        fit = loaded(mutated(content, rng))
        if fit is None:
            continue
        kept += 1
        row = STRANGE[number % len(STRANGE)]
        pairs = [(table({}), table(row))]
        if relation == "add_remove":
            pairs = [(table(), table(row)), (table(size=0), table(row, size=0))]
        for look in LOOKS:
            for one, two in pairs:
                alike(fit, look, seen(fit, look, one), two)
    assert kept


# -- points that are not known --------------------------------------------------------------------


def test_elsewhere_than_at_its_points_an_effect_is_no_number_and_predict_says_so() -> None:
    with seeded_noise(1):  # noise decides the range of x, to which points are clipped
        fit = pc.privcate(
            "Y ~ T | x", table(), learner=pc.learners.DPCATE(queries={"x": np.array([1.0, 2.0])}),
            base=pc.bases.Kernel(functions=6), bounds={"Y": (0, 1), "x": (0, 8)},
        )  # fmt: skip
    again = loaded(written(fit))
    assert np.isfinite(again.predict({"x": [1.0]})["estimate"]).all()
    with pytest.raises(CapabilityError, match="only at the 2 points of queries="):
        again.predict({"x": [1.0, 3.0]})


# -- one way to fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [pc.errors.CapabilityError, DataError, ValueError, KeyError])
def test_every_failure_on_rows_is_told_in_the_same_words(error: Any, broken: Any) -> None:
    """An error of the package's own does not say which it was."""
    fit = fitted("dr by linear")
    failing = broken("vault.queries.sums.ArmHistogram.integers", error("x of row 17 is no point"))
    with failing, refused(DataError, "A step on the rows failed", 17):
        fit.overlap(table(), eps=1.0)


def test_a_source_that_cannot_be_read_says_so(tmp_path: Path, broken: Any) -> None:
    """In words of its own, whatever the rows hold."""
    path = tmp_path / "rows.parquet"
    table().to_parquet(path)
    fit = fitted("dr by linear")
    reading = broken("vault.sources.stored._batches", ZeroDivisionError())
    with reading, pytest.raises(DataError, match="Not all rows could be read") as caught:
        fit.overlap(path, eps=1.0)
    assert type(caught.value) is DataError
