"""DP-CATE's synthetic experiments (Schroeder et al. 2025): Figures 3, 4, 5 and 9 from our own runs.

Run ``python tests/benchmarks/dpcate_study.py [--quick] [--tables] [--fresh] [--out FOLDER]``;
``--large`` is 100,000 rows instead, time and memory of which go to large.csv. Each fit adds a line
to runs.csv with a digest of the code that made it, and those of today's code are not made again, so
that it may be stopped and started; at the end, or with ``--tables``, figures and results.md are
made of what there is by today's code. ``--fresh`` drops the rest.

Datasets 1 and 2 with 3000 rows: 2700 to learn from, 300 queries. The paper's mechanisms
(pc.paper.dpcate, with below_minimum="published": their claim does not hold for so few rows, and is
not proven for any) have the networks of its supplement G.3 as nuisances, learned privately (base
"nn"). Beside them are the proven function of learner "dpcate" and learner "r" with base "gam".
"no noise" is the same fit with no noise at all, the paper's "original learner".

Theorem 2's rate is that of a linear second stage on dataset 1, for growing numbers of rows.

MIMIC-III and TCGA are not open: the paper's Figures 6 and 7 are drawn here for the Right Heart
Catheterization study (Connors et al. 1996), at points along one covariate, where its file is at
hand (`../shared/data/rhc.csv`).

Noise is seeded, so that a run can be repeated; nothing here is private.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study_rows import numbers_digest

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise

DPCATE = pc.learners.DPCATE
TRAIN, QUERIES, RUNS = 2700, 300, 5
EPSILONS = (0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 4096.0)
"""The last shows whether errors come to those without noise."""
PAPER: dict[str, Any] = {"call": pc.paper.dpcate, "below_minimum": "published", "base": "nn"}
RHC = Path(__file__).parents[3] / "shared" / "data" / "rhc.csv"
RESULTS = Path(__file__).parent / "dpcate"
NETWORK = "finite, NN"
COUNTS = {
    "finite, KR": {"dataset 2": 10},
    "finite, exact KR": {"dataset 1": 3, "dataset 1, DR": 3},
    NETWORK: {"dataset 2": 10},
    "functional": dict.fromkeys(("dataset 1", "dataset 1, DR", "dataset 2"), 10),
}
"""Runs, where they are not RUNS: the paper's 10 of Figure 5, fewer of what takes long."""


@dataclass(frozen=True)
class Method:
    """One curve: how the fit is called, and whether the effect is asked at the queries only."""

    name: str
    options: dict[str, Any]
    queries: bool = False


def methods(score: Any) -> dict[str, Method]:
    """The paper's releases and ours, for the R- or the DR-learner."""
    printed = PAPER | {"weight": "overlap" if score == "r" else "one"}
    none = {"control": pc.Control(shares={"average": 0})}
    found = [
        Method("finite, KR", printed, True),
        Method("finite, exact KR", printed | {"second": "exact"}, True),
        Method(NETWORK, printed | {"second": "network"}, True),
        Method("functional", printed | {"noise": "process"}, True),
        Method("proven", {"learner": DPCATE(score=score)} | none),
        Method("gam", {"learner": score} | none),
    ]
    return {method.name: method for method in found}


@dataclass(frozen=True, eq=False)
class Case:
    """A study to learn from, and points at which to ask; `tau` where it is known."""

    formula: str
    frame: pd.DataFrame
    bounds: dict[str, Any]
    at: pd.DataFrame
    tau: np.ndarray | None = None


def synthetic(dataset: Any, run: int) -> Case:
    study = pc.datasets.dpcate(dataset, TRAIN + QUERIES, run)
    return Case(
        study.formula,
        study.frame.iloc[:TRAIN],
        study.bounds,
        study.frame.iloc[TRAIN:],
        study.tau[TRAIN:],
    )


