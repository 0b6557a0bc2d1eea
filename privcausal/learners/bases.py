"""Bases: how nuisances and effects depend on the covariates. Each is a frozen option object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.inference.additive import Moments, Posterior, Prior, average, fit, least_squares
from privcausal.inference.basis import amplitude
from privcausal.inference.mixture import Law, mixture
from privcausal.learners.dpebm import DPEBM
from privcausal.learners.estimators import Sklearn
from privcausal.learners.kernels import NN, Kernel
from privcausal.spec.features import FeatureMap
from privcausal.typing import Integers, Matrix, Vector

ROUGHNESS_DECAY = 0.35
"""Prior sd of an effect's next rougher function against the one before."""


NEAR_CONSTANT = 1e-4
"""Prior variance of the slopes of an effect that is next to constant, against that of others."""

COMMON_SLOPE = 0.2
"""Prior sd of a linear function's coefficient where all matter alike, against what is plausible of
an effect's size, sqrt(10 size_var)."""

PLAUSIBLE, PLAUSIBLE_DECAY = 2.0, 0.5
"""Sd of a term's linear part, in cuts of the residual product, and of each rougher one against the
one before, as a band takes them to be before moments speak."""

NUISANCE_PULL = 0.25
"""How strongly a nuisance's prior variance is held near its public centre (log sd sqrt 2): where
the data cannot speak it stays there, so that neither the fit nor its error bar collapses."""


