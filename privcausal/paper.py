"""The source papers' mechanisms as printed, for comparison with the proven ones.

A fit made here promises only what its paper claims, or what its estimators declare. Its
`guarantee.kind` is "published", and `guarantee.statement` states the caveats. A ledger accepts such
fits only if it was opened with ``allow_published=True``. Parameters without an explanation below
are the same as for `privcausal.privcate`.

Examples
--------
>>> sine = pc.datasets.betlei_sine(1000)
>>> fit = pc.paper.adum(sine.formula, sine.frame, eps=1, bounds=sine.bounds)
>>> fit.guarantee.kind
'published'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import TwoStage, base_of, bases
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.published import (
    DAMPING,
    EPOCHS,
    Published,
    PublishedADUM,
    PublishedDPCATE,
    PublishedTM,
    Second,
)
from privcausal.features.design import declare_queries
from privcausal.request.request import LEAST_PROPENSITY, BelowMinimum, Budget, Control, Trust
from privcausal.results import AteResult, CateResult
from privcausal.run import Bounds, parse, request_of, run, strict
from privcausal.typing import Frame, Neighbors

if TYPE_CHECKING:
    from privcausal.accounting import Ledger
    from privcausal.request.request import Options

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
    below_minimum: BelowMinimum = "published",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> AteResult:
    """PrivATE (Schroeder et al. 2025): the AIPW mean with the noise of Theorems 4.3, 4.5 and 4.6.

    Parameters
    ----------
    base : str or option object
        ``pc.bases.Sklearn(...)``: nuisance models are fitted on all rows without protection, as
        printed. ``Sklearn.kernel()`` and ``Sklearn.network()`` are the paper's own. ``"gam"`` or
        ``"linear"``: private nuisance models from one half of the rows (the paper's remark in 4.2).
    shares : dict, optional
        How epsilon and delta are divided: ``{"effect": .5, "variance": .5}``.
    below_minimum : {"published", "refuse"}
        On fewer rows than the paper's claim requires, as in the paper's own experiments: run the
        fit, whose guarantee then says that the claim is false, or refuse it.

    Returns
    -------
    AteResult

    Raises
    ------
    FormulaError, SchemaError, DataError, BudgetError, LedgerError, CapabilityError
    """
    with vault.open_source(data) as source:
        chosen = base_of(base)
        control = Control(
            "full" if isinstance(chosen, bases.Sklearn) else "disjoint", propensity_clip, shares
        )
        options: Options = {"propensity": propensity, "below_minimum": below_minimum}
        options |= {"estimand": "ATE", "mode": "paper"}
        parsed = parse(formula, source)
        request = request_of(parsed, bounds, eps, delta, Trust(), control, **options)
        return run(Published(), chosen, source, request, ledger, AteResult, progress)


@_strict
def dpebm(
    formula: str,
    data: Frame,
    *,
    learner: Literal["dr", "r", "s"] = "dr",
    weighting: vault.Weighting = "published",
    arm_columns: Literal[1, 2] = 1,
    clip: bool = False,
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    propensity: float | str | None = None,
    propensity_clip: float = LEAST_PROPENSITY,
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """Algorithm 1 of Niu et al. (2022), with DP-EBM of the package interpret in every stage.

    Parameters
    ----------
    learner : {"dr", "r", "s"}
        The transformed outcome; "s" has a constant effect.
    weighting : {"published", "interpret"}
        The divisor of a round's noisy sums if rows have weights, which only learner "r" uses.
        "published" divides by noisy counts of rows, as interpret did when the paper was written.
        "interpret" divides by noisy sums of weights, as interpret does today; noise in the effect
        is then about five times larger.
    arm_columns : {1, 2}
        Columns of the treatment for learner "s": 1, as in Section 3.1; 2, one for each arm, as in
        the authors' notebook, whose S-learner is EconML's. The model then learns the effect faster.
    clip : bool
        True: clip predicted means, the transformed outcome, and its predictions to ranges that
        follow from the declared outcome bounds. False: as printed.
    propensity_clip : float
        By default practically no clipping, as in Algorithm 2. The authors' notebook has 0.05.

    Returns
    -------
    CateResult
    """
    bases.check_one_of("learner", learner, ("dr", "r", "s"))
    bases.check_one_of("weighting", weighting, ("published", "interpret"))
    bases.check_one_of("arm_columns", arm_columns, (1, 2) if learner == "s" else (1,))
    bases.check_switch("clip", clip)
    Budget(eps, delta)  # raises an error if the pair is not a valid price
    return two_stage(
        formula,
        data,
        TwoStage.published(
            learner, eps, delta, weighting=weighting, clip=clip, arm_columns=arm_columns
        ),
        eps=eps,
        delta=delta,
        bounds=bounds,
        neighbors=neighbors,
        propensity=propensity,
        propensity_clip=propensity_clip,
        ledger=ledger,
        progress=progress,
    )


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
    """Algorithm 1 of Niu et al. (2022) with private estimators that you supply.

    Parameters
    ----------
    learner : TwoStage
        ``pc.learners.TwoStage(...)``, which holds the estimators.

    Returns
    -------
    CateResult
    """
    if not isinstance(learner, TwoStage):
        raise CapabilityError(
            "learner must be a pc.learners.TwoStage(...), which holds estimators."
        )
    with vault.open_source(data) as source:
        parsed, trust = parse(formula, source), Trust(neighbors)
        options: Options = {"propensity": propensity, "mode": "paper"}
        control = Control(propensity_clip=propensity_clip)
        request = request_of(parsed, bounds, eps, delta, trust, control, **options)
        # The fit does not use a base.
        return run(learner, base_of("gam"), source, request, ledger, CateResult, progress)


@partial(
    strict,
    moved={"score": "Write weight='overlap' for the R-learner or weight='one' for the DR-learner."},
)
def dpcate(
    formula: str,
    data: Frame,
    *,
    queries: Frame | None = None,
    weight: vault.Weight = "overlap",
    second: Second = "kernel",
    noise: Literal["gross_error", "process"] = "gross_error",
    epochs: int = EPOCHS,
    damping: float = DAMPING,
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    propensity: float | None = None,
    propensity_clip: float = 0.1,
    below_minimum: BelowMinimum = "published",
    ledger: Ledger | None = None,
    progress: bool = False,
) -> CateResult:
    """DP-CATE (Schroeder et al. 2025): nuisances on one half of the rows, the effect on the other.

    Parameters
    ----------
    queries : data frame, optional
        The effect is released at these public points (Theorem 1). Without them, Algorithm 2 answers
        one point after another and keeps a secret state.
    weight : {"overlap", "one", "treated", "control", "entropy"}
        lambda(pi) of Eqs. 3 to 6: pi (1 - pi), which is the R-learner; 1, the DR-learner; pi; 1 -
        pi; or -pi log pi - (1 - pi) log(1 - pi).
    second : {"kernel", "exact", "linear", "network"}
        The model fitted to the pseudo-outcome, with `queries` (Corollaries 2 and 1). "kernel" uses
        a public basis. "exact" uses the kernel itself, for tables of at most 4,000 rows. "network"
        has two layers of 32 tanh units and needs the extra ``privcausal[nn]``.
    noise : {"gross_error", "process"}
        With `queries`: the noise of Theorem 1, or of Algorithm 1.
    epochs : int
        For the network: the number of passes over the rows.
    damping : float
        For the network: the term added to its Hessian, as a share of the largest eigenvalue.
    base : str or option object
        Private nuisance models: ``"gam"``, ``"kernel"`` or ``"nn"``. ``pc.bases.Given(...)`` takes
        functions that you supply. ``pc.bases.Sklearn(...)`` is not protected.
    below_minimum : {"published", "refuse"}
        On fewer rows than the paper's claim requires, as in the paper's own experiments: run the
        fit, whose guarantee then says that the claim is false, or refuse it.

    Returns
    -------
    CateResult
    """
    with vault.open_source(data) as source:
        parsed, chosen = parse(formula, source), base_of(base)
        split: Literal["full", "disjoint"] = "disjoint"
        if isinstance(chosen, bases.Given):
            split = "full"
        control = Control(split, propensity_clip)
        options: Options = {"propensity": propensity, "below_minimum": below_minimum}
        options["mode"] = "paper"
        if queries is not None:
            options["queries"] = declare_queries(queries, parsed.effect_variables)
        request = request_of(parsed, bounds, eps, delta, Trust(), control, **options)
        learner = PublishedDPCATE(weight, second, noise, epochs, damping)
        return run(learner, chosen, source, request, ledger, CateResult, progress)


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
    """Epsilon-TM (Betlei et al. 2021): a regression in each arm, linear or logistic.

    A numeric outcome has linear regressions by the functional mechanism (Zhang et al. 2012), with
    the printed noise. An outcome of two values has logistic regressions by objective perturbation
    (Chaudhuri et al. 2011). The proof of that method assumes real numbers and exact minima.

    Parameters
    ----------
    degree : int
        Degree of the polynomial in every numeric modifier.
    C : float, optional
        For logistic regressions, the parameter that the paper tunes: one over the ridge penalty of
        each arm's summed loss, with rows of length 1. It costs log(1 + C/4) of eps for each row
        that changes; the noise gets the rest. A C that costs all of eps is refused. In that case
        Chaudhuri et al. (Algorithm 2) increase the ridge until C costs eps/2, which would not be
        the requested C. A C that costs less than eps is kept, both there and here. None: the C that
        a tenth of epsilon pays for. A C chosen from the rows is not private.

    Returns
    -------
    CateResult
    """
    with vault.open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, 1e-5, Trust(neighbors), Control(), mode="paper"
        )
        learner = PublishedTM(degree, C)
        return run(learner, base_of("gam"), source, request, ledger, CateResult, progress)


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

    Noise and quotients are the paper's: COUNT + Lap(2/eps) and SUM + Lap(2 D_y/eps), for an outcome
    whose bounds are D_y apart. The claim fails if 0 is not within the bounds: for [5, 10], adding a
    row costs 1.5 eps. It also fails whenever a row is replaced (2 and 3 eps).
    ``ADUM(release="count_sum", shrink=False)`` has proven noise scales.

    Parameters
    ----------
    cells, partition
        As for `privcausal.learners.ADUM`; "kmeans" costs half of epsilon, as in section 3.2.
    neighbors : {"substitute", "add_remove"}
        The neighboring data sets of the claim; the noise is the same for both.

    Returns
    -------
    CateResult
    """
    learner = PublishedADUM(cells=cells, partition=partition)
    with vault.open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, 1e-5, Trust(neighbors), Control(), mode="paper"
        )
        return run(learner, base_of("gam"), source, request, ledger, CateResult, progress)