def right_heart() -> Case:
    """Effect of catheterization on death within 180 days along the APACHE score."""
    frame = pd.read_csv(RHC)
    died = (frame["dthdte"] - frame["sadmdte"] <= 180).astype(int)
    frame = frame.assign(dth180=died, rhc=(frame["swang1"] == "RHC").astype(int))
    at = pd.DataFrame({"aps1": np.linspace(0, 120, 61)}).assign(
        age=62.0, scoma1=20.0, hrt1=115.0, meanbp1=80.0, surv2md1=0.6
    )  # round public numbers near the study's published means
    names = list(at.columns)
    bounds = {
        "dth180": (0, 1), "age": (18, 102), "aps1": (0, 160), "scoma1": (0, 100),
        "hrt1": (0, 250), "meanbp1": (0, 260), "surv2md1": (0, 1),
    }  # fmt: skip
    return Case(f"dth180 ~ rhc | {' + '.join(names)}", frame, bounds, at)


def answers(case: Case, method: Method, eps: float, seed: int | None) -> np.ndarray:
    """The estimates at the points; without noise for seed None."""
    options = dict(method.options)
    if method.queries:
        options["queries"] = case.at
    with zero_noise() if seed is None else seeded_noise(seed):
        run = options.pop("call", pc.privcate)
        fit = run(case.formula, case.frame, eps=eps, bounds=case.bounds, **options)
    found = fit.predict() if method.queries else fit.predict(case.at)
    return found["estimate"].to_numpy()


@dataclass(frozen=True, eq=False)
class Figure:
    """A case for each run, the methods, and the covariate that predictions are drawn against."""

    make: Callable[[int], Case]
    methods: list[Method]
    x: str | None
    most: int = 10

    def runs(self, name: str, method: str) -> int:
        return min(COUNTS.get(method, {}).get(name, RUNS), self.most)


@cache
def figures() -> dict[str, Figure]:
    r, dr = (list(methods(score).values()) for score in ("r", "dr"))
    found = {
        "dataset 1": Figure(lambda run: synthetic(1, run), r, "X1"),
        "dataset 1, DR": Figure(lambda run: synthetic(1, run), dr, "X1"),
        "dataset 2": Figure(
            lambda run: synthetic(2, run), [m for m in r if m.name != "finite, exact KR"], None
        ),
    }
    if RHC.exists():
        shown = [m for m in r if m.name not in ("finite, exact KR", NETWORK)]
        found["RHC"] = Figure(lambda _: right_heart(), shown, "aps1", 1)
    return found


@cache
def code(figure: str, method: str) -> str:
    """What tells rows of this method from those that other code made."""
    if figure.startswith(RATE):
        return numbers_digest(distance(400, name, 64.0, 0) for name in (method, "known"))
    if figure not in figures():
        return ""
    chosen = {m.name: m for m in figures()[figure].methods}.get(method)
    if chosen is None:
        return ""
    study = pc.datasets.dpcate(1, 307, 0)
    case = Case(study.formula, study.frame[:300], study.bounds, study.frame[300:])
    return numbers_digest(answers(case, chosen, 64.0, 0))


class Store:
    """runs.csv, a line per fit, and the predictions of the first run, a column per fit."""

    KEYS = ("figure", "method", "eps", "run")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "runs.csv"

    def all(self) -> pd.DataFrame:
        if not self.file.exists():
            return pd.DataFrame(columns=[*self.KEYS, "pehe", "seconds", "code"])
        return pd.read_csv(self.file, dtype={"code": str})

    def read(self) -> pd.DataFrame:
        """The rows by today's code."""
        rows = self.all()
        made = zip(rows["figure"], rows["method"], strict=True)
        return rows[rows["code"] == [code(*key) for key in made]]

    def drop(self) -> None:
        """Keep the rows by today's code only."""
        self.read().to_csv(self.file, index=False)

    def add(self, line: dict[str, Any]) -> None:
        frame = pd.DataFrame([line | {"code": code(line["figure"], line["method"])}])
        frame.to_csv(
            self.file, mode="a", header=not self.file.exists(), index=False, float_format="%.5g"
        )

    def curves(self, figure: str) -> pd.DataFrame | None:
        """By today's code: a column's name ends with its digest, which is cut off here."""
        file = self._curves(figure)
        if not file.exists():
            return None
        frame = pd.read_csv(file)
        kept = [c for c in frame if "|" not in c or c.endswith(code(figure, c.split("|")[0]))]
        return frame[kept].rename(columns=lambda c: c.rpartition("|")[0] or c)

    def add_curve(
        self, figure: str, x: str, case: Case, method: str, eps: float, value: np.ndarray
    ) -> None:
        file = self._curves(figure)
        frame = pd.read_csv(file) if file.exists() else pd.DataFrame({x: case.at[x].to_numpy()})
        label = f"{method}|{eps:g}|"
        frame = frame.drop(columns=[c for c in frame if c.startswith(label)])
        frame["tau"] = np.nan if case.tau is None else case.tau
        frame[label + code(figure, method)] = value
        frame.to_csv(file, index=False, float_format="%.5g")

    def _curves(self, figure: str) -> Path:
        return self.folder / f"curves {figure}.csv"


