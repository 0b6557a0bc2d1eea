"""Figures as SVG text: the same figure gives the same bytes, and many fit on one page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, small, in the page's own font
    "svg.hashsalt": "privcausal",
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "hatch.linewidth": 0.8,
    "hatch.color": "#D55E00",
    "text.parse_math": False,
}


@contextmanager
def steady_style() -> Iterator[None]:
    """The report's own style, whatever the user has set for their notebooks."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        params: Any = matplotlib.rcParams  # typed by its own list of names, from 3.11 on
        params.update(STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure (inches) that pyplot does not know of, so nothing shows it twice or keeps it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_svg(fig: Figure, *, ident: str = "figure", label: str = "") -> str:
    """One `svg` element: no date, no script, no style sheet, ids that start with `ident`.

    Parameters
    ----------
    fig : Figure
    ident : str
        Unique on the page it goes to.
    label : str
        What a screen reader says in place of the picture.
    """
    return inline(_raw(fig), ident, label)


def _raw(fig: Figure) -> str:
    import matplotlib

    buffer = io.StringIO()
    saving: Any = {key: STYLE[key] for key in ("svg.fonttype", "svg.hashsalt")}
    with matplotlib.rc_context(saving), warnings.catch_warnings():
        # the browser has the fonts that matplotlib lacks
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def inline(svg: str, ident: str, label: str) -> str:
    """Matplotlib's file as an element of a page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    # a style sheet inside would apply to the whole page; its two lines move to the root
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    # references are matched inside tags only: text may hold anything that looks like one
    body = re.sub(r"<[^>]*>", lambda tag: _prefixed(tag.group(), ident), body)
    head = re.search(r'viewBox="[^"]*"', body)
    root = (
        f'<svg role="img" aria-label="{escape(label)}" {head.group() if head else ""} '
        'stroke-linejoin="round" stroke-linecap="butt" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: root, body, count=1).strip()


def _prefixed(tag: str, ident: str) -> str:
    tag = re.sub(r'(?<=\sid=")', f"{ident}-", tag)
    return re.sub(r'(?<=url\(#)|(?<=href="#)', f"{ident}-", tag)
