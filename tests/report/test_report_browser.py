"""The report as a browser has it: quiet, reachable by keyboard, printable, large and accessible."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from report_fakes import cate_view, hostile_view, uplift_view

import privcausal as pc
from privcausal.report.document import render_report

STUDY = pc.datasets.clinic(2000, 3)


def average() -> Any:
    return pc.private(STUDY.formula, STUDY.frame, bounds=STUDY.bounds, groups=["ward"])


def conditional() -> Any:
    return pc.privcate(STUDY.formula, STUDY.frame, bounds=STUDY.bounds, groups=["ward"])


def by_cell() -> Any:
    trial = pc.datasets.clinic(2000, 4).frame
    return pc.privcate(
        "recovery ~ programme | age + ward", trial, learner=pc.learners.ADUM(cells=8),
        bounds=STUDY.bounds,
    )  # fmt: skip


FITS: dict[str, Callable[[], Any]] = {"ATE": average, "CATE": conditional, "ADUM": by_cell}
VIEWS = {
    "checks": lambda: render_report(cate_view()),
    "pure": lambda: render_report(uplift_view()),
    "hostile": lambda: render_report(hostile_view("none")),
}
NAMES = [f"{fit} {a}" for fit in FITS for a in ("technical", "public")] + list(VIEWS)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of every kind of fit, made with real noise, and of views that attack."""
    folder = tmp_path_factory.mktemp("pages")
    made = {name: folder / f"{name}.html" for name in NAMES}
    for name, make in FITS.items():
        fit = make()
        # with pictures of overlap and balance, which a fit by cells has not
        looks = [] if name == "ADUM" else [fit.overlap(STUDY.frame, eps=1)]
        looks += [fit.balance(STUDY.frame, eps=1)] if looks else []
        for audience in ("technical", "public"):
            fit.report(made[f"{name} {audience}"], audience=audience, checks=looks)
    for name, render in VIEWS.items():
        made[name].write_text(render(), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def browser(needs: Callable[..., str], tmp_path_factory: Any) -> Iterator[Browser]:
    with Browser(needs("chromium", "chromium-browser"), tmp_path_factory.mktemp("tab")) as made:
        yield made


@pytest.fixture(params=NAMES)
def page(request: pytest.FixtureRequest, browser: Browser, pages: dict[str, Path]) -> Browser:
    """The browser with one page open, in an ordinary window."""
    browser.send("Emulation.setEmulatedMedia", media="")
    browser.size(1280)
    browser.open(pages[request.param])
    return browser


@pytest.mark.slow
def test_no_request_and_no_console_message(page: Browser) -> None:
    assert [url for url in page.requests if not url.endswith(".html")] == []
    assert len(page.requests) == 1
    assert page.faults == []


def test_requests_and_messages_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "noisy.html"
    file.write_text("<img src='picture.png'><script>console.error('oh'); x()</script>")
    browser.open(file)
    assert any(url.endswith("picture.png") for url in browser.requests)
    kinds = {event["method"] for event in browser.faults}
    assert {"Runtime.exceptionThrown", "Runtime.consoleAPICalled"} <= kinds


# -- keyboard --------------------------------------------------------------------------------

STOPS = "[...document.querySelectorAll('a[href], summary, [tabindex]')]"
SHOWN = f"{STOPS}.filter(e => e.checkVisibility({{contentVisibilityAuto: true}}))"
WHERE = f"{SHOWN}.indexOf(document.activeElement)"
SEEN = """(() => {
    const box = document.activeElement.getBoundingClientRect();
    const line = getComputedStyle(document.activeElement).outlineStyle;
    return box.bottom > 0 && box.top < innerHeight && box.right > 0 && line !== 'none';
})()"""


@pytest.mark.slow
def test_every_stop_of_the_keyboard_is_in_reading_order_and_seen(page: Browser) -> None:
    count = page.run(f"{SHOWN}.length")
    assert count > 10
    for place in range(count):
        page.press("Tab")
        assert page.run(WHERE) == place
        assert page.run(SEEN), page.run("document.activeElement.outerHTML.slice(0, 200)")
    page.press("Tab")
    assert page.run(WHERE) in (-1, 0)  # out of the page, or round: nothing holds the keyboard


def test_the_first_link_skips_to_the_report(page: Browser) -> None:
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("Enter")
    assert page.run("location.hash") == "#s1"


def test_details_open_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["CATE technical"])
    browser.run("document.querySelector('summary').focus()")
    assert not browser.run("document.querySelector('details').open")
    browser.press("Enter")
    assert browser.run("document.querySelector('details').open")


