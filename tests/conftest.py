"""What all tests share."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

# tests run in as many processes as there are cores; set before NumPy is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import privcausal as pc


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """A single test runs in this process, as workers take longer to start than most tests."""
    return 0 if config.args and all("::" in each for each in config.args) else None


@pytest.hookimpl(tryfirst=True)  # before those marked as slow are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked `sample(k)`, take every k-th case, and as slow ones what all pairs need."""
    tables: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None:
            assert isinstance(item, pytest.Function)
            tables[item.nodeid.partition("[")[0]].append(item)
    unneeded = set[pytest.Item]()
    for table in tables.values():
        (k,) = table[0].get_closest_marker("sample").args
        taken, rest = table[::k], [item for at, item in enumerate(table) if at % k]
        values = set().union(*map(_values, table))
        many = Counter(name for name, _ in values)
        missed = values - set().union(*map(_values, taken))
        missed = {value for value in missed if many[value[0]] <= len(taken)}
        for item in rest:
            if missed & _values(item):
                missed -= _values(item)
                taken.append(item)
            else:
                item.add_marker("slow")
        unneeded |= set(table) - set(taken) - set(_of_all_pairs(table, taken))
    left = set[pytest.Item]() if os.environ.get("PRIVCAUSAL_ALL") == "1" else unneeded
    part, _, parts = os.environ.get("PRIVCAUSAL_PART", "").partition("/")
    if parts:
        slow = [item for item in items if item.get_closest_marker("slow") is not None]
        left |= {item for item in slow if crc32(item.nodeid.encode()) % int(parts) != int(part)}
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _of_all_pairs(
    table: list[pytest.Function], taken: list[pytest.Function]
) -> Iterator[pytest.Function]:
    """Cases that have, with those `taken`, every value and every pair of values in the table."""
    pairs = {
        item: {each for r in (1, 2) for each in combinations(sorted(_values(item), key=repr), r)}
        for item in table
    }
    missed = set().union(*pairs.values()).difference(*(pairs[item] for item in taken))
    while missed:
        best = max(table, key=lambda item: len(pairs[item] & missed))
        missed -= pairs[best]
        yield best


def pytest_collection_finish() -> None:
    """Thousands of tests stay alive: the collector shall not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _values(item: pytest.Function) -> set[tuple[str, object]]:
    """The parameters of a case and their values; those that are no text by their place."""
    case = item.callspec
    return {(k, v if type(v) is str else case.indices[k]) for k, v in case.params.items()}


def needed(*names: str) -> str:
    """The path of the first of these programs; without any, skip, or fail with PRIVCAUSAL_CI=1."""
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
    """`needs("chromium", "chromium-browser")`: `needed`; two modules are `conftest`."""
    return needed


@pytest.fixture
def reloaded(tmp_path: Path) -> Callable[..., Any]:
    """`reloaded(fit)`: the fit as it comes back from its file."""

    def come_back(fit: Any) -> Any:
        fit.save(tmp_path / "fit.json")
        return pc.load(tmp_path / "fit.json")

    return come_back


@pytest.fixture
def page_of(tmp_path: Path) -> Callable[..., str]:
    """`page_of(fit)`: the text of its report."""

    def written(fit: Any, *args: Any, **options: Any) -> str:
        fit.report(tmp_path / "page.html", *args, **options)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return written


@pytest.fixture
def unspent(tmp_path: Path) -> Iterator[Any]:
    """A ledger that takes every guarantee, and from which a test must spend nothing."""
    ledger = pc.Ledger(tmp_path / "unspent.db", "study", eps=9, delta=1e-4, allow_published=True)
    yield ledger
    assert ledger.fits == 0
    assert ledger.history.empty


@pytest.fixture
def charged(tmp_path: Path) -> Iterator[Any]:
    """A ledger that a test must charge."""
    ledger = pc.Ledger(tmp_path / "charged.db", "study", eps=5)
    yield ledger
    assert ledger.fits > 0
    assert not ledger.history.empty


PASSES = ("BATCH", "KEEP_HELD", "KEEP_ROWS", "KEEP_VALUES", "THREADS")
LIMITS = dict.fromkeys(PASSES, "vault.passes") | {
    "SAFE_BLOCKS": "vault.exit",
    "STREAM": "vault.sources.stored",
    "LARGEST_RELEASE": "request.request",
    "LARGEST": "results.stored",
    "MOST_ENTRIES": "features.design",
    "FINEST": "accounting.price",
    "NUMBERS": "accounting.price",
    "BUSY_SECONDS": "accounting.store",
}
"""Limits of the package that small tests make smaller, and the module of each."""


@pytest.fixture(scope="session")
def limits() -> Callable[..., AbstractContextManager[None]]:
    """`with limits(BATCH=97, STREAM=211):` runs with these `LIMITS`."""

    @contextmanager
    def limited(**values: float) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in values.items():
                patch.setattr(f"privcausal.{LIMITS[name]}.{name}", value)
            yield

    return limited


@pytest.fixture(scope="session")
def broken() -> Callable[[str, BaseException], AbstractContextManager[None]]:
    """`with broken("api.open_source", error):` this function of the package raises the error."""

    @contextmanager
    def breaking(step: str, error: BaseException) -> Iterator[None]:
        def fail(*_: object, **__: object) -> None:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"privcausal.{step}", fail)
            yield

    return breaking


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

PROGRAMS = {"java"}  # the modules may lie in another environment, whose programs are on the path


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose extra is not installed, unless PRIVCAUSAL_EXTRAS names the extra."""
    wanted = os.environ.get("PRIVCAUSAL_EXTRAS", "").split(",")
    for mark in item.iter_markers("extra"):
        (name,) = mark.args
        missing = [each for each in EXTRAS[name] if not _installed(each)]
        if missing and name not in wanted:
            pytest.skip(f"needs {' and '.join(missing)} (the extra {name})")


def _installed(name: str) -> bool:
    found = shutil.which(name) if name in PROGRAMS else importlib.util.find_spec(name)
    return found is not None
