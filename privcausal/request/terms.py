"""Terms of results: what each number estimates, and for which rows. Names are shown, never read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

TermKind = Literal[
    "effect", "late", "mean", "ratio", "reduced form", "first stage", "slope", "coefficient"
]


@dataclass(frozen=True)
class Place:
    """All rows, or a level of a factor (a column or a kind of time), or a comparison."""

    factor: str = ""
    level: str | None = None

    def __str__(self) -> str:
        return self.factor if self.level is None else f"{self.factor}[{self.level}]"


@dataclass(frozen=True)
class ResultTerm:
    """A term of a result. Its text is the name that results show.

    A slope is per unit of its `column`. A coefficient is in the outcome's unit, such as the
    difference between two levels. `of` is the estimand, arm or column, and empty if there is only
    one. A mean outcome is that of the `arm`.
    """

    kind: TermKind
    of: str
    place: Place = Place()
    arm: int | None = None
    column: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.of, str(self.place))))

    @property
    def is_effect(self) -> bool:
        """Whether it has the scale of an effect, unlike mean outcomes, ratios and first stages."""
        return self.kind in ("effect", "late", "slope", "coefficient")


ATE_TERM, PLR_TERM = ResultTerm("effect", "ATE"), ResultTerm("effect", "PLR")


def late_terms(instruments: Sequence[str]) -> tuple[ResultTerm, ...]:
    """The LATE, then slopes of outcome and treatment on the instruments."""
    kinds: tuple[TermKind, ...] = ("reduced form", "first stage")
    labels = [f"[{name}]" for name in instruments] if len(instruments) > 1 else [""]
    slopes = (ResultTerm(kind, kind + label) for kind in kinds for label in labels)
    return (ResultTerm("late", "LATE"), *slopes)


def in_places(terms: Sequence[ResultTerm], places: Sequence[Place]) -> tuple[ResultTerm, ...]:
    """Each term in each place. A single term is not named."""
    named = terms if len(terms) > 1 else [replace(term, of="") for term in terms]
    return tuple(replace(term, place=place) for term in named for place in places)
