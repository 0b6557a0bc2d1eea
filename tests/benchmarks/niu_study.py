"""Niu et al. (2022) again: their table and Figures 1, 2 and 3, beside our booster.

Run ``python tests/benchmarks/niu_study.py [--quick] [--out FOLDER] [--published CSV]
[--voting PARQUET] [PART ...]`` with parts ``table composition centre figures``; all of them by
default. Nothing here is used to choose a default.

Errors are theirs: of two fits on tables of their own, MSE = (m_1 + m_2) / 2, squared bias
2 m_avg - MSE and variance 2 (MSE - m_avg), m_avg being the error of the two predictions' mean.

``paper``: mode="paper", interpret's DP-EBM on parts of .25, .25 and .5 of the rows. ``raw`` and
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
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc

SETUPS = {"A": "A", "B": "B", "C": "C", "D": "D", "E": "E-code"}
"""Name in the paper's table -> generator; of E the published figures are those of its notebook."""

QUICK_SIZES = (1000,)
SIZES, EPSILONS, LEARNERS = (4000, 16_000), (1.0, 4.0, 16.0), ("s", "dr", "r")
TEST_ROWS, TEST_SEED, CLIP = 20_000, 10_000_019, 0.05

RAW, SMOOTH = pc.bases.DPEBM(smooth=False), pc.bases.DPEBM()
CONSTANT = pc.learners.S(interactions=False)


def call(variant: str, learner: str) -> dict[str, Any]:
    """Options of `privcate` for one variant."""
    if variant == "paper":
        return {"learner": learner, "base": "dpebm", "mode": "paper"}
    constant = learner == "s" and variant in ("raw", "constant")
    base = RAW if variant == "raw" else SMOOTH
    return {
        "learner": CONSTANT if constant else learner, "base": base, "shares": {"average": 0},
    }  # fmt: skip


def variants(learner: str) -> tuple[str, ...]:
    return ("paper", "raw", "smooth", *(("constant",) if learner == "s" else ()))


def fitted(study: Any, eps: float, **options: Any) -> Any:
    return pc.privcate(
        study.formula, study.frame, eps=eps, bounds=study.bounds, propensity_clip=CLIP, **options
    )


def pair(
    make: Callable[[int], Any], test: Any, eps: float, seed: int, options: dict[str, Any]
) -> tuple[float, float, float]:
    """MSE, squared bias and variance by two fits."""
    first, second = (
        fitted(make(2 * seed + k), eps, **options).predict(test.frame)["estimate"].to_numpy()
        for k in (0, 1)
    )
    errors = [float(np.mean((p - test.tau) ** 2)) for p in (first, second)]
    both = float(np.mean(((first + second) / 2 - test.tau) ** 2))
    mse = sum(errors) / 2
    return mse, 2 * both - mse, 2 * (mse - both)


def cells(
    setups: Sequence[str], sizes: Sequence[int], epsilons: Sequence[float], repetitions: int
) -> Iterator[dict[str, Any]]:
    """A row per setup, size, learner, epsilon and variant: means over the repetitions."""
    for setup in setups:
        law = SETUPS[setup]
        test = pc.datasets.niu(law, TEST_ROWS, TEST_SEED)  # type: ignore[arg-type]

        def make(seed: int, law: str = law, n: int = 0) -> Any:
            return pc.datasets.niu(law, n, seed + 1)  # type: ignore[arg-type]

        for n, learner, eps in itertools.product(sizes, LEARNERS, epsilons):
            for variant in variants(learner):
                found = [
                    pair(lambda s, n=n: make(s, n=n), test, eps, seed, call(variant, learner))
                    for seed in range(repetitions)
                ]
                mse, bias, variance = np.mean(found, axis=0)
                yield {
                    "dataset": setup, "n": n, "learner": learner, "epsilon": eps,
                    "variant": variant, "mse": mse, "bias2": bias, "variance": variance,
                    "low": min(m for m, *_ in found), "high": max(m for m, *_ in found),
                    "repetitions": repetitions,
                }  # fmt: skip


def table(options: argparse.Namespace) -> pd.DataFrame:
    """The study's table, printed cell by cell, with ratios to the paper's and to our paper mode."""
    setups = ("A",) if options.quick else tuple(SETUPS)
    sizes = QUICK_SIZES if options.quick else SIZES
    epsilons = EPSILONS[:1] if options.quick else EPSILONS
    rows = []
    for row in cells(setups, sizes, epsilons, options.repetitions):
        rows.append(row)
        print(" ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()),
              flush=True)  # fmt: skip
    found = pd.DataFrame(rows)
    found.to_csv(options.out / "niu_study.csv", index=False)
    keys = ["dataset", "n", "learner", "epsilon"]
    wide = found.pivot_table("mse", keys, "variant")
    ratios = pd.DataFrame(
        {f"{name} / paper": wide[name] / wide["paper"] for name in wide if name != "paper"}
    )
    if options.published is not None:
        published = pd.read_csv(options.published).set_index(keys)["mse"]
        ratios["paper / published"] = wide["paper"] / published.reindex(wide.index)
    print(ratios.round(3).to_string(), flush=True)
    at_one = ratios[ratios.index.get_level_values("epsilon") == 1.0]
    for name in ratios:
        values = at_one[name].dropna()
        if len(values):
            mean = float(np.exp(np.log(values).mean()))
            print(f"{name} at epsilon 1: geometric mean {mean:.3f}, worst {values.max():.3f}")
    return found