class Base(ABC):
    """What a base must offer: its width, and regression from noisy moments.

    Attributes
    ----------
    functions : int
        Basis functions of a smooth numeric column.
    released_weights : bool
        Release the second-stage Gram (textbook), rather than compute it by post-processing.
    """

    name: ClassVar[str]
    released_weights: ClassVar[bool]
    functions: int
    interactions: bool

    @abstractmethod
    def nuisance(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        size_var: float,
        *,
        fit_noise: bool,
    ) -> Posterior:
        """Regression for a nuisance, with public prior variances of the intercept and slopes."""

    @abstractmethod
    def effect(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        """Regression for the effect."""

    def conditional(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        """The same where the effect's shape is what is wanted."""
        return self.effect(moments, features, intercept_var, size_var)

    @abstractmethod
    def arms(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        mean_var: float,
        effect_var: float,
        *,
        kept: Integers,
    ) -> Posterior:
        """Both arms' means at once, their difference depending on the `kept` features."""


@dataclass(frozen=True)
class Gam(Base):
    """Private additive regression (the default): smooth terms, empirical Bayes.

    Parameters
    ----------
    functions : int
        Basis functions per smooth numeric term, 1 to 8.
    interactions : bool
        Learn products of covariates: in nuisances, and of modifiers in the effect of learner "r".
    """

    functions: int = 3
    interactions: bool = True
    name: ClassVar[str] = "gam"
    released_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self.functions) is not int or not 1 <= self.functions <= 8:
            raise CapabilityError("Gam(functions=) must be a whole number from 1 to 8")
        if not isinstance(self.interactions, bool):
            raise CapabilityError("Gam(interactions=) must be True or False")

    def nuisance(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        size_var: float,
        *,
        fit_noise: bool,
    ) -> Posterior:
        group = by_order(features)
        prior = Prior(
            group,
            np.ones(features.size),
            intercept_var,
            _centres(group, size_var),
            NUISANCE_PULL,
            fit_noise=fit_noise,
        )
        return fit(moments, prior)

    def effect(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        """Three prior structures averaged by marginal likelihood: one variance for all terms,
        by order of roughness, and by term and order."""
        scale = ROUGHNESS_DECAY ** np.maximum(features.order - 1, 0)
        fits = []
        for group, pull, rough in (
            (together(features), 0.03, 1.0),
            (by_order(features), 0.1, 0.01),
            (by_term(features), 0.1, 0.01),
        ):
            centre = _centres(group, size_var) + np.log(_rough(group, features, rough))
            fits.append(fit(moments, Prior(group, scale, intercept_var, centre, pull)))
        return average(fits)

    def conditional(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        """Coefficients of unknown scales, few of which may matter, linear functions that all matter
        alike, or an effect that is next to constant: averaged by marginal likelihood."""
        unit = np.full(features.size, np.sqrt(10 * size_var) / amplitude(len(features.blocks)))
        law = Law(intercept_var, unit, np.minimum(features.order, 2) - 1)
        alike = 10 * COMMON_SLOPE**2 * size_var
        return average(
            [
                self._constant(moments, features, intercept_var, size_var),
                _held(moments, features, _straight(features), intercept_var, alike),
                mixture(moments, law),
            ]
        )

    def reference(self, features: FeatureMap, intercept_var: float, size_var: float) -> Matrix:
        """Covariance of plausible effects, shape (p, p): a band's prior where little is known."""
        unit = PLAUSIBLE * np.sqrt(10 * size_var) / amplitude(len(features.blocks))
        rough = PLAUSIBLE_DECAY ** np.maximum(features.order - 1, 0)
        variance = (unit * rough) ** 2
        variance[0] = max(intercept_var, unit**2)
        return np.diag(variance)

    def _constant(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        scale = ROUGHNESS_DECAY ** np.maximum(features.order - 1, 0)
        return _held(moments, features, scale, intercept_var, NEAR_CONSTANT * size_var)

    def forms(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> dict[str, Posterior]:
        """The effect by its form, each with its marginal likelihood given the same moments."""
        scale = ROUGHNESS_DECAY ** np.maximum(features.order - 1, 0)
        straight = _straight(features)
        constant = self._constant(moments, features, intercept_var, size_var)
        return {"constant": constant} | {
            name: fit(
                moments, Prior(group, sizes, intercept_var, _sized(group, features, size), pull)
            )
            for name, group, sizes, pull, size in (
                ("linear", together(features), straight, 0.03, (size_var, size_var)),
                ("smooth", together(features), scale, 0.03, (size_var, size_var)),
                ("smooth by order", by_order(features), scale, 0.1, (size_var, 0.01 * size_var)),
                ("smooth by term", by_term(features), scale, 0.1, (size_var, 0.01 * size_var)),
            )
        }

    def arms(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        mean_var: float,
        effect_var: float,
        *,
        kept: Integers,
    ) -> Posterior:
        """Both arms' means at once: mu_0 = phi'alpha, mu_1 = phi'(alpha + gamma).

        gamma is zero but for the `kept` features.
        """
        basis = arm_basis(features.size, kept)
        shared = by_order(features)
        own = np.where(shared > 0, shared + shared.max(), 0)[kept]
        own_scale = ROUGHNESS_DECAY ** np.maximum(features.order - 1, 0)[kept]
        group = compact(np.r_[shared, own])
        size = np.where(np.arange(len(group)) < features.size, mean_var, effect_var)
        centre = np.array([np.log(size[group == g][0]) for g in range(1, group.max() + 1)])
        scale = np.r_[np.ones(features.size), own_scale]
        return fit(moments, Prior(group, scale, intercept_var, centre, fit_noise=True, basis=basis))


@dataclass(frozen=True)
class Linear(Base):
    """Least squares on the formula's own columns, steadied only as far as noise asks."""

    functions: int = field(default=1, init=False)
    interactions: bool = field(default=False, init=False)
    name: ClassVar[str] = "linear"
    released_weights: ClassVar[bool] = True

    def nuisance(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        size_var: float,
        *,
        fit_noise: bool,
    ) -> Posterior:
        return least_squares(moments, _spread(features, intercept_var))

    def effect(
        self, moments: Moments, features: FeatureMap, intercept_var: float, size_var: float
    ) -> Posterior:
        return least_squares(moments, _spread(features, intercept_var))

    def arms(
        self,
        moments: Moments,
        features: FeatureMap,
        intercept_var: float,
        mean_var: float,
        effect_var: float,
        *,
        kept: Integers,
    ) -> Posterior:
        spread = _spread(features, intercept_var)
        basis = arm_basis(features.size, kept)
        return least_squares(moments, np.r_[spread, spread[kept]], basis)


def _straight(features: FeatureMap) -> Vector:
    """Prior sds, shape (p,), under which linear functions are all but alone."""
    return np.where(features.order > 1, 1e-3, 1.0)


def _held(
    moments: Moments, features: FeatureMap, scale: Vector, intercept_var: float, size_var: float
) -> Posterior:
    """Regression under a prior variance that is not learned, times squares of `scale`."""
    spread = np.sqrt(size_var) * scale
    spread[0] = np.sqrt(intercept_var)
    return fit(moments, Prior(np.zeros(features.size, np.int64), spread, 1.0, np.zeros(0)))


def _spread(features: FeatureMap, intercept_var: float) -> Vector:
    """Wide prior sds: as wide for each feature as for the intercept, per basis amplitude."""
    return np.full(features.size, np.sqrt(intercept_var))


def arm_basis(size: int, kept: Integers) -> Matrix:
    """Matrix from (alpha, gamma) to both arms' coefficients, shape (2 size, size + len(kept))."""
    one = np.eye(size)
    return np.vstack(
        [np.hstack([one, np.zeros((size, len(kept)))]), np.hstack([one, one[:, kept]])]
    )


def compact(group: Integers) -> Integers:
    """Group numbers renumbered 1..G with 0 kept."""
    names = {g: i + 1 for i, g in enumerate(sorted(set(group.tolist()) - {0}))}
    return np.array([names.get(g, 0) for g in group.tolist()], np.int64)


def together(features: FeatureMap) -> Integers:
    """One group for everything but the intercept."""
    return (features.order > 0).astype(np.int64)


def by_order(features: FeatureMap) -> Integers:
    """Linear terms, and nonlinear ones."""
    return compact(np.where(features.order == 0, 0, np.where(features.order == 1, 1, 2)))


def by_term(features: FeatureMap) -> Integers:
    """Each term's linear and nonlinear part."""
    names = {name: i for i, name in enumerate(dict.fromkeys(features.group[1:]))}
    code = [0] + [
        1 + 2 * names[g] + int(o > 1)
        for g, o in zip(features.group[1:], features.order[1:].tolist(), strict=True)
    ]
    return compact(np.array(code, np.int64))


def _centres(group: Integers, size_var: float) -> Vector:
    return np.full(group.max(initial=0), np.log(size_var))


def _sized(group: Integers, features: FeatureMap, size: tuple[float, float]) -> Vector:
    """Centres of the log variances of linear and of nonlinear groups, shape (G,)."""
    return _centres(group, size[0]) + np.log(_rough(group, features, size[1] / size[0]))


def _rough(group: Integers, features: FeatureMap, factor: float) -> Vector:
    """`factor` for groups of nonlinear functions, 1 for others, shape (G,)."""
    first = [int(np.flatnonzero(group == g)[0]) for g in range(1, group.max(initial=0) + 1)]
    return np.where(features.order[first] > 1, factor, 1.0) if first else np.zeros(0)


PrivateBase = Base | DPEBM
AnyBase = PrivateBase | Sklearn | Kernel | NN

BASES: dict[str, PrivateBase] = {"gam": Gam(), "linear": Linear(), "dpebm": DPEBM()}

OTHERS: dict[str, AnyBase] = {"kernel": Kernel(), "nn": NN()}
"""Bases of one learner only, by name."""


def find_base(base: object) -> AnyBase:
    """The base of this name, or the option object itself."""
    known = {**BASES, **OTHERS}
    if isinstance(base, str) and base in known:
        return known[base]
    if isinstance(base, AnyBase):
        return base
    shown = repr(base)[:40] if isinstance(base, str) else f"of type {type(base).__name__}"
    raise CapabilityError(f"base {shown} is unknown; choose one of {', '.join(map(repr, known))}")


def moment_base(base: AnyBase) -> Base:
    """`base` where it learns from noisy moments; the others are refused."""
    base = private_base(base)
    if isinstance(base, DPEBM):
        raise CapabilityError(
            "base 'dpebm' learns effects that depend on covariates: take it in privcate(...), "
            "whose result has the average effect too. Here write base='gam' or base='linear'"
        )
    return base


def private_base(base: AnyBase) -> PrivateBase:
    """`base` where all it learns is private; estimators that read the rows are refused."""
    if isinstance(base, Sklearn):
        raise CapabilityError(
            "base Sklearn(...) fits on the rows themselves and nothing protects what it learns: "
            "only private(..., mode='paper') takes it. Here write base='gam' or base='linear'"
        )
    if isinstance(base, Kernel | NN):
        raise CapabilityError(
            f"base {base.name!r} is for learner='dpcate' only: write that learner, or base='gam' "
            "or base='linear'"
        )
    return base
