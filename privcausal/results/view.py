"""From a result to the plain values its summary, plots and report are made of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from privcausal.inference.cells import CellEffect
from privcausal.inference.polynomials import ArmPolynomials
from privcausal.inference.tail import INDEX
from privcausal.learners.nuisances import RESIDUAL_CLIP
from privcausal.report import FitView, Shape, Source
from privcausal.report.numbers import alike, level
from privcausal.report.words import odds_sentence
from privcausal.results import (
    cells,
    dpcate,
    estimands,
    meta,
    products,
    published,
    trial,
)
from privcausal.results.cells import cell_table
from privcausal.results.guarantee import HANDED_OVER, Guarantee, price_text
from privcausal.results.plotted import gain_frame
from privcausal.spec.request import Request
from privcausal.spec.schema import Binary, Interval, Schema

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.results.ate import AteResult
    from privcausal.results.base import Result
    from privcausal.results.cate import CateResult

LEARNERS = {
    "r": "R-learner", "dr": "DR-learner", "s": "S-learner", "t": "T-learner", "x": "X-learner",
    "adum": "uplift by cells", "tm": "two regressions (TM)", "dpcate": "DP-CATE",
    "private": "doubly robust / PrivATE", "published": "PrivATE as published",
    trial.NAME: "difference in means", "two-stage dr": "DR-learner, two-stage",
    "two-stage r": "R-learner, two-stage", "two-stage s": "S-learner, one effect",
    "two-stage own": "two-stage",
}  # fmt: skip
BOOSTING = (
    "Boosting (Nori et al. 2021): in each round residuals, cut to a public or released bound, "
    "are summed within random leaves of public bins, and the shapes move a step towards the noisy "
    "means. The shapes' noise is known, and they are smoothed across neighbouring bins by "
    "empirical Bayes unless smooth=False was asked for."
)
NUISANCES = {"kernel": "gam", "nn": "DP-SGD networks"}
"""Of a base that is one of the effect only."""

SPLITS = {
    "full": "all rows, rho split",
    "disjoint": "own half of the rows",
    "crossfit": "cross-fitted, 2 folds",
}
NEIGHBORS = {
    "substitute": "neighbours differ in {unit} (substitute).",
    "add_remove": "neighbours differ by adding or removing {unit}.",
}


def ate_view(result: AteResult, alpha: float) -> FitView:
    return _view(result, alpha, estimands.TITLES[result.estimate.plan.request.estimand], ())


def cate_view(result: CateResult, alpha: float) -> FitView:
    from privcausal.results.cate import has_shapes

    shapes = result._shapes(alpha) if has_shapes(result.estimate) else ()
    return _view(result, alpha, estimands.TITLES["CATE"], shapes)


def _view(result: Result, alpha: float, title: str, shapes: tuple[Shape, ...]) -> FitView:
    estimate, promise = result.estimate, result.guarantee
    request = estimate.plan.request
    averages = estimate.averages
    return FitView(
        title=title,
        outcome=request.formula.outcome,
        treatment=request.formula.treatment,
        estimand=estimands.NAMES[request.estimand],
        left=_left(result),
        right=_right(result),
        effects=None if averages is None else _effects(result, alpha),
        gates=None if averages is None or not averages.groups else _gates(result, alpha),
        cells=_cell_table(result, alpha),
        gains=_gains(result, alpha),
        shapes=shapes,
        uncertainty=_sources(result),
        tails=_tails(result),
        budget=_with_declared(result.budget),
        total=_price(promise) if estimate.real else "not private",
        ledger=result.ledger_line,
        guarantee=_promise(result),
        kind=promise.kind,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=promise.rho,
        neighbors=promise.neighbors,
        unit_sentence=_unit_sentence(result),
        headline=_headline(result, alpha),
        notes=_notes(result),
        assumptions=_assumptions(result),
        robustness=_robustness(result, alpha),
        methods=_methods(result),
        call=result.call,
        versions=_versions(),
        alpha=alpha,
    )


def _assumptions(result: Result) -> tuple[str, ...]:
    if _by_cells(result):
        return cells.ASSUMPTIONS
    return trial.ASSUMPTIONS if _is_trial(result) else estimands.assumptions(result.plan.request)


def _robustness(result: Result, alpha: float) -> str:
    """Of a study that rests on having measured what confounds."""
    if result.estimate.averages is None or result.plan.request.mode == "paper":
        return ""
    found = result.sensitivity(alpha)
    return "" if found.randomised else found.sentence


def _cell_table(result: Result, alpha: float) -> pd.DataFrame | None:
    effect = result.estimate.effect
    return cell_table(effect, _z(alpha)) if isinstance(effect, CellEffect) else None


def _gains(result: Result, alpha: float) -> pd.DataFrame | None:
    effect = result.estimate.effect
    return gain_frame(effect, _z(alpha)) if isinstance(effect, CellEffect) else None


def _z(alpha: float) -> float:
    return float(norm.ppf(1 - alpha / 2))


def _by_cells(result: Result) -> bool:
    """Whether it is of a trial's arms, with nothing adjusted for between them."""
    return isinstance(result.estimate.effect, CellEffect | ArmPolynomials)


