"""Export of fits to other packages: their tables, their displays, and familiar names."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.estimators import Estimate
from privcausal.features.design import FINE_BINS, Column, Rows, fine_bins, middle
from privcausal.features.functions import FeatureMap, Fourier, Interactions
from privcausal.inference import effects
from privcausal.inference.cells import CellEffect
from privcausal.inference.population import Population
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.request.schema import Binary, Interval, Levels, level_names
from privcausal.results import hypotheses
from privcausal.results.guarantee import KINDS
from privcausal.typing import Integers, Vector

if TYPE_CHECKING:
    from interpret.glassbox import ExplainableBoostingRegressor


# An additive effect as a booster of the package interpret, to use its displays.
#
# Each modifier becomes one main effect: on the 256 public fine bins of its interval, or on its
# levels. Products of modifiers become pairs on the bins of both. Terms are centered on the released
# synthetic population, and pairs as if the two modifiers were independent. The population also
# gives the weights of bins. Standard deviations are the posterior ones of the centered terms.
#
# If every numeric modifier is smooth (base "gam"), predictions equal those of `CateResult.predict`
# inside the bounds. A term that is not a table on the fine bins (base "linear", ``log(x)``) is
# continuous. It becomes steps that are exact at the middle of each bin. The booster does not clip
# the effect to the outcome's range. It reads a missing value as the average, and an undeclared
# level in the same way as the fit.


class _Part(NamedTuple):
    """A main effect on its bins, or products of two modifiers on the bins of both.

    `weights`, `scores` and `sd` have an axis for each of `names`; its last bin is for undeclared
    values. `mean` was subtracted from the scores to center them. A main effect has a `kind`, in
    interpret's terms, and `bins`: the borders between bins, or a mapping from label to bin number.
    `bounds` are the bounds of its axis, NaN for levels.
    """

    names: tuple[str, ...]
    weights: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]
    sd: np.ndarray[Any, Any]
    mean: float
    kind: str = ""
    bins: Vector | dict[str, int] | None = None
    bounds: tuple[float, float] = (np.nan, np.nan)


def as_booster(estimate: Estimate) -> ExplainableBoostingRegressor:
    """The estimate's effect as a fitted booster.

    Raises
    ------
    CapabilityError
        The effect is constant, or not a sum of functions of one modifier and products of two.
    """
    effect, learner, population = estimate.effect, estimate.plan.learner, estimate.population
    if isinstance(effect, CellEffect | effects.ArmPolynomials):
        raise CapabilityError(f"The effect of learner {learner!r} is not a sum of effect curves.")
    if isinstance(effect, effects.Predicted):
        raise CapabilityError(
            "The effect has no terms with bands: most outcomes are at a bound, or it came from a "
            "separate private estimator. Check the bounds, or use privcate(base='dpebm')."
        )
    if isinstance(effect, effects.Answers):
        raise CapabilityError(
            "The effect was released only at the points of queries=, so it has no curves."
        )
    pieces = () if effect is None else effect.pieces
    if any(isinstance(piece.additive.features, Fourier) for piece in pieces):
        raise CapabilityError(
            "A kernel effect is not a sum of functions of one modifier each. Use learner 'r' or "
            "'dr'."
        )
    if effect is None or any(piece.weight is not None for piece in pieces):
        raise CapabilityError(
            f"The effect of learner {learner!r} is not additive, because the propensity combines "
            "its parts. Use learner 'r', 'dr', 's', or 't'."
        )
    if effect.pieces[0].additive.features.size == 1:
        raise CapabilityError("The effect is constant, so it has no curves.")
    piece, pairs = effect.pieces[0], list[_Part]()
    # Positions of the basis functions that belong to each modifier.
    features = piece.additive.features
    assert isinstance(features, FeatureMap)
    variables = {term.name: term.variables for term in features.design.terms}
    positions: dict[str, list[int]] = {}
    for position, column in enumerate(features.column):
        if column < 0:
            continue
        term = features.design.columns[column].term
        if len(variables[term]) > 1:
            raise CapabilityError(
                f"Term {term!r} depends on {' and '.join(variables[term])}. Only functions of one "
                "modifier can become main effects."
            )
        positions.setdefault(variables[term][0], []).append(position)
    if len(effect.pieces) == 2:
        piece, pairs = _apart(piece, effect.pieces[1], population, list(positions))
    terms = [
        _term(piece, population, name, np.array(places, np.int64))
        for name, places in positions.items()
    ]
    means = sum(t.mean for t in terms) + sum(pair.mean for pair in pairs)
    offsets = sum(part.additive.offset for part in effect.pieces)
    intercept = offsets + float(piece.additive.coef[0]) + means
    return _booster(terms, pairs, float(intercept), population.count, effect.reach)


def _term(piece: effects.Piece, population: Population, name: str, positions: Integers) -> _Part:
    """Centered scores of one modifier on its bins, with posterior standard deviations."""
    features = piece.additive.features
    assert isinstance(features, FeatureMap)
    domain = population.schema[name]
    rows, share = _axis(features, population, name)
    phi = rows.phi(features)[:, positions]
    centre = share @ phi
    scores = (phi - centre) @ piece.additive.coef[positions]
    cov = piece.cov[np.ix_(positions, positions)]
    sd = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", phi - centre, cov, phi - centre), 0.0))
    bins: Vector | dict[str, int]
    if isinstance(domain, Interval):
        # Rows are binned by the scale of the design column of `name` itself.
        scales = (features.design.columns[block.column] for block in features.blocks)
        plain = Column(name, name, "numeric", domain.lo, domain.hi, name)
        column = next((scale for scale in scales if scale.variable == name), plain)
        # The smallest number in each bin but the first, to the last bit: bisection between
        # neighboring middles with the function that bins rows finds the exact borders.
        middles, number = np.asarray(rows.frame[name], np.float64)[:-1], np.arange(1, FINE_BINS)
        low, high = middles[:-1], middles[1:]
        half = low + 0.5 * (high - low)
        while not np.all((half <= low) | (half >= high)):
            above = fine_bins(column.scale(half)) >= number
            low, high = np.where(above, low, half), np.where(above, half, high)
            half = low + 0.5 * (high - low)
        kind, bins = "continuous", high
    elif isinstance(domain, Binary) and domain.labels is None:
        kind, bins = "continuous", np.array([0.5])  # Covers 0/1 written as bool, int or float.
    else:
        kind, bins = "nominal", {label: i for i, label in enumerate(level_names(domain), start=1)}
    bounds = (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)
    return _Part(
        names=(name,),
        weights=share * population.count,
        scores=scores,
        sd=sd,
        mean=float(centre @ piece.additive.coef[positions]),
        kind=kind,
        bins=bins,
        bounds=bounds if kind == "continuous" else (np.nan, np.nan),
    )


def _apart(
    piece: effects.Piece, products: effects.Piece, population: Population, order: list[str]
) -> tuple[effects.Piece, list[_Part]]:
    """The additive function including all additive parts of the products, and the raw products.

    The axes of pairs follow the given order of the modifiers.
    """
    psi, coef = products.additive.features, piece.additive.coef
    assert isinstance(psi, Interactions)
    lift = psi.lift * psi.gain
    additive = replace(piece.additive, coef=np.asarray(coef - lift @ products.additive.coef))
    cov = np.asarray(piece.cov + lift @ products.cov @ lift.T)
    grouped: dict[tuple[str, str], list[int]] = {}
    for number, pair in enumerate(psi.pairs):
        first, second = sorted((psi.features.variables[i][0] for i in pair), key=order.index)
        grouped.setdefault((first, second), []).append(number)
    # Centered scores of the products of two modifiers, with posterior standard deviations.
    pairs = []
    for names, numbers in grouped.items():
        axes = [_axis(psi.features, population, name) for name in names]
        raw = np.empty((len(numbers), *(len(rows) for rows, _ in axes)))
        for values, number in zip(raw, numbers, strict=True):
            factors = {psi.features.variables[j][0]: j for j in psi.pairs[number]}
            left, right = (
                psi.linear(rows, factors[name], np.empty(len(rows), np.float32))
                for name, (rows, _) in zip(names, axes, strict=True)
            )
            np.outer(left, right, out=values)
        share = np.outer(axes[0][1], axes[1][1])
        raw *= psi.gain[numbers][:, None, None]
        centre = (raw * share).sum(axis=(1, 2))
        raw -= centre[:, None, None]
        coef = products.additive.coef[numbers]
        variance = np.einsum("kab,kl,lab->ab", raw, products.cov[np.ix_(numbers, numbers)], raw)
        sd, mean = np.sqrt(np.maximum(variance, 0.0)), float(centre @ coef)
        scores = np.tensordot(coef, raw, 1)
        pairs.append(_Part(names, share * population.count, scores, sd, mean))
    return effects.Piece(additive, cov), pairs


def _axis(features: FeatureMap, population: Population, name: str) -> tuple[Rows, Vector]:
    """Rows with a value of `name` in each bin and an undeclared one, and their shares.

    Other variables take the middle of their domains.
    """
    domain, share = population.schema[name], population.probabilities[name]
    points: Vector | Integers = np.array([0.0, 1.0, 0.0])
    if isinstance(domain, Interval):
        middles = domain.lo + (np.arange(FINE_BINS) + 0.5) * (domain.width / FINE_BINS)
        points = np.r_[middles, domain.mid]
    elif isinstance(domain, Levels):
        undeclared = domain.labels.index("other") if domain.other else -1
        points = np.r_[np.arange(len(domain.labels)), undeclared]
    if not isinstance(domain, Levels):
        share = np.r_[share, 0.0]
    schema, variables = features.design.schema, features.design.variables
    frame = {other: middle(schema[other], len(points)) for other in variables}
    return Rows(frame | {name: points}, len(points)), share


def _booster(
    terms: list[_Part], pairs: list[_Part], intercept: float, count: float, reach: float
) -> ExplainableBoostingRegressor:
    """A booster with the attributes that `fit` of interpret 0.7 would have set."""
    from interpret.glassbox import ExplainableBoostingRegressor

    names, kinds = [t.names[0] for t in terms], [t.kind for t in terms]
    parts = [*terms, *pairs]
    # Bin 0 is for missing values, which count as the average.
    scores, weights, spreads = (
        [np.pad(values, [(1, 0)] * values.ndim) for values in (getattr(t, name) for t in parts)]
        for name in ("scores", "weights", "sd")
    )
    attributes = {
        "n_features_in_": len(terms),
        "feature_names_in_": names,
        "feature_types_in_": kinds,
        "feature_bounds_": np.array([t.bounds for t in terms]),
        "bins_": [[t.bins] for t in terms],
        "histogram_edges_": [
            None if t.kind == "nominal" else np.linspace(*t.bounds, len(t.weights)) for t in terms
        ],
        "histogram_weights_": [w.copy() for w in weights[: len(terms)]],
        "unique_val_counts_": np.array([len(t.weights) - 1 for t in terms], np.int64),
        "term_features_": [
            *((i,) for i in range(len(terms))),
            *(tuple(map(names.index, pair.names)) for pair in pairs),
        ],
        "term_names_": [*names, *(" & ".join(pair.names) for pair in pairs)],
        "bin_weights_": weights,
        "term_scores_": scores,
        "bagged_scores_": [s[None, :].copy() for s in scores],
        "standard_deviations_": spreads,
        "intercept_": intercept,
        "bagged_intercept_": np.array([intercept]),
        "bag_weights_": np.array([count]),
        "best_iteration_": np.zeros((1, 1), np.int64),
        "link_": "identity",
        "link_param_": np.nan,
        "min_target_": -reach,
        "max_target_": reach,
        "has_fitted_": True,
    }
    booster = ExplainableBoostingRegressor(
        feature_names=names, feature_types=kinds, interactions=0, outer_bags=1
    )
    for attribute, value in attributes.items():
        setattr(booster, attribute, value)
    return booster


STATS = {
    "N": "Observations", "learner": "Learner", "base": "Base", "estimand": "Estimand",
    "epsilon": "Epsilon", "delta": "Delta", "neighbors": "Neighboring data",
    "guarantee": "Guarantee",
}  # fmt: skip
"""Keys of `__maketables_stat__` with their labels; "N" is the protocol's own."""

