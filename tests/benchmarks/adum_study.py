"""The experiments of Betlei et al. (2021), and the default and the R-learner beside theirs.

``python tests/benchmarks/adum_study.py [--quick] [--only tune 1 2 bound prop 3 3t]
[--criteo FILE]`` adds lines to figure1.csv, figure2.csv, bound.csv, proposition1.csv, figure3.csv,
figure3_tuned.csv and tune.csv; those there are not made again, so that it may be stopped and
started. Each has the digest of the code that made it (`adum_methods.code`): those of other code are
left out, made again, and dropped with ``--fresh``. Then it draws the figures and writes results.md.

1. PEHE against epsilon, n = 20,000, sigma = 1, for tau(x) = sin x as printed and for sin(pi x),
   which is "non-monotonic" as the paper says of its surface. `printed`: ADUM and TM exactly as the
   papers have them; `library`: TM by diffprivlib, where that is installed; `right`: with proven
   scales. All have their number of groups or degree tuned with the truth. Beside them the default,
   untuned, and the R-learner (zCDP at delta = 1e-5, so not the same promise).
2. PEHE against the number of groups, sigma = 0.1, and the optimum of Corollary 1 beside the
   measured one. `bound`: how often its bound holds. `prop`: squared bias and variance of each arm's
   model beside Proposition 1, without privacy.
3. AUUC on held-out rows, exact since it only scores: on GOTV where its file is at hand, and on a
   generated set like Criteo's, 1,000,000 rows of 12 features, a visit rate of 4.7 %, 85 % treated.
   With ``--criteo FILE`` (CRITEO-UPLIFT v2.1) also on 1,000,000 rows of it for each split.
3t: the paper's three methods by what it tunes: the number of groups, and C.
tune: the default's rule for the number of cells, on trials made of the tuning generators. Nothing
of them is in 1 to 3.

Outcomes of 1 and 2 are cut to [-5, 5]. Noise is seeded; nothing here is private.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import adum_results
import generators
import numpy as np
import pandas as pd
from adum_methods import (
    GRID,
    GROUPS,
    LEARNERS,
    MEANS,
    METHODS,
    RIGHT,
    TUNED,
    arm_means,
    code,
    criteo_like,
    trial,
    usable,
)

import privcausal as pc
from privcausal.estimators import ADUM
from privcausal.inference.cells import LEAST_DEFAULT_CELLS as LEAST_CELLS
from privcausal.inference.cells import MOST_DEFAULT_CELLS as MOST_CELLS
from privcausal.testing import seeded_noise

EPSILONS = (1.0, 5.0, 10.0, 0.1, 2.0, 0.5, 20.0, 0.2, 50.0, 0.05, 100.0)
RESULTS = Path(__file__).parent / "adum"
GOTV_FILE = Path(__file__).parents[3] / "shared" / "data" / "gotv.parquet"

Surface = Callable[[Any], Any]
SURFACES: dict[str, Surface] = {"sin x": np.sin, "sin pi x": lambda x: np.sin(np.pi * x)}
Line = dict[str, Any]
Trial = tuple[pd.DataFrame, list[str], dict[str, Any]]


def squared(found: Any, surface: Surface) -> float:
    """Mean squared error of tau over uniform x."""
    return float(((np.asarray(found) - surface(GRID)) ** 2).mean())


# -- the studies: a method and a point give lines ------------------------------------------------


COMPARED = ("ADUM, printed", "TM, printed")
"""The methods of Figure 1, which have more trials on the printed surface."""


def figure1(point: Line, method: str, quick: bool) -> list[Line]:
    """PEHE with the best of the method's options, chosen with the truth."""
    surface = SURFACES[point["surface"]]
    many = 2 if quick else 100 if surface is np.sin and method in COMPARED else 20
    made = METHODS[method]
    # seeds that nothing was tuned on
    tables = [(seed, trial(surface, 20_000, 1.0, seed)) for seed in range(5000, 5000 + many)]
    scores = {
        option: [
            squared(made.fit(f, option, point["epsilon"], seed), surface) for seed, f in tables
        ]
        for option in (made.options[::4] if quick and len(made.options) > 5 else made.options)
    }
    best = min(scores, key=lambda option: float(np.mean(scores[option])))
    found = {"tuned": best or "", "pehe": np.mean(scores[best]), "sd": np.std(scores[best])}
    return [point | found | {"runs": many}]


def right(point: Line, sigma: float, seed: int) -> float:
    """PEHE of one trial by ADUM with right sensitivities."""
    frame = trial(np.sin, 20_000, sigma, seed)
    return squared(METHODS[RIGHT].fit(frame, point["groups"], point["epsilon"], seed), np.sin)


