"""Limits of `private` and of learner r, each measured against a target, in four parts.

    python tests/benchmarks/lab/limits.py patients --reps 500
    python tests/benchmarks/lab/limits.py bounds --cells 3 --reps 10
    python tests/benchmarks/lab/limits.py monotone --cells 2 --reps 15
    python tests/benchmarks/lab/limits.py tails --laws A --reps 3000
    python tests/benchmarks/lab/limits.py --quick

`patients`: coverage on tables drawn from models that are fitted to the Right Heart Catheterization
study. `bounds`: how much wider intervals are with bounds 5 and 20 times too wide (building half).
`monotone`: whether intervals or errors grow with eps or with n (reporting half). `tails`: how far
the largest errors of learner r's effect are from the usual ones. Rows and noise have seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "coverage"))

import fits
import numpy as np
import pandas as pd
from draws import DRAWS, Draw, missing
from families import FAMILIES
from kinds import LAWS, Cell, cells
from methods import arms, design
from scipy.stats import f as fisher
from scipy.stats import ttest_rel
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer
from verdicts import COVER, Verdict, each

import privcausal as pc
from privcausal.testing import seeded_noise

Lines = Iterator[object]


# --- patients ----------------------------------------------------------------------------------

MODELS = {
    "logistic, splines": make_pipeline(SplineTransformer(5), LogisticRegression(max_iter=1000)),
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
}
PATIENT_BUDGETS = (0.25, 1.0)


def patients(options: argparse.Namespace) -> Lines:
    """Covariates of RHC's rows, drawn with replacement; treatment and death by fitted models."""
    absent = missing({"RHC"})
    if absent:
        yield f"skipped: {absent}"
        return
    known, lines = DRAWS["RHC"](0, 0), []
    for name, model in MODELS.items():
        e, mu0, mu1 = _fitted(model, known)
        effect = (mu1 - mu0).mean()
        yield f"{name}: propensities {e.min():.2f} to {e.max():.2f}, effect {effect:.4f}"
        for eps in PATIENT_BUDGETS:
            made = [_patient(known, e, mu0, mu1, eps, seed) for seed in range(options.reps)]
            lines.append({"model": name, "eps": eps, **_covered(pd.DataFrame(made))})
    yield _shown(pd.DataFrame(lines).set_index(["model", "eps"]), 3)
    yield from (
        Verdict(line["cover"] >= COVER, f"{line['model']}, eps {line['eps']:g}: coverage "
                f"{line['cover']:.3f} of {line['fits']} ({COVER} wanted)")
        for line in lines
    )  # fmt: skip


def _fitted(model: Any, known: Draw) -> tuple[Any, Any, Any]:
    """Propensity and risks of death without treatment and with it, of each patient."""
    x, (y, t) = design(known), arms(known)
    e = model.fit(x, t).predict_proba(x)[:, 1]
    return e, *(model.fit(x[t == a], y[t == a]).predict_proba(x)[:, 1] for a in (0, 1))


def _patient(known: Draw, e: Any, mu0: Any, mu1: Any, eps: float, seed: int) -> dict[str, Any]:
    rng, n = np.random.default_rng((2_061, seed)), len(e)
    at = rng.integers(n, size=n)
    t = rng.random(n) < e[at]
    y = rng.random(n) < np.where(t, mu1[at], mu0[at])
    frame = known.frame.iloc[at].reset_index(drop=True)
    frame = frame.assign(dth180=y.astype(int), rhc=t.astype(int))
    with seeded_noise(seed):
        fit = pc.private(known.formula, frame, eps=eps, bounds=known.bounds)
    (low, high), (low80, high80) = (fit.conf_int(a).to_numpy()[0] for a in (0.05, 0.2))
    truth = float((mu1 - mu0).mean())
    return {
        "cover": low <= truth <= high,
        "cover80": low80 <= truth <= high80,
        "half": (high - low) / 2,
        "error": float(fit.params.iloc[0]) - truth,
        "noted": bool(fit.estimate.notes),
    }


def _covered(made: pd.DataFrame) -> dict[str, Any]:
    means = {name: float(made[name].mean()) for name in ("cover", "cover80", "half", "noted")}
    rmse = float(np.sqrt(np.mean(made["error"] ** 2)))
    return {"fits": len(made), **means, "bias": float(made["error"].mean()), "rmse": rmse}


# --- bounds ------------------------------------------------------------------------------------

WIDER = {5.0: 1.25, 20.0: 1.5}
"""Bounds over the support's width, and the half-width over that with tight ones at most wanted."""


