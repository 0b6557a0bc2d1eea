"""Numbers of Niu et al. (2022) beside those that `niu_study.py` measured: lines of the pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from niu_methods import printed
from printed import HERE, NAN, REFERENCE, Line, one_version

import privcausal as pc

KEYS = ["dataset", "n", "learner", "epsilon"]
MEASURES = ["mse", "bias2", "variance"]
WANTED = {"s": 4, "dr": 10, "r": 10}
"""Pairs of fits that a learner's cell must have for its error to be compared."""
PRINTED_FITS = 25
"""Five fits in each of five experiments, as in the repository and the captions of Figures 2 and 3.

Section 5.1.3 says two fits in each. The spread of the repository's five experiments is that of 25
independent fits.
"""

RUN = "python tests/benchmarks/niu_study.py"
VOTES = f"{RUN} --voting data_clean.csv"
NO_VOTES = "the voting data are public but not shipped (`pc.datasets.voting` reads the file)"
DIFFERS = (
    "not known: perhaps chance, which moves one line of a hundred this far, or interpret's version "
    "(0.7.8 here), whose classifier has changed since"
)
FEW_FITS = (
    "single fits of the S-learner differ so much that few pairs understate the spread at eps 1: "
    "interpret itself has .26 with a standard error of .10 in eight fits on A with n 1,000, and "
    "1.98 with .04 in sixteen on D with n 4,000"
)
FOUR_PAIRS = (
    "four pairs of fits, whose spread is itself uncertain by 40 %: 2.6 such standard errors are "
    "exceeded in up to 8 of 100 cases"
)
TEST_SET = (
    "the S-learner's error is little else than the variance of the effect, and each side has one "
    "test set of 250,000 rows, whose draw moves that by .3 to .4 % of its value"
)
TAILS = (
    "single fits have errors from 38 to 1,066 with interpret 0.2.7 of the paper's time and from 43 "
    "to 1,868 with 0.7.8 (DR, n 500, eps 1, ten each), so a mean of few runs depends on the largest"
)
GROWN = (
    "the variance of the authors' own fits grows 30 to 60 times on these datasets, too (13 times "
    "on the voting data)"
)
TWO_PAIRS = "fewer than ten pairs of fits were run; ten pairs of a cell take up to 25 seconds"
EARLIER = (
    "shares of the budget on all rows beat disjoint parts with our booster (rows of an earlier "
    "version); the paper's statement is about the budget, not about errors"
)
CHANGED = "interpret divides by noisy sums of weights today, and by noisy counts of rows then"
FIGURE_3 = {"Voting": 16_000, "A": 16_000, "B": 16_000, "C": 4000, "D": 4000, "E": 4000}
"""Its panels and their numbers of rows."""
MOST = 16.0
"""The largest epsilon of the figures; the repository has 128 beside it."""
LEARNERS = ("s", "dr", "r")


