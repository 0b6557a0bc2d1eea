"""What each stage and prior structure of the default estimators gains, on laws that chose nothing.

    python tests/benchmarks/lab/ablation.py --laws 60 --seeds 3 --jobs 2 --out rows.csv
    python tests/benchmarks/lab/ablation.py --show rows.csv
    python tests/benchmarks/lab/ablation.py --quick

A variant leaves one thing out, and is fitted on the same rows as the whole, with noise of the same
seed. Learner "r" is fitted to effects that are drawn here, "private" to cells of the laboratory
beyond those of both its halves. Printed, by the number of rows, are ratios to the whole in
geometric mean: of the RMSE of tau(x), of the ATE's half-width, and of its squared error (by law);
and how often the interval covers. Above 1 the part that is left out gains. `ablation.txt` holds
what was found, with parts that have gone since.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from kinds import LAWS, drawn
from populations import population, sample
from scipy.special import expit, ndtr

import privcausal as pc
from privcausal.estimators import averages, bases, meta, nuisances, private
from privcausal.estimators import first_stages as state
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import mixture
from privcausal.testing import seeded_noise

FIRST = 1000
"""Number of the first law: the laboratory's halves use fewer than a hundred of each kind."""

SIZES = (1000, 4000, 16_000)
KEYS = ["learner", "law", "n", "seed"]
COLUMNS = [*KEYS, "variant", "tau", "width", "error", "cover"]
Without = Callable[[], AbstractContextManager[Any]]


