"""Niu et al. (2022) again: their table and Figures 1, 2 and 3, beside our booster.

Run ``python tests/benchmarks/niu_study.py [--quick] [--repetitions R] [PART ...]`` with parts
``table composition centre voting curves``; all of them by default. Rows are appended to the CSV
files in `niu/` one by one, and what is there is not run again; at the end `niu/results.md` and the
figures are made from all rows. Nothing here is used to choose a default.

Errors are theirs: of two fits on tables of their own, MSE = (m_1 + m_2) / 2, squared bias
2 m_avg - MSE and variance 2 (MSE - m_avg), m_avg being the error of the two predictions' mean.

``paper``: interpret's DP-EBM on parts of .25, .25 and .5 of the rows; ``counts``, for
learner "r" alone: the same with noisy sums divided by noisy counts of rows, as interpret did at
first, and not by sums of weights. ``raw`` and
``smooth``: base "dpebm" with all rows and shares of rho, its shapes as the rounds left them, or
smoothed. Learner "s" of ``paper`` and ``raw`` is the paper's, a constant; that of ``smooth`` has
an effect for each modifier, which ``constant`` has not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import niu_report
import numpy as np
import pandas as pd

import privcausal as pc

SETUPS = {"A": "A", "B": "B", "C": "C", "D": "D", "E": "E-code"}
"""Name in the paper's table -> generator; of E the published figures are those of its notebook."""

SIZES, EPSILONS, LEARNERS = (4000, 16_000), (1.0, 4.0, 16.0), ("s", "dr", "r")
TEST_ROWS, TEST_SEED, CLIP = 5000, 10_000_019, 0.05
VOTING_SIZES, CURVE_EPSILONS = (1000, 4000, 16_000), (1.0, 2.0, 4.0, 8.0, 16.0, 128.0)
HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared"

RAW, SMOOTH = pc.bases.DPEBM(smooth=False), pc.bases.DPEBM()
CONSTANT = pc.learners.S(interactions=False)

Keys = dict[str, Any]
Job = tuple[Keys, Callable[[], list[dict[str, Any]]]]
"""What names a row, and the work that makes it (or several)."""


def call(variant: str, learner: str) -> dict[str, Any]:
    """Options of `privcate` for one variant."""
    if variant in ("paper", "counts"):
        return {"learner": learner, "call": pc.paper.dpebm}
    constant = learner == "s" and variant in ("raw", "constant")
    base = RAW if variant == "raw" else SMOOTH
    return {
        "learner": CONSTANT if constant else learner, "base": base,
        "control": pc.Control(shares={"average": 0}),
    }  # fmt: skip


def variants(learner: str) -> tuple[str, ...]:
    more = {"s": ("constant",), "r": ("counts",)}
    return ("paper", "raw", "smooth", *more.get(learner, ()))


@contextmanager
def bins_of(variant: str) -> Iterator[None]:
    """interpret divides noisy sums by its bins' weights; for "counts", by their rows."""
    from interpret.glassbox._ebm import _ebm as module

    weighted = module.construct_bins
    if variant == "counts":
        module.construct_bins = lambda *a, **k: weighted(*a, **{**k, "sample_weight": None})
    try:
        yield
    finally:
        module.construct_bins = weighted


def fitted(study: Any, eps: float, **options: Any) -> Any:
    run = options.pop("call", pc.privcate)
    if run is pc.privcate:
        given = options.pop("control", pc.Control())
        options["control"] = replace(given, propensity_clip=CLIP)
    else:
        options["propensity_clip"] = CLIP
    return run(study.formula, study.frame, eps=eps, bounds=study.bounds, **options)


def mean_square(fit: Any, test: Any) -> float:
    return float(np.mean((fit.predict(test.frame)["estimate"].to_numpy() - test.tau) ** 2))


def pair(
    make: Callable[[int], Any], test: Any, eps: float, seed: int, options: dict[str, Any]
) -> dict[str, float]:
    """MSE, squared bias and variance by two fits."""
    first, second = (
        fitted(make(2 * seed + k + 1), eps, **options).predict(test.frame)["estimate"].to_numpy()
        for k in (0, 1)
    )
    mse = sum(float(np.mean((p - test.tau) ** 2)) for p in (first, second)) / 2
    both = float(np.mean(((first + second) / 2 - test.tau) ** 2))
    return {"mse": mse, "bias2": 2 * both - mse, "variance": 2 * (mse - both)}


@lru_cache
def drawn(setup: str, n: int, seed: int) -> Any:
    return pc.datasets.niu(SETUPS[setup], n, seed)  # type: ignore[arg-type]


