"""Average effects on everyday laws: do intervals hold, and how wide are they beside the oracle's?

    python tests/benchmarks/everyday.py --half build --laws library,random,first --eps .5,1,4
    python tests/benchmarks/everyday.py --methods private,r --set pairs_spread=.2 --out rows.csv
    python tests/benchmarks/everyday.py --show rows.csv
    python tests/benchmarks/everyday.py --show rows.csv --against other.csv
    python tests/benchmarks/everyday.py --spreads --laws library --half build
    python tests/benchmarks/everyday.py --quick

Laws are in `everyday_laws.py`: public data sets, random laws, and first calls. Constants are chosen
on the building half. `--set` replaces constants of `inference.priors`. Rows and noise are seeded by
law, number of rows and repetition, so that builds and settings are paired. The oracle is AIPW with
the true nuisances, without privacy; "boosted" is cross-fitted AIPW with boosted trees, without
privacy. First calls are "dr" without bounds and "private" with them, at eps = 1 and the default
delta. "refused" is a fit that fails before noise is drawn, "lost" one that fails after it, when its
budget is spent. Shares are those of the squared half-width. Repetitions of a data set differ in
their number of rows. A random law is fitted once, unless `--repeat` is given. `--spreads` prints
what the prior spreads of `inference.priors` are about, from fits almost without noise: sds of the
linear and the curved part of the propensity (over its sd if a quarter or more is treated) and of
the mean outcome (over the sd of Y), their correlation, and the sds of products, curved products and
steps over that of the additive part (root mean square of the two nuisances).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import everyday_laws as laws
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import privcausal as pc
from privcausal.estimators import averages, nuisances
from privcausal.estimators.nuisances import CURVES
from privcausal.inference.priors import PRIORS
from privcausal.testing import recorded

Z, DELTA = 1.959964, 1e-6
SHARES = ["sampling", "privacy", "nuisance", "clipping"]
KEYS = ["block", "law", "kind", "half", "n", "eps", "rep", "method", "setting"]
COLUMNS = [*KEYS, "status", "estimate", "se", "low", "high", "truth", "oracle_se", "alerts",
           *SHARES, "seconds", "error"]  # fmt: skip
SIZE_BLOCKS = (0, 700, 1_500, 4_500, 15_000, 10**9)
SIZE_WORDS = ["to 700", "to 1500", "to 4500", "to 15000", "more"]


def call(method: str, one: Any, frame: pd.DataFrame, eps: float) -> Any:
    if method == "dr without bounds":
        return pc.privcate(one.formula, frame, learner="dr", eps=eps)
    given: dict[str, Any] = {"eps": eps, "bounds": one.bounds}
    if one.block != "first":
        given["delta"] = DELTA
    if method == "private":
        return pc.private(one.formula, frame, **given)
    if method == "difference":
        return pc.private(one.formula.partition("|")[0], frame, **given)
    return pc.privcate(one.formula, frame, learner=method, **given)


def fitted(
    one: Any, n: int, rep: int, eps: float, method: str, setting: str = ""
) -> dict[str, Any]:
    """One fit as a row of the table."""
    drawn, start = one.draw(n, rep), time.perf_counter()
    row = {"block": one.block, "law": one.name, "kind": one.kind, "half": one.half, "n": n,
           "eps": eps, "rep": rep, "method": method, "setting": setting, "status": "fitted",
           "truth": one.truth, "oracle_se": one.sd / n**0.5}  # fmt: skip
    with warnings.catch_warnings(), recorded(drawn.noise) as noise:
        warnings.simplefilter("ignore")
        try:
            if method == "boosted":
                row["estimate"], row["se"] = boosted(drawn.frame, one)
                row["low"], row["high"] = (row["estimate"] + k * Z * row["se"] for k in (-1, 1))
            else:
                row |= numbers(call(method, one, drawn.frame, eps))
        except Exception as error:  # a fit that fails is a result
            row["status"] = "lost" if noise.calls else "refused"
            row["error"] = f"{type(error).__name__}: {error}"[:120].replace("\n", " ")
    return row | {"seconds": round(time.perf_counter() - start, 3)}


def numbers(fit: Any) -> dict[str, Any]:
    (low, high), se = fit.conf_int().iloc[0], float(fit.bse.iloc[0])
    found, half = fit.estimate.averages, (high - low) / 2
    row = {"estimate": float(fit.params.iloc[0]), "se": se, "low": low, "high": high,
           "alerts": ",".join(fit.alerts)}  # fmt: skip
    if np.isfinite(half) and half > 0:
        parts = found.sampling[0, 0], found.privacy[0, 0], found.remainder[0] ** 2
        shares = [float(v) * (Z / half) ** 2 for v in parts]
        row |= dict(zip(SHARES, (*shares, 1 - (Z * se / half) ** 2), strict=True))
    return row


def boosted(frame: pd.DataFrame, one: Any) -> tuple[float, float]:
    """Cross-fitted AIPW without privacy: estimate and standard error."""
    outcome, treatment, *columns = one.bounds
    x = frame[columns].apply(
        lambda c: c if c.dtype.kind in "if" else c.astype("category").cat.codes
    )
    t, y = frame[treatment].to_numpy() > 0.5, frame[outcome].to_numpy()
    score, fold = np.empty(len(y)), np.arange(len(y)) % 5
    size: dict[str, Any] = {"max_depth": 3, "max_iter": 60, "random_state": 0}
    for k in range(5):
        out, rest = fold == k, fold != k
        e = HistGradientBoostingClassifier(**size).fit(x[rest], t[rest])
        e = e.predict_proba(x[out])[:, 1].clip(0.02, 0.98)
        m0, m1 = (
            HistGradientBoostingRegressor(**size)
            .fit(x[rest & (t == arm)], y[rest & (t == arm)])
            .predict(x[out])
            for arm in (False, True)
        )
        left = np.where(t[out], (y[out] - m1) / e, -(y[out] - m0) / (1 - e))
        score[out] = m1 - m0 + left
    return float(score.mean()), float(score.std() / np.sqrt(len(y)))


# --- tables ------------------------------------------------------------------------------------


def table(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Coverage, width and error over the oracle's, shares, alerts; losing cells come first."""
    groups = rows.groupby(by, observed=True)
    found = groups.agg(
        laws=("law", "nunique"), fits=("covered", "size"), covered=("covered", "mean"),
        silent=("silent", "mean"), width=("width", lambda w: np.exp(np.log(w).mean())),
        rmse=("z", lambda z: np.sqrt(np.mean(z**2))), error=("z", lambda z: z.abs().median()),
        alerts=("alerted", "mean"), **{name: (name, "mean") for name in SHARES},
    ).round(3)  # fmt: skip
    for status in ("refused", "lost"):
        found[status] = groups["status"].agg(lambda s, word=status: int(np.sum(s == word)))
    # A cell loses by what it misses below .93, then by its width.
    losing = (found["covered"] - 0.93).clip(upper=0).round(2)
    order = found.assign(losing=losing).sort_values(["losing", "width"], ascending=[True, False])
    return found.loc[order.index]


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with what the tables count: a fit that fails has no width and is no miss."""
    made = rows["status"] == "fitted"
    rows = rows.assign(setting=rows["setting"].astype(object).fillna(""))
    covered = ((rows["low"] <= rows["truth"]) & (rows["truth"] <= rows["high"])).astype(float)
    half = ((rows["high"] - rows["low"]) / 2).replace(np.inf, np.nan)
    alerts = rows["alerts"].fillna("").astype(str)
    return rows.assign(
        covered=covered.where(made), alerted=(alerts != "").where(made).astype(float),
        silent=((covered == 0) & (alerts == "")).where(made).astype(float),
        width=half / (Z * rows["oracle_se"]),
        z=(rows["estimate"] - rows["truth"]) / rows["oracle_se"],
        rows=pd.cut(rows["n"], SIZE_BLOCKS, labels=SIZE_WORDS),
    )  # fmt: skip


def shown(rows: pd.DataFrame, worst: int = 15) -> str:
    rows, which = prepared(rows), ["block", "method", "eps", "setting"]
    which = [c for c in which if c != "setting" or rows["setting"].any()]
    parts = [
        table(rows, which), table(rows, [*which, "rows"]), table(rows, [*which, "kind"]),
        table(rows, [*which, "law"]).head(worst),
    ]  # fmt: skip
    failed = rows.loc[rows["status"] != "fitted", ["status", "method", "error"]].value_counts()
    return "\n\n".join(
        [p.to_string() for p in parts] + ([failed.to_string()] if len(failed) else [])
    )


def beside(rows: pd.DataFrame, other: pd.DataFrame) -> str:
    """Fits that both files have: coverage, width and error of the first beside the second."""
    keys = [k for k in KEYS if k not in ("setting", "kind", "half")]
    pairs = prepared(rows).merge(prepared(other), on=keys, suffixes=("", " other"))
    pairs = pairs[(pairs["status"] == "fitted") & (pairs["status other"] == "fitted")]
    found = pairs.assign(ratio=pairs["width"] / pairs["width other"]).groupby(
        ["block", "method", "eps", "rows", "setting", "setting other"], observed=True
    )
    return found.agg(
        fits=("covered", "size"), covered=("covered", "mean"),
        other=("covered other", "mean"), ratio=("ratio", lambda r: np.exp(np.log(r).mean())),
        rmse=("z", lambda z: np.sqrt(np.mean(z**2))),
        rmse_other=("z other", lambda z: np.sqrt(np.mean(z**2))),
    ).round(3).to_string()  # fmt: skip


def spreads(options: argparse.Namespace, n: int = 30_000, eps: float = 500.0) -> pd.DataFrame:
    """By law, the sizes of the parts of both nuisances."""
    found: dict[str, dict[str, float]] = {}
    original = averages.remainder

    def kept(state: Any, parts: Any, *rest: Any) -> Any:
        part = parts[0]
        if part.pair is None or part.beyond is None or one.name in found:
            return original(state, parts, *rest)
        (psi, joint), order = part.beyond, state.features.order
        weight = nuisances.remainder_weight(state, state.features, part.e)
        e, b = (slopes * part.pair.shared for slopes in part.pair.slopes)
        of_pair = (e @ weight @ b) / np.sqrt((e @ weight @ e) * (b @ weight @ b))
        phi, rest_of = state.rows.phi(state.features), psi.of(state.rows)
        even = nuisances.evenness(float(part.e(state.rows).mean()))
        units = np.sqrt(even), np.sqrt(state.variance)
        row = {
            f"{name} {what}": float((phi[:, at] @ coef[at]).std()) / unit
            for name, coef, unit in zip("eY", part.pair.mean, units, strict=True)
            for what, at in (("linear", order == 1), ("curved", order > 1))
        } | {"correlation": of_pair}
        ends = np.cumsum([0, len(psi.pairs), CURVES * len(psi.curved)])
        for what, at in zip(KINDS, np.split(np.arange(psi.size), ends[1:]), strict=True):
            shares = [
                (rest_of[:, at] @ beyond[at]).std() / (phi[:, 1:] @ coef[1:]).std()
                for beyond, coef in zip(joint.mean, part.pair.mean, strict=True)
            ]
            row[what] = float(np.sqrt(np.mean(np.square(shares))))
        found[one.name] = row
        return original(state, parts, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averages, "remainder", kept)
        for block in options.laws:
            for name in laws.names(block, options.half, options.random):
                one = laws.law(block, name, options.half)
                fitted(one, n, 0, eps, "private")
    table = pd.DataFrame(found).T
    table.loc["median"], table.loc["80%"] = table.median(), table.quantile(0.8)
    return table


KINDS = ("products", "curved products", "steps")


# --- runs --------------------------------------------------------------------------------------


def jobs(options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Law, rows, repetition, eps and method: a repetition of all laws before the next."""
    for rep, block in product(range(options.fits), options.laws):
        for index, name in enumerate(laws.names(block, options.half, options.random)):
            once = block == "random" and not options.repeat
            if once and index % options.fits != rep:
                continue  # a figure is over random laws, not over their repetitions
            if options.only and not any(w in laws.label(block, name) for w in options.only):
                continue
            one, at = laws.law(block, name, options.half), 0 if once else rep
            sizes = options.sizes or (
                one.sizes if block == "first" else [one.sizes[(index + rep) % len(one.sizes)]]
            )
            if block == "first":
                cells = product(sizes, [1.0], ["dr without bounds", "private"])
            else:
                cells = product(sizes, options.eps, options.methods)
            for n, eps, method in cells:
                yield one, n, at, eps, method


