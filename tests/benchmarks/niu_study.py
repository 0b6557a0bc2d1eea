"""Niu et al. (2022) again: Figures 1, 2 and 3 and what is published of them, beside our booster.

Run ``python tests/benchmarks/niu_study.py [--quick] [--repetitions R] [PART ...]`` with parts
``figure3 composition figure2 repository own centre voting curves``; all by default. Rows are
appended to the CSV files in `niu/` one by one, and what is there is not run again; at the end
`results.md` and the figures are made from all rows that today's code made (`niu_methods.code`);
``--fresh`` drops the others. Nothing here is used to choose a default.

Errors are theirs: of two fits on tables of their own, MSE = (m_1 + m_2) / 2, squared bias
2 m_avg - MSE and variance 2 (MSE - m_avg), m_avg being the error of the two predictions' mean.

Parts ``voting`` and ``curves`` need the paper's file, ``--voting data_clean.csv``
(`pc.datasets.voting` says where it comes from). Its numbers on setups A to E, which the paper
draws for Figure 3 alone, are in the authors' repository, as are those of Figure 2's grid on them:
``--published`` names a table of both.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import niu_methods
import niu_report
import numpy as np
import pandas as pd
from niu_lines import FIGURE_3, KEYS
from niu_methods import SETUPS, call, drawn, fitted, printed, variants

import privcausal as pc

EPSILONS, SIZES = (1.0, 2.0, 4.0, 8.0, 16.0), (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
NO_NOISE = 128.0
"""The largest epsilon of the repository, which no figure has."""
LEARNERS = ("s", "dr", "r")
PAIRS, FITS = 10, 20
OWN_SIZES, OWN_EPSILONS, OWN_PAIRS = (4000, 16_000), (1.0, 4.0, 16.0), 2
TEST_ROWS, TEST_SEED = 250_000, 10_000_019
"""Section 5.1.3. Rows of Figures 2 and 3 have 5,000, as the file says."""
AVERAGE_TEST_ROWS = 5000
"""Of part `composition`."""
POOL = 100_000
"""Rows of the voting file that training tables are drawn from, as in the notebook."""
HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared"

Keys = dict[str, Any]
Job = tuple[Keys, Callable[[], list[dict[str, Any]]]]
"""What names a row, and the work that makes it (or several)."""


def pair(make: Callable[[int], Any], test: Any, keys: Keys) -> dict[str, float]:
    """MSE, squared bias and variance by two fits."""
    chosen, seed = call(keys["variant"], keys["learner"]), 2 * keys["repetition"] + 1
    first, second = (
        fitted(make(seed + k), keys["epsilon"], **chosen).predict(test.frame)["estimate"].to_numpy()
        for k in (0, 1)
    )
    mse = sum(float(np.mean((p - test.tau) ** 2)) for p in (first, second)) / 2
    both = float(np.mean(((first + second) / 2 - test.tau) ** 2))
    return {"mse": mse, "bias2": 2 * both - mse, "variance": 2 * (mse - both)}


# -- parts -----------------------------------------------------------------------------------


def _errors(cells: Iterator[tuple[Any, ...]]) -> Iterator[Job]:
    """A row per pair of fits on setups A to E."""
    for setup, n, learner, eps, variant, seed in cells:
        keys = {
            "dataset": setup, "n": n, "learner": learner, "epsilon": eps, "variant": variant,
            "repetition": seed,
        }  # fmt: skip

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            test = drawn(k["dataset"], TEST_ROWS, TEST_SEED)
            made = pair(lambda s: drawn(k["dataset"], k["n"], s), test, k)
            return [made | {"test_rows": TEST_ROWS}]

        yield keys, run


def figure3(options: argparse.Namespace) -> Iterator[Job]:
    """The paper's DR-learner by epsilon."""
    cells = itertools.product(options.figure_3, EPSILONS[:: options.step], range(options.pairs))
    return _errors((s, options.figure_3[s], "dr", eps, "paper", k) for s, eps, k in cells)


def figure2(options: argparse.Namespace) -> Iterator[Job]:
    """The paper's three learners by n and epsilon, on setup A in place of the voting data.

    And learner "r" in one cell with the weighting that interpret has today.
    """
    cells = itertools.product(
        options.sizes, EPSILONS[:: options.step], options.learners, range(options.pairs)
    )
    seen = (("A", n, learner, eps, printed(learner), k) for n, eps, learner, k in cells)
    today = (("A", 4000, "r", 4.0, "interpret", k) for k in range(options.pairs))
    return _errors(itertools.chain(seen, today if "r" in options.learners else ()))