def bounds(options: argparse.Namespace) -> Lines:
    """Half-widths over those with tight bounds, on the same rows and noise; eps is 1."""
    lines = []
    for kind in _some([f"outcome {family}" for family in FAMILIES], options):
        for cell in _cells("build", kind, options):
            tight = _mean_half(cell, options.reps)
            for name in ("loose_outcome", "loose_covariates"):
                for factor in WIDER:
                    wide = replace(cell, **{name: factor})
                    if wide.bounds != cell.bounds:  # binary outcomes and levels have no room
                        ratio = _mean_half(wide, options.reps) / tight
                        lines.append((kind, cell.number, cell.n, f"{name[6:]} x{factor:g}", ratio))
            print(kind, cell.number, file=sys.stderr, flush=True)
    found = pd.DataFrame(lines, columns=["kind", "cell", "n", "bounds", "ratio"])
    by = found.groupby(["kind", "bounds"], sort=False)["ratio"]
    table = by.agg(_geometric).unstack()
    yield "Half-width over that with tight bounds: geometric means over cells"
    yield _shown(table.assign(cells=found.groupby("kind")["cell"].nunique()), 2)
    yield _shown(found.pivot(index=["kind", "cell", "n"], columns="bounds", values="ratio"), 2)
    for factor, most in WIDER.items():
        for name in (f"outcome x{factor:g}", f"covariates x{factor:g}"):
            yield each(table[name].dropna(), most, f"{name}: at most")


def _mean_half(cell: Cell, reps: int) -> float:
    return float(_fits(cell, reps, (1.0,))["half"].mean())


# --- monotone ----------------------------------------------------------------------------------

BUDGETS, TIMES, LEVEL = (0.5, 1.0, 4.0), 4, 1e-3


def monotone(options: argparse.Namespace) -> Lines:
    """Half-widths (paired t test) and errors (F test of mean squares), one-sided."""
    lines = []
    for kind in _some(list(LAWS), options):
        for cell in _cells("build" if options.quick else "report", kind, options):
            at = dict(iter(_fits(cell, options.reps, BUDGETS).groupby("eps")))
            more = _fits(replace(cell, n=TIMES * cell.n), options.reps, (1.0,))
            steps = {
                **{f"eps {a:g} to {b:g}": (at[a], at[b]) for a, b in pairwise(BUDGETS)},
                f"n to {TIMES}n": (at[1.0], more),
            }
            where = {"kind": kind, "cell": cell.number, "n": cell.n}
            lines += [where | {"step": step, **rise(*pair)} for step, pair in steps.items()]
            print(kind, cell.number, file=sys.stderr, flush=True)
    found = pd.DataFrame(lines)
    least = np.sqrt(fisher.isf(LEVEL, options.reps, options.reps))
    yield (f"Ratios of mean half-width and of RMSE; *: larger at {LEVEL:g} (of RMSE, a ratio of "
           f"{least:.2f} or more)")  # fmt: skip
    places = pd.MultiIndex.from_frame(found[["kind", "cell", "n"]].drop_duplicates())
    for name, what in (("half", "half-width"), ("rmse", "RMSE")):
        marked = [
            f"{ratio:.2f}{'*' * star}"
            for ratio, star in zip(found[name], found[f"{name} rises"], strict=True)
        ]
        table = found.assign(shown=marked).pivot(
            index=["kind", "cell", "n"], columns="step", values="shown"
        )
        yield f"{what}\n{table.loc[places].to_string()}"
    means = found.groupby("step", sort=False)[["half", "rmse"]].agg(_geometric)
    yield f"geometric means over all cells\n{_shown(means, 2)}"
    for step, part in found.groupby("step", sort=False):
        for name, what in (("half", "mean half-width"), ("rmse", "RMSE")):
            risen = part[part[f"{name} rises"]]
            named = ", ".join(
                f"{k} #{c}" for k, c in zip(risen["kind"], risen["cell"], strict=True)
            )
            said = f"{step}: {what} rises in {len(risen)} of {len(part)} cells"
            yield Verdict(risen.empty, f"{said}{named and ': '}{named}")


def rise(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, Any]:
    """Ratios of mean half-width and of RMSE, and whether they are more than 1 at `LEVEL`.

    The F test takes errors to be normal around 0: with longer tails it finds a rise more often.
    """
    ratio = float(np.mean(after["error"] ** 2) / np.mean(before["error"] ** 2))
    test = ttest_rel(after["half"].to_numpy(), before["half"].to_numpy(), alternative="greater")
    return {
        "half": float(after["half"].mean() / before["half"].mean()),
        "rmse": float(np.sqrt(ratio)),
        "half rises": bool(test.pvalue < LEVEL),
        "rmse rises": bool(fisher.sf(ratio, len(after), len(before)) < LEVEL),
    }


# --- tails -------------------------------------------------------------------------------------

