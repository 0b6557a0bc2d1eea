"""What stored fits show is what it was: text, LaTeX, HTML, Markdown and the report."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeded
from golden_files import FITS, HERE, LONG, texts

import privcausal as pc


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return texts()


@pytest.mark.slow
def test_every_format_is_the_stored_one(made: dict[str, str]) -> None:
    """`golden_files.py` writes them anew; read the difference before keeping it."""
    changed = [n for n, text in made.items() if text != (HERE / n).read_text(encoding="utf-8")]
    assert changed == []


def test_nothing_else_is_stored(made: dict[str, str]) -> None:
    stored = {path.name for path in Path(HERE).iterdir() if path.suffix not in (".py", ".json", "")}
    assert stored == set(made)


def test_text_is_narrow_and_ascii(made: dict[str, str]) -> None:
    for name, text in made.items():
        if name.endswith(".txt"):
            assert text.isascii()
            assert max(map(len, text.split("\n"))) <= 78, name


def test_long_names_are_cut_in_the_middle_and_whole_in_the_tables(made: dict[str, str]) -> None:
    grids, _, _ = made["long.txt"].partition("Effect by modifier")
    assert LONG not in grids.partition("std err")[2]
    assert "systolic" in made["long.txt"]
    assert "mercury" in made["long.txt"]
    assert LONG in made["long.html"]
    whole = pc.load(HERE / "long.json").summary(full=True).tables
    assert any(LONG in frame.index for frame in whole)


@pytest.mark.slow
def test_stored_fits_are_marked(made: dict[str, str]) -> None:
    for name in FITS:
        assert pc.load(HERE / f"{name}.json").guarantee.kind == "none"
        for suffix in ("txt", "tex", "html", "md"):
            assert "NOT PRIVATE" in made[f"{name}.{suffix}"]


@pytest.mark.slow
def test_seeded_fits_are_the_same_each_time(tmp_path: Path) -> None:
    """By which a change of structure is held against what it should not move."""
    folders = tmp_path / "first", tmp_path / "again"
    for folder in folders:
        folder.mkdir()
    first, again = (seeded.found(one, every) for one, every in zip(folders, (1, 5), strict=True))
    assert len(first) > 60 and len(again) > 12
    assert seeded.moved(first, again) == ([], [])
    text, numbers = first["linear"]
    for shift, names in ((1e-12, []), (1e-6, ["linear"])):
        other = [[v + shift * row[1] for v in row] for row in numbers]
        assert seeded.moved({"linear": ("x", other)}, {"linear": (text, numbers)}) == (
            ["linear"],
            names,
        )