def _left(result: Result) -> tuple[tuple[str, str], ...]:
    estimate = result.estimate
    request, schema = estimate.plan.request, estimate.schema
    outcome = request.formula.outcome
    size = _records(result)
    return (
        ("Outcome", f"{outcome} in {_range(schema, outcome)}"),
        ("Treatment", f"{request.formula.treatment} ({_coding(schema, request)})"),
        ("Formula", str(request.formula)),
        *((("Records", size),) if request.trust.unit is None else (("Units", size),)),
        ("Bounds", _bounds(result)),
    )


def _right(result: Result) -> tuple[tuple[str, str], ...]:
    plan = result.estimate.plan
    request = plan.request
    learned = (
        ("Nuisances", f"{NUISANCES.get(plan.base, plan.base)}, {_split(result)}"),
        ("Propensity", estimands.propensity(request, result.estimate.clip)),
    )
    return (
        ("Estimand", request.estimand),
        ("Estimator", LEARNERS.get(plan.learner, plan.learner)),
        *(_head(result) or learned),
        ("Neighbours", request.trust.neighbors.replace("_", "/")),
    )


def _head(result: Result) -> tuple[tuple[str, str], ...]:
    """Of a fit without nuisances."""
    effect = result.estimate.effect
    if isinstance(effect, CellEffect):
        known = result.plan.request.propensity
        share = "by cell" if known is None else f"known, {known:g}"
        return (("Cells", effect.partition.description), ("Propensity", share))
    if isinstance(effect, ArmPolynomials):
        degree = effect.polynomials.degree
        return (("Means", f"polynomials, degree {degree}"), ("Propensity", "not used"))
    return trial.HEAD if _is_trial(result) else ()


def _is_trial(result: Result) -> bool:
    return bool(result.plan.learner == trial.NAME)


def _split(result: Result) -> str:
    request = result.plan.request
    if meta.is_meta(result.plan):
        return "own parts of rows" if request.split == "disjoint" else "all rows"
    bare = request.mode == "paper" and not published.private_nuisances(result.plan)
    rows = "own half" if request.split == "disjoint" else "all rows"
    return f"{rows}, not private" if bare else SPLITS[request.split]


def _price(promise: Guarantee) -> str:
    if promise.delta == 0:
        return f"epsilon {promise.epsilon:.4g}, pure"
    price = f"({promise.epsilon:.2f}, {promise.delta:.3g})-DP"
    if promise.kind == "published":
        return f"{price} as published"
    return f"rho {promise.rho:.4f} = {price}"


def _records(result: Result) -> str:
    estimate = result.estimate
    if estimate.size is not None:
        return f"{estimate.size} [pub]"
    return f"{estimate.population.count:.0f} [dp]"


def _range(schema: Schema, name: str) -> str:
    domain = schema[name]
    if isinstance(domain, Interval):
        return f"[{domain.lo:.4g},{domain.hi:.4g}]"
    return "[0,1]" if domain == Binary() else "two labels"


def _coding(schema: Schema, request: Request) -> str:
    domain = schema[request.formula.treatment]
    return f"{domain.one} vs {domain.zero}" if isinstance(domain, Binary) else "1 vs 0"


def _bounds(result: Result) -> str:
    bought = [s for s in result.estimate.plan.stages if s.name.startswith("bounds")]
    return "bought privately" if bought else "declared [pub]"


def _effects(result: Result, alpha: float) -> pd.DataFrame:
    frame = result.tidy(alpha).set_index("term")
    return frame.assign(mark="dp")


def _gates(result: Result, alpha: float) -> pd.DataFrame:
    return result._table(groups=True, z=float(norm.ppf(1 - alpha / 2)))