def figure2(point: Line, method: str, quick: bool) -> list[Line]:
    found = [right(point, 0.1, seed) for seed in range(2 if quick else 20)]
    return [point | {"pehe": np.mean(found), "sd": np.std(found), "runs": len(found)}]


def bounds(point: Line, method: str, quick: bool) -> list[Line]:
    """How often Corollary 1's bound holds where it says so, with probability 0.99."""
    groups, epsilon = point["groups"], point["epsilon"]
    most = adum_results.corollary(groups, epsilon)
    found = [right(point, 1.0, seed) for seed in range(900, 905 if quick else 1100)]
    return [
        point
        | {"bound": most, "runs": len(found), "holds": np.mean(np.array(found) <= most),
           "mean": np.mean(found), "largest": max(found)}
    ]  # fmt: skip


def proposition1(point: Line, method: str, quick: bool) -> list[Line]:
    """Squared bias and variance over data sets, by arm and then averaged over x; and the PEHE."""
    groups, runs = point["groups"], 20 if quick else 400
    found = np.array([arm_means(trial(np.sin, 20_000, 1.0, seed), groups) for seed in range(runs)])
    at = np.clip(((GRID + 1) * groups / 2).astype(int), 0, groups - 1)
    truth = np.stack([np.zeros(len(GRID)), np.sin(GRID)])  # control and treated
    mean = found.mean(axis=0)[at].T
    # the square of a mean of `runs` has the variance over runs in it
    spread = found.var(axis=0, ddof=1)[at].T
    square = ((mean - truth) ** 2 - spread / runs).mean(axis=1)
    effect = (found[:, :, 1] - found[:, :, 0])[:, at]
    pehe = ((effect - np.sin(GRID)) ** 2).mean()
    return [
        point | {"bias2_control": square[0], "bias2_treated": square[1],
                 "variance_control": spread[0].mean(), "variance_treated": spread[1].mean(),
                 "pehe": pehe, "runs": runs}
    ]  # fmt: skip


MODIFIERS = {
    "saddle": ("X4",), "tent": ("X4",), "mount": ("X1",), "steps": ("X3",), "many": ("X1", "X2"),
    "spread": ("X5",), "twist": ("X3",),
}  # fmt: skip
"""The laws of `generators` that `tune` uses, and what their effects depend on."""
SPANS = (2.0, 3.0, 4.0, 5.5, 8.0, 12.0)


def tune(point: Line, method: str, quick: bool) -> list[Line]:
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


def auuc(score: Any, treatment: Any, outcome: Any, bins: int = 200) -> float:
    """Area under the uplift curve of held-out rows (Jaskowski and Jaroszewicz 2012)."""
    noise = np.random.default_rng(0).random(len(score))  # ties in random order
    order = np.lexsort((noise, -np.asarray(score)))
    t, y = np.asarray(treatment)[order], np.asarray(outcome, float)[order]
    ends = np.linspace(0, len(t), bins + 1).astype(int)[1:]
    n1, s1, s0 = (np.cumsum(v)[ends - 1] for v in (t, t * y, (1 - t) * y))
    gain = ends / len(t) * (s1 / np.maximum(n1, 1) - s0 / np.maximum(ends - n1, 1))
    return float(np.mean(0.5 * (gain + np.r_[0.0, gain[:-1]])))


def figure3(point: Line, learner: str, quick: bool, file: Path | None = None) -> list[Line]:
    """Held-out AUUC of a learner on a trial with columns treatment and visit."""
    epsilon, split = point["epsilon"], point["split"]
    frame, features, domains = loaded(point["data"], quick, split, file)
    held = np.random.default_rng(split).random(len(frame)) < 0.3
    fit = LEARNERS[learner](frame[~held], features, domains, epsilon, split)
    test = frame[held]
    score = fit.predict(test)["estimate"].to_numpy()
    return [point | {"auuc": auuc(score, test["treatment"], test["visit"])}]


def figure3_tuned(point: Line, method: str, quick: bool, file: Path | None = None) -> list[Line]:
    """Held-out AUUC of the paper's methods, by what they tune; an option refused has no line."""
    made, (frame, features, domains) = (
        TUNED[method],
        loaded(point["data"], quick, point["split"], file),
    )
    held = np.random.default_rng(point["split"]).random(len(frame)) < 0.3
    test, lines = frame[held], []
    for option in made.options[:2] if quick else made.options:
        try:
            fit = made.fit(
                frame[~held], features, domains, point["epsilon"], point["split"], option
            )
        except pc.errors.CapabilityError as refused:  # C costs all of epsilon
            print(f"{method}, {option:g}, eps {point['epsilon']:g}: {refused}", flush=True)
            continue
        score = fit.predict(test)["estimate"].to_numpy()
        area = auuc(score, test["treatment"], test["visit"])
        lines.append(point | {"option": option, "auuc": area})
    return lines


