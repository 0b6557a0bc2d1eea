"""Seeded fits, their hashes and their numbers, to hold a change of structure against.

``python tests/golden/seeded.py OUT.json [OLD.json]`` makes each call under test noise. It hashes
what the fit saves and prints, and keeps its estimates, standard errors and limits. It names the
calls whose hashes differ from OLD.json, and those whose numbers differ by more than `CLOSE`. A
change that should move nothing moves none of them; one that only sums in another order moves no
number. Compare results of one machine only: another one's linear algebra may round otherwise.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

STUDY = pc.datasets.clinic(2500)
RNG = np.random.default_rng(0)
FRAME = STUDY.frame.assign(
    well=(STUDY.frame["recovery"] > 50).astype(int),
    state=np.where(STUDY.frame["recovery"] > 50, "well", "ill"),
    arm=[*"abc" * 834][:2500],
    chance=RNG.uniform(0.2, 0.8, 2500),
    weight=RNG.uniform(1, 2, 2500),
    lot=RNG.integers(0, 2, 2500),
    person=np.arange(2500) // 2,
)
BOUNDS: dict[str, Any] = {
    "recovery": (0, 100), "age": (18, 95), "severity": (0, 10), "bmi": (15, 50),
    "ward": ["east", "north", "south", "west"], "well": [0, 1], "state": ["ill", "well"],
    "arm": ["a", "b", "c"], "chance": (0.1, 0.9), "weight": (0, 3),
}  # fmt: skip
FORMULA = "recovery ~ programme | age + severity + C(ward)"
PANEL = pd.concat([FRAME.assign(year=y, programme=FRAME["programme"] * y) for y in (0, 1)])
PANEL = PANEL.assign(id=np.tile(np.arange(2500), 2))
WAVES = pd.concat([
    FRAME[["recovery"]].assign(id=np.arange(2500), first=[0, 2, 3, 0] * 625, year=y)
    for y in (1, 2, 3)
])  # fmt: skip

CLOSE = 1e-9
"""Standard errors by which a number may differ where sums are in another order."""

Calls = Iterator[tuple[str, Callable[[], Any]]]


def averages() -> Calls:
    make = partial(pc.private, bounds=BOUNDS)
    for estimand in ("ATE", "ATT", "ATO", ["ATE", "ATT", "ATO"]):
        for neighbors in ("substitute", "add_remove"):
            more = {"groups": ["ward", "age >= 65"], "neighbors": neighbors, "estimand": estimand}
            yield f"{estimand} {neighbors}", partial(make, FORMULA, FRAME, **more)
    for split in ("disjoint", "crossfit"):
        yield split, partial(make, FORMULA, FRAME, control=pc.Control(split=split))
    yield "linear", partial(make, FORMULA, FRAME, base="linear")
    yield "no tail condition", partial(make, FORMULA, FRAME, control=pc.Control(tails="any"))
    yield "known", partial(make, FORMULA, FRAME, propensity=0.5)
    yield "known column", partial(make, FORMULA, FRAME, propensity="chance")
    yield "units", partial(make, FORMULA, FRAME, unit="person", max_rows=2)
    yield "bought", lambda: pc.private(FORMULA, FRAME)
    yield "trial", partial(make, "recovery ~ programme", FRAME, groups=["ward"])
    yield "labels", partial(make, "state ~ programme | age", FRAME)
    yield "function", partial(make, "log(bmi) ~ programme | age", FRAME)
    for formula in ("well ~ programme | age", "well ~ programme"):
        yield f"ratios {formula}", partial(make, formula, FRAME, estimand=["RR", "OR"])
    for formula in ("recovery ~ arm | age", "recovery ~ arm"):
        yield f"arms {formula}", partial(make, formula, FRAME, groups=["ward"])
    yield "dose", partial(make, "recovery ~ bmi | age", FRAME, estimand="PLR")
    yield "late", partial(make, "recovery ~ programme | age | programme ~ lot", FRAME,
                          estimand="LATE")  # fmt: skip
    did = partial(pc.did, data=PANEL, unit="id", time="year", periods=(0, 1), bounds=BOUNDS)
    for formula in ("recovery ~ programme", "recovery ~ programme | age"):
        yield f"did {formula}", partial(did, formula)
    yield "weights", partial(make, FORMULA, FRAME, weights="chance")
    for estimand in ("RMST", "risk"):
        yield f"survival {estimand}", partial(
            pc.private, "Surv(age, lot) ~ programme | severity", FRAME, estimand=estimand,
            horizon=60, bounds=BOUNDS | {"age": (0, 95)},
        )  # fmt: skip
    by_person = pc.Control(cluster="person", max_cluster_rows=2)
    yield "clusters", partial(make, FORMULA, FRAME, control=by_person)
    yield "HC0", partial(make, FORMULA, FRAME, control=pc.Control(cov_type="HC0"))
    yield "PLR arms", partial(make, "recovery ~ arm | age", FRAME, estimand="PLR")
    few = {"recovery": (0, 100)}
    yield "bought levels", partial(make, "recovery ~ programme | C(ward)", FRAME, bounds=few)
    yield "event study", partial(
        pc.did, "recovery ~ 1", WAVES, unit="id", time="year", cohort="first", periods=[1, 2, 3],
        bounds={"recovery": (0, 100), "first": [0, 2, 3]},
    )  # fmt: skip
    yield "instruments", partial(make, "recovery ~ programme | age | programme ~ lot + bmi", FRAME,
                                 estimand="LATE")  # fmt: skip
    yield "regress", partial(pc.regress, "recovery ~ age + C(ward)", FRAME, bounds=BOUNDS)
    yield "regress weights", partial(
        pc.regress, "recovery ~ age", FRAME, bounds=BOUNDS, weights="weight",
        control=pc.Control(cov_type="HC0"),
    )  # fmt: skip


def effects() -> Calls:
    make = partial(pc.privcate, bounds=BOUNDS)
    for learner in ("r", "dr", "s", "t", "x"):
        for base in ("gam", "linear", pc.bases.DPEBM(rounds=10)):
            named, options = getattr(base, "name", base), {"base": base, "groups": ["ward"]}
            yield f"{learner} {named}", partial(make, FORMULA, FRAME, learner=learner, **options)
    yield "auto", partial(make, FORMULA, FRAME, learner="auto")
    yield "r crossfit", partial(make, FORMULA, FRAME, control=pc.Control(split="crossfit"))
    yield "adum", partial(make, "well ~ programme | C(ward) + age", FRAME, learner="adum")
    yield "tm", partial(make, "well ~ programme | age", FRAME, learner="tm")
    yield "dpcate", partial(make, "recovery ~ programme | age", FRAME, learner="dpcate")
    at_points = pc.learners.DPCATE(queries=pd.DataFrame({"age": [30.0, 60.0]}))
    yield "queries", partial(make, "recovery ~ programme | age", FRAME, learner=at_points)


def published() -> Calls:
    rows, given = pc.datasets.betlei_sine(2000), ("recovery ~ programme | age", FRAME)
    yield "paper.private", partial(pc.paper.private, *given, bounds=BOUNDS, propensity=0.5)
    yield "paper.adum", partial(pc.paper.adum, rows.formula, rows.frame, bounds=rows.bounds)
    yield "paper.tm", partial(pc.paper.tm, "well ~ programme | age", FRAME, bounds=BOUNDS)
    points = pd.DataFrame({"age": [30.0, 60.0]})
    yield "paper.dpcate", partial(pc.paper.dpcate, *given, bounds=BOUNDS, queries=points)


def sources(folder: Path) -> Calls:
    FRAME.to_parquet(folder / "rows.parquet")
    FRAME.to_csv(folder / "rows.csv", index=False)
    FRAME.to_stata(folder / "rows.dta", write_index=False)
    for name in ("rows.parquet", "rows.csv", "rows.dta"):
        bounds = BOUNDS | ({"programme": [0, 1]} if name == "rows.csv" else {})
        yield f"from {name}", partial(pc.private, FORMULA, folder / name, bounds=bounds)


def saved(fit: Any, folder: Path) -> tuple[str, list[list[float]]]:
    """All that a fit is saved, printed and reported as, and the numbers of its averages."""
    file, page = folder / "fit.json", folder / "fit.html"
    fit.save(file)
    fit.report(page)
    text = [file.read_text("utf-8"), str(fit.summary(full=True)), page.read_text("utf-8")]
    table, numbers = "", list[list[float]]()
    if fit.estimate.averages is not None:
        table = fit.tidy().to_json()
        numbers = np.c_[fit.params, fit.bse, fit.conf_int()].tolist()
    return "\n".join([*text, table, fit.budget.to_json()]).replace(str(folder), ""), numbers


Found = dict[str, tuple[str, list[list[float]]]]


def found(folder: Path, every: int = 1) -> Found:
    """Hashes and numbers of every k-th fit; hashes of a plan and of a ledger."""
    out: Found = {}
    for name, call in (*averages(), *effects(), *published(), *sources(folder))[::every]:
        with seeded_noise(3):
            text, numbers = saved(call(), folder)
        out[name] = _hash(text), numbers
    with seeded_noise(3):
        plan = pc.plan(FORMULA, n=[1000, 4000], eps=[0.5, 1], bounds=BOUNDS)
        out["plan"] = _hash(str(plan) + plan.table.to_json()), []
    ledger = pc.Ledger(folder / "study.db", "study", eps=3)
    pc.private("recovery ~ programme", FRAME, bounds=BOUNDS, ledger=ledger)
    # names of runs and days differ; prices do not
    out["ledger"] = _hash(ledger.history.drop(columns=["run", "day"]).to_json()), []
    return out


def moved(now: Found, old: Found) -> tuple[list[str], list[str]]:
    """Calls whose hashes differ, and those whose numbers do."""
    both = [(name, now.get(name, ("", [])), old[name]) for name in old]
    hashes = [name for name, one, two in both if one[0] != two[0]]
    return hashes, [name for name, one, two in both if not _close(one[1], two[1])]


def _close(one: list[list[float]], two: list[list[float]]) -> bool:
    a, b = np.array(one, float), np.array(two, float)
    if a.shape != b.shape or not a.size:
        return a.shape == b.shape
    room = CLOSE * np.where(np.isfinite(b[:, 1]), b[:, 1], 1.0)[:, None]
    with np.errstate(invalid="ignore"):  # limits may be infinite
        return bool(((np.abs(a - b) <= room) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _hash(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        now = found(Path(folder))
    Path(sys.argv[1]).write_text(json.dumps(now, indent=1), encoding="utf-8")
    if len(sys.argv) > 2:
        hashes, numbers = moved(now, json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
        print("hashes moved:", ", ".join(hashes) or "none")
        print("numbers moved:", ", ".join(numbers) or "none")
        sys.exit(bool(hashes or numbers))