def fill(store: Store, epsilons: tuple[float, ...], names: list[str], count: int) -> None:
    """Every fit of these methods that is not there yet; eps infinite is without noise."""
    there = {tuple(key) for key in store.read()[list(Store.KEYS)].itertuples(index=False)}
    for run in range(count):
        for name, figure in figures().items():
            case: Case | None = None
            for method in figure.methods:
                if method.name not in names or run >= figure.runs(name, method.name):
                    continue
                for eps in (*epsilons, np.inf):
                    if (name, method.name, eps, run) not in there:
                        case = case or figure.make(run)
                        _one(store, name, figure, case, method, eps, run)


def _one(
    store: Store, name: str, figure: Figure, case: Case, method: Method, eps: float, run: int
) -> None:
    clean, started = eps == np.inf, time.process_time()
    value = answers(case, method, 1e4 if clean else eps, None if clean else run)
    seconds = time.process_time() - started
    tau = np.full(len(value), np.nan) if case.tau is None else case.tau
    pehe = float(np.mean((value - tau) ** 2) ** 0.5)
    if run == 0 and figure.x is not None:
        store.add_curve(name, figure.x, case, method.name, eps, value)
    store.add({"figure": name, "method": method.name, "eps": eps, "run": run,
               "pehe": pehe, "seconds": seconds})  # fmt: skip


# -- Theorem 2 --------------------------------------------------------------------------------

RATE = "theorem 2, n = "
SIZES = (2000, 8000, 32_000, 128_000)
RATE_METHODS, RATE_RUNS = ("private", "known", "noise"), 20


def distance(rows: int, method: str, eps: float, run: int) -> float:
    """Root mean square over x of a linear g less what it should be, dataset 1.

    "private": nuisances and g private, less g*, the population's minimiser of Eq. 2. "known": with
    the true nuisances, without any noise, less g*. "noise": what the noise of Theorem 1 adds to
    that, so that its square is the term "output perturbation" of Theorem 2.
    """
    study = pc.datasets.dpcate(1, rows, 1000 + run)
    x = np.column_stack([np.ones(rows), study.frame[["X1", "X2"]]])
    e, low = (np.linalg.lstsq(x, y, rcond=None)[0] for y in (study.propensity, study.baseline))

    def line(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return weights[0] + z @ weights[1:]  # both are linear in x

    def treated(z: np.ndarray) -> np.ndarray:
        return line(z, low) + study.effect(pd.DataFrame(z, columns=["X1", "X2"]))

    true = pc.bases.Given(lambda z: line(z, e), lambda z: line(z, low), treated)
    at = pc.datasets.dpcate(1, 300, 999).frame[["X1", "X2"]]

    def fitted(base: Any, noisy: bool) -> np.ndarray:
        with seeded_noise(run) if noisy else zero_noise():
            fit = pc.paper.dpcate(
                study.formula, study.frame, queries=at, second="linear", base=base, eps=eps,
                bounds=study.bounds, below_minimum="published",
            )  # fmt: skip
        return fit.predict()["estimate"].to_numpy()

    if method == "noise":
        gap = fitted(true, True) - fitted(true, False)
    else:
        gap = (fitted("gam", True) if method == "private" else fitted(true, False)) - best(at)
    return float(np.sqrt(np.mean(gap**2)))


def best(at: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.ones(len(at)), at]) @ best_weights()


