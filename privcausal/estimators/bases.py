"""Bases: how nuisances and effects depend on covariates. Each is a frozen option object.

Examples
--------
>>> pc.bases.Gam(interactions=False)
Gam(functions=3, interactions=False)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from privcausal.accounting.tradeoff import TradeOff
from privcausal.errors import CapabilityError, is_number, named
from privcausal.features.functions import FeatureMap
from privcausal.inference import regression
from privcausal.inference.population import amplitude
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import (
    Moments,
    Posterior,
    Prior,
    ScaleMixturePrior,
    fit,
    mixture_law,
)
from privcausal.prices import pair
from privcausal.typing import Integers, Matrix, Vector

# -- checks of options -----------------------------------------------------------------------------


def refuse(options: Mapping[str, bool], why: str) -> None:
    """Refuse the first option that was requested; `why` is a sentence with {} for the option."""
    for option, requested in options.items():
        if requested:
            raise CapabilityError(why.format(option))


def check_whole(what: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse a value that is not a whole number from `low` to `high`."""
    if type(value) is not int or value < low or (high is not None and value > high):
        until = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise CapabilityError(f"{what} must be a whole number {until}.")


def check_one_of(what: str, value: object, known: Sequence[object]) -> None:
    if value not in known:
        raise CapabilityError(f"{what} must be one of {', '.join(map(repr, known))}.")


