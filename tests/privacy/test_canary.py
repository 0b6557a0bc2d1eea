"""A canary row: outliers in numbers and a rare level in texts, sought in every output."""

from __future__ import annotations

import base64
import functools
import io
import itertools
import json
import pickle
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import polars as pl
import pytest
from canaries import (
    LABEL,
    LONG,
    NEEDLES,
    NUMBER,
    Written,
    assert_clean,
    faults,
    found_in,
    logs_into,
    reachable,
    told,
)
from text_type import TEXT

import privcausal as pc
from privcausal import testing
from privcausal.errors import PrivcausalError, PrivcausalWarning

ROW, N = 17, 240


@cache
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.random(N)
    t = rng.integers(0, 2, N)
    columns = {"Y": x + t + rng.normal(0, 0.1, N), "T": t.astype(float), "X1": x}
    columns |= {"X2": rng.choice(["a", "b"], N), "P": np.clip(x, 0.3, 0.7)}
    columns |= {"pid": [f"id{i // 2}" for i in range(N)], "secret": rng.random(N)}
    frame = pd.DataFrame(columns | {"note": "nothing", "when": pd.Timestamp("2020-01-01")})
    for name in ("Y", "X1", "P", "secret"):
        frame.loc[ROW, name] = NUMBER
    for name in ("X2", "pid", "note"):
        frame.loc[ROW, name] = LABEL
    return frame.set_index(np.where(np.arange(N) == ROW, NUMBER, np.arange(N)))


class Means:
    """A user's estimator that learns the mean of its target, and keeps no row."""

    guarantee = (0.4, 0.0)

    def fit(self, x: Any, target: Any, *, bounds: Any, weight: Any) -> Means:
        self.mean = float(np.mean(target))
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.mean)


FORMULA = "Y ~ T | X1 + C(X2)"
BOUNDS: dict[str, Any] = {"Y": (-1, 3), "X1": (0, 1), "X2": ["a", "b"]}
AT = {"X1": np.array([0.2, 0.7]), "X2": np.array(["a", "b"])}
PAPER: dict[str, Any] = {"below_minimum": "published"}
BOUGHT = {"bounds": None, "eps": 60.0, "control": pc.Control(shares={"bounds": 0.5})}
KINDS: dict[str, dict[str, Any]] = {
    **{learner: {"learner": learner} for learner in ("r", "dr", "s", "t", "x")},
    "private": {"groups": ["X2", "X1 >= 0.5"]},
    "bought": BOUGHT | {"learner": "r"},
    "bought private": BOUGHT | {"base": "linear"},
    "units": {"learner": "r", "unit": "pid", "max_rows": 2},
    "add_remove": {"neighbors": "add_remove", "control": pc.Control(split="crossfit")},
    "column": {"learner": "x", "bounds": BOUNDS | {"P": (0.3, 0.7)}, "propensity": "P"},
    "other": {"learner": "dr", "groups": ["X2"], "control": pc.Control(split="disjoint")}
    | {"bounds": BOUNDS | {"X2": pc.Levels(["a", "b"], other=True)}},
    "linear": {"learner": "r", "base": "linear", "control": pc.Control(cov_type="HC0")},
    "boosted": {"learner": "s", "base": pc.bases.DPEBM(rounds=10, learning_rate=0.3)},
    "ATT": {"estimand": "ATT"},
    "ATO": {"estimand": "ATO", "base": "linear"},
    "difference": {"formula": "Y ~ T", "groups": ["X2"]},
    "cells": {"learner": "adum"},
    "clusters": {"learner": pc.learners.ADUM(partition="kmeans", cells=3, rounds=2)},
    "cells bought": BOUGHT | {"learner": pc.learners.ADUM(noise="gaussian")},
    "tm": {"learner": "tm"},
    "kernel": {"learner": "dpcate", "base": pc.bases.Kernel(functions=20)},
    "queries": {"learner": pc.learners.DPCATE(queries=AT)},
    "Parquet": {"learner": "r", "base": "linear", "source": "rows.parquet"},
    "CSV": {"base": "linear", "bounds": BOUNDS | {"T": [0, 1]}, "source": "rows.csv"},
    "relation": {"learner": "adum", "source": "relation"},
    "lazy": {"learner": "r", "base": "linear", "source": "lazy"},
    "known cells": {"learner": "tm", "propensity": 0.5},
    "published": PAPER | {"call": pc.paper.private, "base": pc.bases.Sklearn.kernel()},
    "published queries": PAPER | {"call": pc.paper.dpcate, "queries": AT},
    "published function": PAPER | {"call": pc.paper.dpcate},
    "published answers of a process": PAPER
    | {"call": pc.paper.dpcate, "noise": "process", "queries": AT},
    "published cells": {"call": pc.paper.adum, "cells": 4},
    "two stages": {
        "call": pc.paper.two_stage,
        "learner": pc.learners.TwoStage(effect=Means(), propensity=Means(), outcome=Means()),
    },
}
"""Calls by everything that reads rows; "bounds", "formula" and "source" where they are others."""