ROWS, POINTS, FIRST_SEED = 4000, 2000, 41_000_000
TAIL, CONSTANT = 6.0, 1.1
"""The 99th and the 99.9th percentile of the MSE over its median, at most; and what makes an RMSE
worse than that of the best constant effect."""


def tails(options: argparse.Namespace) -> Lines:
    """MSE of learner r's effect on setups of Niu et al.; eps is 1."""
    for law in options.laws:
        test = pc.datasets.niu(law, POINTS, FIRST_SEED - 1)
        mse = np.array([_error(law, test, FIRST_SEED + k) for k in range(options.reps)])
        yield from tail(f"setup {law}, n {ROWS}", mse, float(test.tau.std()))


def tail(name: str, mse: Any, constant: float) -> Lines:
    """How far out the errors go; `constant` is the RMSE of the best constant effect."""
    median = float(np.median(mse))
    worse = np.mean(np.sqrt(mse) > CONSTANT * constant)
    yield (
        f"{name}, {len(mse)} fits: RMSE {np.sqrt(median):.3f} in the median, of the best constant "
        f"{constant:.3f}; {worse:.2%} of fits above {CONSTANT} of that; the largest MSE is "
        f"{mse.max() / median:.1f} times the median"
    )
    for share in (0.99, 0.999):
        at = float(np.quantile(mse, share))
        said = f"{share:.1%} of fits have an MSE of at most {at / median:.2f} times the median's"
        above = f"{int((mse > at).sum())} fits lie above"
        yield Verdict(at <= TAIL * median, f"{name}: {said} ({TAIL:g} wanted; {above})")


def _error(law: Any, test: Any, seed: int) -> float:
    study = pc.datasets.niu(law, ROWS, seed)
    with seeded_noise(seed):
        fit = pc.privcate(study.formula, study.frame, eps=1, bounds=study.bounds, learner="r")
    return float(np.mean((fit.predict(test.frame)["estimate"].to_numpy() - test.tau) ** 2))


# --- the laboratory's cells --------------------------------------------------------------------


def _some(kinds: Sequence[str], options: argparse.Namespace) -> Sequence[str]:
    if options.quick:
        return kinds[:2]
    return [kind for kind in kinds if any(name in kind for name in options.kinds.split(","))]


def _cells(half: str, kind: str, options: argparse.Namespace) -> list[Cell]:
    """The first cells that have enough rows, and not too many."""
    found = cells("laws", half, kind, 40)
    fitting = [cell for cell in found if options.least <= cell.n <= options.most]
    return fitting[: options.cells]


def _fits(cell: Cell, reps: int, budgets: Sequence[float]) -> pd.DataFrame:
    """Half-widths and errors of `private`; a fit that fails stops the study."""
    made = list(fits.rows(cell, range(reps), ["private"], budgets))
    rows = pd.DataFrame(made, columns=fits.COLUMNS)
    if (rows["failed"] != "").any():
        raise RuntimeError(f"{cell.kind} {cell.number}: {set(rows['failed'])}")
    rows[fits.NUMBERS] = rows[fits.NUMBERS].astype(float)
    half, error = (rows["high"] - rows["low"]) / 2, rows["estimate"] - rows["truth"]
    return rows[["eps", "seed"]].assign(half=half, error=error)


def _geometric(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def _shown(table: pd.DataFrame, digits: int) -> str:
    return table.to_string(float_format=f"{{:.{digits}f}}".format, na_rep="")


PARTS: dict[str, Callable[[argparse.Namespace], Lines]] = {
    "patients": patients, "bounds": bounds, "monotone": monotone, "tails": tails,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Limits of averages and of effects.")
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--reps", type=int, default=15, help="fits of each setting")
    parser.add_argument("--cells", type=int, default=1, help="of each kind")
    parser.add_argument("--kinds", default="", help="kinds whose names hold one of these")
    parser.add_argument("--least", type=int, default=0, help="leave out cells with fewer rows")
    parser.add_argument("--most", type=int, default=20_000, help="leave out cells with more rows")
    parser.add_argument("--laws", default="A", help="setups of Niu et al. for tails: AD")
    parser.add_argument("--quick", action="store_true", help="all parts, few fits")
    options = parser.parse_args(argv)
    if options.quick:
        options.reps, options.cells, options.most = 2, 1, 2000
    elif options.part is None:
        parser.error("name a part, or --quick")
    elif options.part == "monotone" and fits.commit().endswith("+"):
        print("the reporting half runs on committed code: files differ from the commit")
        return 2
    print(f"commit {fits.commit()}, code {fits.code()}, lab {fits.lab()}", flush=True)
    for name in PARTS if options.quick else [options.part]:
        for line in PARTS[name](options):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