def as_printed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of what the authors ran."""
    wanted = [v == printed(who) for v, who in zip(rows["variant"], rows["learner"], strict=True)]
    return rows[np.array(wanted, bool)]


def means(rows: pd.DataFrame, theirs: Any) -> pd.DataFrame:
    """By cell: pairs, our three means and standard deviations, and the published means."""
    by = rows.groupby(KEYS)
    out = by[MEASURES].mean().assign(pairs=by.size())
    for measure in MEASURES:
        other = np.nan if theirs is None else theirs[measure].reindex(out.index)
        out[f"published {measure}"] = other
    return out


def geometric(values: Any) -> float:
    """The geometric mean."""
    return float(np.exp(np.log(values).mean()))


def split_ratios(rows: pd.DataFrame) -> pd.Series:
    """Errors of disjoint parts over those of all rows, by dataset, n and learner."""
    wide = rows.groupby(["dataset", "n", "learner", "variant"])["mse"].mean().unstack("variant")
    if not {"disjoint", "full"} <= set(wide):
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[]], names=["learner"]))
    return (wide["disjoint"] / wide["full"]).dropna()


def stored(folder: Path = HERE / "niu") -> list[Line]:
    """The lines of the rows in a folder."""
    parts = {}
    for name in ("errors", "composition", "voting", "curves"):
        if (folder / f"{name}.csv").exists():
            rows = pd.read_csv(folder / f"{name}.csv", dtype={"epsilon": float, "code": str})
            parts[name] = one_version(rows, ["variant", "learner"])
    theirs = pd.read_csv(REFERENCE / "niu2022_table.csv").set_index(KEYS)[MEASURES]
    return lines(parts, theirs)


def lines(parts: dict[str, pd.DataFrame], theirs: pd.DataFrame) -> list[Line]:
    """In the paper's order."""
    none = pd.DataFrame(columns=[*KEYS, "variant", *MEASURES])
    errors = parts.get("errors", none)
    errors = pd.concat([errors, parts.get("voting", none.iloc[:0])], ignore_index=True)
    own = as_printed(errors)
    by = own.groupby(KEYS)[MEASURES]
    cells = by.mean().join(by.std().add_suffix(" sd")).assign(pairs=by.size())
    cells = cells.join(theirs.add_suffix(" printed"), how="inner")
    learners = cells.index.get_level_values("learner")
    cells["enough"] = [p >= WANTED[who] for p, who in zip(cells["pairs"], learners, strict=True)]
    cells["enough"] = cells["enough"].astype(bool)
    return [
        *_table_1(), *_variance_formula(theirs), *_splits(parts.get("composition")),
        *_figure_1(parts.get("curves")), *_figure_2(cells), *_weighting(errors, theirs),
        *_growth(cells), *_figure_3(cells), *_others(cells, theirs),
    ]  # fmt: skip


def _table_1() -> list[Line]:
    """The setups against Table 1, written down once more."""
    sin, exp, log, top = np.sin, np.exp, np.log, np.maximum
    laws: dict[str, Any] = {
        "A": lambda a, b, c, d, e, f: (
            sin(np.pi * a * b) + 2 * (c - 0.5) ** 2 + d + 0.5 * e,
            np.minimum(top(0.1, sin(np.pi * a * b)), 0.9), (a + b) / 2,
        ),
        "B": lambda a, b, c, d, e, f: (
            top(top(a + b, c), 0) + top(d + e, 0), 0.5 + 0 * a, a + log(1 + exp(b)),
        ),
        "C": lambda a, b, c, d, e, f: (
            2 * log(1 + exp(a + b + c)), 1 / (1 + exp(b + c)), 1 + 0 * a,
        ),
        "D": lambda a, b, c, d, e, f: (
            top(a + b + c, 0) + top(d + e, 0), 1 / (1 + exp(-a) + exp(-b)),
            top(a + b + c, 0) - top(d + e, 0),
        ),
        "E": lambda a, b, c, d, e, f: (
            a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + a * f + ((c > -0.5) & (c < 0.5)),
            1 / (1 + exp(a + f)), 1 / (1 + exp(a)) - b + c + d + e + f,
        ),
    }  # fmt: skip
    found = []
    for setup, law in laws.items():
        study = pc.datasets.niu(setup, 1000, 1)  # type: ignore[arg-type]
        covariates = study.frame[[f"X{j}" for j in range(1, 7)]].to_numpy().T
        ours = study.baseline, study.propensity, study.tau
        off = max(np.abs(p - o).max() for p, o in zip(law(*covariates), ours, strict=True))
        says = f"setup {setup}: b, e and tau at 1,000 rows, largest difference"
        # tau of E is printed with 1 / (1 + exp(x1)), the sigmoid of -x1
        found.append(
            Line("Table 1", says, NAN, round(float(off), 12), 0, 0, 0, f"{RUN} --quick", level=0.0,
                 reason="the generator is not the printed formula")
        )  # fmt: skip
    return found