@cache
def sources() -> tuple[Any, Any, Path]:
    """The rows in files and in DuckDB; the folder lives as long as the process."""
    import duckdb

    kept = tempfile.TemporaryDirectory(prefix="canary")
    folder, plain = Path(kept.name), rows().reset_index(drop=True)
    plain.to_parquet(folder / "rows.parquet")
    plain.to_csv(folder / "rows.csv", index=False)
    connection = duckdb.connect()
    connection.register("rows", plain)
    return kept, connection, folder


def read_from(source: str | None) -> Any:
    if source is None:
        return rows()
    if source == "lazy":
        return pl.from_pandas(rows().reset_index(drop=True)).lazy()
    _, connection, folder = sources()
    return connection.sql("SELECT * FROM rows") if source == "relation" else folder / source


def fitted(kind: str, data: Any = None, **more: Any) -> Any:
    options = {"bounds": BOUNDS} | KINDS[kind] | more
    formula, source = options.pop("formula", FORMULA), options.pop("source", None)
    frame = read_from(source) if data is None else data
    call = options.pop("call", pc.privcate if "learner" in options else pc.private)
    return call(formula, frame, **options)


# -- what comes out of a fit -----------------------------------------------------------------


def outputs(fit: Any, folder: Path) -> Iterator[tuple[str, bytes | str]]:
    """Everything a fit offers to look at, to store or to print, but what it draws."""
    yield "JSON", asked(lambda: kept_as(fit.save, folder / "fit.json"))
    if (folder / "fit.json").exists():
        yield "loaded", repr(pc.load(folder / "fit.json").estimate)
    summary = fit.summary(full=True)
    yield "text", str(summary)
    yield "LaTeX", summary.as_latex()
    yield "HTML", summary.as_html()
    yield "notebook", fit._repr_html_() + fit.guarantee._repr_html_()

    def compared(form: str) -> str:
        return str(getattr(pc.compare([fit], groups=True), form)())

    for form in ("__str__", "as_markdown", "as_html", "as_latex"):
        yield f"comparison {form}", asked(functools.partial(compared, form))
    yield "maketables", asked(lambda: repr(fit.__maketables_coef_table__))
    yield "maketables' own", asked(lambda: repr(fit.to_maketables()))
    yield "repr", repr(fit)
    yield "everything's repr", asked(lambda: repr(vars(fit))) + repr(fit.estimate.releases)
    yield "plan", str(fit.plan) + repr(fit.plan)
    yield "guarantee", repr(fit.guarantee)
    yield "pickle", pickled(fit)
    for protocol in (0, 2):
        yield f"pickle {protocol}", pickled(fit, protocol)
    for name in ("budget", "params", "bse", "pvalues", "ate", "gate", "cells"):
        yield name, asked(lambda name=name: text_of(getattr(fit, name)))
    for name in ("tidy", "glance", "conf_int", "cov_params"):
        yield name, asked(lambda name=name: text_of(getattr(fit, name)()))
    points = pd.DataFrame({"X1": np.linspace(0, 1, 9), "X2": ["a", "b", "a"] * 3, "P": 0.5})
    if hasattr(fit, "predict"):
        yield "predictions", asked(lambda: text_of(fit.predict(points)))
    for name, nuisance in nuisances(fit):
        yield name, nuisance(points).to_csv() + repr(nuisance) + pickled(nuisance).hex()
    for dialect in ("duckdb", "snowflake"):
        yield f"SQL for {dialect}", asked(lambda dialect=dialect: fit.plan.sql(dialect))