_MEANT = {
    "see summary()": "summary2",
    "see model.formula": "formula",
    "a fit holds no rows": "remove_data",
    "see params": "coef coef_",
    "see bse": "se",
    "see cov_params()": "vcov",
    "see conf_int(alpha=0.05)": "confint",
    "see pvalues": "pvalue",
    "see predict(newdata) of a fit of privcate": "effect cate tau",
    "for effects at new points, use pc.privcate": "predict",
    "fit with pc.private(..., estimand='ATT')": "att",
    "fit with pc.private(..., estimand='ATO')": "ato",
    "see gate": "groups",
    "see guarantee": "eps epsilon delta",
    "see ledger_line, or the Ledger itself": "ledger",
    "the number of rows is private with neighbors='add_remove'": "nobs",
    "fit again with control=pc.Control(cov_type='HC1')": "get_robustcov_results",
    "it would show the values of single rows; predict(newdata) of a fit of pc.regress or "
    "pc.privcate has values at new points": "resid fittedvalues data",
    "a private fit has no likelihood; test terms with wald_test('x = 0')": "llf aic bic",
    "it was not released; pc.regress releases it with the coefficients": "rsquared rsquared_adj",
    "sums of squares were not released; see bse and rsquared of a fit of pc.regress": "ssr scale",
}
HINTS = {name: hint for hint, names in _MEANT.items() for name in names.split()}
"""Hints by attribute name, used only for attributes that a fit does not have."""