def repository(options: argparse.Namespace) -> Iterator[Job]:
    """Cells of setups A to E that no figure has, in paper mode, each wholly: cheap ones first.

    Those of part `own` come before all others.
    """
    if not options.published.exists():
        print("skipped: --published names no file", flush=True)
        return
    cells = pd.read_csv(options.published)[KEYS]
    cells = cells[cells["dataset"].isin(options.setups) & cells["n"].isin(options.sizes)]
    cells = cells[cells["epsilon"].isin([*EPSILONS, NO_NOISE][:: options.step])]
    cells = cells[cells["learner"].isin(options.learners)]
    figures = (cells["dataset"] == "A") | (
        (cells["learner"] == "dr") & (cells["n"] == cells["dataset"].map(FIGURE_3))
    )
    figures &= cells["epsilon"] != NO_NOISE
    first = cells["n"].isin(options.own_sizes) & cells["epsilon"].isin(OWN_EPSILONS)
    cells = cells.assign(later=~first, dear=cells["learner"] != "s")[~figures]
    cells = cells.sort_values(["later", "n", "dear"], kind="stable")[KEYS]
    yield from _errors(
        (dataset, n, learner, eps, printed(learner), k)
        for dataset, n, learner, eps in cells.itertuples(index=False, name=None)
        for k in range(options.pairs)
    )


def own(options: argparse.Namespace) -> Iterator[Job]:
    """What the paper runs, beside our booster."""
    cells = itertools.product(
        range(options.own_pairs),
        options.own_sizes,
        OWN_EPSILONS[:: options.step],
        options.setups,
        options.learners,
    )
    return _errors(
        (setup, n, learner, eps, variant, k)
        for k, n, eps, setup, learner in cells
        for variant in variants(learner)
    )  # fmt: skip


def composition(options: argparse.Namespace) -> Iterator[Job]:
    """Stages on disjoint rows with all of rho, against all rows with shares of it; and the ATE."""
    grid = itertools.product(
        range(options.fits), ("dr", "r"), options.setups, (options.n,), ("disjoint", "full")
    )
    for seed, learner, setup, n, split in grid:
        keys = {"dataset": setup, "n": n, "learner": learner, "variant": split, "repetition": seed}

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            study, test = (
                drawn(k["dataset"], *of)
                for of in ((k["n"], k["repetition"] + 1), (AVERAGE_TEST_ROWS, TEST_SEED))
            )
            fit = fitted(study, 1.0, **call(k["variant"], k["learner"]))
            low, high = fit.conf_int().loc["ATE"]
            off = fit.predict(test.frame)["estimate"].to_numpy() - test.tau
            return [{
                "mse": float(np.mean(off**2)), "ate_error": float(fit.params["ATE"] - study.ate),
                "width": float(high - low), "covered": int(low < study.ate < high),
            }]  # fmt: skip

        yield keys, run


def centre(options: argparse.Namespace) -> Iterator[Job]:
    """The same outcomes in [-1, 1] and in [99, 101]: errors of tau(x) at epsilon 2."""
    rng = np.random.default_rng(0)
    n, columns = 2 * options.n, ["X1", "X2", "X3"]
    x = rng.uniform(-1, 1, (n, 3))
    t = (rng.random(n) < 0.5).astype(int)
    tau = 0.3 + 0.2 * x[:, 0]
    y = np.clip(0.3 * x[:, 1] + t * tau + 0.2 * rng.standard_normal(n), -1, 1)
    frame = pd.DataFrame(x, columns=columns).assign(T=t)
    grid = itertools.product(
        range(options.own_pairs), options.learners, ("paper", "raw", "smooth"), (0.0, 100.0)
    )
    for seed, learner, variant, shift in grid:
        keys = {"learner": learner, "variant": variant, "shift": shift, "repetition": seed}

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            shift = k["shift"]
            chosen = call(k["variant"], k["learner"])
            fit = chosen.pop("call", pc.privcate)(
                f"Y ~ T | {' + '.join(columns)}", frame.assign(Y=y + shift), eps=2.0,
                propensity=0.5,
                bounds={"Y": (shift - 1, shift + 1), **dict.fromkeys(columns, (-1, 1))},
                **chosen,
            )  # fmt: skip
            return [{"mse": float(np.mean((fit.predict(frame)["estimate"] - tau) ** 2))}]

        yield keys, run


def voting(options: argparse.Namespace) -> Iterator[Job]:
    """Figure 2 on the paper's data, and Figure 3's first panel."""
    if not _has_votes(options):
        return
    cells = itertools.product(
        options.sizes, EPSILONS[:: options.step], LEARNERS, range(options.pairs)
    )
    for n, eps, learner, seed in cells:
        keys = {
            "dataset": "Voting", "n": n, "learner": learner, "epsilon": eps, "variant": "paper",
            "repetition": seed,
        }  # fmt: skip

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            test = voters(options.voting, None, 0)
            return [pair(lambda s: voters(options.voting, k["n"], s), test, k)]

        yield keys, run


def curves(options: argparse.Namespace) -> Iterator[Job]:
    """Figure 1's rows: the DR-learner's effect by age on 16,000 rows of the paper's data."""
    if not _has_votes(options):
        return
    ages = np.linspace(18, 100, 165)
    for variant, eps in itertools.product(("paper", "raw", "smooth"), (*EPSILONS, 128.0)):
        keys = {"learner": "dr", "variant": variant, "epsilon": eps}

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            study = voters(options.voting, max(s for s in options.sizes if s <= 16_000), 1)
            typical = study.frame.drop(columns=["Y", "W"]).mean()
            grid = pd.DataFrame({name: np.full(165, value) for name, value in typical.items()})
            grid = grid.assign(age=ages, vote00=1.0)
            found = fitted(study, k["epsilon"], **call(k["variant"], "dr")).predict(grid)
            shown = zip(ages, found["estimate"], found["conf_low"], found["conf_high"], strict=True)
            return [{"age": a, "estimate": e, "low": lo, "high": hi} for a, e, lo, hi in shown]

        yield keys, run