def check_switch(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise CapabilityError(f"{what} must be True or False.")


# -- bases that learn from noisy moments -----------------------------------------------------------


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
        check_whole("Gam(functions=)", self.functions, 1, 8)
        check_switch("Gam(interactions=)", self.interactions)

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
        group = (features.order > 0).astype(np.int64)
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
        posteriors = [constant, regression.mixture(moments, law)]
        _, mean, cov = mixture_law([(p.evidence, p.mean, p.cov) for p in posteriors])
        return Posterior(mean, cov, max(p.evidence for p in posteriors))

    def forms(
        self, moments: Moments, features: FeatureMap, intercept: float, size: float
    ) -> dict[str, Posterior]:
        """The effect by form, each with its marginal likelihood given the same moments."""
        forms = {"constant": _near_constant(moments, features, intercept, size)}
        together = (features.order > 0).astype(np.int64)
        scale = np.where(features.order > 1, ALL_BUT_NONE, 1.0)
        linear = Prior(together, scale, intercept, _centres(together, size), WHOLE_PULL)
        forms["linear"] = fit(moments, linear)
        # smooth: one variance for all terms, by order of roughness, and by term and order;
        # two groups per term: its linear part and its nonlinear part
        names = list(dict.fromkeys(features.group[1:]))
        term = np.array([0, *(1 + 2 * names.index(g) for g in features.group[1:])], np.int64)
        by_term = np.unique(term + (features.order > 1), return_inverse=True)[1]
        for name, group, pull, factor in (
            ("smooth", together, WHOLE_PULL, 1.0),
            ("smooth by order", _by_order(features), PART_PULL, CURVED),
            ("smooth by term", by_term, PART_PULL, CURVED),
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
        group = np.unique(np.r_[shared, contrast], return_inverse=True)[1]
        scale = np.r_[np.ones(features.size), _decay(features)[kept]]
        # from (alpha, gamma) to both arms' coefficients
        alpha, centre = np.eye(features.size), _centres(group, size)
        basis = np.block([[alpha, np.zeros((features.size, len(kept)))], [alpha, alpha[:, kept]]])
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
        alpha = np.eye(features.size)
        spread = np.full(features.size + len(kept), np.sqrt(intercept))
        basis = np.block([[alpha, np.zeros((features.size, len(kept)))], [alpha, alpha[:, kept]]])
        return regression.least_squares(moments, spread, basis)


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


# Groups of features with one prior variance each: 1..G, and 0 for the intercept, shape (p,). They
# are numbered in order (`return_inverse`).


def _by_order(features: FeatureMap) -> Integers:
    """One group of linear terms and one group of nonlinear terms."""
    return np.unique(np.minimum(features.order, 2), return_inverse=True)[1]


# -- other bases: boosting, kernels, networks, user-supplied estimators ---------------------------

RANGES = {"bandwidth": (1e-3, 1e3), "ridge": (1e-6, 1e6)}
"""Allowed ranges; values beyond bring no gain and may overflow. The default ridge is within."""


BOOSTING = (
    "Functions of single columns were fitted by private explainable boosting (Nori et al. 2021). "
    "In each round, residuals were clipped to a public or released bound and summed within random "
    "leaves of public bins, and the functions moved a step toward the noisy means. Unless "
    "smooth=False, the functions were smoothed across neighboring bins by empirical Bayes. "
    "Products of columns were then added to the nuisance models by regression on noisy moments."
)

MASS = (
    "With base='dpebm', privacy noise is about 3% larger if the treatment depends strongly on "
    "correlated covariates, because boosting then underfits the propensity."
)


@named
@dataclass(frozen=True)
class DPEBM:
    """Private explainable boosting (Nori et al. 2021), as a base of the CATE learners.

    Unlike the implementation in the package interpret, the guarantee holds for any data. Bins come
    from declared or privately estimated bounds and levels. Targets are centered, and residuals are
    clipped at a public or released bound. Sums are integers with discrete Gaussian noise.

    Parameters
    ----------
    rounds : int
        Number of boosting rounds, 10 to 3000, which share the budget of the stage.
    bins : int
        Maximum number of bins of a numeric column, 2 to 256. Bins have about equal shares of the
        released histogram.
    leaves : int
        Number of leaves, 2 to 16. Each round joins the bins into leaves at random.
    learning_rate : float
        Step length, in (0, 1]. If ``rounds * learning_rate`` is about 3, boosting learns about 90%
        of a line, and less of a rougher shape.
    smooth : bool
        Smooth the shapes across neighboring bins by empirical Bayes. Smoothing is post-processing
        and costs no budget. False keeps the shapes from the rounds.

    Notes
    -----
    If the propensity is estimated, products of columns are added to the propensity and the mean
    outcome. Shapes of single columns cannot adjust for confounding by products. The effect remains
    a sum of shapes.

    Declare a numeric column with few values, such as 0 and 1, by its levels
    (``bounds={"member": [0, 1]}``). The positions of rows within a cell of the released histogram
    are unknown. Smoothing assumes that rows are spread over the cell, unless the cell is isolated.

    Raises
    ------
    CapabilityError
        An option is outside its range.
    """

    rounds: int = 300
    bins: int = 32
    leaves: int = 3
    learning_rate: float = 0.01
    smooth: bool = True
    name: ClassVar[str] = "dpebm"
    functions: ClassVar[int] = 1
    interactions: ClassVar[bool] = True
    released_weights: ClassVar[bool] = False
    methods: ClassVar[tuple[str, ...]] = (BOOSTING,)
    planned: ClassVar[str] = MASS

    def __post_init__(self) -> None:
        for option, low, high in (("rounds", 10, 3000), ("bins", 2, 256), ("leaves", 2, 16)):
            check_whole(f"DPEBM({option}=)", getattr(self, option), low, high)
        if not is_number(self.learning_rate) or not 0 < self.learning_rate <= 1:
            raise CapabilityError("DPEBM(learning_rate=) must be a number in (0, 1].")
        check_switch("DPEBM(smooth=)", self.smooth)


@named
@dataclass(frozen=True)
class Kernel:
    """Gaussian-kernel regression of the effect, released once on a public basis.

    Only for ``learner="dpcate"``. The kernel is exp(-||z - z'||^2 / (2 h^2)) on the effect
    modifiers. Each modifier is scaled to [-1, 1] by its declared bounds (0/1 for each level of a
    factor).

    Parameters
    ----------
    bandwidth : float, optional
        h. Default: half the square root of the number of modifiers.
    ridge : float, optional
        Lambda of the paper (Schroeder et al. 2025, Eq. 18), for a mean loss with squares halved.
        At least 1e-6; fitting time grows with one over its root. By default, the ridge is chosen
        from released numbers, including a noisy count of the rows, to balance noise and shrinkage.
        `privcausal.paper.dpcate` does not halve squares. Its default is 1/n, as implied by
        scikit-learn's alpha = 1, where n is the public number of rows of the second stage.
    loss : {"huber", "squared"}
        The Huber loss needs far less noise, because it caps the influence of one row on the fit at
        a released number. `privcausal.paper.dpcate` always uses the squared loss.
    functions : int
        Size of the basis; an even number.

    Raises
    ------
    CapabilityError
        A parameter is out of range or unknown.
    """

    bandwidth: float | None = None
    ridge: float | None = None
    loss: Literal["huber", "squared"] = "huber"
    functions: int = 200
    name: ClassVar[str] = "kernel"
    nuisances: ClassVar[str] = "gam"

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not (is_number(value) and low <= value <= high):
                raise CapabilityError(f"Kernel({name}=) must be a number from {low:g} to {high:g}.")
        check_one_of("Kernel(loss=)", self.loss, ("huber", "squared"))
        check_whole("Kernel(functions=)", self.functions, 2, 1000)
        if self.functions % 2:
            raise CapabilityError("Kernel(functions=) must be even.")


@named
@dataclass(frozen=True)
class NN:
    """Networks with one hidden layer of 32 rectified units, trained by DP-SGD.

    Only for ``learner="dpcate"``. Each row's gradient is clipped to norm one, rows enter a
    minibatch by coin flips, and the noise is discrete Gaussian. The accounting uses Renyi
    divergences for adding or removing a row, so replacing a row costs twice as much. Base "gam" is
    therefore more accurate in most studies.

    The networks use half of epsilon and half of delta. They require a public number of rows and
    declared bounds. No average effects are released, because their intervals would have to allow
    for the errors of the networks.

    In `privcausal.paper.dpcate` the networks learn from the nuisances' half of the rows, and each
    has half of epsilon and of delta. The second stage uses the other half of the rows with all of
    epsilon and delta (Theorem 1).

    Parameters
    ----------
    epochs : int
        Mean number of times that each row is used (the paper does not state it).
    second : Kernel
        The second stage.

    Raises
    ------
    CapabilityError
        A parameter is wrong.
    """

    epochs: int = 20
    second: Kernel = field(default_factory=Kernel)
    name: ClassVar[str] = "nn"
    nuisances: ClassVar[str] = "DP-SGD networks"

    def __post_init__(self) -> None:
        check_whole("NN(epochs=)", self.epochs, 1, 1000)
        if not isinstance(self.second, Kernel):
            raise CapabilityError("NN(second=) must be a Kernel, for example pc.bases.Kernel().")


@named
@dataclass(frozen=True)
class Given:
    """Nuisances given as functions of the covariates, for `privcausal.paper.dpcate`.

    You **declare** that the functions are public, or private at a cost charged elsewhere. The
    package does not check this declaration and makes no charge for the functions. The second stage
    then learns from all rows.

    Each function takes an array of shape (n, q) and returns shape (n,). Columns are the formula's,
    scaled to [0, 1] by their declared bounds, with 0/1 for each level. The functions are evaluated
    at the rows, inside the vault. A function that keeps or prints its input leaks it.

    Parameters
    ----------
    propensity, control, treated : callable
        P(T = 1 | x), E[Y | x, T = 0] and E[Y | x, T = 1].
    price : (epsilon, delta), optional
        Privacy cost of the functions, charged separately. Default: the functions are public.

    Raises
    ------
    CapabilityError
        A parameter is wrong.
    """

    propensity: Callable[[Matrix], Vector]
    control: Callable[[Matrix], Vector]
    treated: Callable[[Matrix], Vector]
    price: tuple[float, float] | None = None
    name: ClassVar[str] = "given"
    source: ClassVar[str] = "pc.bases.Given(...)"

    def __post_init__(self) -> None:
        for name in ("propensity", "control", "treated"):
            if not callable(getattr(self, name)):
                raise CapabilityError(
                    f"Given({name}=) must be a function of an array of covariates."
                )
        if self.price is not None:
            TradeOff.from_dp(*self.price)  # Refuses an invalid pair.

    @property
    def declared(self) -> str:
        """Sentence that states the user's declaration."""
        if self.price is None:
            return "The nuisance models were supplied by the user, who declared them public."
        return (
            "The nuisance models were supplied by the user, who declared them "
            f"{pair(*self.price)}-DP. This cost is not part of this budget."
        )


@named
@dataclass(frozen=True)
class Sklearn:
    """scikit-learn estimators that read the rows themselves, inside the vault.

    The estimators are cloned before fitting, so yours stay unfitted. The fitted clones are **not
    private** and are dropped with the fit; only functions in `privcausal.paper` accept this base.
    The clones see the formula's columns, scaled to [0, 1] by their declared bounds, with 0/1 for
    each level.

    Parameters
    ----------
    propensity : classifier
        With ``fit`` and ``predict_proba``; unused if the propensity is known.
    outcome : regressor
        With ``fit`` and ``predict``; fitted once in each arm.

    Raises
    ------
    CapabilityError
        A method is missing, a class is given instead of an object, or an estimator prints while
        it learns (``verbose``).
    """

    propensity: Any
    outcome: Any
    name: ClassVar[str] = "sklearn"

    def __post_init__(self) -> None:
        _check_estimator("propensity", self.propensity, ("fit", "predict_proba"))
        _check_estimator("outcome", self.outcome, ("fit", "predict"))

    @classmethod
    def kernel(cls) -> Self:
        """PrivATE's kernel base: logistic regression, and kernel ridge with RBF and alpha 0.1.

        Source: Schroeder et al. (2025), supplement C.2. Other options are scikit-learn's defaults
        (gamma of the kernel is one over the number of columns).
        """
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.linear_model import LogisticRegression

        return cls(propensity=LogisticRegression(), outcome=KernelRidge(alpha=0.1, kernel="rbf"))

    @classmethod
    def network(cls) -> Self:
        """PrivATE's neural base: one hidden layer of 32 tanh units, L2 0.1, by SGD.

        Source: Schroeder et al. (2025), supplement C.2. Other options are scikit-learn's defaults.
        The seed of the starting weights is public, because these weights are not privacy noise.
        """
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        options: dict[str, Any] = {
            "hidden_layer_sizes": (32,), "activation": "tanh", "solver": "sgd", "alpha": 0.1,
            "random_state": 0,
        }  # fmt: skip
        return cls(propensity=MLPClassifier(**options), outcome=MLPRegressor(**options))

    @property
    def source(self) -> str:
        """Python code that creates this base, as far as the estimators' reprs show it."""
        calls = list[str]()
        for base in (self, Sklearn.kernel(), Sklearn.network()):
            # reprs on one line; names of estimators that do not have scikit-learn's repr
            texts = []
            for name, estimator in (("propensity", base.propensity), ("outcome", base.outcome)):
                text = f"{type(estimator).__name__}(...)"
                if callable(getattr(estimator, "get_params", None)):
                    text = " ".join(repr(estimator).split())
                texts.append(f"{name}={text}")
            calls.append(", ".join(texts))
        made, *usual = calls
        for name, call in zip(("kernel", "network"), usual, strict=True):
            if made == call:
                return f"pc.bases.Sklearn.{name}()"
        return f"pc.bases.Sklearn({made})"


def _check_estimator(name: str, estimator: Any, methods: tuple[str, ...]) -> None:
    if isinstance(estimator, type):
        raise CapabilityError(
            f"Sklearn({name}=) must be an object, not a class. Write {estimator.__name__}()."
        )
    kind = type(estimator).__name__
    missing = [m for m in methods if not callable(getattr(estimator, m, None))]
    if missing:
        raise CapabilityError(
            f"Sklearn({name}=) requires an estimator with {' and '.join(methods)}. {kind} does not "
            f"have {' and '.join(missing)}."
        )
    # the options of the estimator and of estimators inside it
    known = getattr(estimator, "get_params", None)
    settings = known() if callable(known) else {"verbose": getattr(estimator, "verbose", 0)}
    if any(bool(v) for key, v in settings.items() if key.split("__")[-1] == "verbose"):
        raise CapabilityError(
            f"Sklearn({name}=): {kind} prints information about the rows. Set verbose=0."
        )


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
