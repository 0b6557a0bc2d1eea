"""Save a fit as its request and its releases, and compute it again from these.

A file may come from anyone. Loading runs the fit on a vault without rows, which answers with the
numbers of the file. All functions and tables of a loaded fit are therefore made by this package's
own code, from a checked request and from numbers that a vault could release. Noise and costs
follow from the plan. A file also holds the prices of the stages and some results. If these differ
from the computed ones, another version of the package made the file, and it is refused.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from privcausal.errors import CapabilityError, DataError, write
from privcausal.estimators import PRINTED, EffectLearner, bases, for_average, learner_kinds
from privcausal.estimators.estimands import Estimate
from privcausal.estimators.uplift import CellRequest
from privcausal.features.design import Rows
from privcausal.inference.effects import Answers
from privcausal.request import panels
from privcausal.request.checks import check_request
from privcausal.request.formula import CausalFormula
from privcausal.request.partition import Tabulated
from privcausal.request.request import Budget, Clusters, Plan, Queries, Request, Trust
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.results.base import Record, RowRequest
from privcausal.typing import Vector
from privcausal.vault import Replay, single_blas_thread

FORMAT, VERSION, ENTRIES = "privcausal fit", 2, 10

LARGEST = 1 << 30
"""Largest file that is read, in bytes: far more than any fit needs."""

LARGEST_SIZE = 1 << 40
"""Largest public number of rows that a file may state."""

NOISES = {(True, False): "real", (False, False): "test", (False, True): "none"}
"""Names of the noise in files, by whether it is real and whether it is zero."""

TOLERANCE = 0.01
"""Results may differ by so many standard errors between computers, whose last bits may differ."""


@dataclasses.dataclass(frozen=True)
class Own:
    """Stands for a function or an estimator of the user, which a file cannot hold.

    A function that forms cells has these values at its public points. Others are not called when a
    fit is computed again.
    """

    values: tuple[str | None, ...] = ()

    def __call__(self, *_: Any) -> list[str | None]:
        return list(self.values)

    fit = predict = predict_proba = __call__


def save(
    estimate: Estimate, record: Record, call: str, line: str | None, path: str | os.PathLike[str]
) -> None:
    """Write a fit as JSON of this format; the same fit gives the same bytes.

    Raise `CapabilityError` if the fit has parts that are no function of its releases, and
    `DataError` if the file cannot be written.
    """
    for part in (record.call.learner, estimate.effect):
        if why := getattr(part, "unsaved", ""):
            raise CapabilityError(why)
    partition = estimate.plan.partition
    user_part = Own()
    if isinstance(partition, Tabulated):
        cells = partition.cells.tolist()
        user_part = Own(tuple(partition.labels[c] if c >= 0 else None for c in cells))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "asked": _plain(record.call, user_part),
        "size": estimate.size,
        "noise": NOISES[estimate.real, record.silent],
        "prices": _prices(estimate.plan),
        "releases": {
            stage: [_plain((answer.value.tolist(), answer.labels), user_part) for answer in answers]
            for stage, answers in record.answers.items()
        },
        "results": [v if np.isfinite(v) else None for v in chain(*_results(estimate))],
        "call": call,
        "ledger_line": line,
    }
    write(path, json.dumps(document, allow_nan=False))


def load_content(path: str | os.PathLike[str]) -> tuple[Estimate, Record, str, str | None]:
    """Content of a saved fit: the estimate, its record, the call, and the state of the ledger.

    Raise `DataError` if the file is missing, is not a fit of this package, is damaged, or comes
    from a version that computes other results.
    """
    name = repr(os.fspath(path))
    if not Path(path).exists():
        raise DataError(f"File {name} does not exist.")
    try:
        if Path(path).stat().st_size > LARGEST:
            raise ValueError("size")
        # `int` raises on NaN and infinity
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=int)
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{name} is not a fit saved by privcausal.")
    if document.get("version") != VERSION:
        raise DataError(
            f"{name} was saved by another version of privcausal (format "
            f"{str(document.get('version'))[:20]}). This version reads format {VERSION}."
        )
    content = None
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            single_blas_thread(),
            np.errstate(all="ignore"),
        ):
            content = _computed(document)
    except Exception:  # Any error in the content means that the file is damaged.
        raise DataError(f"{name} is damaged.") from None
    if content is None:
        raise DataError(
            f"{name} was saved by another version of privcausal, which computes other results from "
            "these releases. Load it with that version."
        )
    return content


def _computed(document: Mapping[str, Any]) -> tuple[Estimate, Record, str, str | None] | None:
    """The fit computed from its releases, or None if a stated price or result is another one."""
    source, call, line = _made(document["asked"]), document["call"], document["ledger_line"]
    _need(len(document) == ENTRIES and _is_call(source))
    _need(isinstance(call, str) and isinstance(line, str | NoneType))
    size, trust = document["size"], source.request.trust
    is_public = isinstance(source, RowRequest) and trust.neighbors == "substitute"
    _need((type(size) is int and 0 <= size <= LARGEST_SIZE) if is_public else size is None)
    noises = {name: kind for kind, name in NOISES.items()}
    real, silent = noises[document["noise"]]
    plan, fit = source.planned()
    if document["prices"] != _prices(plan):
        return None
    for values, labels in chain(*document["releases"].values()):
        _need(isinstance(values, list) and all(type(value) in (int, float) for value in values))
        _need(_is(_made(labels), tuple[str, ...]))
    answers = {
        stage: [(np.array(values, np.float64), _made(labels)) for values, labels in released]
        for stage, released in document["releases"].items()
    }
    vault = Replay(plan, size, answers, real=real, silent=silent)
    estimate = fit(vault)
    vault.check_used()
    estimate.population.rows(estimate.propensity)
    if not _agree(estimate, document["results"]):
        return None
    return estimate, Record(source, vault.answers, silent), call, line


def _agree(estimate: Estimate, results: Any) -> bool:
    """Whether a file's results are the computed ones."""
    values, sds = _results(estimate)
    stated = [np.nan if v is None else float(v) for v in results]
    _need(len(stated) == 2 * len(values))
    tolerance = TOLERANCE * np.where(np.isfinite(sds), sds, 0.0) + 1e-6 * np.abs(values)
    near = np.abs(values - stated[: len(values)]) <= tolerance
    return bool(np.where(np.isfinite(values), near, np.isnan(stated[: len(values)])).all())


