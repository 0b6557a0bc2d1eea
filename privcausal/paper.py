"""The source papers' mechanisms as printed, for comparison with what is proven.

What a fit made here promises is what its paper claims, or its estimators declare:
`guarantee.kind` is "published", and `guarantee.statement` says where to doubt it. A ledger takes
such fits only if it was opened with ``allow_published=True``. Parameters that are not explained
below are those of `privcausal.privcate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from privcausal.errors import CapabilityError
from privcausal.features.points import declare_queries
from privcausal.learners import TM, TwoStage, base_of
from privcausal.learners.bases import AnyBase
from privcausal.learners.options import Sklearn
from privcausal.learners.paper.adum import PublishedADUM
from privcausal.learners.paper.dpcate import PublishedDPCATE
from privcausal.learners.paper.private import Published
from privcausal.request.request import BelowMinimum, Control, Trust
from privcausal.results import AteResult, CateResult
from privcausal.run import Bounds, parse, request_of, run, strict
from privcausal.typing import Frame, Neighbors
from privcausal.vault import open_source

if TYPE_CHECKING:
    from privcausal.accounting import Ledger

__all__ = ["adum", "dpcate", "dpebm", "private", "tm", "two_stage"]

_strict = partial(strict, moved={})


@_strict
def private(
    formula: str,
    data: Frame,
    *,
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    propensity: float | None = None,
    propensity_clip: float = 0.1,
    shares: Mapping[str, float] | None = None,
    below_minimum: BelowMinimum = "refuse",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> AteResult:
    """PrivATE (Schroeder et al. 2025): the AIPW mean with the noise of Theorems 4.3, 4.5 and 4.6.

    Parameters
    ----------
    base : str or option object
        ``pc.bases.Sklearn(...)``: nuisances by estimators on all rows, not protected, as printed
        (``Sklearn.kernel()`` and ``Sklearn.network()`` are the paper's own). ``"gam"`` or
        ``"linear"``: private nuisances from one half of the rows, the paper's remark in 4.2.
    shares : dict, optional
        How epsilon and delta are divided: ``{"effect": .5, "variance": .5}``.
    below_minimum : {"refuse", "published"}
        "published": run it on fewer rows than its claim needs.

    Returns
    -------
    AteResult

    Raises
    ------
    FormulaError, SchemaError, DataError, BudgetError, LedgerError, CapabilityError
    """
    with open_source(data) as source:
        chosen = base_of(base)
        control = Control(
            "full" if isinstance(chosen, Sklearn) else "disjoint", propensity_clip, shares
        )
        request = request_of(
            parse(formula, source), bounds, eps, delta, Trust(), control,
            estimand="ATE", propensity=propensity, mode="paper", below_minimum=below_minimum,
        )  # fmt: skip
        return run(Published(), chosen, source, request, ledger, AteResult, progress)


@_strict
def dpebm(
    formula: str,
    data: Frame,
    *,
    learner: Literal["dr", "r", "s"] = "dr",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    propensity: float | str | None = None,
    propensity_clip: float = 0.1,
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """Algorithm 1 of Niu et al. (2022) with DP-EBM of the package interpret in every stage.

    Parameters
    ----------
    learner : {"dr", "r", "s"}
        The transformed outcome; "r" has a constant effect.

    Returns
    -------
    CateResult
    """
    if learner not in ("dr", "r", "s"):
        raise CapabilityError("learner is 'dr', 'r' or 's': those that Niu et al. (2022) have")
    return _stages(
        formula, data, learner, eps, delta, bounds, neighbors, propensity,
        propensity_clip, ledger, progress,
    )  # fmt: skip


@_strict
def two_stage(
    formula: str,
    data: Frame,
    learner: TwoStage,
    *,
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    propensity: float | str | None = None,
    propensity_clip: float = 0.1,
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """Algorithm 1 of Niu et al. (2022) with private estimators of your own.

    Parameters
    ----------
    learner : TwoStage
        ``pc.learners.TwoStage(...)``, which holds the estimators.

    Returns
    -------
    CateResult
    """
    if not isinstance(learner, TwoStage):
        raise CapabilityError("learner takes a pc.learners.TwoStage(...), which holds estimators")
    return _stages(
        formula, data, learner, eps, delta, bounds, neighbors, propensity,
        propensity_clip, ledger, progress,
    )  # fmt: skip


def _stages(
    formula: str,
    data: Frame,
    learner: str | TwoStage,
    eps: float,
    delta: float,
    bounds: Bounds,
    neighbors: Neighbors,
    propensity: float | str | None,
    propensity_clip: float,
    ledger: Ledger | None,
    progress: bool,
) -> CateResult:
    with open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, delta, Trust(neighbors),
            Control(propensity_clip=propensity_clip), propensity=propensity, mode="paper",
        )  # fmt: skip
        asked = TwoStage.published(learner, request) if isinstance(learner, str) else learner
        # a base has no part in it
        return run(asked, base_of("gam"), source, request, ledger, CateResult, progress)


@_strict
def dpcate(
    formula: str,
    data: Frame,
    *,
    queries: Frame | None = None,
    score: Literal["r", "dr"] = "r",
    second: Literal["kernel", "linear", "network"] = "kernel",
    noise: Literal["gross_error", "process"] = "gross_error",
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    propensity: float | None = None,
    propensity_clip: float = 0.1,
    below_minimum: BelowMinimum = "refuse",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """DP-CATE (Schroeder et al. 2025): nuisances on one half of the rows, the effect on the other.

    Parameters
    ----------
    queries : data frame, optional
        Public points at which the effect is released (Theorem 1). Without them Algorithm 2 answers
        one point after another and keeps secret state.
    score : {"r", "dr"}
        The pseudo-outcome.
    second : {"kernel", "linear", "network"}
        What is fitted to it, with `queries` (Corollaries 2 and 1). "network" has two layers of 32
        tanh units and needs the extra ``privcausal[nn]``.
    noise : {"gross_error", "process"}
        With `queries`: the noise of Theorem 1, or of Algorithm 1.
    base : str or option object
        Private nuisances: ``"gam"``, ``"kernel"`` or ``"nn"``; or ``pc.bases.Sklearn(...)``, which
        is not protected.
    below_minimum : {"refuse", "published"}
        "published": run it on fewer rows than its claim needs.

    Returns
    -------
    CateResult
    """
    with open_source(data) as source:
        parsed = parse(formula, source)
        request = request_of(
            parsed, bounds, eps, delta, Trust(), Control("disjoint", propensity_clip),
            propensity=propensity, mode="paper", below_minimum=below_minimum,
            queries=None if queries is None else declare_queries(queries, parsed.effect_variables),
        )  # fmt: skip
        asked = PublishedDPCATE(score, second, noise)
        return run(asked, base_of(base), source, request, ledger, CateResult, progress)


@_strict
def tm(
    formula: str,
    data: Frame,
    *,
    degree: int = 1,
    C: float | None = None,
    eps: float = 1.0,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """Epsilon-TM for a binary outcome (Betlei et al. 2021): two logistic regressions.

    By objective perturbation (Chaudhuri et al. 2011), whose proof is about real numbers and exact
    minima.

    Parameters
    ----------
    degree : int
        Of the polynomials of every numeric modifier.
    C : float, optional
        As the paper tunes it: one over the ridge of each arm's summed loss, rows of length 1. It
        costs log(1 + C/4) of eps for each row that changes, and all of eps is refused. None: what
        a tenth of epsilon pays for. A C that was chosen by the rows is not private.

    Returns
    -------
    CateResult
    """
    with open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, 1e-5, Trust(neighbors), Control(), mode="paper"
        )
        return run(TM(degree, C), base_of("gam"), source, request, ledger, CateResult, progress)


@_strict
def adum(
    formula: str,
    data: Frame,
    *,
    cells: int | Literal["bound"] | None = None,
    partition: str | Mapping[str, object] | Callable[[Any], Any] = "grid",
    eps: float = 1.0,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """Epsilon-ADUM (Betlei et al. 2021, Algorithm 1): noisy sums over noisy counts, by cell.

    Noise and quotients are the paper's: COUNT + Lap(2/eps), SUM + Lap(2 D_y/eps) for an outcome
    whose bounds are D_y apart. They fail their claim where 0 is not within the bounds (for [5, 10]
    a row that is added costs 1.5 eps), and wherever a row is replaced (2 and 3 eps). What has
    proven scales is ``ADUM(release="count_sum", shrink=False)``.

    Parameters
    ----------
    cells, partition
        As for `privcausal.learners.ADUM`; "kmeans" costs half of epsilon, as in section 3.2.
    neighbors : {"substitute", "add_remove"}
        What the claim is about; the noise is the same.

    Returns
    -------
    CateResult
    """
    learner = PublishedADUM(cells=cells, partition=partition)
    with open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, 1e-5, Trust(neighbors), Control(), mode="paper"
        )
        return run(learner, base_of("gam"), source, request, ledger, CateResult, progress)
