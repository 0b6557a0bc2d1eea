"""The experiments of Betlei et al. (2021), and the default and the R-learner beside theirs.

``python tests/benchmarks/adum_study.py [--quick] [--only 1 2 3 bound] [--out FOLDER]`` writes
figure1.csv, figure2.csv, figure3.csv and bound.csv and prints them.

1. PEHE against epsilon for tau(x) = sin x, n = 20,000, sigma = 1: ADUM (Algorithm 1 with right
   sensitivities) and TM with the number of groups and the degree tuned with the truth, the
   default, and the R-learner (zCDP at delta = 1e-5, so not the same promise).
2. PEHE against the number of groups, sigma = 0.1, and the optimum of Corollary 1 beside the
   measured one.
3. AUUC on held-out rows, exact since it only scores: on GOTV (with `--gotv FILE`, a Parquet of
   the trial) and on a generated set like Criteo's, 1,000,000 rows of 12 features, a visit rate of
   4.7 %, 85 % treated.

Outcomes of 1 and 2 are cut to [-5, 5]; their noise is the package's own.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.inference.groups import bound, by_bound
from privcausal.learners import ADUM, TM

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
GROUPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64)
BOUNDS: dict[str, Any] = {"Y": (-5, 5), "X": (-1, 1)}
GRID = np.linspace(-0.9995, 0.9995, 2000)


def paper(groups: int) -> ADUM:
    """Algorithm 1 as printed, with right sensitivities."""
    return ADUM(cells=groups, shrink=False, release="count_sum")


def sine(rows: int, sigma: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 2021])
    x, t = rng.uniform(-1, 1, rows), rng.integers(0, 2, rows)
    return pd.DataFrame({"X": x, "T": t, "Y": t * np.sin(x) + rng.normal(0, sigma, rows)})


def pehe(learner: Any, frame: pd.DataFrame, epsilon: float) -> float:
    """Mean squared error of tau over uniform x."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = pc.privcate(
            "Y ~ T | X", frame, learner=learner, bounds=BOUNDS, eps=epsilon, propensity=0.5
        )
    return float(((fit.predict({"X": GRID})["estimate"] - np.sin(GRID)) ** 2).mean())


def tuned(options: Iterable[Any], score: Callable[[Any], list[float]]) -> tuple[Any, list[float]]:
    """The option with the least mean, chosen with the truth, and its scores."""
    found = {option: score(option) for option in options}
    best = min(found, key=lambda option: float(np.mean(found[option])))
    return best, found[best]


def figure1(quick: bool) -> pd.DataFrame:
    seeds = range(3 if quick else 20)
    epsilons = (0.1, 1.0, 10.0) if quick else EPSILONS
    tables = [sine(20_000, 1.0, seed) for seed in seeds]
    lines = []
    for epsilon in epsilons:

        def scores(learner: Any, epsilon: float = epsilon) -> list[float]:
            return [pehe(learner, frame, epsilon) for frame in tables]

        groups, adum = tuned(GROUPS, lambda p: scores(paper(p)))
        degree, tm = tuned(range(1, 6), lambda k: scores(TM(degree=k)))
        default, r = scores("adum"), scores("r")
        line = {"epsilon": epsilon, "groups": groups, "degree": degree}
        for name, found in (("adum", adum), ("tm", tm), ("default", default), ("r", r)):
            line[name] = float(np.mean(found))
            line[f"{name}_sd"] = float(np.std(found))
        lines.append(line | {"default_over_adum": line["default"] / line["adum"]})
    return pd.DataFrame(lines)


def figure2(quick: bool) -> pd.DataFrame:
    seeds = range(2 if quick else 20)
    tables = [sine(20_000, 0.1, seed) for seed in seeds]
    lines = []
    for epsilon in (1.0, 10.0) if quick else (0.5, 1.0, 5.0, 50.0, 100.0):
        for groups in GROUPS if quick else (*GROUPS, 96, 128, 192):
            found = [pehe(paper(groups), frame, epsilon) for frame in tables]
            lines.append({"epsilon": epsilon, "groups": groups, "pehe": np.mean(found)})
    frame = pd.DataFrame(lines)
    least = frame.loc[frame.groupby("epsilon")["pehe"].idxmin()].set_index("epsilon")["groups"]
    frame["measured_optimum"] = frame["epsilon"].map(least)
    # sin rises by at most 1 per unit over a width of 2: (L_T D_x)^2 = 4
    frame["bound_optimum"] = [by_bound(20_000, e, 4.0, 0.1, 10.0, 400) for e in frame["epsilon"]]
    return frame


def bounds(quick: bool) -> pd.DataFrame:
    """How often Corollary 1's bound holds where it says so, with probability 0.99."""
    lines = []
    for epsilon in (1.0, 5.0):
        for groups in (2, 5, 10, 20):
            most = float(bound(np.array([float(groups)]), 20_000, epsilon, 4.0, 1.0, 10.0)[0])
            found = [
                pehe(paper(groups), sine(20_000, 1.0, 900 + seed), epsilon)
                for seed in range(5 if quick else 200)
            ]
            share = np.mean(np.array(found) <= most)
            lines.append({"epsilon": epsilon, "groups": groups, "bound": most, "holds": share,
                          "largest": max(found)})  # fmt: skip
    return pd.DataFrame(lines)