def _variance_formula(theirs: pd.DataFrame) -> Iterator[Line]:
    """The formula of Section 5.1.3 at the repository's own numbers."""
    printed = 2 * theirs["mse"] - theirs["bias2"]
    yield Line(
        "Section 5.1.3", f"Var = 2 MSE - Bias, for Figure 3, at the authors' {len(theirs)} cells: "
        "median ratio to their Var", 1, float((printed / theirs["variance"]).median()), 0, 0, 0,
        "none",
        reason="a misprint: their numbers, and ours, are MSE - Bias, which follows from the text",
    )  # fmt: skip


def _splits(rows: pd.DataFrame | None) -> Iterator[Line]:
    """By dataset and learner: errors of disjoint parts over those of all rows, by paired fits."""
    if rows is None:
        return
    for (learner, dataset, n), part in rows.groupby(["learner", "dataset", "n"], sort=False):
        wide = part.pivot(index="repetition", columns="variant", values="mse").dropna()
        a, b = wide["disjoint"], wide["full"]
        yield Line(
            "Remark 8", f"splitting saves budget: MSE of disjoint parts over all rows below 1, "
            f"{dataset}, n {n:,}, eps 1, learner {learner}", NAN, float(a.mean() / b.mean()),
            float((a / a.mean() - b / b.mean()).sem()), 0, len(wide), f"{RUN} composition",
            claim="below", level=1, log=True, reason=EARLIER,
        )  # fmt: skip


def _figure_1(curves: pd.DataFrame | None) -> Iterator[Line]:
    """Jumpier under strong privacy: the total variation of the effect by age."""
    ratio = NAN
    if curves is not None and {1.0, 16.0} <= set(curves["epsilon"]):
        own = curves[curves["variant"] == "paper"].sort_values("age")
        moved = own.groupby("epsilon")["estimate"].apply(lambda v: float(np.abs(np.diff(v)).sum()))
        ratio = moved[1.0] / moved[16.0]
    yield Line(
        "Figure 1", "shapes by age are jumpier: total variation at eps 1 over that at 16", NAN,
        ratio, NAN, 1, int(curves is not None), f"{VOTES} curves", claim="above", level=1,
        reason=NO_VOTES if curves is None else "one fit has no standard error",
    )  # fmt: skip


def _reason(dataset: str, learner: str, n: int, eps: float) -> str:
    """The cause of a difference, as far as it is known."""
    if learner == "s":
        known = FOUR_PAIRS if dataset in ("A", "C") else TEST_SET
        return FEW_FITS if eps <= 1 and n <= 4000 else known
    return TAILS if n == 500 and eps <= 2 else DIFFERS


def _compared(item: str, key: Any, cell: Any, name: str, command: str) -> Line:
    """One published number. Errors and variances are compared by logarithms, bias is not."""
    dataset, n, learner, eps = key
    pairs, log = int(cell["pairs"]), name != "bias2"
    spread = cell[f"{name} sd"] / (cell[name] if log else 1)
    words = {"mse": "MSE", "bias2": "squared bias", "variance": "variance"}[name]
    return Line(
        item, f"{words}, {dataset}, n {n:,}, learner {learner}, eps {eps:g}",
        cell[f"{name} printed"], cell[name], spread * math.sqrt(1 / pairs + 2 / PRINTED_FITS),
        PRINTED_FITS, 2 * pairs, command, log=log, reason=_reason(dataset, learner, n, eps),
        group=f"{words}, learner {learner}",
    )  # fmt: skip


def _closed(item: str, says: str, count: int, command: str, reason: str) -> Line:
    return Line(item, f"{says} ({count} cells)", NAN, NAN, NAN, PRINTED_FITS, 0, command,
                reason=reason)  # fmt: skip


def _in_figure_3(key: Any) -> bool:
    dataset, n, learner, eps = key
    return learner == "dr" and FIGURE_3[dataset] == n and eps <= MOST


def _drawn(key: Any) -> bool:
    """Whether Figure 2, with setup A in the place of the voting data, or Figure 3 has a cell."""
    return _in_figure_3(key) or (key[0] in ("Voting", "A") and key[3] <= MOST)


