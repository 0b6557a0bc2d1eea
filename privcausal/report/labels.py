"""Names for readers in place of column names: ``labels={"dth30": "30-day mortality"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from privcausal.errors import CapabilityError
from privcausal.report.view import FitView

if TYPE_CHECKING:
    import pandas as pd

Labels = Mapping[str, str]


def check_labels(labels: Labels | None, columns: tuple[str, ...]) -> dict[str, str]:
    """The labels, if they are texts for these columns; `CapabilityError` otherwise."""
    found = {} if labels is None else labels
    if not isinstance(found, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) and v.strip() for k, v in found.items()
    ):
        raise CapabilityError("labels is a dict of texts by column, {'dth30': '30-day mortality'}")
    for name in found:
        if name not in columns:
            known = ", ".join(map(repr, columns[:10]))
            raise CapabilityError(f"labels has {name!r}, no column of the fit; those are {known}")
    return dict(found)


def relabelled(text: str, labels: Labels) -> str:
    """A term with its columns' labels: ``C(ward)[T.north]`` and ``ward[north]`` as Ward: north."""
    if not labels:
        return text
    names = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    column = rf"(?:C\((?P<inside>{names})(?:, [^)]*)?\)|(?P<name>{names})(?![\w(]))"

    def told(found: re.Match[str]) -> str:
        label = labels[found["inside"] or found["name"]]
        return label if found["level"] is None else f"{label}: {found['level']}"

    return re.sub(rf"(?<![\w.]){column}(?:\[(?:T\.)?(?P<level>[^\]]*)\])?", told, text)


def with_labels(view: FitView, labels: Labels) -> FitView:
    """The same fit in a reader's words. The formula and the call stay as they were typed."""
    if not labels:
        return view

    def told(text: str) -> str:
        return relabelled(text, labels)

    def indexed(frame: pd.DataFrame | None) -> pd.DataFrame | None:
        return None if frame is None else frame.rename(index=lambda term: told(str(term)))

    return replace(
        view,
        outcome=told(view.outcome),
        treatment=told(view.treatment),
        left=tuple((k, v if k == "Formula" else told(v)) for k, v in view.left),
        effects=indexed(view.effects),
        gates=indexed(view.gates),
        cells=indexed(view.cells),
        shapes=tuple(replace(shape, name=told(shape.name)) for shape in view.shapes),
        headline=tuple(map(told, view.headline)),
    )