def criteo_like(rows: int, seed: int = 7) -> pd.DataFrame:
    """12 features, two of which drive a visit rate of 4.7 % and its uplift; 85 % treated."""
    rng = np.random.default_rng(seed)
    x = rng.beta(2, 4, (rows, 12))
    t = (rng.random(rows) < 0.85).astype(int)
    base = 0.012 + 0.16 * x[:, 0] ** 2 + 0.02 * x[:, 3]
    uplift = 0.03 * (x[:, 0] > 0.4) * x[:, 1]
    visit = (rng.random(rows) < base + t * uplift).astype(int)
    frame = pd.DataFrame(x, columns=[f"f{j}" for j in range(12)])
    return frame.assign(treatment=t, visit=visit)


def auuc(score: Any, treatment: Any, outcome: Any, bins: int = 200) -> float:
    """Area under the uplift curve of held-out rows (Jaskowski and Jaroszewicz 2012)."""
    noise = np.random.default_rng(0).random(len(score))  # ties in random order
    order = np.lexsort((noise, -np.asarray(score)))
    t, y = np.asarray(treatment)[order], np.asarray(outcome, float)[order]
    ends = np.linspace(0, len(t), bins + 1).astype(int)[1:]
    n1, s1, s0 = (np.cumsum(v)[ends - 1] for v in (t, t * y, (1 - t) * y))
    gain = ends / len(t) * (s1 / np.maximum(n1, 1) - s0 / np.maximum(ends - n1, 1))
    return float(np.mean(0.5 * (gain + np.r_[0.0, gain[:-1]])))


def ranked(
    name: str, frame: pd.DataFrame, features: list[str], domains: dict[str, Any], quick: bool
) -> list[dict[str, Any]]:
    """Held-out AUUC of every learner on a trial with columns treatment and visit."""
    formula = f"visit ~ treatment | {' + '.join(features)}"
    first = features[0]
    learners: dict[str, tuple[str, Any]] = {
        "adum grid, first feature": (f"visit ~ treatment | {first}", ADUM(cells=16)),
        "adum kmeans": (formula, ADUM(partition="kmeans", cells=16)),
        "adum kmeans, paper": (
            formula, ADUM(partition="kmeans", cells=16, shrink=False, release="count_sum")
        ),
        "tm": (formula, "tm"),
        "r": (formula, "r"),
    }  # fmt: skip
    lines = []
    for split in range(1 if quick else 4):
        held = np.random.default_rng(split).random(len(frame)) < 0.3
        train, test = frame[~held], frame[held]
        for epsilon in (1.0,) if quick else (0.1, 0.5, 1.0, 5.0, 20.0):
            for label, (text, learner) in learners.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fit = pc.privcate(text, train, learner=learner, bounds=domains, eps=epsilon)
                score = fit.predict(test)["estimate"].to_numpy()
                area = auuc(score, test["treatment"], test["visit"])
                lines.append({"data": name, "split": split, "epsilon": epsilon,
                              "learner": label, "auuc": area})  # fmt: skip
    return lines


def figure3(quick: bool, gotv: Path | None) -> pd.DataFrame:
    rows = 60_000 if quick else 1_000_000
    features = [f"f{j}" for j in range(12)]
    domains: dict[str, Any] = dict.fromkeys(features, (0, 1)) | {"visit": pc.Binary()}
    lines = ranked("criteo-like", criteo_like(rows), features, domains, quick)
    if gotv is not None:
        lines += ranked("gotv", *_gotv(gotv), quick)
    found = pd.DataFrame(lines)
    keys = ["data", "epsilon", "learner"]
    return found.groupby(keys)["auuc"].agg(["mean", "std"]).reset_index()


def _gotv(file: Path) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
    """Gerber, Green and Larimer (2008): the letter "neighbors" against control, voted in 2006."""
    frame = pd.read_parquet(file).rename(columns={"voted": "visit", "neighbors": "treatment"})
    features = [name for name in GOTV if name in frame]
    domains: dict[str, Any] = {name: GOTV[name] for name in features} | {"visit": pc.Binary()}
    return frame, features, domains


GOTV: dict[str, Any] = {
    "age": (18, 100), "hh_size": (1, 8), "sex": ["female", "male"], "g2000": pc.Binary(),
    "g2002": pc.Binary(), "p2000": pc.Binary(), "p2002": pc.Binary(), "p2004": pc.Binary(),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=["1", "2", "3", "bound"])
    parser.add_argument("--gotv", type=Path)
    parser.add_argument("--out", type=Path, help="default: here; with --quick a temporary folder")
    chosen = parser.parse_args()
    if chosen.out is None:
        chosen.out = Path(tempfile.mkdtemp() if chosen.quick else ".")
    studies: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
        "1": ("figure1", lambda: figure1(chosen.quick)),
        "2": ("figure2", lambda: figure2(chosen.quick)),
        "3": ("figure3", lambda: figure3(chosen.quick, chosen.gotv)),
        "bound": ("bound", lambda: bounds(chosen.quick)),
    }
    for key in chosen.only:
        name, run = studies[key]
        frame = run()
        frame.to_csv(chosen.out / f"{name}.csv", index=False, float_format="%.6g")
        print(f"\n{name}\n{frame.to_string(index=False, float_format='%.4g'.__mod__)}", flush=True)


if __name__ == "__main__":
    main()