def _sources(result: Result) -> tuple[Source, ...]:
    found = result.estimate.averages
    if found is None or result.plan.request.mode == "paper":  # one number: see its note
        return ()
    total = float(found.cov[0, 0])
    parts = (
        ("sampling", float(found.sampling[0, 0]), "who was sampled"),
        ("privacy", float(found.privacy[0, 0]), "noise added on purpose"),
        ("clipping", float(found.clipping[0] ** 2), "allowance for cut scores"),
        ("nuisances", float(found.remainder[0] ** 2), "error in e(x) times mu(x)"),
    )
    return tuple(
        Source(name, float(np.sqrt(v)), v / total, words) for name, v, words in parts if v > 0
    )


TAILS = {
    "cubic": "Tails that noise hides are taken to fall as 1/x^{index:.0f} or faster.",
    "any": "What noise hides may lie anywhere within the bounds.",
}


def _tails(result: Result) -> str:
    found = result.estimate.averages
    if found is None or not found.clipping[0] > 0 or result.plan.request.mode == "paper":
        return ""
    return TAILS[result.plan.request.tails].format(index=INDEX)


def _with_declared(budget: pd.DataFrame) -> pd.DataFrame:
    """The budget with a free first line where bounds were declared."""
    import pandas as pd

    if (budget["stage"] == "bounds").any():
        return budget
    line = dict.fromkeys(budget.columns, 0.0) | {
        "stage": "bounds", "query": "declared", "mechanism": "", "noise_sd": np.nan,
        "neighbors": budget["neighbors"].iloc[0], "rows": 0.0,
    }  # fmt: skip
    return pd.concat([pd.DataFrame([line]), budget], ignore_index=True)


def _promise(result: Result) -> tuple[str, ...]:
    promise = result.guarantee
    if promise.kind == "none":
        return (promise.statement,)
    unit = NEIGHBORS[promise.neighbors].format(unit=promise.unit)
    price = f"({promise.epsilon:.2f}, {promise.delta:.3g})-DP"
    if promise.delta == 0:
        price = price_text(promise.epsilon, 0.0, 3)
    head = f"{price}, {promise.kind}"
    odds = odds_sentence(promise.epsilon, promise.delta, promise.neighbors)
    if promise.kind == "published":
        doubts: tuple[str, ...] = (HANDED_OVER,)
        if result.plan.stages:
            doubts = published.doubts(result.plan, result.estimate.size)
        return (f"{head}, not proven; {unit}", *doubts, f"If the claim held: {odds}")
    return f"{head}; {unit}", odds


def _unit_sentence(result: Result) -> str:
    trust = result.estimate.plan.request.trust
    if trust.unit is None:
        return "One row is one person."
    return f"One {trust.unit} is one person, with at most {trust.max_rows} rows used."


def _headline(result: Result, alpha: float) -> tuple[str, ...]:
    estimate = result.estimate
    request = estimate.plan.request
    outcome, treatment = request.formula.outcome, request.formula.treatment
    protected = _protected(result.guarantee)
    if estimate.averages is None:
        return (f"The effect of {treatment} on {outcome} was estimated by covariates.", protected)
    row = result._table(groups=False, z=float(norm.ppf(1 - alpha / 2))).iloc[0]
    share = 0.0 if np.isnan(row["privacy_share"]) else float(row["privacy_share"])
    noise = (
        "that counts sampling and the noise added for privacy."
        if request.mode == "paper"
        else f"at least {share:.0%} of that uncertainty (in variance) is noise added for privacy."
    )
    over = estimands.OVER[request.estimand]
    shown = [float(row[name]) for name in ("estimate", "conf_low", "conf_high")]
    value, low, high = alike(shown, float(row["std_error"]), digits=2)
    return (
        f"{over}, {treatment} changes {outcome} by {value}.",
        f"With {level(alpha)} confidence the change lies between {low} and {high}; {noise}",
        protected,
    )


def _protected(promise: Guarantee) -> str:
    price = f"({promise.epsilon:.2g}, {promise.delta:.3g})-differential privacy"
    if promise.delta == 0:
        price = f"{promise.epsilon:.2g}-differential privacy"
    return {
        "proven": f"Everything here satisfies {price} for {promise.unit}.",
        "published": f"The method's paper claims {price} for {promise.unit}; that is not proven, "
        "and fails in known cases."
        if promise.trade_off is None
        else f"{price} for {promise.unit} is declared by the estimators used; it is not proven.",
        "none": "NOT PRIVATE: made with a test noise source.",
    }[promise.kind]


