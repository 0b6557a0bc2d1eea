"""Build the site: ``sphinx-build -W vignettes OUT`` (extra ``docs``). The build runs the pages.

``-t unrun`` skips the code, for a quick preview.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # execute.py
os.environ.setdefault("MPLBACKEND", "Agg")

import execute  # noqa: E402

import privcausal  # noqa: E402

project = "privcausal"
author = "The privcausal developers"
copyright = author
release = version = privcausal.__version__

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon",
]  # fmt: skip
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "privcausal"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
exclude_patterns = ["_*"]

autodoc_typehints = "none"  # the docstrings' Parameters name the types
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False


def _show(app: Any, name: str, source: list[str]) -> None:
    page = HERE / f"{name}.md"
    if page.exists() and not app.tags.has("unrun"):
        start = time.process_time()
        source[0] = execute.shown(page, source[0])
        if time.process_time() - start > execute.LONGEST:
            raise RuntimeError(f"{name} takes more than {execute.LONGEST:g} seconds")


def _bars(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """In docstrings |x| is a norm, not reStructuredText's substitution."""
    for k, line in enumerate(lines):
        parts = line.split("``")  # every second one is code, where a bar is a bar
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        lines[k] = "``".join(parts)


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _show)
    app.connect("autodoc-process-docstring", _bars)
    return {"parallel_read_safe": False}