def _is_call(source: Any) -> bool:
    """Whether a call of this package makes such a request with this learner."""
    if isinstance(source, CellRequest):
        return source.request.budget.given == (source.noise is not None)
    if not isinstance(source, RowRequest) or source.request.budget.given:
        return False
    request, learner = source.request, source.learner
    if request.mode == "paper" or isinstance(learner, PRINTED):
        return request.mode == "paper" and isinstance(learner, PRINTED)
    if request.estimand == "CATE":
        return isinstance(learner, EffectLearner)
    return type(learner) is type(for_average(request))


def _results(estimate: Estimate) -> tuple[Vector, Vector]:
    """Averages, and effects at public corners, with their standard errors.

    Raise `ValueError` if a function of the fit is not finite there; it would fail for rows, too.
    """
    nuisances, values, sds = estimate.nuisances, [np.zeros(0)], [np.zeros(0)]
    if estimate.averages is not None:
        values.append(estimate.averages.estimate)
        sds.append(estimate.averages.sd)
    # Three public rows: ends and middle of each interval; no level, first and last level.
    corners = dict[str, Vector]()
    for name in estimate.plan.request.needed:
        domain, corners[name] = estimate.schema[name], np.array([0.0, 1.0, 0.0])
        if isinstance(domain, Levels):
            corners[name] = np.array([-1, 0, len(domain.labels) - 1])
        elif isinstance(domain, Interval):
            corners[name] = np.array([domain.lo, domain.mid, domain.hi])
    known, effect = estimate.propensity, estimate.effect
    rows = Rows(corners, 3, None if known is None else np.array([known.lo, known.hi, known.lo]))
    maps = [] if nuisances is None else [*vars(nuisances).values()]
    if isinstance(effect, Answers):  # It has no values at other points.
        values.append(effect.value)
        sds.append(effect.spread)
    elif effect is not None:
        values.append(effect(rows))
        sds.append(effect.sd(rows))
        maps.append(effect)
    for function in maps:
        _need(function(rows).shape == (len(rows),) and np.isfinite(function(rows)).all())
    return np.concatenate(values), np.concatenate(sds)


