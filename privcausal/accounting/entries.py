"""What a ledger writes down: its header, and one line per charge, as plain values for SQLite."""

from __future__ import annotations

import math
import re
import secrets
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from privcausal.accounting.charge import PARALLEL, Charge, is_number
from privcausal.accounting.conversion import check_delta, check_epsilon, rho_of
from privcausal.errors import BudgetError, LedgerError

_LARGEST = 2**63 - 1
"""SQLite's integers end here, far above any cap."""


def header_of(dataset: str, eps: float, delta: float, allow_published: bool) -> dict[str, Any]:
    """What a ledger is created with, checked; raises before any file is touched."""
    if not isinstance(dataset, str) or not _is_label(dataset):
        raise LedgerError("dataset is a label of the data, a printable string that is not empty")
    if not isinstance(allow_published, bool):
        raise LedgerError("allow_published is True or False")
    epsilon = check_epsilon(eps)
    if not (is_number(delta) and delta == 0):
        rho_of(epsilon, check_delta(delta))  # also refuses caps too small to hold anything
    return {
        "id": uuid.uuid4().hex,
        "dataset": dataset,
        "epsilon": epsilon,
        "delta": float(delta),
        "allow_published": int(allow_published),
    }


def check_same(wanted: dict[str, Any], found: dict[str, Any], name: str) -> None:
    """Raise where a ledger is reopened with anything but what it was created with."""
    for key, word in (("dataset", "data set"), ("epsilon", "eps"), ("delta", "delta")):
        if wanted[key] != found[key]:
            raise LedgerError(
                f"{name} is a ledger for another {word}: it was created with "
                f"{key}={found[key]!r}, not {wanted[key]!r}"
            )
    if wanted["allow_published"] != found["allow_published"]:
        kept = bool(found["allow_published"])
        raise LedgerError(
            f"{name} was created with allow_published={kept} and keeps it; open it with that"
        )


LONGEST = 1000
"""Characters of a question that are kept."""


def run_name(question: str) -> str:
    """A new name of a run: random digits, then the public question that it answers."""
    said = "".join(c if c.isprintable() else " " for c in question)
    return f"{secrets.token_hex(8)}: {said[:LONGEST]}"


def question_of(run: str) -> tuple[str, str]:
    """A run's name without its question, and that, empty where it has none."""
    known = re.fullmatch("([0-9a-f]{16}): (.*)", run)
    return (known[1], known[2]) if known else (run, "")


def lines_of(run: str, charges: Sequence[Charge], published: bool) -> list[dict[str, Any]]:
    """The lines to store for one run, without their place in the chain."""
    if not isinstance(run, str) or not _is_label(run):
        raise LedgerError("a run is named by a printable string that is not empty")
    if not charges or not all(isinstance(charge, Charge) for charge in charges):
        raise LedgerError("a run needs at least one Charge")
    day = datetime.now(UTC).date().isoformat()  # the day only: finer times tell of the data
    return [
        {"run": run, "line": number, "day": day, "published": int(published), **_stored(charge)}
        for number, charge in enumerate(charges)
    ]


def _stored(charge: Charge) -> dict[str, Any]:
    cost = charge.cost
    if max(cost.rho, cost.epsilon, cost.delta) > _LARGEST:
        raise BudgetError("a charge is larger than any budget")
    return {
        "stage": _text(charge.stage),
        "query": _text(f"{charge.query} {PARALLEL}" if charge.parallel else charge.query),
        "mechanism": _text(charge.mechanism),
        "neighbors": charge.neighbors,
        "sensitivity": _real(charge.sensitivity),
        "noise_sd": _real(charge.noise_sd),
        "rho": cost.rho,
        "epsilon": cost.epsilon,
        "delta": cost.delta,
        "rows": _real(charge.rows),
        "unit": _text(charge.unit),
        "gaussian": cost.gdp,
    }


def _real(value: float) -> float | None:
    """As SQLite gives it back: NaN becomes NULL and the sign of zero is lost."""
    return None if math.isnan(value) else float(value) + 0.0


def _text(text: str) -> str:
    """As UTF-8 can write it: queries name columns, and those may hold anything."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_label(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()
