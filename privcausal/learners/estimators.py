"""Base "sklearn": nuisances by estimators of the user's own, for ``mode="paper"`` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from privcausal.errors import CapabilityError


@dataclass(frozen=True)
class Sklearn:
    """scikit-learn estimators that read the rows themselves, inside the vault.

    They are copied before they are fitted: yours learn nothing. What the copies learn is **not
    private**, and is dropped with the fit; only ``private(..., mode="paper")`` takes this base.
    They see the formula's columns on [0, 1] by their declared bounds, and 0/1 for each level.

    Parameters
    ----------
    propensity : classifier
        With ``fit`` and ``predict_proba``; unused where the propensity is known.
    outcome : regressor
        With ``fit`` and ``predict``; fitted once in each arm.

    Raises
    ------
    CapabilityError
        A method is missing, a class stands in place of an object, or an estimator prints what it
        learns (``verbose``).
    """

    propensity: Any
    outcome: Any
    name: ClassVar[str] = "sklearn"

    def __post_init__(self) -> None:
        _check("propensity", self.propensity, ("fit", "predict_proba"))
        _check("outcome", self.outcome, ("fit", "predict"))

    @classmethod
    def kernel(cls) -> Self:
        """PrivATE's kernel base: logistic regression, and kernel ridge with RBF and alpha 0.1.

        Source: Schroeder et al. (2025), supplement C.2; what it leaves open is scikit-learn's
        default (the kernel's gamma is one over the number of columns).
        """
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.linear_model import LogisticRegression

        return cls(propensity=LogisticRegression(), outcome=KernelRidge(alpha=0.1, kernel="rbf"))

    @classmethod
    def network(cls) -> Self:
        """PrivATE's neural base: one hidden layer of 32 tanh units, L2 0.1, by SGD.

        Source: Schroeder et al. (2025), supplement C.2; the rest is scikit-learn's default. The
        seed of the starting weights is public: they are no noise.
        """
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        options: dict[str, Any] = {
            "hidden_layer_sizes": (32,), "activation": "tanh", "solver": "sgd", "alpha": 0.1,
            "random_state": 0,
        }  # fmt: skip
        return cls(propensity=MLPClassifier(**options), outcome=MLPRegressor(**options))

    @property
    def source(self) -> str:
        """Python that makes it, as far as the estimators show themselves."""
        made = _arguments(self)
        for name in ("kernel", "network"):
            if made == _arguments(getattr(Sklearn, name)()):
                return f"Sklearn.{name}()"
        return f"Sklearn({made})"


def _check(name: str, estimator: Any, methods: tuple[str, ...]) -> None:
    kind = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    if isinstance(estimator, type):
        raise CapabilityError(f"Sklearn({name}=) takes an object, not a class: write {kind}()")
    missing = [m for m in methods if not callable(getattr(estimator, m, None))]
    if missing:
        raise CapabilityError(
            f"Sklearn({name}=) needs an estimator with {' and '.join(methods)}; {kind} has no "
            f"{' and no '.join(missing)}"
        )
    if _talks(estimator):
        raise CapabilityError(
            f"Sklearn({name}=): {kind} prints what it learns from the rows; set verbose=0"
        )


def _talks(estimator: Any) -> bool:
    """Whether it, or an estimator inside it, prints while it learns."""
    known = getattr(estimator, "get_params", None)
    options = known() if callable(known) else {"verbose": getattr(estimator, "verbose", 0)}
    return any(bool(v) for name, v in options.items() if name.split("__")[-1] == "verbose")


def _arguments(option: Sklearn) -> str:
    return f"propensity={_shown(option.propensity)}, outcome={_shown(option.outcome)}"


def _shown(estimator: Any) -> str:
    """An estimator on one line; of one that does not show itself, its name."""
    if callable(getattr(estimator, "get_params", None)):
        return " ".join(repr(estimator).split())
    return f"{type(estimator).__name__}(...)"
