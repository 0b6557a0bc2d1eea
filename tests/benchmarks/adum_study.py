"""The experiments of Betlei et al. (2021), and the default and the R-learner beside theirs.

``python tests/benchmarks/adum_study.py [--quick] [--only tune 1 2 bound 3] [--out FOLDER]`` adds
lines to figure1.csv, figure2.csv, bound.csv, figure3.csv and tune.csv; those there are not made
again, so that it may be stopped and started. Then (or alone, ``--only``) it draws the figures and
writes results.md.

1. PEHE against epsilon, n = 20,000, sigma = 1, for tau(x) = sin x as printed and for sin(pi x),
   which is "non-monotonic" as the paper says of its surface. `printed`: ADUM and TM exactly as the
   papers have them; `library`: TM by diffprivlib, where that is installed; `right`: with proven
   scales. All have their number of groups or degree tuned with the truth. Beside them the default,
   untuned, and the R-learner (zCDP at delta = 1e-5, so not the same promise).
2. PEHE against the number of groups, sigma = 0.1, and the optimum of Corollary 1 beside the
   measured one. `bound`: how often its bound holds.
3. AUUC on held-out rows, exact since it only scores: on GOTV where its file is at hand, and on a
   generated set like Criteo's, 1,000,000 rows of 12 features, a visit rate of 4.7 %, 85 % treated.
tune: the default's rule for the number of cells, on trials made of the tuning generators. Nothing
of them is in 1 to 3.

Outcomes of 1 and 2 are cut to [-5, 5]. Noise is seeded; nothing here is private.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import adum_printed
import adum_results
import generators
import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.inference.cells import LEAST_CELLS, MOST_CELLS, bound
from privcausal.learners import ADUM, TM
from privcausal.testing import seeded_noise

EPSILONS = (1.0, 5.0, 10.0, 0.1, 2.0, 0.5, 20.0, 0.2, 50.0, 0.05, 100.0)
GROUPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64)
DEGREES = range(1, 6)
BOUNDS: dict[str, Any] = {"Y": (-5, 5), "X": (-1, 1)}
GRID = np.linspace(-0.9995, 0.9995, 2000)
RESULTS = Path(__file__).parent / "adum"
GOTV_FILE = Path(__file__).parents[3] / "shared" / "data" / "gotv.parquet"

Surface = Callable[[Any], Any]
SURFACES: dict[str, Surface] = {"sin x": np.sin, "sin pi x": lambda x: np.sin(np.pi * x)}
Line = dict[str, Any]


def trial(surface: Surface, rows: int, sigma: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 2021])
    x, t = rng.uniform(-1, 1, rows), rng.integers(0, 2, rows)
    return pd.DataFrame({"X": x, "T": t, "Y": t * surface(x) + rng.normal(0, sigma, rows)})


def squared(found: Any, surface: Surface) -> float:
    """Mean squared error of tau over uniform x."""
    return float(((np.asarray(found) - surface(GRID)) ** 2).mean())


def fitted(learner: Any, frame: pd.DataFrame, epsilon: float, seed: int) -> Any:
    with warnings.catch_warnings(), seeded_noise(seed):
        warnings.simplefilter("ignore")
        fit = pc.privcate(
            "Y ~ T | X", frame, learner=learner, bounds=BOUNDS, eps=epsilon, propensity=0.5
        )
    return fit.predict({"X": GRID})["estimate"]


def tuned(options: Iterable[Any], score: Callable[[Any], list[float]]) -> tuple[Any, list[float]]:
    """The option with the least mean, chosen with the truth, and its scores."""
    found = {option: score(option) for option in options}
    best = min(found, key=lambda option: float(np.mean(found[option])))
    return best, found[best]


# -- the studies: points, and a line (or several) for each ---------------------------------------


def figure1(point: Line, quick: bool) -> list[Line]:
    epsilon, surface = point["epsilon"], SURFACES[point["surface"]]
    many = 2 if quick else 10
    # seeds that nothing was tuned on
    tables = [(seed, trial(surface, 20_000, 1.0, seed)) for seed in range(5000, 5000 + many)]

    def ours(learner: Any) -> list[float]:
        return [squared(fitted(learner, f, epsilon, seed), surface) for seed, f in tables]

    def printed(method: Callable[..., Any]) -> Callable[[int], list[float]]:
        def score(option: int) -> list[float]:
            return [
                squared(
                    method(f, option, epsilon, np.random.default_rng([seed, option, 7]), GRID),
                    surface,
                )
                for seed, f in tables
            ]

        return score

    groups = (3, 8, 20) if quick else GROUPS
    found = {
        "ADUM, printed": tuned(groups, printed(adum_printed.adum)),
        "TM, printed": tuned(DEGREES, printed(adum_printed.tm)),
        "ADUM, right": tuned(groups, printed(adum_printed.right_adum)),
        "TM, right": tuned(DEGREES, lambda k: ours(TM(degree=k))),
        "default": ("", ours("adum")),
        "R-learner": ("", ours("r")),
    }
    if importlib.util.find_spec("diffprivlib") is not None:
        found["TM, library"] = tuned(DEGREES, printed(adum_printed.library_tm))
    return [
        point | {"method": name, "tuned": option, "pehe": np.mean(s), "sd": np.std(s), "runs": many}
        for name, (option, s) in found.items()
    ]


def right(point: Line, sigma: float, seed: int) -> float:
    """PEHE of one trial by ADUM with right sensitivities."""
    groups, frame = point["groups"], trial(np.sin, 20_000, sigma, seed)
    rng = np.random.default_rng([seed, groups, 7])
    return squared(adum_printed.right_adum(frame, groups, point["epsilon"], rng, GRID), np.sin)


def figure2(point: Line, quick: bool) -> list[Line]:
    seeds = range(2 if quick else 20)
    found = [right(point, 0.1, seed) for seed in seeds]
    return [point | {"pehe": np.mean(found)}]


def bounds(point: Line, quick: bool) -> list[Line]:
    """How often Corollary 1's bound holds where it says so, with probability 0.99."""
    groups, epsilon = point["groups"], point["epsilon"]
    # sin rises by at most 1 per unit over a width of 2: (L_T D_x)^2 = 4
    most = float(bound(np.array([float(groups)]), 20_000, epsilon, 4.0, 1.0, 10.0)[0])
    found = [right(point, 1.0, seed) for seed in range(900, 905 if quick else 1100)]
    return [
        point
        | {"bound": most, "runs": len(found), "holds": np.mean(np.array(found) <= most),
           "mean": np.mean(found), "largest": max(found)}
    ]  # fmt: skip


