"""The report: one file, safe with any name, readable by anyone, the same every time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from report_fakes import (
    ASSUMPTIONS,
    HOSTILE,
    ate_view,
    cate_view,
    hostile_view,
    shapes,
    uplift_view,
)

from privcausal.report.document import SECTIONS, render_report, template_root
from privcausal.report.tables import FitView, Shape, VarianceSource

ALLOWED = {
    "a", "b", "body", "caption", "circle", "clippath", "code", "dd", "defs", "details", "div",
    "dl", "dt", "em", "figcaption", "figure", "footer", "g", "h1", "h2", "h3", "head", "header",
    "html", "li", "main", "meta", "nav", "ol", "p", "path", "pattern", "pre", "rect", "section",
    "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead",
    "title", "tr", "ul", "use",
}  # fmt: skip
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect"}
PAGES = {
    "ate": lambda: render_report(ate_view()),
    "cate": lambda: render_report(cate_view()),
    "public": lambda: render_report(cate_view(), "public"),
    "uplift": lambda: render_report(uplift_view()),
    "hostile": lambda: render_report(hostile_view("none")),
    "hostile public": lambda: render_report(hostile_view("published"), "public"),
}


class Outline(HTMLParser):
    """Tags in order, with what is open when each begins."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.faults: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID or "svg" in self.open:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


@pytest.fixture(scope="module", params=list(PAGES))
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    return Outline(page)


@pytest.mark.slow
def test_the_best_attack_is_shown_where_a_trade_off_is_proven() -> None:
    shown = ate_view()
    assert "Strongest possible attack" in render_report(shown)
    assert "Strongest possible attack" not in render_report(replace(shown, attack=None))


@pytest.mark.slow
def test_tags_balance_and_ids_are_unique(outline: Outline) -> None:
    assert outline.faults == []
    assert outline.open == []
    ids = Counter(attrs["id"] for _, attrs, _ in outline.tags if "id" in attrs)
    assert [name for name, times in ids.items() if times > 1] == []
    for _, attrs, _ in outline.tags:
        target = attrs.get("href") or attrs.get("xlink:href") or ""
        for name in (target.lstrip("#"), attrs.get("aria-labelledby")):
            assert not name or name in ids


def test_no_script_no_network(page: str, outline: Outline) -> None:
    assert {tag for tag, _, _ in outline.tags} <= ALLOWED
    for tag, attrs, _ in outline.tags:
        assert not any(name.startswith("on") for name in attrs)
        link = attrs.get("href") or attrs.get("xlink:href") or attrs.get("src") or "#"
        assert link.startswith("#"), (tag, link)
    style = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL).group(1)
    assert "@import" not in style
    assert "url(" not in style
    assert "default-src 'none'" in page


def test_frame_is_accessible(outline: Outline) -> None:
    tags = Counter(tag for tag, _, _ in outline.tags)
    assert tags["h1"] == tags["main"] == tags["title"] == 1
    assert tags["table"] == tags["caption"]
    html = next(attrs for tag, attrs, _ in outline.tags if tag == "html")
    assert html["lang"] == "en"
    levels = [int(tag[1]) for tag, _, _ in outline.tags if tag in ("h1", "h2", "h3")]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for tag, attrs, within in outline.tags:
        if tag == "th":
            assert attrs["scope"] in ("col", "row")
        if tag == "table":  # it can be scrolled by keyboard, and says what it is
            assert within[-1] == "div"
        if attrs.get("role") == "region":
            assert attrs["tabindex"] == "0"
            assert attrs["aria-label"]
        if tag == "svg":
            assert attrs["role"] == "img"
            assert len(attrs["aria-label"]) > 20
            assert "figure" in within
        assert int(attrs.get("tabindex", "0")) == 0  # reading order is keyboard order


def test_six_sections_in_order(outline: Outline, page: str) -> None:
    sections = [attrs["id"] for tag, attrs, _ in outline.tags if tag == "section"]
    assert sections == [f"s{i}" for i in range(1, 7)]
    heads = re.findall(r'<h2 id="h\d"><span class="number">(\d)</span> (.*?)</h2>', page)
    varied = re.search("<h3>(Average effect by group|Effect by characteristic|Cells)<", page)
    names = [SECTIONS[0], "Who benefits?" if varied else "Estimates", *SECTIONS[2:]]
    names[4] = "Methods" if "public edition" in page else names[4]
    assert heads == [(str(i), name) for i, name in enumerate(names, 1)]


def test_size(page: str) -> None:
    assert len(page.encode("utf-8")) < 500_000


@pytest.mark.slow
def test_every_figure_has_its_numbers_in_a_table(outline: Outline) -> None:
    figures = sum(tag == "figure" for tag, _, _ in outline.tags)
    tables = sum(tag == "table" for tag, _, _ in outline.tags)
    details = sum(tag == "details" for tag, _, _ in outline.tags)
    panels = sum(attrs.get("class") == "panel" for _, attrs, _ in outline.tags)
    folded = {"attack-figure_1", "budget-figure_1"} & {a.get("id") for _, a, _ in outline.tags}
    assert details == panels + len(folded)
    assert tables >= figures


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [ate_view, cate_view, uplift_view, hostile_view])
def test_same_view_same_bytes(make: Callable[..., FitView]) -> None:
    assert render_report(make()) == render_report(make())


@pytest.mark.slow
def test_names_are_shown_and_never_markup() -> None:
    page = render_report(hostile_view())
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page)[0]
    assert "{{ 7 * 7 }}" in page  # a template in a name is text
    assert r"\x1b[31m" in page
    assert not any(c in page for c in ("\x1b", "\u202e"))
    assert HOSTILE[3] in page
    assert HOSTILE[4] in page  # whole, however long