def run(options: argparse.Namespace) -> pd.DataFrame:
    """Fits that the file lacks, until the time is over."""
    setting, start, made = options.label or " ".join(options.set), time.monotonic(), []
    for text in options.set:
        name, value = text.split("=")
        if not hasattr(PRIORS, name):
            raise SystemExit(f"there is no constant {name}")
        object.__setattr__(PRIORS, name, type(getattr(PRIORS, name))(float(value)))
    old = pd.read_csv(options.out) if options.out and options.out.exists() else None
    key = ["block", "law", "n", "rep", "eps", "method", "setting"]
    done = set() if old is None else {*prepared(old)[key].itertuples(index=False, name=None)}
    out = options.out.open("a", newline="", encoding="utf-8") if options.out else None
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n") if out else None
    if writer and old is None:
        writer.writeheader()
    for one, n, rep, eps, method in jobs(options):
        if time.monotonic() - start > options.seconds:
            print(f"stopped after {options.seconds} s in repetition {rep} of {one.name}")
            break
        if (one.block, one.name, n, rep, eps, method, setting) not in done:
            made.append(fitted(one, n, rep, eps, method, setting))
            if writer:
                writer.writerow(made[-1])
                out.flush()
    if out:
        out.close()
    return pd.read_csv(options.out) if options.out else pd.DataFrame(made, columns=COLUMNS)