def _figure_2(cells: pd.DataFrame) -> Iterator[Line]:
    """The voting data where they are, and setup A, which the authors ran on the same grid."""
    cells = cells[cells.index.get_level_values("epsilon") <= MOST]
    for dataset in ("Voting", "A"):
        part = cells[cells.index.get_level_values("dataset") == dataset]
        command = f"{VOTES} voting" if dataset == "Voting" else f"{RUN} figure2"
        if part.empty:
            reason = NO_VOTES if dataset == "Voting" else "no cell was run"
            for learner in LEARNERS:
                says = f"MSE, {dataset}, learner {learner}, n 500 to 32,000, eps 1 to 16"
                yield _closed("Figure 2", says, 35, command, reason)
        for key, cell in part.iterrows():
            if cell["enough"]:
                yield _compared("Figure 2", key, cell, "mse", command)


def _weighting(errors: pd.DataFrame, theirs: pd.DataFrame) -> Iterator[Line]:
    """Learner r of setup A at n = 4,000 and epsilon 4, by the weighting of interpret today."""
    key = ("A", 4000, "r", 4.0)
    found = errors[errors["variant"] == "interpret"].set_index(KEYS)
    found = found[found.index == key]["mse"]
    if len(found) > 1 and key in theirs.index:
        error = float(found.std() / found.mean()) * math.sqrt(1 / len(found) + 2 / PRINTED_FITS)
        yield Line(
            "Figure 2", "MSE, A, n 4,000, learner r, eps 4, weighting='interpret'",
            float(theirs.loc[key, "mse"]), float(found.mean()), error, PRINTED_FITS, 2 * len(found),
            f"{RUN} figure2", log=True, reason=CHANGED,
        )  # fmt: skip


def _ends(cells: pd.DataFrame) -> Iterator[tuple[tuple[str, int, str], Any, Any]]:
    """Cells at epsilon 1 and 16 with enough pairs."""
    for key, part in cells[cells["enough"]].groupby(KEYS[:3], sort=False):
        at = part.droplevel(KEYS[:3])
        if {1.0, 16.0} <= set(at.index):
            yield key, at.loc[1.0], at.loc[16.0]


def _growth_error(first: Any, last: Any, name: str, *, theirs: bool) -> float:
    """Standard error of the logarithm of a ratio of two cells, and of the authors' if asked."""
    squares = (first[f"{name} sd"] / first[name]) ** 2, (last[f"{name} sd"] / last[name]) ** 2
    pairs = min(first["pairs"], last["pairs"])
    return math.sqrt(sum(squares) * (1 / pairs + (2 / PRINTED_FITS if theirs else 0)))


def _growth(cells: pd.DataFrame) -> Iterator[Line]:
    """How much the error grows from epsilon 16 to 1, by number of rows."""
    for (dataset, n, learner), first, last in _ends(cells):
        if dataset == "A":
            theirs = first["mse printed"] / last["mse printed"]
            ours = first["mse"] / last["mse"]
            yield Line(
                "Figure 2", f"growth of MSE from eps 16 to 1, A, n {n:,}, learner {learner}",
                theirs, ours, _growth_error(first, last, "mse", theirs=True), PRINTED_FITS,
                2 * int(first["pairs"]), f"{RUN} figure2", log=True,
                reason=_reason(dataset, learner, n, 1.0),
            )  # fmt: skip