def loaded(data: str, quick: bool, split: int, file: Path | None) -> Trial:
    """A trial's rows, features and domains."""
    if data == "gotv":
        return _gotv()
    if data == "criteo-like":
        return _criteo(quick)
    assert file is not None
    made = _file(file)
    rows = made.frame.sample(min(1_000_000, len(made.frame)), random_state=split)
    return rows, [f"f{j}" for j in range(12)], dict(made.bounds)


@lru_cache(maxsize=1)
def _file(file: Path) -> Any:
    """CRITEO's rows, 14 million of them, read once."""
    return pc.datasets.criteo(file)


@lru_cache(maxsize=2)
def _criteo(quick: bool) -> Trial:
    features = [f"f{j}" for j in range(12)]
    domains: dict[str, Any] = dict.fromkeys(features, (0, 1)) | {"visit": pc.Binary()}
    return criteo_like(60_000 if quick else 1_000_000), features, domains


@lru_cache(maxsize=1)
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


def points(name: str, quick: bool, file: Path | None = None) -> Iterator[Line]:
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
    elif name == "proposition1":
        for groups in (2, 8, 32) if quick else (1, 2, 4, 8, 16, 32, 64):
            yield {"groups": groups}
    elif name == "figure3_tuned":
        for which in ["gotv"] * GOTV_FILE.exists() + ["criteo-like"] + ["criteo"] * bool(file):
            for epsilon in (1.0,) if quick else (1.0, 5.0, 0.1, 20.0):
                for split in range(1 if quick else 4):
                    yield {"data": which, "split": split, "epsilon": epsilon}
    elif name == "figure3":
        data = ["gotv"] * GOTV_FILE.exists() + ["criteo-like"] + ["criteo"] * (file is not None)
        for split in range(1 if quick else 4):
            for epsilon in (1.0,) if quick else (1.0, 5.0, 0.1, 20.0):
                for which in data:
                    yield {"data": which, "split": split, "epsilon": epsilon}
    else:
        for law in ("saddle",) if quick else MODIFIERS:
            for n in (2000,) if quick else (2000, 20_000):
                for epsilon in (1.0,) if quick else (0.1, 1.0, 10.0):
                    yield {"law": law, "n": n, "epsilon": epsilon}


Run = Callable[[Line, str, bool], list[Line]]
STUDIES: dict[str, tuple[str, Run, tuple[str, ...]]] = {
    "tune": ("tune", tune, ("default",)), "1": ("figure1", figure1, usable()),
    "2": ("figure2", figure2, (RIGHT,)), "bound": ("bound", bounds, (RIGHT,)),
    "prop": ("proposition1", proposition1, (MEANS,)), "3": ("figure3", figure3, tuple(LEARNERS)),
    "3t": ("figure3_tuned", figure3_tuned, tuple(TUNED)),
}  # fmt: skip
"""File, what makes its lines, and by which methods."""


def fill(file: Path, wanted: list[Line], run: Run, methods: Iterable[str], quick: bool) -> None:
    """Add the lines of each point and method that has none by today's code."""
    keys = ["method", *wanted[0]]
    there = set()
    if file.exists():
        there = {tuple(k) for k in adum_results.current(file)[0][keys].itertuples(index=False)}
    for point in wanted:
        for method in methods:
            if (method, *point.values()) in there:
                continue
            mark = {"code": code(method)}
            frame = pd.DataFrame(
                [{"method": method} | line | mark for line in run(point, method, quick)]
            )
            frame.to_csv(file, mode="a", header=not file.exists(), index=False, float_format="%.5g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--criteo", type=Path, help="the file of CRITEO-UPLIFT v2.1")
    parser.add_argument("--without", nargs="*", default=[], help="data sets of 3 and 3t to leave")
    parser.add_argument("--fresh", action="store_true", help="drop the lines of other code")
    parser.add_argument("--out", type=Path, help="with --quick by default a temporary folder")
    chosen = parser.parse_args()
    out = chosen.out or (Path(tempfile.mkdtemp()) if chosen.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    for key in chosen.only:
        name, run, methods = STUDIES[key]
        file = out / f"{name}.csv"
        if chosen.fresh and file.exists():
            adum_results.current(file)[0].to_csv(file, index=False, float_format="%.5g")
        if key in ("3", "3t"):
            run = partial(run, file=chosen.criteo)
        wanted = [
            point for point in points(name, chosen.quick, chosen.criteo)
            if point.get("data") not in chosen.without
        ]  # fmt: skip
        fill(file, wanted, run, methods, chosen.quick)
    text = adum_results.written(out)
    (out / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