# -- sizes -----------------------------------------------------------------------------------

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [640, 320])
def test_no_side_scroll_when_enlarged(page: Browser, width: int) -> None:
    """A window of 1280 pixels at 200 % and at 400 %, as WCAG 1.4.4 and 1.4.10 ask."""
    page.size(width, scale=1280 / width)
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.run("innerWidth") == width
    assert page.run(WIDER) <= 0


A4 = {"paperWidth": 8.27, "paperHeight": 11.69}
INSIDE = round((210 - 2 * 16) / 25.4 * 96)
"""Pixels across a page of A4 between the margins of the style sheet."""

CUT = """[...document.querySelectorAll('.scroll, table, figure, pre')].filter(e =>
    e.scrollWidth > e.clientWidth + 1 ||
    e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(e => e.outerHTML.slice(0, 200))"""


def test_prints_without_cut_tables(page: Browser) -> None:
    page.size(INSIDE)
    page.send("Emulation.setEmulatedMedia", media="print")
    assert page.run(CUT) == []
    hidden = "[...document.querySelectorAll('table')].filter(t => !t.checkVisibility()).length"
    assert page.run(hidden) == 0  # numbers of closed details are printed too
    printed = base64.b64decode(page.send("Page.printToPDF", preferCSSPageSize=True, **A4)["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") >= 3


@pytest.mark.slow
def test_a_cut_table_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    wide = "<td>" + "x" * 400 + "</td>"
    (tmp_path / "wide.html").write_text(f"<div class='scroll'><table><tr>{wide}</tr></table></div>")
    browser.size(INSIDE)
    browser.open(tmp_path / "wide.html")
    assert len(browser.run(CUT)) >= 1
    assert browser.run(WIDER) > 0


def test_every_kind_of_picture_was_shown(browser: Browser, pages: dict[str, Path]) -> None:
    """What the other tests say holds for the interval, shapes, groups, looks, gains and budget."""
    expected = {
        "ATE technical": {"interval", "groups", "check0", "check1", "budget"},
        "CATE technical": {"interval", "shape0", "shape1", "groups", "check0", "check1", "budget"},
        "ADUM public": {"interval", "shape0", "shape1", "gains"},
    }  # fmt: skip
    for name, idents in expected.items():
        browser.open(pages[name])
        found = browser.run("[...document.querySelectorAll('figure svg [id]')].map(e => e.id)")
        assert idents <= {ident.split("-")[0] for ident in found}, name
        drawn = "[...document.querySelectorAll('figure svg')].every(s => s.clientHeight > 80)"
        assert browser.run(drawn)


# -- accessibility ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core: the file that PRIVCAUSAL_AXE names (axe.min.js of npm's axe-core)."""
    path = os.environ.get("PRIVCAUSAL_AXE")
    if not path and os.environ.get("PRIVCAUSAL_CI") == "1":
        pytest.fail("PRIVCAUSAL_AXE must name axe.min.js")
    if not path:
        pytest.skip("needs axe-core: PRIVCAUSAL_AXE is the path of axe.min.js")
    return Path(path).read_text(encoding="utf-8")


def violations(browser: Browser, axe: str) -> list[tuple[str, str]]:
    browser.run(axe + "; 1")
    # an article of its own, so the rules for a page as a whole hold too
    found = json.loads(browser.run("axe.run(document).then(r => JSON.stringify(r))"))
    assert len(found["passes"]) > 5
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]]


@pytest.mark.slow
def test_axe_finds_no_violation(page: Browser, axe: str) -> None:
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert violations(page, axe) == []


def test_axe_would_find_one(browser: Browser, axe: str, pages: dict[str, Path]) -> None:
    browser.open(pages["ATE technical"])
    browser.run("document.documentElement.removeAttribute('lang')")
    browser.run("document.querySelector('.remark').style.color = '#bbb'")
    assert {name for name, _ in violations(browser, axe)} == {"html-has-lang", "color-contrast"}
