"""What all tests share."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


def needed(*names: str) -> str:
    """The path of the first of these programs that is installed.

    Without any the test is skipped; with PRIVCAUSAL_CI=1 in the environment it fails, so that a
    continuous integration which lost a program is not green for that reason.
    """
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    reason = f"needs the program {' or '.join(names)}"
    if os.environ.get("PRIVCAUSAL_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def needs() -> Callable[..., str]:
    """`needs("chromium", "chromium-browser")`: see `needed`.

    A fixture and not an import: folders below have a conftest.py of their own, and the name
    `conftest` means whichever was loaded last.
    """
    return needed


PAGE = r"""\documentclass{article}\usepackage[utf8]{inputenc}\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


@pytest.fixture
def compiled(tmp_path: Path, needs: Callable[..., str]) -> Callable[..., Path]:
    """`compiled(*bodies)`: the PDF that a TeX engine makes of a page of them, or a failure."""

    def compile_page(*bodies: str) -> Path:
        engine = needs("pdflatex", "tectonic")
        (tmp_path / "page.tex").write_text(PAGE % "\n".join(bodies), encoding="utf-8")
        stop = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in engine else []
        done = subprocess.run(
            [engine, *stop, "page.tex"], cwd=tmp_path, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]
        made = tmp_path / "page.pdf"
        assert made.read_bytes().startswith(b"%PDF")
        return made

    return compile_page


EXTRAS = {
    "nn": ("torch",),
    "spark": ("pyspark", "java"),
    "connect": ("pyspark", "java", "grpc", "grpc_status", "zstandard"),
    "test": ("maketables", "pyfixest"),
}
"""What the marks of optional extras ask for, modules or programs: `pytest.mark.extra("nn")`."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that asks for an extra which is not installed.

    With the extra's name in PRIVCAUSAL_EXTRAS it runs all the same, and fails.
    """
    wanted = os.environ.get("PRIVCAUSAL_EXTRAS", "").split(",")
    for mark in item.iter_markers("extra"):
        (name,) = mark.args
        missing = [each for each in EXTRAS[name] if not _installed(each)]
        if missing and name not in wanted:
            pytest.skip(f"needs {' and '.join(missing)} (the extra {name})")


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None or shutil.which(name) is not None