@pytest.mark.slow
@pytest.mark.parametrize("audience", ["technical", "public"])
def test_not_private_at_both_ends(audience: str) -> None:
    page = render_report(ate_view(kind="none"), audience)
    body = page[page.index("<body>") :]
    assert body.count("NOT PRIVATE") == 2
    assert body.index("NOT PRIVATE") < body.index("<h1>")
    assert body.rindex("NOT PRIVATE") > body.index("<footer>")
    assert "<title>NOT PRIVATE: " in page
    assert "Privacy is not protected" in page
    assert "62.3:37.7</td>" not in page


@pytest.mark.slow
def test_published_says_so() -> None:
    page = render_report(ate_view(kind="published"))
    assert page.count("CLAIMED, NOT PROVEN") == 3
    assert "it was not proven for this software" in page
    assert "NOT PROVEN" not in render_report(ate_view())


@pytest.mark.slow
def test_public_edition_leaves_out_code_settings_and_coefficients() -> None:
    technical, public = (render_report(cate_view(), a) for a in ("technical", "public"))
    for words in ("pc.privcate(", "Settings", "C(region)[T.South]", "p-value",
                  "R-learner on noisy moments", "Sensitivity"):  # fmt: skip
        assert words in technical
        assert words not in public
    for words in ("The result", "69.9:30.1", "Older customers respond more", "share of the cost"):
        assert words in public


@pytest.mark.slow
def test_odds_ledger_and_notes_are_told() -> None:
    page = render_report(ate_view())
    assert "1.91 of 2 remaining" in page
    for odds in ("62.3:37.7", "37.7:62.3", "93.7:6.3", "84.5:15.5"):
        assert f"{odds}</td>" in page
    for note in ate_view().notes:
        assert note in page


@pytest.mark.slow
def test_numbers_are_those_of_the_summary() -> None:
    page = render_report(ate_view())
    for number in ("0.0532", "0.0224", "0.018", "0.0093", "0.0971", "43.1", "0.0048"):
        assert f">{number}</td>" in page


@pytest.mark.slow
def test_odd_fits_render() -> None:
    nan = float("nan")
    lost = ate_view().effects.assign(
        estimate=nan, std_error=np.inf, conf_low=-np.inf, conf_high=nan
    )
    assert "nan" in render_report(ate_view(effects=lost, epsilon=float("inf")))
    render_report(ate_view(effects=None, uncertainty=(), checks=(), assumptions=(), notes=(),
                           methods=(), versions=(), headline=(), guarantee=(),
                           budget=ate_view().budget.iloc[:0]))  # fmt: skip
    render_report(ate_view(uncertainty=(VarianceSource("all", 0.02, 1.0, "everything"),)))


@pytest.mark.slow
def test_many_modifiers_stay_below_the_limit() -> None:
    curve = shapes()[0]
    many = tuple(
        Shape(f"column {i}", "continuous", np.linspace(0, 1, 400), np.sin(np.linspace(0, i, 400)),
              np.full(400, -2.0), np.full(400, 2.0), curve.interval_label)
        for i in range(30)
    )  # fmt: skip
    page = render_report(cate_view(shapes=many))
    assert len(page.encode()) < 500_000
    assert "18 more characteristics" in page


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_text_and_shapes() -> None:
    from privcausal.report import plots

    css = template_root().joinpath("report.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w{6});", css))
    for name in ("ink", "soft", "link", "alarm"):
        for state in ("#ffffff", colours["tint"]):
            assert contrast(colours[name], state) >= 4.5
    for shape in (plots.BLUE, plots.MIDDLE, plots.VERMILION):
        assert contrast(shape, "#ffffff") >= 3
    assert contrast(plots.GREY, "#ffffff") >= 4.5


@pytest.mark.slow
def test_templates_are_found_in_an_installed_package(tmp_path: Path) -> None:
    """A wheel holds the templates inside the package, and nothing beside it."""
    import privcausal.report

    source = Path(privcausal.report.__file__).parents[1]
    package = tmp_path / "site" / "privcausal"
    shutil.copytree(source / "report", package / "report", ignore=shutil.ignore_patterns("__py*"))
    for name in ("errors.py", "prices.py", "typing.py"):
        shutil.copy(source / name, package)
    (package / "__init__.py").touch()
    code = (
        "import privcausal.report.document as d; r = d.template_root(); print(r); "
        "d._environment().get_template('report.html.j2')"
    )

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    assert "report templates are missing" in run().stderr
    shutil.copytree(Path(str(template_root())), package / "templates")
    done = run()
    assert done.stdout.strip() == str(package / "templates"), done.stderr


@pytest.mark.slow
def test_notes_that_the_assumptions_say_are_not_said_again() -> None:
    reading = "Causal reading requires overlap."
    shown = ate_view(notes=("A note.", reading, ASSUMPTIONS[0]), reading=(reading,))
    page = render_report(shown)
    assert "A note." in page
    assert reading not in page
    assert page.count(ASSUMPTIONS[0]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("other", ["discrete Gaussian", "discrete Laplace"])
def test_the_noise_of_each_release_is_named(other: str) -> None:
    """Once if all releases have the same, even if none is free; otherwise in each line."""
    budget = ate_view().budget.iloc[1:].copy()
    budget.iloc[0, budget.columns.get_loc("mechanism")] = other
    page = render_report(ate_view(budget=budget))
    assert ("All noise is discrete Gaussian." in page) == (other == "discrete Gaussian")
    assert f">{other}</td>" in page or other == "discrete Gaussian"