MODIFIERS = {
    "saddle": ("X4",), "tent": ("X4",), "mount": ("X1",), "steps": ("X3",), "many": ("X1", "X2"),
    "spread": ("X5",), "twist": ("X3",),
}  # fmt: skip
"""What the effects of the tuning generators depend on."""
SPANS = (2.0, 3.0, 4.0, 5.5, 8.0, 12.0)


def tune(point: Line, quick: bool) -> list[Line]:
    """Mean squared error of the shrunken estimate by the divisor of sqrt(n epsilon)."""
    law, n, epsilon = generators.LAWS[point["law"]], point["n"], point["epsilon"]
    scores: dict[float, list[float]] = {span: [] for span in SPANS}
    for seed in range(1 if quick else 3):
        study = generators.draw(point["law"], n, 40_000 + seed)
        rng = np.random.default_rng([seed, 5])
        treated = rng.random(n) < 0.5
        frame = study.frame.assign(T=treated)
        noise = law.sigma * rng.standard_normal(n)
        frame["Y"] = np.clip(study.baseline + treated * study.tau + noise, *law.outcome)
        fresh = generators.draw(point["law"], 2000, 50_000 + seed)
        known: dict[int, float] = {}
        for span in SPANS:
            cells = int(np.clip(round(math.sqrt(n * epsilon) / span), LEAST_CELLS, MOST_CELLS))
            if cells not in known:
                with seeded_noise(seed):
                    fit = pc.privcate(
                        f"Y ~ T | {' + '.join(MODIFIERS[point['law']])}", frame, eps=epsilon,
                        learner=ADUM(cells=cells), bounds=study.bounds, propensity=0.5,
                    )  # fmt: skip
                away = fit.predict(fresh.frame)["estimate"].to_numpy() - fresh.tau
                known[cells] = float((away**2).mean())
            scores[span].append(known[cells])
    return [point | {"span": span, "error": np.mean(s)} for span, s in scores.items()]


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


Trial = tuple[pd.DataFrame, list[str], dict[str, Any]]