def composition(options: argparse.Namespace) -> pd.DataFrame:
    """Stages on disjoint rows with all of rho, against all rows with shares of it; and the ATE."""
    setups = ("A",) if options.quick else tuple(SETUPS)
    sizes = QUICK_SIZES if options.quick else SIZES
    rows = []
    for setup, n, learner, split in itertools.product(
        setups, sizes, ("dr", "r"), ("disjoint", "full", "crossfit")
    ):
        law = SETUPS[setup]
        test = pc.datasets.niu(law, TEST_ROWS, TEST_SEED)  # type: ignore[arg-type]
        found = []
        for seed in range(2 * options.repetitions):
            study = pc.datasets.niu(law, n, seed + 1)  # type: ignore[arg-type]
            fit = fitted(study, 1.0, learner=learner, base=SMOOTH, split=split)
            error = float(np.mean((fit.predict(test.frame)["estimate"] - test.tau) ** 2))
            low, high = fit.conf_int().loc["ATE"]
            found.append(
                (error, float(fit.params["ATE"] - study.ate), high - low, low < study.ate < high)
            )
        mse, bias, width, cover = np.mean(found, axis=0)
        rows.append(
            {"dataset": setup, "n": n, "learner": learner, "split": split, "mse": mse,
             "ATE bias": bias, "ATE width": width, "ATE coverage": cover}
        )  # fmt: skip
    made = pd.DataFrame(rows)
    print(made.round(4).to_string(index=False), flush=True)
    made.to_csv(options.out / "niu_composition.csv", index=False)
    return made


def centre(options: argparse.Namespace) -> pd.DataFrame:
    """The same outcomes in [-1, 1] and in [99, 101]: root mean squared errors of tau(x)."""
    rng = np.random.default_rng(0)
    n = 1000 if options.quick else 8000
    x = rng.uniform(-1, 1, (n, 3))
    t = (rng.random(n) < 0.5).astype(int)
    tau = 0.3 + 0.2 * x[:, 0]
    y = np.clip(0.3 * x[:, 1] + t * tau + 0.2 * rng.standard_normal(n), -1, 1)
    frame = pd.DataFrame(x, columns=["X1", "X2", "X3"]).assign(T=t)
    rows = []
    for (name, options_of), shift in itertools.product(
        {v: call(v, "dr") for v in ("paper", "raw", "smooth")}.items(), (0.0, 100.0)
    ):
        errors = []
        for _ in range(2 * options.repetitions):
            fit = pc.privcate(
                "Y ~ T | X1 + X2 + X3", frame.assign(Y=y + shift), eps=2.0, propensity=0.5,
                bounds={"Y": (shift - 1, shift + 1), **dict.fromkeys(["X1", "X2", "X3"], (-1, 1))},
                **options_of,
            )  # fmt: skip
            errors.append(float(np.mean((fit.predict(frame)["estimate"] - tau) ** 2)))
        rows.append({"variant": name, "shift": shift, "rmse": float(np.sqrt(np.mean(errors)))})
    made = pd.DataFrame(rows).pivot_table("rmse", "variant", "shift")
    print(made.round(4).to_string(), flush=True)
    made.to_csv(options.out / "niu_centre.csv")
    return made


# -- figures ---------------------------------------------------------------------------------


def voting(path: Path, n: int, seed: int) -> Any:
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


