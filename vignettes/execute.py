"""Run the code blocks of a page, for the tests and for the site, which shows their output.

All ```` ```python ```` blocks of a page run in one namespace, in order, in an empty folder. The
site shows the printed output and the figures below each block. A block may contain three comments:

``# figure: words``
    Alternative text of the figures that the block draws. Every figure needs one.
``# output: markdown``
    The printed text is part of the page, and the block is not shown.
``# needs: module``
    The block runs only if this module, or R package, is installed.

All ```` ```R ```` blocks (capital R) run in one R session, with this Python for reticulate.
Blocks in ```` ```r ```` are only displayed.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

LONGEST = 90.0
"""Seconds of processor time that one page may take, three times what the slowest takes.
On a throttled core it takes 35.
"""

BLOCK = re.compile(r"^```(?P<language>python|R)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
MADE = "# output: markdown\n"
ALT, NEEDS = (re.compile(rf"^# {word}: (.+)$", re.MULTILINE) for word in ("figure", "needs"))


@dataclass(frozen=True)
class Shown:
    """A block and its output."""

    end: int
    """Where the block ends in the page's text."""
    code: str
    printed: str = ""
    figures: tuple[bytes, ...] = ()
    missing: str | None = None
    """A module that the block needs and that is not installed."""

    @property
    def markdown(self) -> str:
        """The text that the site shows below the block."""
        if self.missing is not None:
            return f"\n*Not run here: it needs the package {self.missing}.*\n"
        if MADE in self.code:
            return f"\n{self.printed}\n"
        parts = [f"\n```text\n{self.printed.rstrip()}\n```\n"] if self.printed.strip() else []
        alt = escape(" ".join(ALT.findall(self.code)), quote=True)
        for figure in self.figures:
            data = base64.b64encode(figure).decode("ascii")
            parts.append(f'\n<p><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></p>\n')
        return "".join(parts)


def run(page: Path, names: dict[str, Any]) -> Iterator[Shown]:
    """Run the blocks of a page in the namespace `names`.

    Raises
    ------
    ValueError
        A figure has no alternative text.
    Exception
        Any error of a block, with the line number of the page.
    """
    text = page.read_text(encoding="utf-8")
    if "matplotlib.pyplot" in sys.modules:  # figures of others are not those of the page
        sys.modules["matplotlib.pyplot"].close("all")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        from_r = run_r(
            [found["code"] for found in BLOCK.finditer(text) if found["language"] == "R"]
        )
        for found in BLOCK.finditer(text):
            code = found["code"]
            if found["language"] == "R":
                printed, missing = next(from_r)
                yield Shown(found.end(), code, printed, missing=missing)
                continue
            missing = next(filter(_absent, NEEDS.findall(code)), None)
            if missing is not None:
                yield Shown(found.end(), code, missing=missing)
                continue
            # empty lines before it: a traceback then names the line of the page
            padded = "\n" * (text[: found.start("code")].count("\n")) + code
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(padded, str(page), "exec"), names)
            figures = tuple(_figures())
            if figures and not ALT.search(code):
                raise ValueError(f"{page.name}: a figure without '# figure: what it shows'")
            yield Shown(found.end(), code, out.getvalue(), figures)


def run_r(blocks: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the output of each block, and the package it lacks.

    Raises
    ------
    RuntimeError
        A block fails. The text is R's error message.
    """
    lacking = [next(filter(_absent_in_r, ["reticulate", *NEEDS.findall(b)]), None) for b in blocks]
    script = "".join(
        f"{code if lack is None else ''}\ncat('\\f')\n"
        for code, lack in zip(blocks, lacking, strict=True)
    )
    printed = [""] * len(blocks)
    if not all(lacking):
        done = subprocess.run(
            ["Rscript", "-"], input=script, capture_output=True, text=True, check=False,
            env={**os.environ, "RETICULATE_PYTHON": sys.executable},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        printed = done.stdout.split("\f")[:-1]
    return iter(list(zip(printed, lacking, strict=True)))


@cache
def _absent_in_r(package: str) -> bool:
    if shutil.which("Rscript") is None:
        return True
    ask = f"quit(status = !requireNamespace('{package}', quietly = TRUE))"
    return subprocess.run(["Rscript", "-e", ask], capture_output=True, check=False).returncode != 0


def shown(page: Path, text: str) -> str:
    """The text of the page with the output and figures of its blocks."""
    parts, start = [], 0
    for block in run(page, {}):
        # the alternative text is for the figure, not for those who read the code
        code = re.sub(r"^# figure: .+\n", "", text[start : block.end], flags=re.MULTILINE)
        if MADE in block.code:
            code = text[start : block.end].removesuffix(f"```python\n{block.code}```\n")
        parts += [code, block.markdown]
        start = block.end
    return "".join([*parts, text[start:]])


def _absent(module: str) -> bool:
    return importlib.util.find_spec(module) is None


def _figures() -> Iterator[bytes]:
    """Yield every open figure as SVG, and close it."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    for number in plt.get_fignums():
        out = io.BytesIO()
        # no date: the same figure has the same bytes
        plt.figure(number).savefig(
            out, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None}
        )
        plt.close(number)
        yield out.getvalue()