def figure3(point: Line, quick: bool) -> list[Line]:
    """Held-out AUUC of every learner on a trial with columns treatment and visit."""
    frame, features, domains = _gotv() if point["data"] == "gotv" else _criteo(quick)
    epsilon, split = point["epsilon"], point["split"]
    formula = f"visit ~ treatment | {' + '.join(features)}"
    first = features[0]
    printed = ADUM(partition="kmeans", cells=16, shrink=False, release="count_sum")
    learners: dict[str, tuple[str, Any]] = {
        "default (adum), first feature": (f"visit ~ treatment | {first}", "adum"),
        "adum kmeans": (formula, ADUM(partition="kmeans", cells=16)),
        "adum kmeans, as in the paper": (formula, printed),
        "tm, linear": (formula, "tm"),
        "tm, logistic as in the paper": (formula, pc.paper.tm),
        "r": (formula, "r"),
    }
    held = np.random.default_rng(split).random(len(frame)) < 0.3
    train, test = frame[~held], frame[held]
    lines = []
    for label, (text, learner) in learners.items():
        with warnings.catch_warnings(), seeded_noise(split):
            warnings.simplefilter("ignore")
            options = {"bounds": domains, "eps": epsilon}
            if callable(learner):
                fit = learner(text, train, **options)
            else:
                fit = pc.privcate(text, train, learner=learner, **options)
        score = fit.predict(test)["estimate"].to_numpy()
        area = auuc(score, test["treatment"], test["visit"])
        lines.append(point | {"learner": label, "auuc": area})
    return lines


def _criteo(quick: bool) -> Trial:
    features = [f"f{j}" for j in range(12)]
    domains: dict[str, Any] = dict.fromkeys(features, (0, 1)) | {"visit": pc.Binary()}
    return criteo_like(60_000 if quick else 1_000_000), features, domains


def _gotv() -> Trial:
    """Gerber, Green and Larimer (2008): the letter "neighbors" against control, voted in 2006."""
    frame = pd.read_parquet(GOTV_FILE).rename(columns={"voted": "visit", "neighbors": "treatment"})
    features = [name for name in GOTV if name in frame]
    domains: dict[str, Any] = {name: GOTV[name] for name in features} | {"visit": pc.Binary()}
    return frame, features, domains


GOTV: dict[str, Any] = {
    "age": (18, 100), "hh_size": (1, 8), "sex": ["female", "male"], "g2000": pc.Binary(),
    "g2002": pc.Binary(), "p2000": pc.Binary(), "p2002": pc.Binary(), "p2004": pc.Binary(),
}  # fmt: skip


# -- running ---------------------------------------------------------------------------------------


def points(name: str, quick: bool) -> Iterator[Line]:
    """What a study has a line for, in the order in which they are made."""
    if name == "figure1":
        for epsilon in (0.5, 10.0) if quick else EPSILONS:
            for surface in SURFACES:
                yield {"surface": surface, "epsilon": epsilon}
    elif name == "figure2":
        for epsilon in (1.0, 10.0) if quick else (0.5, 1.0, 5.0, 50.0, 100.0):
            for groups in (2, 8, 32) if quick else (*GROUPS, 96, 128, 192):
                yield {"epsilon": epsilon, "groups": groups}
    elif name == "bound":
        for epsilon in (1.0, 5.0):
            for groups in (2, 5, 10, 20):
                yield {"epsilon": epsilon, "groups": groups}
    elif name == "figure3":
        data = [*(["gotv"] if GOTV_FILE.exists() else []), "criteo-like"]
        for split in range(1 if quick else 4):
            for epsilon in (1.0,) if quick else (1.0, 5.0, 0.1, 20.0):
                for which in data:
                    yield {"data": which, "split": split, "epsilon": epsilon}
    else:
        for law in ("saddle",) if quick else generators.LAWS:
            for n in (2000,) if quick else (2000, 20_000):
                for epsilon in (1.0,) if quick else (0.1, 1.0, 10.0):
                    yield {"law": law, "n": n, "epsilon": epsilon}


STUDIES: dict[str, tuple[str, Callable[[Line, bool], list[Line]]]] = {
    "tune": ("tune", tune), "1": ("figure1", figure1), "2": ("figure2", figure2),
    "bound": ("bound", bounds), "3": ("figure3", figure3),
}  # fmt: skip


def fill(file: Path, name: str, run: Callable[[Line, bool], list[Line]], quick: bool) -> None:
    """Add the lines of each point that has none."""
    wanted = list(points(name, quick))
    keys = list(wanted[0])
    there = set()
    if file.exists():
        there = {tuple(k) for k in pd.read_csv(file)[keys].itertuples(index=False)}
    for point in wanted:
        if tuple(point.values()) not in there:
            frame = pd.DataFrame(run(point, quick))
            frame.to_csv(file, mode="a", header=not file.exists(), index=False, float_format="%.5g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--out", type=Path, help="with --quick by default a temporary folder")
    chosen = parser.parse_args()
    out = chosen.out or (Path(tempfile.mkdtemp()) if chosen.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    for key in chosen.only:
        name, run = STUDIES[key]
        fill(out / f"{name}.csv", name, run, chosen.quick)
    text = adum_results.written(out)
    (out / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