# -- parts -----------------------------------------------------------------------------------


def table(options: argparse.Namespace) -> Iterator[Job]:
    """A row per repetition, epsilon, learner, setup, size and variant."""
    grid = itertools.product(
        range(options.repetitions), options.epsilons, LEARNERS, options.setups, options.sizes
    )
    for seed, eps, learner, setup, n in grid:
        for variant in variants(learner):
            keys = {
                "dataset": setup, "n": n, "learner": learner, "epsilon": eps,
                "variant": variant, "repetition": seed,
            }  # fmt: skip

            def run(k: Keys = keys) -> list[dict[str, Any]]:
                test = drawn(k["dataset"], TEST_ROWS, TEST_SEED)
                with bins_of(k["variant"]):
                    return [pair(lambda s: drawn(k["dataset"], k["n"], s), test, k["epsilon"],
                                 k["repetition"], call(k["variant"], k["learner"]))]  # fmt: skip

            yield keys, run


def composition(options: argparse.Namespace) -> Iterator[Job]:
    """Stages on disjoint rows with all of rho, against all rows with shares of it; and the ATE."""
    grid = itertools.product(
        range(options.repetitions), ("dr", "r"), options.setups, options.sizes,
        ("disjoint", "full", "crossfit"),
    )  # fmt: skip
    for seed, learner, setup, n, split in grid:
        keys = {"dataset": setup, "n": n, "learner": learner, "split": split, "repetition": seed}

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            study = drawn(k["dataset"], k["n"], k["repetition"] + 1)
            fit = fitted(
                study, 1.0, learner=k["learner"], base=SMOOTH, control=pc.Control(split=k["split"])
            )
            low, high = fit.conf_int().loc["ATE"]
            return [{
                "mse": mean_square(fit, drawn(k["dataset"], TEST_ROWS, TEST_SEED)),
                "ate_error": float(fit.params["ATE"] - study.ate), "width": float(high - low),
                "covered": int(low < study.ate < high),
            }]  # fmt: skip

        yield keys, run


def centre(options: argparse.Namespace) -> Iterator[Job]:
    """The same outcomes in [-1, 1] and in [99, 101]: errors of tau(x) at epsilon 2."""
    rng = np.random.default_rng(0)
    n, columns = (1000 if options.quick else 8000), ["X1", "X2", "X3"]
    x = rng.uniform(-1, 1, (n, 3))
    t = (rng.random(n) < 0.5).astype(int)
    tau = 0.3 + 0.2 * x[:, 0]
    y = np.clip(0.3 * x[:, 1] + t * tau + 0.2 * rng.standard_normal(n), -1, 1)
    frame = pd.DataFrame(x, columns=columns).assign(T=t)
    grid = itertools.product(
        range(2 * options.repetitions), ("dr", "r", "s"), ("paper", "raw", "smooth"), (0.0, 100.0)
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
    """Figure 2's rows: the turnout trial with a spiked effect, by n and epsilon."""
    if not options.voting.exists():
        print("voting, curves: skipped, --voting gotv.parquet is not there", flush=True)
        return
    grid = itertools.product(
        range(options.repetitions), LEARNERS, options.voting_sizes, options.epsilons,
        ("paper", "smooth"),
    )  # fmt: skip
    for seed, learner, n, eps, variant in grid:
        keys = {
            "learner": learner, "n": n, "epsilon": eps, "variant": variant, "repetition": seed,
        }  # fmt: skip

        def run(k: Keys = keys) -> list[dict[str, Any]]:
            test = turnout(options.voting, TEST_ROWS, TEST_SEED)
            return [pair(lambda s: turnout(options.voting, k["n"], s), test, k["epsilon"],
                         k["repetition"], call(k["variant"], k["learner"]))]  # fmt: skip

        yield keys, run


def curves(options: argparse.Namespace) -> Iterator[Job]:
    """Figure 1's rows: the DR-learner's effect by age on 16,000 rows of the turnout trial."""
    if not options.voting.exists():
        return
    ages = np.linspace(18, 100, 165)
    for variant, eps in itertools.product(("paper", "raw", "smooth"), options.curve_epsilons):

        def run(v: str = variant, e: float = eps) -> list[dict[str, Any]]:
            study = turnout(options.voting, max(options.voting_sizes), 1)
            typical = study.frame.drop(columns=["Y", "T"]).mean()
            grid = pd.DataFrame({name: np.full(165, value) for name, value in typical.items()})
            grid = grid.assign(age=ages, g2000=1.0)
            found = fitted(study, e, **call(v, "dr")).predict(grid)
            return [
                {"age": age, "estimate": mid, "low": low, "high": high}
                for age, mid, low, high in zip(
                    ages, found["estimate"], found["conf_low"], found["conf_high"], strict=True
                )
            ]

        yield {"variant": variant, "epsilon": eps}, run


@lru_cache
def turnout(path: Path, n: int, seed: int) -> Any:
    """The turnout trial with the paper's spiked effect -VOTE00 / (2 + 100 / AGE), n rows of it."""
    whole = pd.read_parquet(path)
    rng = np.random.default_rng(seed)
    rows = whole.iloc[rng.permutation(len(whole))[:n]].reset_index(drop=True)
    tau = -rows["g2000"].astype(float) / (2 + 100 / rows["age"].clip(lower=18))
    flipped = rng.random(n) < -tau
    outcome = np.where(flipped, 1 - rows["neighbors"], rows["voted"]).astype(float)
    past = ["g2000", "g2002", "p2000", "p2002", "p2004"]
    names = ["age", "hh_size", *past]
    frame = rows[names].astype(float).assign(Y=outcome, T=rows["neighbors"].astype(int))
    bounds = {"Y": (0, 1), "age": (18, 100), "hh_size": (1, 8), **dict.fromkeys(past, (0, 1))}
    return type(
        "Study", (), {
            "frame": frame, "formula": f"Y ~ T | {' + '.join(names)}", "bounds": bounds,
            "tau": tau.to_numpy(),
        },
    )  # fmt: skip


# -- running ---------------------------------------------------------------------------------

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Job]]] = {
    "table": table, "composition": composition, "centre": centre, "voting": voting,
    "curves": curves,
}  # fmt: skip


