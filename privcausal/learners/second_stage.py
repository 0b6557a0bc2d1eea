"""The kernel of DP-CATE on a study's effect modifiers."""

from __future__ import annotations

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.design import Design
from privcausal.features.expansions import Fourier, fourier
from privcausal.features.rows import Rows
from privcausal.inference.effect import Answers
from privcausal.learners.bases import AnyBase, Gam
from privcausal.learners.options import NN, Kernel
from privcausal.learners.state import FitState
from privcausal.request.request import Request
from privcausal.typing import Integers, Vector


def second_stage(base: AnyBase) -> Kernel:
    """The kernel of a base; "gam", the default of `privcate`, is what the nuisances have anyway."""
    if isinstance(base, Kernel):
        return base
    if isinstance(base, NN):
        return base.second
    if base == Gam():
        return Kernel()
    raise CapabilityError(
        f"learner='dpcate' has a kernel for its second stage, and nuisances by 'gam': write "
        f"base='kernel', base='nn' or base=pc.bases.Kernel(...), not base={base.name!r}"
    )


def basis(state: FitState, kernel: Kernel) -> Fourier:
    """Fourier features of the effect modifiers."""
    own = {b.column for b in state.effect_features.blocks}
    columns = np.array(sorted(own), np.int64)
    default = 0.5 * float(np.sqrt(width(state.design, columns)))
    return fourier(state.design, columns, kernel.bandwidth or default, kernel.functions)


def effect_columns(design: Design, request: Request) -> Integers:
    """Positions of the design columns on which the effect depends."""
    own = {
        term.name
        for term in Design(request.formula.modifiers, design.schema, full_rank=False).terms
    }
    return np.array([j for j, c in enumerate(design.columns) if c.term in own], np.int64)


def width(design: Design, columns: Integers) -> int:
    """Numeric columns and factors, at least one: squared distances grow by it."""
    kinds = [design.columns[j] for j in columns.tolist()]
    numeric = sum(1 for c in kinds if c.kind != "indicator")
    return max(numeric + len({c.term for c in kinds if c.kind == "indicator"}), 1)


def answers_at(
    design: Design, columns: Integers, rows: Rows, reach: float, value: Vector, sd: Vector
) -> Answers:
    """The effect at public points alone."""
    points = np.ascontiguousarray(rows.scaled(design)[:, columns])
    return Answers((), reach, design, columns, points, value, sd)