def main(argv: list[str] | None = None) -> int:
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("build", "report"), default="build")
    parser.add_argument("--laws", type=words, default=["library", "random", "first"])
    parser.add_argument(
        "--methods", type=words, default=["private"], help="private,r,dr,boosted,.."
    )
    parser.add_argument(
        "--eps", type=lambda t: [float(v) for v in words(t)], default=[0.5, 1.0, 4.0]
    )
    parser.add_argument("--sizes", type=lambda t: [int(v) for v in words(t)], help="for all laws")
    parser.add_argument("--only", type=words, help="laws whose names hold one of these")
    parser.add_argument("--fits", type=int, default=4, help="repetitions of a law")
    parser.add_argument("--random", type=int, default=60, help="number of random laws")
    parser.add_argument("--repeat", action="store_true", help="repeat random laws, too")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--set", action="append", default=[], help="name=value, of a prior")
    parser.add_argument("--label", help="of what is set, in place of it")
    parser.add_argument("--out", type=Path, help="append to this file, without what it has")
    parser.add_argument("--show", type=Path, nargs="+", help="run nothing: tables of these files")
    parser.add_argument("--against", type=Path, nargs="+", help="with --show: paired with these")
    parser.add_argument("--spreads", action="store_true", help="of the nuisances, no intervals")
    parser.add_argument("--quick", action="store_true", help="few fits")
    options = parser.parse_args(argv)
    if options.show:
        rows, other = (
            pd.concat([pd.read_csv(f) for f in files]) if files else None
            for files in (options.show, options.against)
        )
        print(shown(rows) if other is None else beside(rows, other))
        return 0
    if options.spreads:
        print(spreads(options).round(2).to_string())
        return 0
    if options.quick:
        options.fits, options.random, options.sizes, options.seconds = 1, 2, [500], 20
        options.only = ["wage1", "random", "binary, 2"]
        options.eps = [1.0]
    print(pc.__file__, *options.set, flush=True)
    print(shown(run(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