def resume(name: str, options: argparse.Namespace) -> None:
    """Run a part's jobs that have no row yet, each appended as it ends."""
    path = options.out / f"{name}.csv"
    done: set[tuple[str, ...]] = set()
    # a column of 1, 4 and 16 would be read as integers, which look unlike 1.0, 4.0 and 16.0
    numbers = {"epsilon": float, "shift": float}
    old = pd.read_csv(path, dtype=numbers) if path.exists() else None
    for keys, run in PARTS[name](options):
        if options.variants and keys.get("variant") not in (None, *options.variants):
            continue
        if options.learners and keys.get("learner") not in (None, *options.learners):
            continue
        if old is not None and not done:
            done = {tuple(map(str, row)) for row in old[list(keys)].itertuples(index=False)}
        if tuple(map(str, keys.values())) in done:
            continue
        rows = pd.DataFrame([{**keys, **row} for row in run()])
        rows.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.6g")
        print(name, *keys.values(), *(f"{v:.4g}" for v in rows.iloc[0, len(keys) :]), flush=True)


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    reader.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    reader.add_argument("--quick", action="store_true")
    reader.add_argument("--out", type=Path, help="default: niu/; with --quick a temporary folder")
    reader.add_argument(
        "--published", type=Path, default=SHARED / "reference" / "niu2022_table.csv"
    )
    reader.add_argument("--voting", type=Path, default=SHARED / "data" / "gotv.parquet")
    reader.add_argument("--repetitions", type=int)
    reader.add_argument("--variants", nargs="*", help="only these")
    reader.add_argument("--learners", nargs="*", help="only these")
    reader.add_argument("--setups", nargs="*", choices=SETUPS, help="only these")
    reader.add_argument("--sizes", nargs="*", type=int, help="only these numbers of rows")
    reader.add_argument("--epsilons", nargs="*", type=float, help="only these")
    options = reader.parse_args(arguments)
    options.setups = options.setups or tuple(SETUPS)
    options.sizes, options.epsilons = options.sizes or SIZES, options.epsilons or EPSILONS
    options.voting_sizes, options.curve_epsilons = VOTING_SIZES, CURVE_EPSILONS
    if options.quick:  # few rounds and points: it shows that all runs, and no more
        global TEST_ROWS  # noqa: PLW0603  (the one setting of a script)
        TEST_ROWS = 500
        for base in (RAW, SMOOTH):
            object.__setattr__(base, "rounds", 30)
        options.setups, options.sizes, options.epsilons = ("A",), (1000,), (1.0,)
        options.voting_sizes, options.curve_epsilons = (1000,), (1.0, 16.0)
    options.repetitions = options.repetitions or (1 if options.quick else 10)
    if options.out is None:
        options.out = Path(tempfile.mkdtemp()) if options.quick else HERE / "niu"
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        print(f"== {name}", flush=True)
        resume(name, options)
    niu_report.write(options.out, options.published)


if __name__ == "__main__":
    main(sys.argv[1:])