def _prices(plan: Plan) -> list[list[Any]]:
    return [[s.name, s.rho, s.delta, s.charged, s.epsilon] for s in plan.stages]


def _need(true: object) -> None:
    if not true:
        raise ValueError("not written by this package")


# -- requests as JSON ----------------------------------------------------------------------------


def _kinds() -> dict[str, type]:
    """The classes of a request, by their names. A file cannot make objects of other classes."""
    kinds: list[type] = [
        Budget, CellRequest, Clusters, Own, Queries, Request, RowRequest, Trust,
        panels.Panel, panels.Staggered, bases.Gam, bases.Linear, bases.DPEBM, bases.Given,
        bases.Kernel, bases.NN, bases.Sklearn, *learner_kinds(), *PRINTED,
    ]  # fmt: skip
    return {kind.__name__: kind for kind in kinds}


def _plain(value: Any, user_part: Own) -> Any:
    """JSON of a part of a request. `own` replaces the user's functions and estimators."""
    if isinstance(value, tuple | list):
        return [_plain(item, user_part) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | None):
        return value
    name = type(value).__name__
    if isinstance(value, Schema):
        content: Any = value.to_dict()
    elif isinstance(value, CausalFormula):
        content = [value.text, list(value.variables), bool(value.treatment)]
    elif isinstance(value, Mapping):
        name, content = "map", [[key, _plain(item, user_part)] for key, item in value.items()]
    else:
        part: Any = value if _kinds().get(name) is type(value) else user_part
        name = type(part).__name__
        # Points of queries are fields of the request, so they are not compared.
        names = [f.name for f in dataclasses.fields(part) if f.init and f.compare]
        content = {key: _plain(getattr(part, key), user_part) for key in names}
    return {name: content}


def _made(value: Any) -> Any:
    """The part of a request that `_plain` wrote."""
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "Schema":
        return Schema.from_dict(content)
    if name == "map":
        return {key: _made(item) for key, item in content}
    if name == "CausalFormula":
        text, columns, treated = content
        _need(isinstance(text, str) and _is(_made(columns), tuple[str, ...]))
        return (CausalFormula.parse if treated else CausalFormula.regression)(text, columns)
    kind, parts = _kinds()[name], {key: _made(item) for key, item in content.items()}
    hints = get_type_hints(kind)
    # Fields of later builds have defaults.
    _need(set(parts) <= {f.name for f in dataclasses.fields(kind) if f.init and f.compare})
    _need(all(_is(part, hints[key]) for key, part in parts.items()))
    made = kind(**parts)
    if isinstance(made, Request):
        check_request(made)
    return made


def _is(value: Any, hint: Any) -> bool:
    """Whether a value has the type in a field's annotation."""
    generic = _GENERIC.get(get_origin(hint))
    if generic is not None:
        return generic(value, get_args(hint))
    plain = _PLAIN.get(hint)
    return isinstance(value, hint) if plain is None else plain(value)


_GENERIC: dict[Any, Callable[[Any, tuple[Any, ...]], bool]] = {
    **dict.fromkeys((Union, UnionType), lambda value, of: any(_is(value, hint) for hint in of)),
    Literal: lambda value, of: isinstance(value, str) and value in of,
    Callable: lambda value, _: isinstance(value, Own),
    tuple: lambda value, of: (
        isinstance(value, tuple)
        and (of[-1] is ... or len(value) == len(of))
        and all(map(_is, value, of[:1] * len(value) if of[-1] is ... else of))
    ),
    Mapping: lambda value, of: (
        isinstance(value, dict)
        and all(_is(key, of[0]) and _is(item, of[1]) for key, item in value.items())
    ),
}

_PLAIN: dict[Any, Callable[[Any], bool]] = {
    Any: lambda value: isinstance(value, str | int | float | Own | None),
    # A whole number too large for a float raises OverflowError.
    float: lambda value: type(value) is float or (type(value) is int and np.isfinite(float(value))),
    int: lambda value: type(value) is int,
    bool: lambda value: type(value) is bool,
}