def _figure_3(cells: pd.DataFrame) -> Iterator[Line]:
    """MSE, squared bias and variance of the DR-learner; how privacy changes the last two."""
    command = f"{RUN} figure3"
    if "Voting" not in cells.index.get_level_values("dataset"):
        says = "MSE, squared bias, variance, Voting, n 16,000, learner dr, eps 1 to 16"
        yield _closed("Figure 3", says, 15, f"{VOTES} voting", NO_VOTES)
    for key, cell in cells.iterrows():
        if _in_figure_3(key) and cell["enough"]:
            for name in MEASURES if key[0] not in ("Voting", "A") else MEASURES[1:]:
                yield _compared("Figure 3", key, cell, name, command)
    for (dataset, n, learner), first, last in _ends(cells):
        if not _in_figure_3((dataset, n, learner, 1.0)):
            continue
        where, fits = f"{dataset}, n {n:,}, from eps 16 to 1", 2 * int(first["pairs"])
        theirs = first["variance printed"] / last["variance printed"]
        ours = first["variance"] / last["variance"]
        yield Line(
            "Figure 3", f"variance grows by about 10, {where}", 10, ours,
            _growth_error(first, last, "variance", theirs=False), 0, fits, command, log=True,
            reason=GROWN,
        )  # fmt: skip
        yield Line(
            "Figure 3", f"variance grows as in the authors' numbers, {where}", theirs, ours,
            _growth_error(first, last, "variance", theirs=True), PRINTED_FITS, fits, command,
            log=True, reason=DIFFERS,
        )  # fmt: skip
        yield Line(
            "Figure 3", f"squared bias grows by at most 2, {where}", 2,
            first["bias2"] / last["bias2"],
            _growth_error(first, last, "bias2", theirs=False), 0, fits, command,
            claim="at most", log=True, reason=DIFFERS,
        )  # fmt: skip


def _others(cells: pd.DataFrame, theirs: pd.DataFrame) -> Iterator[Line]:
    """The authors' other cells, those with too few pairs, and those that were not run."""
    for key, cell in cells.iterrows():
        dataset, n, learner, eps = key
        if cell["enough"]:
            if not _drawn(key):
                yield _compared("Repository", key, cell, "mse", f"{RUN} repository")
            continue
        yield Line(
            "Repository", f"MSE, {dataset}, n {n:,}, learner {learner}, eps {eps:g}",
            cell["mse printed"], cell["mse"], NAN, PRINTED_FITS, 2 * int(cell["pairs"]),
            f"{RUN} repository", reason=TWO_PAIRS,
        )  # fmt: skip
    simulated = int((theirs.index.get_level_values("dataset") != "Voting").sum())
    run = int((cells.index.get_level_values("dataset") != "Voting").sum())
    if run < simulated:
        yield _closed("Repository", "MSE on A to E", simulated - run, f"{RUN} repository",
                      "not run; no figure has these cells, which take 20 seconds each")  # fmt: skip


def note() -> str:
    """What was looked for behind the gap of learner "r", with interpret 0.2.7 run beside 0.7.8."""
    return (
        "Most lines of the R-learner on setup A are reproduced, but nearly all lie above the "
        "print. For n from 1,000, the mean logarithm of the ratio is .13. Its standard error is "
        ".03, with the training tables that cells share taken into account. The gap is therefore "
        "not chance. The likely cause is interpret's classifier. With n 2,000 and eps 8, the "
        "propensity's squared error is .0803 with interpret 0.2.7, and .0534 with 0.7.8 "
        "(24 fits each, standard errors .0007). With n 16,000 it is .0772 and .0457 (6 fits each, "
        ".0006). The two regressions do not differ clearly. The "
        "error of the effect depends strongly on the propensity: shrunk to its mean until its "
        "error is .080, the MSE falls from .25 to .09 (16 pairs of fits). On setup B, where the "
        "propensity is constant, there is no gap. All stages together are not settled: with n "
        "1,000 and eps 16, 0.2.7 has .262 with a standard error of .015, 0.7.8 has .290 with .020, "
        "and the print is .251. Excluded are the generator, shares of rows, clipping at .05, and "
        "the number of fits, which agree with the notebook. Its splits keep the shares of both "
        "arms. With such splits, 0.7.8 still has the .290, and .298 without them.\n\n"
        "The S-learner has a column per arm, as in the notebook, in a quick run of four pairs of "
        "fits per cell. With one column, all but two of its 35 lines on A were below the print, by "
        "a fifth in the median."
    )