@contextmanager
def priors(**values: Any) -> Iterator[None]:
    """Priors of other values; they are frozen for everyone else."""
    before = {name: getattr(PRIORS, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(PRIORS, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(PRIORS, name, value)


def base(**options: Any) -> AbstractContextManager[Any]:
    return patch.dict(bases.BASES, gam=bases.Gam(**options))


def without_stages(learner: Any, *keys: Any) -> AbstractContextManager[Any]:
    """A learner that leaves stages out: their share goes to the others of the group."""
    return patch.object(learner, "steps", tuple(s for s in learner.steps if s.key not in keys))


@contextmanager
def one_release() -> Iterator[None]:
    """All of the effect's share for its first release."""
    found = {step.key: step for step in meta.R.steps}
    rest, first = found.pop(meta.REMAINING), found[meta.RESIDUALS]
    found[meta.RESIDUALS] = first._replace(weight=first.weight + rest.weight)

    def second(state: Any, partials: Any, first: Any, reading: Any) -> Any:
        return first, None

    steps = tuple(found.values())
    with patch.object(meta.R, "steps", steps), patch.object(meta, "second_release", second):
        yield


def conditional(kept: str) -> Without:
    """The effect's prior with one of its structures alone."""

    def prior(self: Any, moments: Any, features: Any, intercept: float, size: float) -> Any:
        scale = PRIORS.effect_terms * size
        unit = np.full(features.size, np.sqrt(scale) / bases.amplitude(len(features.blocks)))
        law = bases.ScaleMixturePrior(intercept, unit, np.minimum(features.order, 2) - 1)
        made: dict[str, Callable[[], Any]] = {
            "constant": lambda: bases._near_constant(moments, features, intercept, size),
            "mixture": lambda: mixture(moments, law),
        }
        return made[kept]()

    return lambda: patch.object(bases.Gam, "conditional", prior)


def as_read(counts: Any, noise: float, borders: Any, *_: Any) -> Any:
    return meta.cuts.without_noise_tail(counts, noise, borders)


def noisy_gram(noisy: Any, model: Any, sd: float, features: Any) -> Any:
    return state.GramEstimate(noisy, sd, model)


@contextmanager
def no_first_effect() -> Iterator[None]:
    def nothing(of: Any, partials: Any) -> Any:
        size = of.effect_features.size
        return nuisances.as_effect(of, bases.Posterior(np.zeros(size), np.zeros((size, size)), 0.0))

    with (
        without_stages(private.Private, nuisances.NUISANCE_RESIDUALS),
        patch.object(nuisances, "residual_effect", nothing),
    ):
        yield


BOTH: dict[str, Without] = {
    "interactions": lambda: base(interactions=False),
    "curved products": lambda: priors(curved_columns=0),
    "both nuisances together": lambda: priors(correlations=(0.0,)),
    "Gram matrix shrunk": lambda: patch.object(nuisances.population, "shrunken", noisy_gram),
    "copula": lambda: patch.object(state, "correlated", lambda population, *_: population),
    "curves": lambda: base(functions=1),
}

R_ONLY: dict[str, Without] = {
    "window of the outcome": lambda: without_stages(meta.R, state.OUTCOME_RANGE),
    "second release": one_release,
    "products of modifiers": lambda: priors(product_columns=0),
    "stretch": lambda: priors(even_norm=1.0),
    "product bias": lambda: priors(product_bias_mean=0.0),
    "prior: near constant": conditional("mixture"),
    "prior: mixture": conditional("constant"),
    "cut of the product": lambda: patch.object(
        meta, "cut_of", lambda state, law, stage, bias: float(law.edges[-1])
    ),
    "sizes by normal residuals": lambda: patch.object(meta.cuts, "denoise_normal", as_read),
    "scaling up": lambda: priors(least_below=1.0),
}

PRIVATE_ONLY: dict[str, Without] = {
    "limits of weights": lambda: patch.object(averages, "FACTORS", (np.inf,)),
    "look at the outcome": lambda: without_stages(private.Private, state.OUTCOME_RANGE),
    "sizes of scores": lambda: without_stages(private.Private, nuisances.SCORE_SIZES),
    "first effect": no_first_effect,
    "variance by the mean": lambda: patch.object(
        nuisances, "_most_variance", lambda first, sd, gram, half, relative: half**2
    ),
    "clip of a rare arm": lambda: priors(rare_share=1e-9),
}

VARIANTS: dict[str, dict[str, Without]] = {
    "r": {"whole": ExitStack, **BOTH, **R_ONLY},
    "private": {"whole": ExitStack, **BOTH, **PRIVATE_ONLY},
}

# --- laws --------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x,
    "square": lambda x: (x**2 - 1) / 1.4,
    "sine": lambda x: 1.4 * np.sin(2 * x),
    "step": lambda x: np.sign(x - 0.3),
    "bend": lambda x: 1.5 * (np.abs(x) - 0.8),
}
FORMS = ("zero", "constant", "linear", "all linear", "curved", "product")


def drawn_effect(number: int, n: int, seed: int) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """Rows of law `number`, tau at the rows and what is public; half-widths of 1.73 a column."""
    law = np.random.default_rng([number, 77_001])
    p, form = int(law.integers(2, 9)), FORMS[number % len(FORMS)]
    binary, correlation = law.random(p) < 0.3, law.choice([0.0, 0.3, 0.6])
    rng = np.random.default_rng([number, n, seed, 77_002])
    z = np.sqrt(correlation) * rng.standard_normal(n)
    z = z + np.sqrt(1 - correlation) * rng.standard_normal((p, n))
    x = 3.464 * (ndtr(z) - 0.5)
    x[binary] = np.sign(x[binary])

    def additive(count: int, *shapes: str) -> Any:
        columns = law.choice(p, size=min(count, p), replace=False)
        weights = law.choice([-1, 1], len(columns)) * law.uniform(0.5, 1.5, len(columns))
        parts = [SHAPES[str(law.choice(shapes))](x[j]) for j in columns]
        return weights @ np.array(parts) / np.sqrt(len(columns))

    shared = additive(2, *SHAPES) + (law.random() < 0.3) * law.uniform(0.3, 0.8) * x[0] * x[1]
    pull = (law.random() > 0.3) * law.uniform(0.3, 0.9)
    e = np.clip(expit(law.normal(0, 0.4) + pull * shared), 0.03, 0.97)
    mean = law.uniform(0.2, 0.8) * shared + law.uniform(0.2, 0.6) * additive(3, *SHAPES)
    size, varied = law.uniform(0.1, 0.8), law.uniform(0.3, 1.2)
    effect = {
        "zero": lambda: 0 * x[0],
        "constant": lambda: size + 0 * x[0],
        "linear": lambda: size * (1 + varied * additive(2, "linear")),
        "all linear": lambda: size * (1 + varied * additive(p, "linear")),
        "curved": lambda: size * (1 + varied * additive(2, *SHAPES)),
        "product": lambda: size * (1 + varied * x[0] * x[1]),
    }[form]()
    t = rng.random(n) < e
    y = mean + t * effect + law.uniform(0.3, 1.0) * rng.standard_normal(n)
    half = float(law.choice([4.0, 8.0]))
    frame = pd.DataFrame({f"X{j + 1}": x[j] for j in range(p)})
    frame = frame.assign(T=t.astype(np.int64), Y=np.clip(y, -half, half))
    bounds: dict[str, Any] = {f"X{j + 1}": (-1.8, 1.8) for j in range(p)}
    return frame, effect, bounds | {"T": (0.0, 1.0), "Y": (-half, half)}


def laws(learner: str, count: int) -> list[str]:
    if learner == "r":
        return [f"effect {FIRST + k}" for k in range(count)]
    kinds = list(LAWS)
    return [f"{kinds[k % len(kinds)]} {FIRST + k // len(kinds)}" for k in range(count)]


# --- fits --------------------------------------------------------------------------------------


def fits(learner: str, law: str, n: int, seed: int, names: Sequence[str]) -> list[list[object]]:
    """A row per variant; effects and widths in the outcome's sds for "r", in the oracle's else."""
    kind, _, text = law.rpartition(" ")
    number, tau = int(text), None
    if learner == "r":
        frame, tau, bounds = drawn_effect(number, n, seed)
        terms = " + ".join(name for name in frame if name not in ("T", "Y"))
        call = partial(pc.privcate, f"Y ~ T | {terms}", frame, bounds=bounds, learner="r", eps=1)
        truth, unit = float(np.mean(tau)), float(frame["Y"].std())
    else:
        cell = drawn("laws", kind, number)
        frame, known = sample(cell.law, n, (n, seed, 77_003)).frame, population(cell.law)
        call = partial(
            pc.private, cell.formula, frame, eps=1, bounds=cell.bounds, propensity=cell.propensity
        )
        truth, unit = known.truth, known.sd / np.sqrt(n)
    rows: list[list[object]] = []
    for name in names:
        with warnings.catch_warnings(), seeded_noise(1000 * number + seed):
            warnings.simplefilter("ignore")
            with VARIANTS[learner][name]():
                try:
                    fit = call()
                except pc.PrivcausalError as error:  # hardly any rows: left out of all variants
                    print(f"{learner} without {name!r}, {law}, n = {n}: {type(error).__name__}")
                    continue
        low, high = fit.conf_int().iloc[0]
        off = (float(fit.params.iloc[0]) - truth) / unit
        far = np.nan
        if tau is not None:
            found = np.asarray(fit.predict(frame)["estimate"])
            far = float(np.sqrt(np.mean((found - tau) ** 2))) / unit
        width, held = (high - low) / 2 / unit, int(low <= truth <= high)
        rows.append([learner, law, n, seed, name, far, width, off, held])
    return rows


def show(rows: pd.DataFrame) -> str:
    """Ratios to the whole by learner, variant and n."""
    lines = []
    for learner, own in rows.groupby("learner", sort=False):
        whole = own[own["variant"] == "whole"].set_index(KEYS)
        found: dict[str, dict[tuple[str, int], float]] = {}
        for (name, n), part in own.groupby(["variant", "n"], sort=False):
            one = part.set_index(KEYS)
            other = whole.loc[one.index]
            squares = [f["error"].pow(2).groupby(level="law").mean() for f in (one, other)]
            cells = {
                "tau": geometric(one["tau"].clip(1e-4) / other["tau"].clip(1e-4)),
                "width": geometric(one["width"] / other["width"]),
                "mse": geometric(squares[0].clip(1e-12) / squares[1].clip(1e-12)),
                "cover": float(one["cover"].mean()),
            }
            found.setdefault(name, {}).update({(what, n): v for what, v in cells.items()})
        table = pd.DataFrame(found).T.dropna(axis=1).sort_index(axis=1, ascending=[False, True])
        count = f"{whole.index.get_level_values('law').nunique()} laws, {len(whole)} fits"
        lines += [f"{learner} without ... ({count})", table.round(3).to_string(), ""]
    return "\n".join(lines)


def geometric(ratios: Any) -> float:
    return float(np.exp(np.log(ratios).mean()))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What stages and prior structures gain.")
    parser.add_argument("--laws", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--learners", default=",".join(VARIANTS))
    parser.add_argument("--variants", default="", help="beside the whole; default all")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("ablation.csv"))
    parser.add_argument("--show", type=Path, help="run nothing: the table of these rows")
    parser.add_argument("--quick", action="store_true", help="two laws, nothing stored")
    options = parser.parse_args(argv)
    if options.show:
        print(show(pd.read_csv(options.show)))
        return 0
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            options.laws, options.seeds, options.sizes = 2, 1, "1000"
            options.out = Path(folder) / "rows.csv"
            run(options)
        return 0
    run(options)
    return 0


def run(options: argparse.Namespace) -> None:
    wanted = options.variants.split(",") if options.variants else None
    with options.out.open("a", newline="") as file, ProcessPoolExecutor(options.jobs) as pool:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(COLUMNS)
        jobs = [
            pool.submit(fits, learner, law, int(n), seed, names)
            for n in options.sizes.split(",")
            for learner in options.learners.split(",")
            for names in [[v for v in VARIANTS[learner] if not wanted or v in ("whole", *wanted)]]
            for law in laws(learner, options.laws)
            for seed in range(options.seeds)
        ]
        for done in as_completed(jobs):
            writer.writerows(done.result())
            file.flush()
    print(show(pd.read_csv(options.out)))


if __name__ == "__main__":
    sys.exit(main())