def drawings(fit: Any, folder: Path) -> Iterator[tuple[str, str]]:
    """Its reports and its plots."""
    for audience in ("technical", "public"):
        report = functools.partial(fit.report, audience=audience)
        yield f"{audience} report", asked(functools.partial(kept_as, report, folder / "fit.html"))
    for kind in ("coef", "gate", "budget", "effect"):
        yield f"plot {kind}", drawn(fit, kind)


def asked(ask: Callable[[], str]) -> str:
    """What is answered, or how it is refused."""
    try:
        return ask()
    except (PrivcausalError, AttributeError) as error:  # an average effect has no cells
        return told(error)


def kept_as(write: Callable[[Path], Any], path: Path) -> str:
    """The file that is written, as text."""
    write(path)
    return path.read_bytes().decode("utf-8", "surrogateescape")


def text_of(frame: Any) -> str:
    return str(frame.to_csv() + frame.to_json() + repr(frame))


def nuisances(fit: Any) -> list[tuple[str, Any]]:
    try:
        return list(fit.nuisances.items())
    except PrivcausalError:
        return []


def pickled(value: Any, protocol: int | None = None) -> bytes:
    """Its pickle, or what refuses it."""
    try:
        return pickle.dumps(value, protocol)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return told(error).encode()


def drawn(fit: Any, kind: str) -> str:
    import matplotlib.pyplot as plt

    try:
        axes = fit.plot(kind)
    except PrivcausalError as error:
        return told(error)
    figure = np.ravel(axes)[0].figure
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    plt.close(figure)
    return stream.getvalue()


@cache
def seeded(kind: str) -> Any:
    with testing.seeded_noise(3):
        return fitted(kind)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.filterwarnings("ignore:pc.paper.dpcate without queries")
@pytest.mark.parametrize("kind", KINDS)
def test_no_output_holds_the_canary(kind: str, tmp_path: Path) -> None:
    fit = seeded(kind)
    assert searched(kind, outputs(fit, tmp_path)) >= 29
    assert [path for path, value in reachable(fit) if found_in(value, LONG)] == []


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.filterwarnings("ignore:pc.paper.dpcate without queries")
@pytest.mark.parametrize("kind", KINDS)
def test_no_drawing_holds_the_canary(kind: str, tmp_path: Path) -> None:
    assert searched(kind, drawings(seeded(kind), tmp_path)) == 6


def searched(kind: str, contents: Iterator[tuple[str, bytes | str]]) -> int:
    """How many there are, in none of which the canary is found."""
    seen = 0
    for name, content in contents:
        # where exact means of rows are released, as printed, short forms may be met by chance
        assert found_in(content, LONG if "call" in KINDS[kind] else NEEDLES) == [], name
        assert len(content) > 0, name
        seen += 1
    return seen


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["private", "bought", "units"])
def test_no_real_fit_holds_the_canary(kind: str, tmp_path: Path) -> None:
    """With real noise, in forms too long to come about by chance."""
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=200)
    fit = fitted(kind, ledger=ledger)
    for name, content in itertools.chain(outputs(fit, tmp_path), drawings(fit, tmp_path)):
        assert found_in(content, LONG) == [], name
    for path in tmp_path.iterdir():
        assert found_in(path.read_bytes(), LONG) == [], path.name
    assert found_in(repr(ledger) + ledger.history.to_csv() + ledger.verify(), LONG) == []


