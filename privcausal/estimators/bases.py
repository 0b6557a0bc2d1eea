"""Bases: how nuisances and effects depend on covariates. Each is a frozen option object.

Examples
--------
>>> pc.bases.Gam(interactions=False)
Gam(functions=3, interactions=False)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError, named
from privcausal.estimators import options
from privcausal.estimators.options import DPEBM, NN, Given, Kernel, Sklearn
from privcausal.features.basis import FeatureMap
from privcausal.inference import regression
from privcausal.inference.population import amplitude
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, Posterior, Prior, ScaleMixturePrior, fit
from privcausal.typing import Integers, Matrix, Vector

WHOLE_PULL, PART_PULL = 0.03, 0.1
"""Values of `Priors.nuisance_pull` for forms of an effect, chosen by hand.

They apply to the first effect of "private" and to learner "auto". One variance for all terms is
learned freely; variances of parts are learned less freely.
"""

CURVED = 0.01
"""Prior variance of nonlinear parts relative to linear parts: a tenth in sd. Chosen by hand."""


class Base(ABC):
    """A base that learns from noisy moments.

    Prior variances are public: `intercept` for the intercept, and `size` for the slopes.
    """

    name: ClassVar[str]
    # Release the second-stage Gram matrix (textbook) instead of computing it by post-processing
    released_weights: ClassVar[bool]
    functions: int  # Number of basis functions of a smooth numeric column
    interactions: bool

    @abstractmethod
    def effect(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """Regression for the effect."""

    def nuisance(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float, fit_noise: bool
    ) -> Posterior:
        """Regression for a nuisance."""
        return self.effect(moments, features, intercept, size)

    def conditional(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """Regression for the effect if its shape is of interest."""
        return self.effect(moments, features, intercept, size)

    @abstractmethod
    def arms(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float, kept: Integers
    ) -> Posterior:
        """Both arms' means at once: mu_0 = phi'alpha and mu_1 = phi'(alpha + gamma).

        gamma is zero except for the `kept` features.
        """


@named
@dataclass(frozen=True)
class Gam(Base):
    """Private additive regression (the default): smooth terms, empirical Bayes.

    Parameters
    ----------
    functions : int
        Number of basis functions per smooth numeric term, 1 to 8.
    interactions : bool
        Learn products of covariates in nuisances, and products of modifiers in the effect of
        learner "r".
    """

    functions: int = 3
    interactions: bool = True
    name: ClassVar[str] = "gam"
    released_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        options.check_whole("Gam(functions=)", self.functions, 1, 8)
        options.check_switch("Gam(interactions=)", self.interactions)

    def nuisance(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float, fit_noise: bool
    ) -> Posterior:
        group, scale = _by_order(features), np.ones(features.size)
        centre = _centres(group, size) + np.log([1.0, PRIORS.nuisance_curves][: group.max()])
        pull, linear = PRIORS.nuisance_pull, features.order == 1
        prior = Prior(group, scale, intercept, centre, pull, fit_noise=fit_noise, unsure=linear)
        return fit(moments, prior)

    def effect(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """The slopes have one variance, close to its usual value in public data sets."""
        group = _together(features)
        centre, pull = _centres(group, size), PRIORS.effect_pull
        return fit(moments, Prior(group, _decay(features), intercept, centre, pull))

    def conditional(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """Average two priors by marginal likelihood.

        One has sparse coefficients of unknown scales; the other has an almost constant effect.
        """
        unit = np.sqrt(PRIORS.effect_terms * size) / amplitude(len(features.blocks))
        law = ScaleMixturePrior(
            intercept, np.full(features.size, unit), np.minimum(features.order, 2) - 1
        )
        constant = _near_constant(moments, features, intercept, size)
        return regression.average([constant, regression.mixture(moments, law)])

    def reference(self, features: FeatureMap, intercept: float, unit: float) -> Matrix:
        """Prior covariance of effects whose linear coefficients have the sd `unit`, (p, p)."""
        rough = PRIORS.plausible_decay ** np.maximum(features.order - 1, 0)
        variance = (unit * rough) ** 2
        variance[0] = max(intercept, unit**2)
        return np.diag(variance)

    def forms(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> dict[str, Posterior]:
        """The effect by form, each with its marginal likelihood given the same moments."""
        forms = {"constant": _near_constant(moments, features, intercept, size)}
        together = _together(features)
        scale = np.where(features.order > 1, ALL_BUT_NONE, 1.0)
        linear = Prior(together, scale, intercept, _centres(together, size), WHOLE_PULL)
        forms["linear"] = fit(moments, linear)
        # smooth: one variance for all terms, by order of roughness, and by term and order;
        # two groups per term: its linear part and its nonlinear part
        names = list(dict.fromkeys(features.group[1:]))
        term = np.array([0, *(1 + 2 * names.index(g) for g in features.group[1:])], np.int64)
        for name, group, pull, factor in (
            ("smooth", together, WHOLE_PULL, 1.0),
            ("smooth by order", _by_order(features), PART_PULL, CURVED),
            ("smooth by term", _numbered(term + (features.order > 1)), PART_PULL, CURVED),
        ):
            first = np.unique(group, return_index=True)[1][1:]
            curved = np.log(np.where(features.order[first] > 1, factor, 1.0))
            centre = _centres(group, size) + curved
            prior = Prior(group, _decay(features), intercept, centre, pull)
            forms[name] = fit(moments, prior)
        return forms

    def arms(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float, kept: Integers
    ) -> Posterior:
        shared = _by_order(features)
        contrast = np.where(shared > 0, shared + shared.max(), 0)[kept]
        group = _numbered(np.r_[shared, contrast])
        scale = np.r_[np.ones(features.size), _decay(features)[kept]]
        basis, centre = _arm_basis(features.size, kept), _centres(group, size)
        return fit(moments, Prior(group, scale, intercept, centre, fit_noise=True, basis=basis))


@named
@dataclass(frozen=True)
class Linear(Base):
    """Least squares on the formula's own columns, stabilized only as far as the noise requires."""

    functions: int = field(default=1, init=False)
    interactions: bool = field(default=False, init=False)
    name: ClassVar[str] = "linear"
    released_weights: ClassVar[bool] = True

    def effect(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """The prior sd of each feature equals the prior sd of the intercept."""
        return regression.least_squares(moments, np.full(features.size, np.sqrt(intercept)))

    def arms(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float, kept: Integers
    ) -> Posterior:
        spread = np.full(features.size + len(kept), np.sqrt(intercept))
        return regression.least_squares(moments, spread, _arm_basis(features.size, kept))


# -- priors --------------------------------------------------------------------------------------


def _near_constant(
    moments: Moments, features: FeatureMap, intercept: float, size: float
) -> Posterior:
    """Regression with a fixed, small prior variance of the slopes."""
    spread = np.sqrt(PRIORS.near_constant * size) * _decay(features)
    spread[0] = np.sqrt(intercept)
    return fit(moments, Prior(np.zeros(len(spread), np.int64), spread, 1.0, np.zeros(0)))


def _decay(features: FeatureMap) -> Vector:
    """Prior sds by order of roughness, shape (p,)."""
    return np.asarray(PRIORS.effect_decay ** np.maximum(features.order - 1, 0))


ALL_BUT_NONE = 1e-3
"""Prior sd of curves relative to slopes in a linear effect: negligible but not zero."""


def _centres(group: Integers, size: float) -> Vector:
    """Log variances of the groups before they are learned, shape (G,)."""
    return np.full(group.max(initial=0), np.log(size))


def _arm_basis(size: int, kept: Integers) -> Matrix:
    """Matrix from (alpha, gamma) to both arms' coefficients, shape (2 size, size + len(kept))."""
    alpha = np.eye(size)
    return np.block([[alpha, np.zeros((size, len(kept)))], [alpha, alpha[:, kept]]])


# Groups of features with one prior variance each: 1..G, and 0 for the intercept, shape (p,).


def _numbered(group: Integers) -> Integers:
    """Renumber groups as 0..G, in order."""
    return np.unique(group, return_inverse=True)[1]


def _together(features: FeatureMap) -> Integers:
    return (features.order > 0).astype(np.int64)


def _by_order(features: FeatureMap) -> Integers:
    """One group of linear terms and one group of nonlinear terms."""
    return _numbered(np.minimum(features.order, 2))


PrivateBase = Base | DPEBM
AnyBase = PrivateBase | Sklearn | Given | Kernel | NN

BASES: dict[str, PrivateBase] = {"gam": Gam(), "linear": Linear(), "dpebm": DPEBM()}

OTHERS: dict[str, AnyBase] = {"kernel": Kernel(), "nn": NN()}
"""Bases that only one learner accepts, by name."""


def moment_base(base: AnyBase) -> Base:
    """Return `base` if it learns from noisy moments; refuse others."""
    base = private_base(base)
    if isinstance(base, DPEBM):
        raise CapabilityError(
            "base='dpebm' estimates effects that vary with covariates. Use it in privcate(...), "
            "whose result includes the average effect. Here, use base='gam' or base='linear'."
        )
    return base


def private_base(base: AnyBase) -> PrivateBase:
    """Return `base` if all that it learns is private and any learner can use it; refuse others."""
    if isinstance(base, Sklearn):
        raise CapabilityError(
            "Base Sklearn(...) fits the rows without privacy protection, so only pc.paper.private "
            "and pc.paper.dpcate accept it. Here, use base='gam' or base='linear'."
        )
    if isinstance(base, Given):
        raise CapabilityError(
            "Base Given(...) holds functions without a proven guarantee, so only pc.paper.dpcate "
            "accepts it. Here, use base='gam' or base='linear'."
        )
    if isinstance(base, Kernel | NN):
        raise CapabilityError(
            f"base={base.name!r} requires learner='dpcate'. Use that learner, or base='gam' or "
            "base='linear'."
        )
    return base
