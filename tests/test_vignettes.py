"""Every page of the site runs, block by block, as it stands."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import privcausal as pc

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "vignettes").rglob("*.md"))
sys.path.insert(0, str(ROOT / "vignettes"))

import execute  # noqa: E402


def test_the_start_page_lists_every_page_once() -> None:
    index = (ROOT / "vignettes" / "index.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "vignettes").with_suffix("").as_posix() for page in PAGES]
    listed = re.findall(r"^[a-z-]+/[a-z-]+$", index, re.M)
    assert sorted([*listed, "index"]) == sorted(pages)


@pytest.mark.slow
@pytest.mark.sample(19)
@pytest.mark.parametrize("page", PAGES[::-1], ids=lambda page: page.stem)  # the first takes longest
def test_runs(page: Path) -> None:
    start, names = time.process_time(), {"__name__": "__main__"}
    blocks = list(execute.run(page, names))
    assert time.process_time() - start < execute.LONGEST
    absent = [block.missing for block in blocks if block.missing]
    if absent and len(absent) == len(blocks):
        pytest.skip(f"needs {', '.join(sorted(set(absent)))}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_found(page: Path) -> None:
    """One that is not would not run."""
    text = page.read_text(encoding="utf-8")
    written = text.count("```python\n") + text.count("```R\n")
    assert len(list(execute.BLOCK.finditer(text))) == written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), target


# -- the runner itself --------------------------------------------------------------------------


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_blocks_share_names_and_an_empty_folder(tmp_path: Path) -> None:
    page = _page(
        tmp_path,
        "```python\nimport os\na = os.listdir()\n```\ntext\n```python\nprint(a, 1 + 1)\n```\nend\n",
    )
    before = os.getcwd()
    shown = execute.shown(page, page.read_text(encoding="utf-8"))
    assert "[] 2" in shown
    assert shown.index("[] 2") < shown.index("end")
    assert os.getcwd() == before


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = _page(tmp_path, "one\ntwo\n```python\nx = 1\nraise KeyError('here')\n```\n")
    with pytest.raises(KeyError) as error:
        list(execute.run(page, {}))
    assert error.traceback[-1].lineno + 1 == 5


def test_a_figure_is_shown_with_its_words(tmp_path: Path) -> None:
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
    page = _page(tmp_path, f'```python\n# figure: a "line"\n{draw}```\n')
    (block,) = execute.run(page, {})
    assert len(block.figures) == 1
    assert 'alt="a &quot;line&quot;"' in block.markdown
    assert "# figure" not in execute.shown(page, page.read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="a figure without"):
        list(execute.run(_page(tmp_path, f"```python\n{draw}```\n"), {}))
    sys.modules["matplotlib.pyplot"].close("all")


def test_a_block_without_its_package_is_told(tmp_path: Path) -> None:
    page = _page(tmp_path, "```python\n# needs: no_such_package\nraise SystemExit\n```\n")
    (block,) = execute.run(page, {})
    assert block.missing == "no_such_package"
    assert "it needs the package no_such_package" in block.markdown


# -- blocks of R ---------------------------------------------------------------------------------

LAST = """# needs: broom
write.csv(tidy(fit, conf.level = 0.9), "tidy.csv", row.names = FALSE)
write.csv(glance(fit), "glance.csv", row.names = FALSE)
"""


def in_r(blocks: list[str]) -> list[str]:
    """What they print. Without their packages the test is skipped, or fails where it must run."""
    shown = list(execute.run_r(blocks))
    lacking = sorted({each for _, each in shown if each not in (None, "modelsummary")})
    if lacking:
        assert os.environ.get("PRIVCAUSAL_CI") != "1", lacking
        pytest.skip(f"needs the packages of R {', '.join(lacking)}")
    return [printed for printed, _ in shown]


@pytest.mark.slow
def test_r_has_the_numbers_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: Callable[..., str]
) -> None:
    """The page for users of R, whose rows have missing values, and what broom's generics give."""
    needs("Rscript")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "vignettes" / "tutorials" / "from-r.md").read_text(encoding="utf-8")
    in_r([*re.findall(r"^```R\n(.*?)^```\n", page, re.M | re.S), LAST])
    fit = pc.load("fit.json")
    tidy, facts = (pd.read_csv(f"{n}.csv", keep_default_na=False) for n in ("tidy", "glance"))
    assert list(tidy)[:7] == [
        "term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high"
    ]  # fmt: skip
    own = fit.tidy(alpha=0.1).set_axis(list(tidy), axis=1)
    pd.testing.assert_frame_equal(tidy, own, check_dtype=False, rtol=1e-12)
    pd.testing.assert_frame_equal(
        facts, fit.glance().rename(columns={"n": "nobs"}), check_dtype=False, rtol=1e-12
    )
    assert abs(fit.params.item() - 5) < 6 * fit.bse.item()


@pytest.mark.slow
def test_blocks_of_r_share_a_session_and_fail_aloud(needs: Callable[..., str]) -> None:
    needs("Rscript")
    assert in_r(["a <- 1", "a + 1\n", "cat('no', 'end')"]) == ["", "[1] 2\n", "no end"]
    assert list(execute.run_r(["# needs: no.such\nstop('ran')"])) == [("", "no.such")]
    with pytest.raises(RuntimeError, match="in its own words"):
        execute.run_r(["stop('in its own words')"])