@pytest.mark.slow
@pytest.mark.parametrize("look", ["overlap", "balance"])
def test_no_diagnostic_holds_the_canary(look: str) -> None:
    with testing.seeded_noise(3):
        found = getattr(fitted("r"), look)(rows(), eps=1.0)
    texts = (str(found), repr(found), found.sentence, found._repr_html_(), repr(vars(found)))
    frames = (found.frame.to_csv(), found.budget.to_csv())
    assert all(found_in(text) == [] for text in (*texts, *frames))
    assert found_in(pickled(found)) == []


@pytest.mark.slow
def test_the_search_would_find_it() -> None:
    """A planted canary is found in an output, and in what a fit keeps."""
    with testing.seeded_noise(3):
        fit = fitted("r")
    object.__setattr__(fit.estimate, "notes", (f"largest outcome {NUMBER:.0f}",))
    assert found_in(str(fit.summary(full=True)))
    object.__setattr__(fit.estimate, "kept", {"rows": [rows()]})
    assert any(found_in(value, LONG) for _, value in reachable(fit))


@pytest.mark.slow
def test_every_form_is_found() -> None:
    """Each needle, in the bytes that a value is made into elsewhere than where needles are."""
    double, wide = struct.pack("<d", NUMBER), f"x{LABEL}y"
    forms: list[Any] = [
        *(f"{NUMBER:{form}}" for form in ("g", "e", ",.2f", "")),
        str(np.float32(NUMBER)),
        np.array([NUMBER], ">f4").tobytes(),
        json.dumps({"a": [NUMBER]}),
        LABEL.lower(),
        *(wide.encode(code) for code in ("utf-8", "utf-16", "utf-16-be", "utf-32")),
        *(base64.b64encode(b"-" * k + wide.encode() + b"--") for k in range(3)),
        *(base64.b64encode(b"-" * k + double + b"--") for k in range(3)),
        *(pickle.dumps({"a": [value]}, k) for value in (NUMBER, LABEL) for k in range(6)),
        pickle.dumps(rows()),
        rows().to_parquet(compression=None),
        rows().to_json().encode(),
        rows().to_html().encode(),
        wide.encode().hex().encode(),
        double.hex().upper().encode(),
        repr(list(double)).encode(),
        quote(wide, safe="").encode(),
        "".join(f"%{b:02X}" for b in wide.encode()).encode(),
        repr(np.array([NUMBER])).encode(),
        repr([np.float64(NUMBER)]).encode(),
        str(NUMBER * 1e6).encode(),
        wide[::-1].encode(),
    ]
    for form in forms:
        assert found_in(form), form[:80]
    assert len(LONG) >= 25
    assert found_in(b"".join(np.random.default_rng(1).bytes(10**6) for _ in range(3)), LONG) == []
    assert found_in("<Design object at 0x7f2c77310490>") == []  # where it lies in memory
    assert found_in("<Design object at 0x7f2c77310490> 77310")


# -- errors ----------------------------------------------------------------------------------


def points(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"X1": [0.5, NUMBER], "X2": ["a", LABEL]}).assign(**columns)