SHOWN_FACTS = ("N", "learner", "epsilon", "delta", "guarantee")


class Model(NamedTuple):
    """The attributes of a model that statsmodels reads: names of its outcome and terms."""

    endog_names: str
    exog_names: list[str]
    formula: str


@dataclass(frozen=True)
class ForMaketables:
    """A fit that shows maketables only the attributes of its protocol."""

    fit: Exchange

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__maketables_"):
            return getattr(self.fit, name)
        raise AttributeError(name)


class Exchange(hypotheses.Tested):
    """Attributes that other packages read for their tables; nothing here is a new release."""

    tvalues = hypotheses.Tested.zvalues  # the name that statsmodels uses for both

    @property
    def model(self) -> Model:
        """The names of outcome and terms, for statsmodels' `summary_col`.

        For a fit made with test noise, these names alone still show that it is not private.
        """
        mark = " (NOT PRIVATE)" if self.guarantee.kind == "none" else ""
        formula = self.estimate.plan.request.formula
        return Model(f"{formula.effect_on}{mark}", list(self.params.index), formula.text)

    @property
    def cov_type(self) -> str:
        """``"nonrobust"``, ``"HC0"`` or ``"HC1"`` for coefficients; ``"cluster"``; or ``"robust"``.

        Averages are ``"robust"``: their standard errors allow for unequal variances. All standard
        errors include the privacy noise.
        """
        request = self.estimate.plan.request
        if request.cluster is not None:
            return "cluster"
        return request.cov_type if request.regression or request.estimand == "CATE" else "robust"

    @property
    def default_model_infos(self) -> dict[str, Callable[[Exchange], str | None]]:
        """The lines that `summary_col` puts below the estimates."""
        return {STATS[key]: partial(stat_text, key=key, absent="") for key in SHOWN_FACTS}

    @property
    def nobs(self) -> int:
        """The public number of rows or units; the attribute is absent if that number is private."""
        size = self.estimate.size
        if size is None:
            raise AttributeError(f"nobs: {HINTS['nobs']}")
        return size

    def to_maketables(self) -> ForMaketables:
        """Prepare this fit for `maketables.ETable`, with epsilon, delta and the guarantee.

        `maketables` also accepts the fit itself. It then treats the fit as a statsmodels result
        because of its attributes, and does not show the guarantee.

        Examples
        --------
        >>> type(fit.to_maketables()).__name__
        'ForMaketables'
        """
        return ForMaketables(self)

    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        wide = self.tidy(0.10)
        names = {
            "estimate": "b",
            "std_error": "se",
            "statistic": "t",
            "p_value": "p",
            "conf_low": "ci95l",
            "conf_high": "ci95u",
        }
        frame = self.tidy(0.05).rename(columns=names).set_index("term").rename_axis("Coefficient")
        return frame.assign(ci90l=wide["conf_low"].to_numpy(), ci90u=wide["conf_high"].to_numpy())

    def __maketables_stat__(self, key: str) -> int | str | None:
        text = stat_text(self, key)
        return int(text.replace(",", "")) if key == "N" and text else text

    __maketables_depvar__ = property(lambda self: self.estimate.plan.request.formula.effect_on)
    __maketables_stat_labels__ = property(lambda _: dict(STATS))
    __maketables_default_stat_keys__ = property(lambda _: list(SHOWN_FACTS))
    __maketables_vcov_info__ = property(lambda _: {"vcov_type": "with privacy noise"})

    def __getattr__(self, name: str) -> Any:
        """Error messages for attributes that a result does not have."""
        if hasattr(type(self), name):  # The attribute exists but failed: raise its own error.
            return object.__getattribute__(self, name)
        hint = f": {HINTS[name]}" if name in HINTS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")


def stat_text(fit: Exchange, key: str, absent: str | None = None) -> str | None:
    """One of `STATS` as text; `absent` for statistics that a private fit lacks (a likelihood)."""
    if key not in STATS:
        return absent
    if key == "guarantee":
        return KINDS[fit.guarantee.kind]
    value = fit.glance().iloc[0]["n" if key == "N" else key]
    if key == "N":  # NaN if it is private.
        return f"{value:,.0f}" if math.isfinite(value) else absent
    digits = {"epsilon": 4, "delta": DELTA_DIGITS}.get(key)
    return at_most(value, digits) if digits else str(value).replace("_", "/")
