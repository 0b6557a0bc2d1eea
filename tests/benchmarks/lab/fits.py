"""One fit of a cell's rows by each method, as a row of numbers; and which code made it."""

from __future__ import annotations

import csv
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from code_digest import code_digest
from kinds import Cell
from populations import Sample, population, sample
from scipy.stats import norm

import privcausal as pc
from privcausal.testing import seeded_noise

HERE, PACKAGE = Path(__file__).parent, Path(pc.__file__).parent
LEVELS = (0.95, 0.80)

KEYS = ["study", "kind", "cell", "n", "loose_outcome", "loose_covariates", "eps", "method", "seed"]
COLUMNS = [
    *KEYS, "p", "outcome", "confounding", "truth", "aim", "estimate", "low", "high", "low80",
    "high80", "oracle", "oracle_half", "notes", "warnings", "failed", "seconds", "lab",
    "code", "commit",
]  # fmt: skip
WHOLE = ["cell", "n", "seed", "p", "notes", "warnings"]
NUMBERS = [
    "loose_outcome", "loose_covariates", "eps", "truth", "aim", "estimate", "low", "high", "low80",
    "high80", "oracle", "oracle_half", "seconds",
]  # fmt: skip
"""`truth` is the average effect, `aim` what the method estimates: without covariates it is the
difference of the arms' means."""

Method = Callable[[Cell, pd.DataFrame, float], Any]


def _private(cell: Cell, frame: pd.DataFrame, eps: float) -> Any:
    return pc.private(cell.formula, frame, eps=eps, bounds=cell.bounds, propensity=cell.propensity)


def _allocated(cell: Cell, frame: pd.DataFrame, eps: float) -> Any:
    return pc.private(cell.formula, frame, eps=eps, bounds=cell.bounds, propensity=cell.law.share)


def _plain(cell: Cell, frame: pd.DataFrame, eps: float) -> Any:
    return pc.private("Y ~ T", frame, eps=eps, bounds=cell.bounds)


def _learner(name: str, base: str | None = None) -> Method:
    def fit(cell: Cell, frame: pd.DataFrame, eps: float) -> Any:
        given: dict[str, Any] = {} if base is None else {"base": base}
        propensity = cell.law.share if name == "adum" else cell.propensity
        return pc.privcate(
            cell.formula, frame, eps=eps, bounds=cell.bounds, learner=name,
            propensity=propensity, **given,
        )  # fmt: skip

    return fit


METHODS: dict[str, Method] = {
    "private": _private,
    "allocated": _allocated,
    "plain": _plain,
    **{name: _learner(name) for name in ("r", "dr", "s", "t", "x", "adum", "dpcate")},
    "dpebm": _learner("r", "dpebm"),
}


def key(cell: Cell, eps: float, method: str) -> tuple[object, ...]:
    """What tells a row of a cell, its seed apart."""
    loose = cell.loose_outcome, cell.loose_covariates
    return cell.study, cell.kind, cell.number, cell.n, *loose, float(f"{eps:.4g}"), method


def read(files: Path | Sequence[Path]) -> pd.DataFrame:
    """The rows of files; a last line that was cut off is left out."""
    found = []
    for file in [files] if isinstance(files, Path) else files:
        with file.open(newline="", encoding="utf-8") as text:
            whole = [line for line in text if line.endswith("\n")]
        lines = [row for row in csv.reader(whole[1:]) if len(row) == len(COLUMNS)]
        found.append(pd.DataFrame(lines, columns=COLUMNS))
    frame = pd.concat(found, ignore_index=True)
    frame[NUMBERS] = frame[NUMBERS].astype(float)
    frame[WHOLE] = frame[WHOLE].astype(int)
    return frame.drop_duplicates([*KEYS, "code"], ignore_index=True)


def applies(method: str, cell: Cell) -> bool:
    """ADUM and a declared allocation are for trials; all others are for all data."""
    return method not in ("adum", "allocated") or cell.lot


def rows(
    cell: Cell, seeds: Sequence[int], methods: Sequence[str], budgets: Sequence[float]
) -> Iterator[list[object]]:
    """A row per seed, method and budget: all methods see the same rows and noise."""
    for seed in seeds:
        drawn = sample(cell.law, cell.n, cell.seeds(seed)[0])
        for method in methods:
            if applies(method, cell):
                for eps in budgets:
                    yield _row(cell, drawn, seed, method, eps)


def _row(cell: Cell, drawn: Sample, seed: int, method: str, eps: float) -> list[object]:
    known, start = population(cell.law), time.perf_counter()
    aim = known.truth + (known.moved if method == "plain" else 0.0)
    estimate, limits, notes, failed = float("nan"), [float("nan")] * 4, 0, ""
    with warnings.catch_warnings(record=True) as warned, seeded_noise(cell.seeds(seed)[1]):
        warnings.simplefilter("always")
        try:
            fit = METHODS[method](cell, drawn.frame, eps)
            at, estimate = fit.params.index[0], float(fit.params.iloc[0])
            limits = [float(x) for level in LEVELS for x in fit.conf_int(1 - level).loc[at]]
            notes = len(fit.estimate.notes)
        except Exception as error:  # a fit that fails is a result: it counts as not covering
            failed = type(error).__name__
    return [
        cell.study, cell.kind, cell.number, cell.n, f"{cell.loose_outcome:g}",
        f"{cell.loose_covariates:g}", f"{eps:.4g}", method, seed, cell.p, cell.outcome,
        cell.confounding, f"{known.truth:.8g}", f"{aim:.8g}", f"{estimate:.8g}",
        *(f"{x:.8g}" for x in limits), f"{drawn.oracle:.8g}",
        f"{oracle_half(cell):.6g}", notes, len(warned), failed,
        f"{time.perf_counter() - start:.3f}", lab(), code(), commit(),
    ]  # fmt: skip


def oracle_half(cell: Cell) -> float:
    """Half of the 95 % interval of AIPW with the law's own nuisances."""
    return float(norm.ppf(0.975)) * population(cell.law).sd / float(cell.n) ** 0.5


# --- which code made a row ---------------------------------------------------------------------


@cache
def lab() -> str:
    """Digest of the code that draws cells and rows."""
    return code_digest(HERE / f"{name}.py" for name in ("families", "populations", "kinds"))


@cache
def code() -> str:
    """Digest of the package, without comments and docstrings, reports and tools apart."""
    apart = {"report", "auditing.py", "cli.py", "__main__.py", "datasets.py"}
    files = sorted(PACKAGE.rglob("*.py"))
    return code_digest(f for f in files if f.relative_to(PACKAGE).parts[0] not in apart)


@cache
def commit() -> str:
    """The package's commit, with a + where its files or the laboratory's differ from theirs."""
    head = _git(PACKAGE, "rev-parse", "--short=10", "HEAD")
    changed = [_git(folder, "status", "--porcelain", "--", ".") for folder in (PACKAGE, HERE)]
    return f"{head or 'unknown'}{'+' if any(changed) else ''}"


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()