WRONG: dict[str, Callable[[], Any]] = {
    "unknown column": lambda: fitted("r", rows().rename(columns={"X1": "X9"})),
    "text with numeric bounds": lambda: fitted("r", bounds=BOUNDS | {"X2": (0, 1)}),
    "undeclared text treatment": lambda: pc.private("Y ~ pid | X1", rows(), bounds=BOUNDS),
    "undeclared text outcome": lambda: pc.private("note ~ T | X1", rows(), bounds=BOUNDS),
    "a date": lambda: pc.private("Y ~ T | when", rows(), bounds=BOUNDS),
    "unknown reference": lambda: pc.private("Y ~ T | C(X2, ref='z')", rows(), bounds=BOUNDS),
    "unknown group": lambda: fitted("r", groups=["X2 == z"]),
    "undeclared group": lambda: fitted("r", groups=["secret >= 1"]),
    "numeric group": lambda: fitted("r", groups=["X1"]),
    "log of bounds with zero": lambda: pc.private("Y ~ T | log(X1)", rows(), bounds=BOUNDS),
    "log of bought bounds": lambda: pc.private("Y ~ T | log(secret)", rows(), bounds=BOUNDS),
    "unit in the formula": lambda: fitted("r", unit="X2", max_rows=1),
    "propensity undeclared": lambda: fitted("r", propensity="P"),
    "propensity of text": lambda: fitted(
        "r", rows().astype({"note": TEXT}), propensity="note", bounds=BOUNDS | {"note": (0.1, 0.9)}
    ),
    "too little for bounds": lambda: fitted("r", bounds=None, eps=1e-3),
    "labels without delta": lambda: fitted("r", bounds=None, delta=1e-12),
    "ragged columns": lambda: pc.private("Y ~ T", {"Y": np.full(2, NUMBER), "T": np.ones(1)}),
    "nested columns": lambda: pc.private("Y ~ T", {"Y": np.full((2, 2), NUMBER)}),
    "lists as columns": lambda: pc.private("Y ~ T", {"Y": [NUMBER, 1], "T": [LABEL]}),
    "a list of rows": lambda: pc.private("Y ~ T", rows().to_numpy().tolist()),
    "an array": lambda: pc.private("Y ~ T", rows()[["Y", "T"]].to_numpy()),
    "a column twice": lambda: fitted("r", pd.concat([rows(), rows()[["Y"]]], axis=1)),
    "numbers as names": lambda: fitted("r", rows().rename(columns={"note": 5})),
    "no rows": lambda: fitted("r", rows().iloc[:0]),
    "prediction at an unknown level": lambda: kept().predict(points()),
    "prediction without a column": lambda: kept().predict(points()[["X2"]]),
    "nuisance at an unknown level": lambda: kept().nuisances["propensity"](points()),
    "prediction of no frame": lambda: kept().predict([NUMBER, LABEL]),
    "unknown plot": lambda: kept().plot("scatter"),
    "no gate": lambda: kept().plot("gate"),
    "overlap of another frame": lambda: kept().overlap(rows()[["Y", "T"]], eps=1),
    "balance of another type": lambda: kept().balance(
        rows().assign(X1=pd.array([LABEL] * N, TEXT)), eps=1
    ),
    "a fit of named rows": lambda: pc.private("Y ~ T | X1", data=rows(), eps=-1.0),
    "levels of dates": lambda: pc.Schema.from_dtypes([NUMBER, LABEL]),
}


def kept() -> Any:
    return seeded("r")


@pytest.mark.parametrize("wrong", WRONG)
def test_no_error_holds_the_canary(wrong: str) -> None:
    with pytest.raises(PrivcausalError) as caught:
        WRONG[wrong]()
    assert_clean(caught.value)


class Vicious(str):
    """A text whose every use quotes the canary."""

    def __str__(self) -> str:
        raise ValueError(LABEL)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise KeyError(NUMBER)


class Unreadable:
    def __float__(self) -> float:
        raise OverflowError(str(NUMBER))

    def __str__(self) -> str:
        raise ZeroDivisionError(LABEL)

    def __hash__(self) -> int:
        raise RuntimeError(LABEL)

    def __bool__(self) -> bool:
        raise RuntimeError(LABEL)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "value", [Vicious("b"), Unreadable(), [LABEL], {"a": NUMBER}, 1e400, 1 + 2j]
)
def test_objects_that_resist_reading_are_missing(value: Any) -> None:
    """No value of a row may raise, whatever it is: that it did would tell of the row."""
    column = rows()["X2"].astype(object)
    column.iloc[3] = value
    with warnings.catch_warnings(), testing.seeded_noise(1):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", pc.PrivcausalWarning)  # of released numbers
        for bounds in (BOUNDS, {**BOUNDS, "X2": pc.Levels(["a"], other=True)}):
            assert fitted("private", rows().assign(X2=column), bounds=bounds).params.notna().all()
        numbers = rows()["X1"].astype(object)
        numbers.iloc[3] = value
        fit = fitted("private", rows().assign(X1=numbers))
    assert np.isfinite(fit.params.iloc[0])


