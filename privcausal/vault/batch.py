"""A block of private rows: complete rows, their parts, and values clipped to declared domains."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcausal.features.design import Design, Rows, response
from privcausal.request.formula import Group, group_mask
from privcausal.request.request import FOLDS, Plan, Request
from privcausal.request.schema import ColumnKind, Domain, Interval, Levels, Schema, Transformed
from privcausal.typing import Integers, Mask, Neighbors, Vector
from privcausal.vault.guard import Opaque


@dataclass(frozen=True, eq=False, repr=False)
class RawColumn(Opaque):
    """One column of a block as read: numbers or label codes. NaN, infinity, and -1 are missing."""

    numbers: Vector | None = None
    codes: Integers | None = None
    labels: tuple[str, ...] = ()


class Batch(Opaque):
    """Rows ready for row maps. All values are defined for every row.

    Attributes
    ----------
    rows : Rows
        Covariates. Missing covariates have an arbitrary value inside the domain.
    complete : Mask
        False if a needed value is missing. Such a row adds the zero vector to every sum.
    y, t : Vector
        y is the outcome inside its bounds. t is the treatment: 0/1 (0 in a regression), the
        position of one of several arms, or the position of a numeric treatment in its effective
        range, clipped to [0, 1].
    dose : Vector
        Same as `t`, but may exceed [0, 1] inside the declared bounds.
    taken : Vector
        The treatment received, coded as `dose`, if `t` and `dose` describe its instrument.
    instruments : Matrix
        All instruments of several, coded as `dose`, shape (n, J).
    member : Matrix
        Indicators of the declared groups, shape (n, G).
    part : Integers
        Split part or fold of each row.
    chosen : Mask
        Rows of the part, complete or not. No unit has more than its maximum number of rows here.
    cluster : Integers or None
        Number of each row's cluster, if clusters were declared. A row without a cluster is -1.
    """

    __slots__ = (
        "chosen", "cluster", "complete", "dose", "instruments", "member", "part", "rows", "t",
        "taken", "y",
    )  # fmt: skip

    def __init__(
        self,
        columns: Mapping[str, RawColumn],
        part: Integers,
        keep: Mask,
        layout: Layout,
        cluster: Integers | None = None,
    ) -> None:
        size = len(part)
        if cluster is not None:
            keep = keep & (cluster >= 0)
        clean = {name: cleaned(columns[name], layout.schema[name]) for name in layout.variables}
        complete = keep.copy()
        for name in layout.request.needed:
            complete &= clean[name][1]
        request = layout.request
        self.y = np.asarray(clean[request.formula.outcome][0], np.float64)
        domain = layout.schema[request.formula.outcome]
        if isinstance(domain, Transformed) and request.formula.response is not None:
            self.y = response(request.formula, domain, self.y)
            complete &= np.isfinite(self.y)
            self.y[~complete] = domain.mid

        def placed(name: str) -> Vector:
            """Values, or the position of a number in its range."""
            values, domain = np.asarray(clean[name][0], np.float64), layout.schema[name]
            return (values - domain.lo) / domain.width if isinstance(domain, Interval) else values

        formula = request.formula
        self.dose = self.t = placed(formula.assigned) if formula.assigned else np.zeros(size)
        if isinstance(layout.schema.get(formula.assigned), Interval):
            self.t = np.clip(self.dose, 0.0, 1.0)
        if layout.score is not None:
            event = np.asarray(clean[formula.event][0], np.float64)
            self.y = layout.score(self.y, event, self.t)
        self.taken = placed(formula.treatment) if formula.instruments else self.dose
        others = [placed(name) for name in formula.instruments[1:]]
        self.instruments = np.stack([self.dose, *others], axis=1) if others else self.dose[:, None]
        if request.arms:  # Other labels do not belong to an arm.
            complete &= self.t >= 0
        propensity: Vector | None = None
        if isinstance(request.propensity, str):
            propensity = np.asarray(clean[request.propensity][0], np.float64)
        frame = {name: values for name, (values, _) in clean.items()}
        self.rows = Rows(frame, size, propensity, by_column=True)
        for design in layout.designs:
            if not design.plain:
                complete &= np.isfinite(self.rows.scaled(design)).all(axis=1)
        self.complete = complete
        self.member = np.zeros((size, len(layout.groups)))
        for j, group in enumerate(layout.groups):
            present = np.logical_and.reduce([clean[name][1] for name in group.columns])
            values = {name: clean[name][0] for name in group.columns}
            self.member[:, j] = present & group_mask(group, values, layout.schema)
        self.part = part
        self.chosen = keep
        self.cluster = cluster

    def only(self, part: int) -> Batch:
        """The same rows, with all rows outside `part` excluded."""
        chosen = self.part == part
        return self.changed(complete=self.complete & chosen, chosen=self.chosen & chosen)

    def changed(self, **values: Any) -> Batch:
        """The same rows, with other values of some attributes."""
        view: Batch = object.__new__(Batch)
        for name in Batch.__slots__:
            setattr(view, name, values[name] if name in values else getattr(self, name))
        return view


@dataclass(frozen=True, eq=False)
class Layout:
    """Rules for making a batch from raw columns: domains, required columns, designs, and groups.

    `score` gives a row's outcome from its survival time, event and treatment, if it is a survival
    outcome. It is defined for all finite numbers.
    """

    request: Request
    schema: Schema
    designs: tuple[Design, ...]
    groups: tuple[Group, ...]
    score: Callable[[Vector, Vector, Vector], Vector] | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        names = [*self.request.needed, *(name for g in self.groups for name in g.columns)]
        return tuple(dict.fromkeys(names))


def reads_labels(domain: Domain, kind: ColumnKind) -> bool:
    """Whether a column of this kind is read as labels, not numbers, for this domain."""
    if isinstance(domain, Interval):
        return False
    return isinstance(domain, Levels) or kind == "text" or domain.labels is not None


def cleaned(column: RawColumn, domain: Domain) -> tuple[Vector | Integers, Mask]:
    """Values inside `domain`, and a mask of the values that were present."""
    if isinstance(domain, Interval):
        assert column.numbers is not None
        domain = domain.raw if isinstance(domain, Transformed) else domain
        present = np.isfinite(column.numbers)  # An infinite value is no measurement, as log(0).
        values = np.clip(column.numbers, domain.lo, domain.hi)
        values[~present] = domain.mid
        return values, present
    if isinstance(domain, Levels):
        position = {label: i for i, label in enumerate(domain.labels)}
        undeclared = position["other"] if domain.other else -1
        lookup = [position.get(label, undeclared) for label in column.labels]
        assert column.codes is not None
        return np.array([*lookup, -1], np.int64)[column.codes], column.codes >= 0
    if column.numbers is not None:
        is_one, is_zero = column.numbers == 1, column.numbers == 0
    else:
        assert column.codes is not None
        number = dict.fromkeys(domain.zeros, 0) | dict.fromkeys(domain.ones, 1)
        value = [number.get(label, -1) for label in column.labels]
        coded = np.array([*value, -1], np.int64)[column.codes]
        is_one, is_zero = coded == 1, coded == 0
    return is_one.astype(np.float64), is_one | is_zero


# -- parts of the rows, independent of their values ------------------------------------------


def part_numbers(plan: Plan) -> dict[str, int | None]:
    """Names and numbers of the parts of the rows, in the order used by the stages.

    The number of all rows together is None.
    """
    names = [part for part in dict.fromkeys(s.part for s in plan.stages) if part != "all"]
    if names == ["effect"]:
        names = ["nuisance", "effect"]
    return {"all": None} | {name: number for number, name in enumerate(names)}


def part_shares(plan: Plan) -> tuple[float, ...]:
    """Share of the rows in each part: one part, a nuisance and an effect part, or folds."""
    split = plan.request.split
    if split == "disjoint":
        of = {s.part: s.rows for s in plan.stages}
        # An estimator that reads its half of the rows directly has no stage.
        return tuple(
            of.get(part, 1.0 - sum(of.values())) for part in part_numbers(plan) if part != "all"
        )
    return (1.0 / FOLDS,) * FOLDS if split == "crossfit" else (1.0,)


def dealt(
    size: int,
    shares: Sequence[float],
    *,
    neighbors: Neighbors,
    entropy: int,
    units: Integers | None,
    names: Sequence[str],
) -> Integers:
    """Assign each row to a part in proportion to `shares`. Shape (n,).

    Under substitution, parts have fixed sizes and are assigned by index. Under add_remove, parts
    are assigned by independent random bits. There, with fixed sizes, removing one row would move
    other rows, and Theorem 6 of Niu et al. would fail. If there are units, the random bits are
    keyed on the unit's name.

    The random bits are independent and identically distributed. Therefore a unit that replaces
    another may receive its random bits. When one unit is removed, the remaining rows may keep
    theirs. For both tables, the output distribution is then a mixture with the same weights over
    the random bits. The two mixtures are no easier to distinguish than their worst pair of
    components. For fixed random bits, neighbors differ in one part only.
    """
    cut = np.cumsum(np.asarray(shares, float)) / sum(shares)
    if units is not None:
        keyed = hashlib.blake2b(key=entropy.to_bytes(16, "little", signed=False), digest_size=8)
        digests = []
        for name in names:
            hashed = keyed.copy()
            hashed.update(name.encode("utf-8", "replace"))
            digests.append(hashed.digest())
        coins = np.append(np.frombuffer(b"".join(digests), "<u8") / 2.0**64, 0.0)[units]
        return np.searchsorted(cut[:-1], coins, side="right").astype(np.int64)
    rng = np.random.default_rng(entropy)  # Splits must be independent of the data, not secret.
    if neighbors == "add_remove":
        return np.searchsorted(cut[:-1], rng.random(size), side="right").astype(np.int64)
    place = rng.permutation(size)
    return np.searchsorted(np.floor(cut[:-1] * size), place, side="right").astype(np.int64)


def first_rows(units: Integers, max_rows: int) -> Mask:
    """Keep the first `max_rows` rows of each unit, and drop rows without a unit.

    Whether a row is kept depends only on the rows of its own unit.
    """
    order = np.argsort(units, kind="stable")
    ranked = units[order]
    place = np.arange(len(units))
    starts = np.ones(len(units), bool)
    starts[1:] = ranked[1:] != ranked[:-1]
    rank = place - np.maximum.accumulate(np.where(starts, place, 0))
    keep = np.zeros(len(units), bool)
    keep[order] = rank < max_rows
    return keep & (units >= 0)
