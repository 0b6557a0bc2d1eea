"""The vault of a saved fit. It has no rows, and answers with the numbers of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privcausal.accounting.charge import Release
from privcausal.request.plan import Plan, Stage
from privcausal.typing import Vector
from privcausal.vault import noise
from privcausal.vault.exit import Query
from privcausal.vault.paper import private
from privcausal.vault.queries.cells import LabelSelection
from privcausal.vault.vault import Answerable, Claim, Vault

Answer = tuple[Vector, tuple[str, ...]]
"""Released numbers, and the labels that a query selected."""

MOST_LABELS = 2_000
"""Maximum number of labels in one answer. Each becomes a column."""


class _Told(noise.OperatingSystem):
    """The noise of an earlier fit, of which only the scale matters."""

    def __init__(self, *, real: bool, silent: bool) -> None:
        self.real, self._silent = real, silent

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return np.zeros_like(query.weights) if self._silent else super().sd(query)


class Replay(Vault):
    """Answers each stage with the numbers that another vault released for it.

    The noise and the cost of an answer follow from the plan and the query, so no file can state
    them. Numbers that the query could not release raise `ValueError`.
    """

    __slots__ = ("_left",)

    def __init__(
        self,
        plan: Plan,
        size: int | None,
        answers: Mapping[str, Sequence[Answer]],
        *,
        real: bool,
        silent: bool,
    ) -> None:
        self._begin(plan, _Told(real=real, silent=silent), size)
        self._left = dict(answers)

    def set_layout(self, *_: Any, **__: Any) -> None:
        """Nothing is read."""

    score_survival = gather = set_layout

    def check_used(self) -> None:
        """Refuse answers that no stage asked for."""
        _need(not self._left)

    def _drawn(
        self, stage: Stage, query: Answerable, parts: tuple[int | None, ...]
    ) -> Sequence[Release]:
        given = self._left.pop(stage.name)
        _need(len(given) == len(parts))
        return [self._checked(stage, query, *one) for one in given]

    def _checked(
        self, stage: Stage, query: Answerable, values: Vector, labels: tuple[str, ...]
    ) -> Release:
        if isinstance(query, Claim):
            _need(len(values) == query.size)
        if isinstance(query, LabelSelection):
            _need(len(labels) <= MOST_LABELS and list(labels) == sorted(set(labels)))
        else:
            _need(not labels)
        release = self._told(stage, query, values, labels)
        _need(release.value.shape == release.noise_sd.shape and np.isfinite(values).all())
        if isinstance(query, Query):
            _need((np.abs(values) <= 2.0 * noise.LIMIT * query.units).all())
        if isinstance(query, LabelSelection):
            _need((values >= query.threshold(release.charge.noise_sd)).all())
        return release

    def _published(
        self, stages: tuple[Stage, Stage], mechanism: private.PublishedAte
    ) -> tuple[float, float]:
        answers = [self._left.pop(stage.name) for stage in stages]
        ((mean,),), ((square,),) = ([values for values, _ in answer] for answer in answers)
        _need(np.isfinite([mean, square]).all())
        return float(mean), float(square)


def _need(true: object) -> None:
    if not true:
        raise ValueError("no vault released this")