def _notes(result: Result) -> tuple[str, ...]:
    estimate = result.estimate
    request = estimate.plan.request
    clips = not (_is_trial(result) or _by_cells(result)) and request.propensity is None
    public = ["clip"] if clips else []
    if _bounds(result).startswith("declared"):
        public.insert(0, "bounds")
    if estimate.size is not None:
        public.insert(0, "n" if request.trust.unit is None else "the number of units")
    notes = []
    if public:
        *most, last = public
        words = f"{', '.join(most)} and {last} are" if most else f"{last} is"
        notes.append(f"{words} declared public.")
    notes.append(
        trial.NOTE
        if _is_trial(result)
        else "Causal reading needs treatment by chance within each cell, and no interference."
        if _by_cells(result)
        else estimands.NOTE[request.estimand]
    )
    if _is_trial(result) and request.estimand != "ATE":
        notes.append(trial.SAME)
    if _bounds(result).startswith("bought"):
        notes.append(
            "Bounds were bought from the rows with noise; values beyond them were cut, and no "
            "interval allows for that."
        )
    if request.estimand == "CATE" and request.mode == "proven" and not _by_cells(result):
        notes.append(
            dpcate.BANDS
            if estimate.plan.learner == dpcate.NAME
            else "Bands for the effect's shape cover its projection on the basis, approximately "
            "and on average over x."
        )
    if beyond := products.note(estimate):
        notes.append(beyond)
    parallel = any(stage.charged < stage.rho for stage in estimate.plan.stages)
    if parallel and not meta.is_meta(estimate.plan):
        notes.append(
            "What stands in brackets is not charged: the release reads rows of its own, in "
            "parallel with others that have paid as much."
        )
    if request.mode == "paper" and not meta.is_meta(estimate.plan):
        notes.append(published.note(estimate.plan))
    return (*notes, *estimate.notes)


def _methods(result: Result) -> tuple[str, ...]:
    plan = result.estimate.plan
    request = plan.request
    if request.mode == "paper":
        return published.methods(plan)
    if _is_trial(result):
        return trial.METHODS
    if _by_cells(result):
        return _cell_methods(result)
    found = estimands.METHODS[request.estimand]
    name = LEARNERS.get(plan.learner, plan.learner)
    sums = (
        f"{name[:1].upper()}{name[1:]} with base {plan.base!r}. The rows were read "
        "through sums of bounded row vectors only, computed exactly on an integer grid; discrete "
        "Gaussian noise (OpenDP) was added to each sum. Everything after that is post-processing."
    )
    return (
        dpcate.method(plan) if plan.learner == dpcate.NAME else sums,
        *((BOOSTING,) if plan.base == "dpebm" else ()),
        _propensity_text(request, result.estimate.clip)
        + _weight_text(result)
        + "Outcome and covariates are cut to their bounds. "
        f"Split: {SPLITS[request.split]}.",
        f"Averages are ratios of noisy sums of {found}; standard errors add sampling, privacy "
        "noise (delta method), a bound of the bias of cut scores and an allowance for the product "
        "of the nuisances' errors. "
        + (f"{_tails(result)} " if _tails(result) else "")
        + "Effects and limits are held within the width of the outcome's bounds.",
        "A row with a missing value adds nothing to any sum; how many there were is not shown.",
    )


def _cell_methods(result: Result) -> tuple[str, ...]:
    if isinstance(result.estimate.effect, ArmPolynomials):
        return cells.POLYNOMIALS
    law = "discrete Laplace" if result.plan.pure else "discrete Gaussian"
    how = cells.SHRUNK if result.estimate.notes else cells.AS_RELEASED
    return tuple(text.format(noise=law, how=how) for text in cells.METHODS)


def _weight_text(result: Result) -> str:
    found = result.estimate.averages
    if found is None or not np.isfinite(found.weight):
        return ""
    most = (
        f"no row weighs more than {found.weight:g} times what it does in a difference of means"
        if found.weight > 1
        else "rows weigh what they do in a difference of means, and the mean outcome alone adjusts"
    )
    return (
        f"In the average effect {most}: least predicted error by released numbers, whose bias is "
        "in the allowance for nuisances. "
    )


def _propensity_text(request: Request, clip: float) -> str:
    if isinstance(request.propensity, str):
        return f"Propensities are known, from column {request.propensity!r}. "
    if request.propensity is not None:
        return f"The propensity is known to be {request.propensity:g}. "
    share = estimands.share
    low, high = estimands.cut(request, clip)
    soft = min(RESIDUAL_CLIP, clip)
    if (low, high) == (soft, 1 - soft):
        return f"Propensities are cut to [{share(low)}, {share(high)}]. "
    return (
        f"Propensities are cut to [{share(low)}, {share(high)}] where a score divides by them, and "
        f"to [{share(soft)}, {share(1 - soft)}] elsewhere. "
    )


def _versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in ("privcausal", "opendp", "numpy", "formulaic"):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed"))
    return tuple(found)