@cache
def best_weights() -> np.ndarray:
    """Of g*: least squares of tau on (1, x), weighted by e (1 - e), on a fine grid."""
    study = pc.datasets.dpcate(1, 100, 5)
    own = np.column_stack([np.ones(100), study.frame[["X1", "X2"]]])
    middle = (np.arange(400) + 0.5) / 400
    grid = pd.DataFrame(np.stack(np.meshgrid(middle, middle), -1).reshape(-1, 2))
    grid.columns = pd.Index(["X1", "X2"])
    x = np.column_stack([np.ones(len(grid)), grid])
    e = x @ np.linalg.lstsq(own, study.propensity, rcond=None)[0]
    root = np.sqrt(e * (1 - e))
    tau = study.effect(grid)
    return np.asarray(np.linalg.lstsq(x * root[:, None], tau * root, rcond=None)[0])


def fill_rates(store: Store, count: int, eps: float = 4.0) -> None:
    there = {tuple(key) for key in store.read()[list(Store.KEYS)].itertuples(index=False)}
    for run in range(count):
        for rows in SIZES:
            for method in RATE_METHODS:
                key = dict(zip(Store.KEYS, (f"{RATE}{rows}", method, eps, run), strict=True))
                if tuple(key.values()) not in there:
                    started = time.process_time()
                    found = distance(rows, method, eps, run)
                    store.add(key | {"pehe": found, "seconds": time.process_time() - started})


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Mean squared distance by rows and method, and the slope of its logarithm on that of n."""
    part = found[found["figure"].str.startswith(RATE)]
    n = part["figure"].str.removeprefix(RATE).astype(int)
    square = part.assign(n=n, square=part["pehe"] ** 2)
    table = square.pivot_table("square", "n", "method", "mean")
    if len(table) > 1:
        logs = np.log(table)
        slopes = {m: np.polyfit(np.log(table.index), logs[m], 1)[0] for m in table}
        table.loc["slope"] = slopes
    return table


# -- what is said -----------------------------------------------------------------------------


def above(pehe: pd.DataFrame) -> pd.DataFrame:
    """PEHE of each run less that of the same method without noise."""
    clean = pehe[pehe["eps"] == np.inf].set_index(["method", "run"])["pehe"]
    at = pd.MultiIndex.from_frame(pehe[["method", "run"]])
    return pehe.assign(above=pehe["pehe"].to_numpy() - clean.reindex(at).to_numpy())


def curve_figure(
    frame: pd.DataFrame, wanted: Callable[[str], bool], path: Path, title: str
) -> None:
    """Predictions of the first run against one covariate: a row per method, a column per eps."""
    from matplotlib.figure import Figure

    columns = [tuple(c.rsplit("|", 1)) for c in frame.columns[2:]]
    names = [n for n in dict.fromkeys(n for n, _ in columns) if wanted(n)]
    if not names:
        return
    epsilons = sorted({float(e) for _, e in columns})
    frame = frame.sort_values(frame.columns[0])
    x = frame.iloc[:, 0]
    figure = Figure(figsize=(2.2 * len(epsilons), 2.2 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(epsilons), sharex=True, squeeze=False)
    for i, name in enumerate(names):
        for j, eps in enumerate(epsilons):
            if f"{name}|{eps:g}" in frame:
                axes[i, j].plot(x, frame[f"{name}|{eps:g}"], ".", ms=2)
            if frame["tau"].notna().all():
                axes[i, j].plot(x, frame["tau"], "k.", ms=1)
            axes[i, j].set_title(
                f"{name}, {'no noise' if eps == np.inf else f'eps {eps:g}'}", fontsize=8
            )
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=80)


def error_figure(pehe: pd.DataFrame, path: Path) -> None:
    """PEHE above the learner without noise (the paper's Figure 5)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, part in above(pehe)[pehe["eps"] < np.inf].groupby("method", sort=False):
        law = part.groupby("eps")["above"].agg(["median", "min", "max"])
        (line,) = axes.plot(law.index, law["median"], "o-", label=str(name))
        axes.fill_between(law.index, law["min"], law["max"], alpha=0.15, color=line.get_color())
    axes.set(xscale="log", xlabel="epsilon", ylabel="PEHE above no noise: median, least, most")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.legend()
    figure.savefig(path, dpi=90)


def large(rows: int) -> pd.DataFrame:
    """Seconds, and the most memory of this process so far, of the proven function of many rows."""
    lines = []
    for dataset in (1, 2):
        study = pc.datasets.dpcate(dataset, rows, 1)  # type: ignore[arg-type]
        started, worked = time.perf_counter(), time.process_time()
        pc.privcate(study.formula, study.frame, learner="dpcate", eps=1, bounds=study.bounds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines.append({"dataset": dataset, "rows": rows, "seconds": time.perf_counter() - started,
                      "cpu_seconds": time.process_time() - worked, "peak_mb": peak,
                      "code": code("dataset 1", "proven")})  # fmt: skip
    return pd.DataFrame(lines)


def read_large(folder: Path) -> pd.DataFrame:
    """large.csv, if today's code made it."""
    file = folder / "large.csv"
    lines = pd.read_csv(file, dtype={"code": str}) if file.exists() else pd.DataFrame({"code": []})
    return lines[lines["code"] == code("dataset 1", "proven")] if len(lines) else lines


INTRODUCTION = """# DP-CATE: the experiments of Schröder et al. (2025) from our runs

Written by `python tests/benchmarks/dpcate_study.py` from runs.csv, a line per fit, and the curves'
files beside it. 2700 rows to learn from, 300 queries; noise is seeded by the run. `finite` and
`functional` are the paper's mechanisms as printed, with the private networks of its supplement G.3
as nuisances and `below_minimum="published"`: of so few rows they claim nothing. `proven` is
`learner="dpcate"`, `gam` is `learner="r"` (or `"dr"`). PEHE is the root of the mean squared error
at the queries; `no noise` is the same fit without any noise. The ridge of the functional release is
1 beside the sum of the losses, 1/n on their mean: the latter's 1 leaves next to nothing of the
effect.
"""


def tables(store: Store) -> str:
    """results.md, with the figures."""
    found, text = store.read(), [INTRODUCTION]
    if others := len(store.all()) - len(found):
        text.append(f"{others} rows by other code than today's are left out.\n")
    for name in figures():
        pehe, curves = found[found["figure"] == name], store.curves(name)
        if pehe.empty:
            continue
        if name == "RHC":
            text.append(
                "## RHC in place of MIMIC-III and TCGA\n\nThose are not open. Effect on death "
                "within 180 days along the APACHE score; no truth is known. rhc.png\n"
            )
        else:
            text += [f"## {name}\n", _grid(pehe), "", *_checks(pehe), ""]
        if curves is None:
            if name == "dataset 2":
                error_figure(pehe, store.folder / "figure 5.png")
        elif name == "dataset 1":
            ours = store.folder / "figure 4.png"
            curve_figure(curves, lambda n: n.startswith("finite"), store.folder / "figure 3.png",
                         "Figure 3: dataset 1, finite queries")  # fmt: skip
            curve_figure(curves, lambda n: not n.startswith("finite"), ours,
                         "Figure 4: dataset 1, functions")  # fmt: skip
        elif name == "RHC":
            curve_figure(curves, lambda _: True, store.folder / "rhc.png", "RHC, APACHE score")
        else:
            curve_figure(curves, lambda _: True, store.folder / "figure 9.png",
                         "Figure 9: dataset 1, DR")  # fmt: skip
    table = rates(found)
    if len(table):
        text.append(
            "## Theorem 2\n\nMean squared distances, linear second stage, dataset 1, eps 4, "
            f"{found.loc[found['figure'].str.startswith(RATE), 'run'].nunique()} runs; the last "
            "row is the slope of log on log n.\n"
        )
        text += [f"    {line}" for line in table.to_string(float_format="%.3g").splitlines()]
        text.append("")
    lines = read_large(store.folder)
    if len(lines):
        good = lines["cpu_seconds"].max() < 60 and lines["peak_mb"].max() < 4000
        text.append(
            f"## {lines['rows'].iloc[0]:,} rows\n\n- {'PASS' if good else 'FAIL'} the proven "
            f"function takes {lines['cpu_seconds'].round(1).tolist()} s of one core on datasets "
            f"{lines['dataset'].tolist()}, at most 60 wanted, and {lines['peak_mb'].max():.0f} MB, "
            f"at most 4 GB wanted (it took "
            f"{lines['seconds'].round(0).tolist()} s by the clock)\n"
        )
    return "\n".join(text)


def _grid(pehe: pd.DataFrame) -> str:
    """Mean PEHE by method and epsilon, in Markdown."""
    table = pehe.pivot_table("pehe", "method", "eps", "mean", sort=False).sort_index(axis=1)
    runs = pehe.groupby("method")["run"].nunique()
    names = ["no noise" if e == np.inf else f"eps {e:g}" for e in table.columns]
    lines = [f"| method | runs | {' | '.join(names)} |", "| --- " * (len(names) + 2) + "|"]
    for name, row in table.iterrows():
        cells = " | ".join("" if np.isnan(v) else f"{v:.3f}" for v in row)
        lines.append(f"| {name} | {runs[name]} | {cells} |")
    return "\n".join(lines)


def _checks(pehe: pd.DataFrame) -> list[str]:
    """What is claimed, and how far what noise adds falls."""
    mean = pehe.groupby(["method", "eps"])["pehe"].mean()
    lines = []
    if {"proven", "finite, KR"} <= set(pehe["method"]):
        shared = [
            e for e in (1.0, 4.0, 16.0) if ("proven", e) in mean and ("finite, KR", e) in mean
        ]
        good = all(mean["proven", e] <= mean["finite, KR", e] for e in shared)
        lines.append(
            f"- {'PASS' if good else 'FAIL'} proven is no worse than the published finite release "
            f"at eps {', '.join(f'{e:g}' for e in shared)}"
        )
    for name, part in above(pehe)[pehe["eps"] < np.inf].groupby("method", sort=False):
        law = part.groupby("eps")["above"].mean()
        lines.append(
            f"- {name}: PEHE above that without noise {law.iloc[0]:+.3f} at eps {law.index[0]:g}, "
            f"{law.iloc[-1]:+.3f} at eps {law.index[-1]:g}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run, one epsilon, no networks")
    parser.add_argument("--tables", action="store_true", help="no fits: tables of what there is")
    parser.add_argument("--fresh", action="store_true", help="drop rows by other code first")
    parser.add_argument("--large", action="store_true", help="100,000 rows: time and memory")
    parser.add_argument("--methods", nargs="*", choices=methods("r"), help="fits of these only")
    parser.add_argument("--runs", type=int, default=10, help="at most so many runs of each")
    parser.add_argument("--out", type=Path, help="with --quick by default a temporary folder")
    given = parser.parse_args()
    out = given.out or (Path(tempfile.mkdtemp()) if given.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    store = Store(out)
    if given.fresh:
        store.drop()
    if given.large:
        rows = 3_000 if given.quick else 100_000
        large(rows).to_csv(out / "large.csv", index=False, float_format="%.4g")
    elif not given.tables:
        names = given.methods or list(methods("r"))
        if given.quick:
            fill(store, (16.0,), [name for name in names if name != NETWORK], 1)
        else:
            fill(store, EPSILONS, [name for name in names if name != NETWORK], given.runs)
            fill_rates(store, RATE_RUNS)
            fill(store, EPSILONS, [NETWORK] if NETWORK in names else [], given.runs)
    text = tables(store)
    (out / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