def _has_votes(options: argparse.Namespace) -> bool:
    if options.voting is not None and options.voting.exists():
        return True
    print("skipped: --voting names no file with the paper's data", flush=True)
    return False


@lru_cache
def _votes(path: Path) -> Any:
    return pc.datasets.voting(path)


def voters(path: Path, n: int | None, seed: int) -> Any:
    """`n` rows of the first 100,000 with both arms' shares kept; None for the others, the test."""
    whole = _votes(path)
    at = np.arange(POOL, len(whole.frame))
    if n is not None:
        rng, treated = np.random.default_rng(seed), whole.frame["W"].to_numpy()[:POOL]
        ones = round(n * treated.mean())
        arms = (rng.permutation(np.flatnonzero(treated == arm)) for arm in (0, 1))
        at = np.concatenate([arm[:k] for arm, k in zip(arms, (n - ones, ones), strict=True)])
    return replace(whole, frame=whole.frame.iloc[at].reset_index(drop=True), tau=whole.tau[at])


# -- running ---------------------------------------------------------------------------------

PARTS: dict[str, tuple[str, Callable[[argparse.Namespace], Iterator[Job]]]] = {
    "figure3": ("errors", figure3), "composition": ("composition", composition),
    "figure2": ("errors", figure2), "repository": ("errors", repository), "own": ("errors", own),
    "centre": ("centre", centre), "voting": ("voting", voting), "curves": ("curves", curves),
}  # fmt: skip
"""Name -> its file, and its jobs."""


def resume(name: str, options: argparse.Namespace) -> None:
    """Run a part's jobs that have no row of today's code yet, each appended as it ends."""
    file, jobs = PARTS[name]
    path = options.out / f"{file}.csv"
    done: set[tuple[str, ...]] = set()
    old = niu_methods.read(path) if path.exists() else None
    for keys, run in jobs(options):
        if time.monotonic() > options.end:
            print(f"{name}: stopped, --minutes are over", flush=True)
            return
        made = {"code": niu_methods.code(keys["variant"], keys["learner"])}
        if old is not None and not done:
            names = [*keys, "code"]
            done = {tuple(map(str, row)) for row in old[names].itertuples(index=False)}
        if tuple(map(str, (keys | made).values())) in done:
            continue
        rows = pd.DataFrame([{**keys, **row, **made} for row in run()])
        rows.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.6g")
        print(name, *keys.values(), *rows.iloc[0, len(keys) : -1], flush=True)


def fresh(folder: Path) -> None:
    """Drop the rows that other code made."""
    for path in folder.glob("*.csv"):
        if path.stem in {file for file, _ in PARTS.values()}:
            rows = niu_methods.read(path)
            rows[niu_methods.of_today(rows)].to_csv(path, index=False, float_format="%.6g")


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    reader.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    reader.add_argument("--quick", action="store_true")
    reader.add_argument("--fresh", action="store_true", help="drop rows made by other code")
    reader.add_argument("--minutes", type=float, default=np.inf, help="begin no fit after these")
    reader.add_argument("--out", type=Path, help="default: niu/; with --quick a temporary folder")
    reader.add_argument(
        "--published", type=Path, default=HERE.parent / "reference" / "niu2022_table.csv"
    )
    reader.add_argument("--voting", type=Path, help="the paper's data, data_clean.csv")
    reader.add_argument("--pairs", type=int, default=PAIRS, help="of fits, in a cell")
    reader.add_argument("--learners", nargs="*", default=LEARNERS, choices=LEARNERS)
    reader.add_argument("--fits", type=int, default=FITS, help="in a cell of `composition`")
    reader.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="of Figure 2")
    options = reader.parse_args(arguments)
    options.end = time.monotonic() + 60 * options.minutes
    options.setups, options.step, options.n = tuple(SETUPS), 1, 4000
    options.figure_3 = {setup: FIGURE_3[setup] for setup in SETUPS}
    options.own_sizes, options.own_pairs = OWN_SIZES, OWN_PAIRS
    if options.quick:  # few cells: it shows that all runs, and no more
        options.pairs = options.fits = options.own_pairs = 1
        options.setups, options.figure_3, options.step, options.n = ("A",), {"A": 1000}, 10, 500
        options.sizes, options.own_sizes, options.learners = (1000,), (1000,), ("s",)
    if options.out is None:
        options.out = Path(tempfile.mkdtemp()) if options.quick else HERE / "niu"
    options.out.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        fresh(options.out)
    for name in options.parts or PARTS:
        print(f"== {name}", flush=True)
        resume(name, options)
    niu_report.write(options.out, options.published)


if __name__ == "__main__":
    main(sys.argv[1:])