# -- faults inside the vault -----------------------------------------------------------------

STEPS = [
    "vault.sources.memory.Memory",
    "features.design.numbers",
    "features.design.labels",
    "vault.passes.first_rows",
    "vault.passes.dealt",
    "vault.batch.cleaned",
    "vault.batch.group_mask",
    "vault.queries.moments.Marginals.integers",
    "vault.queries.moments.Gram.integers",
    "vault.queries.sums.grid_sum",
    "vault.transforms.Aipw.__call__",
    "vault.noise.OperatingSystem.with_noise",
]
STEPPED: dict[str, Any] = {"unit": "pid", "max_rows": 2, "bounds": BOUNDS, "groups": ["X2"]}
STEPPED |= {"control": pc.Control(split="disjoint")}
"""A fit that takes all of these steps."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("fault", faults(N), ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("step", STEPS)
def test_a_fault_inside_shows_nothing(step: str, fault: Any, broken: Any, tmp_path: Path) -> None:
    """What a user sees of a fault is constant; what was charged stays charged."""
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=5)
    with broken(step, fault), pytest.raises(PrivcausalError) as caught:
        pc.privcate(FORMULA, rows(), ledger=ledger, **STEPPED)
    assert_clean(caught.value)
    assert str(N) not in told(caught.value)
    assert caught.value.__context__ is None
    assert len(ledger.history) == (0 if step.endswith("Memory") else len(stages()))


@cache
def stages() -> Any:
    with testing.seeded_noise(1):
        return pc.privcate(FORMULA, rows(), **STEPPED).plan.stages


def test_with_test_noise_a_fault_shows_itself(broken: Any) -> None:
    """Somebody must be able to find it; nothing made so is private, and says so."""
    with broken("vault.queries.moments.Gram.integers", ZeroDivisionError("the fault")):
        with testing.zero_noise(), pytest.raises(ZeroDivisionError, match="the fault"):
            fitted("r")
        with pytest.raises(PrivcausalError, match="zero_noise"):
            fitted("r")


# -- warnings, logs and streams --------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_printed_logged_or_warned(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    sources()  # the files that some kinds read are written before anything is watched
    stream = io.StringIO()
    with logs_into(stream), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Written() as written:
            with testing.seeded_noise(3):
                fit = fitted(kind)
            str(fit.summary(full=True))
    assert "".join(capfd.readouterr()) == ""
    assert found_in(stream.getvalue()) == []
    assert [str(w.message) for w in caught if not issubclass(w.category, PrivcausalWarning)] == []
    assert written == []


@pytest.mark.slow
def test_a_fit_with_a_ledger_writes_the_ledger_alone(tmp_path: Path) -> None:
    sources()
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=50)
    with Written() as written:
        fitted("r", ledger=ledger)
        fitted("CSV", ledger=ledger)
    assert {Path(path).parent for path in written} <= {tmp_path}
    assert {path.name.split(".db")[0] for path in tmp_path.iterdir()} == {"study"}
    with Written() as written, tempfile.TemporaryFile() as file:
        file.write(b"what the watch sees")
    assert written


@pytest.mark.parametrize("how", ["by position", "by name"])
@pytest.mark.parametrize("options", [{"eps": -1.0}, {"level": 0.9}, {}])
def test_a_refused_call_of_a_method_keeps_no_rows(how: str, options: dict[str, Any]) -> None:
    """Neither the check of its keywords, nor what calls it, holds them in a variable."""
    given: Any = ((rows(),), {}) if how == "by position" else ((), {"frame": rows()})
    with pytest.raises(PrivcausalError) as caught:
        kept().overlap(*given[0], **given[1], **options)
    assert_clean(caught.value)