def figures(options: argparse.Namespace) -> None:
    """Figure 1: the effect by age. Figure 2: errors by n and epsilon. Figure 3: bias, variance."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    if options.voting is None:
        print("figures 1 and 2 need --voting gotv.parquet", flush=True)
    else:
        _figure_1(plt, options)
        _figure_2(plt, options)
    _figure_3(plt, options)


def _figure_1(plt: Any, options: argparse.Namespace) -> None:
    study = voting(options.voting, 4000 if options.quick else 16_000, 1)
    epsilons = (1.0, 16.0) if options.quick else (1.0, 2.0, 4.0, 8.0, 16.0, 128.0)
    figure, axes = plt.subplots(3, len(epsilons), figsize=(2.4 * len(epsilons), 6), sharey="row",
                                squeeze=False)  # fmt: skip
    ages = np.linspace(18, 100, 165)
    typical = study.frame.mean()
    grid = pd.DataFrame({name: np.full(165, typical[name]) for name in study.frame})
    grid = grid.assign(age=ages, g2000=1.0).drop(columns=["Y", "T"])
    for row, variant in enumerate(("paper", "raw", "smooth")):
        for axis, eps in zip(axes[row], epsilons, strict=True):
            found = fitted(study, eps, **call(variant, "dr")).predict(grid)
            axis.step(ages, found["estimate"], where="mid")
            axis.fill_between(ages, found["conf_low"], found["conf_high"], alpha=0.2)
            axis.plot(ages, -1 / (2 + 100 / ages), "k--", linewidth=0.8)
            axis.set_title(f"{variant}, eps = {eps:g}", fontsize=8)
    figure.tight_layout()
    figure.savefig(options.out / "niu_figure_1.png", dpi=120)


def _figure_2(plt: Any, options: argparse.Namespace) -> None:
    sizes = (1000, 4000) if options.quick else (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
    epsilons = (1.0, 4.0) if options.quick else (1.0, 2.0, 4.0, 8.0, 16.0)
    test = voting(options.voting, TEST_ROWS, TEST_SEED)
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharey=True)
    rows = []
    for axis, learner in zip(axes.T, LEARNERS, strict=True):
        for variant, style in (("paper", ":"), ("smooth", "-")):
            mse = np.array(
                [
                    [
                        np.mean(
                            [
                                pair(lambda s, n=n: voting(options.voting, n, s + 1), test, eps,
                                     seed, call(variant, learner))[0]
                                for seed in range(options.repetitions)
                            ]
                        )
                        for n in sizes
                    ]
                    for eps in epsilons
                ]
            )  # fmt: skip
            for k, n in enumerate(sizes):
                axis[0].loglog(epsilons, mse[:, k], style, color=f"C{k}",
                               label=f"{variant}, n = {n}")  # fmt: skip
            for k, eps in enumerate(epsilons):
                axis[1].loglog(sizes, mse[k], style, color=f"C{k}",
                               label=f"{variant}, eps = {eps:g}")  # fmt: skip
            rows += [
                {"learner": learner, "variant": variant, "epsilon": e, "n": n, "mse": mse[i, j]}
                for (i, e), (j, n) in itertools.product(enumerate(epsilons), enumerate(sizes))
            ]
        axis[0].set_title(f"{learner}: MSE by epsilon", fontsize=9)
        axis[1].set_title(f"{learner}: MSE by n", fontsize=9)
    for axis in axes[:, -1]:
        axis.legend(fontsize=5)
    figure.tight_layout()
    figure.savefig(options.out / "niu_figure_2.png", dpi=120)
    pd.DataFrame(rows).to_csv(options.out / "niu_voting.csv", index=False)


def _figure_3(plt: Any, options: argparse.Namespace) -> None:
    """From the table, which is made if it is not there."""
    path = options.out / "niu_study.csv"
    found = pd.read_csv(path) if path.exists() else table(options)
    largest = found[(found["learner"] == "dr")]
    sizes = {"A": 16_000, "B": 16_000}  # the others at 4000, as theirs
    setups = list(dict.fromkeys(largest["dataset"]))
    figure, axes = plt.subplots(2, len(setups), figsize=(2.6 * len(setups), 5), squeeze=False)
    for row, variant in enumerate(("paper", "smooth")):
        for axis, setup in zip(axes[row], setups, strict=True):
            own = largest[(largest["dataset"] == setup) & (largest["variant"] == variant)]
            wanted = sizes.get(setup, 4000)
            own = own[own["n"] == (wanted if (own["n"] == wanted).any() else own["n"].max())]
            for name in ("mse", "bias2", "variance"):
                axis.loglog(own["epsilon"], own[name].clip(lower=1e-5), "o-", label=name)
            axis.set_title(f"{setup}, {variant}", fontsize=8)
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(options.out / "niu_figure_3.png", dpi=120)


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "table": table, "composition": composition, "centre": centre, "figures": figures,
}  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    reader.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    reader.add_argument("--quick", action="store_true")
    reader.add_argument("--out", type=Path, help="default: here; with --quick a temporary folder")
    reader.add_argument("--published", type=Path)
    reader.add_argument("--voting", type=Path)
    reader.add_argument("--repetitions", type=int)
    options = reader.parse_args(arguments)
    if options.quick:  # few rounds and points: it shows that all runs, and no more
        global TEST_ROWS  # noqa: PLW0603  (the one setting of a script)
        TEST_ROWS = 500
        for base in (RAW, SMOOTH):
            object.__setattr__(base, "rounds", 30)
    options.repetitions = options.repetitions or (1 if options.quick else 5)
    if options.out is None:
        options.out = Path(tempfile.mkdtemp() if options.quick else ".")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        print(f"== {name}", flush=True)
        PARTS[name](options)


if __name__ == "__main__":
    main(sys.argv[1:])
