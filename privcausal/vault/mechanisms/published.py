"""PrivATE as its paper prints it (Schroeder et al. 2025): an estimate and its squared error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.accounting.charge import PICO
from privcausal.spec.features import Design, Rows
from privcausal.spec.functions import Nuisance
from privcausal.spec.plan import Stage
from privcausal.typing import Matrix, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.estimators import Estimators, learn, unit_columns
from privcausal.vault.mechanisms.base import ONE_FACTOR
from privcausal.vault.supremum import Supremum
from privcausal.vault.transforms.scores import Aipw, Outcome

LEAST = 3
"""Formulas are evaluated at no fewer rows: at one row their noise would be zero."""

AddNoise = Callable[[str, float, float, float], float]
"""(name, exact value, grid unit, noise sd) to the noisy value."""


@dataclass(frozen=True, eq=False)
class PublishedAte:
    """tau_hat with the noise of Theorem 4.3, and V/n of Theorem 4.6 with that of Theorem 4.5.

    tau_hat is the mean of the AIPW score Gamma over all complete rows, with nuisances fitted on the
    same rows (no cross-fitting: the paper uses "the complete data", its section 4.2), and
    sigma_hat^2 the mean of (Gamma - tau_hat)^2 (its Eq. 8). With U standard normal and
    K(eps, delta) = 5 sqrt(2 ln(n) ln(2/delta)) / (eps n),

        tau_DP     = tau_hat + gamma K(eps_1, delta_1) U                                  (Eq. 7)
        sigma_DP^2 = max(0, sigma_hat^2 + gamma_sigma K(eps_2, delta_2) U')              (Eq. 11)
        V          = sigma_DP^2 + gamma^2 50 ln(n) ln(2/delta_1) / (n eps_1^2)           (Eq. 16)

    gamma = sup |Gamma(z) - tau_hat| over the declared domain: exact in treatment and outcome, where
    the score is linear, by `Supremum` in the covariates. gamma_sigma = sup |(Gamma(z) - tau_hat)^2
    - sigma_hat^2| is max(gamma^2 - sigma_hat^2, sigma_hat^2), since Gamma(z) = tau_hat somewhere.

    Attributes
    ----------
    nuisances : Estimators or Nuisance
        Estimators to be fitted on the rows, or released functions.
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    None is proven. With *fixed* nuisances, gamma exact and n large enough the noise is a smooth
    sensitivity bound (Nissim et al. 2007), and tau_DP and sigma_DP^2 are private. Fitted nuisances
    move with a row (as does n, which counts complete rows): the estimate's sensitivity is then no
    longer gamma / n, and `tests/learners/test_published.py` holds two neighbouring tables for which
    the noise is far too small. V holds gamma, a function of the rows, without noise of its own. So
    neither gamma nor a noise scale leaves this function: with V they would tell gamma exactly.
    """

    nuisances: Estimators | Nuisance
    design: Design
    outcome: Outcome
    clip: float
    starts: Matrix

    name = "discrete Gaussian"

    def answer(
        self, batches: Sequence[Batch], effect: Stage, variance: Stage, add_noise: AddNoise
    ) -> tuple[float, float]:
        """(tau_DP, V/n), each rounded to a fine public grid."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # an estimator warns of what it saw in the rows
            warnings.simplefilter("ignore")
            nuisance = self._nuisance(batches)
            score = Aipw(nuisance, self.outcome, self.clip)
            values = np.concatenate([score(batch)[batch.complete] for batch in batches])
            size = max(len(values), LEAST)
            tau = float(values.sum()) / size
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(nuisance, rows, tau)
            )
        square = float(((values - tau) ** 2).sum()) / size
        scale = gamma * noise_scale(size, effect)
        grid = 2.0**-ONE_FACTOR
        noisy = add_noise("estimate", tau, score.bound * grid, scale)
        noisy_square = add_noise(
            "variance",
            square,
            (2 * score.bound) ** 2 * grid,
            max(gamma**2 - square, square) * noise_scale(size, variance),
        )
        return noisy, max(0.0, noisy_square) / size + scale**2

    def _nuisance(self, batches: Sequence[Batch]) -> Nuisance:
        if isinstance(self.nuisances, Nuisance):
            return self.nuisances
        x = [unit_columns(batch.rows, self.design)[batch.complete] for batch in batches]
        t, y = ([getattr(batch, name)[batch.complete] for batch in batches] for name in ("t", "y"))
        return learn(
            self.nuisances,
            np.concatenate(x),
            np.concatenate(t),
            np.concatenate(y),
            design=self.design,
            clip=self.clip,
            bounds=(self.outcome.lo, self.outcome.hi),
        )

    def _reach(self, nuisance: Nuisance, rows: Rows, tau: float) -> Vector:
        """max over t and y of |Gamma(t, x, y) - tau| at given covariates, shape (n,)."""
        mu0, mu1, e = nuisance.mu0(rows), nuisance.mu1(rows), nuisance.e(rows)
        ends = [
            np.abs(mu1 - mu0 - tau + sign * (y - mu) / p)
            for y in (self.outcome.lo, self.outcome.hi)
            for sign, mu, p in ((1.0, mu1, e), (-1.0, mu0, 1 - e))
        ]
        return np.asarray(np.max(ends, axis=0))


def noise_scale(size: int, stage: Stage) -> float:
    """5 sqrt(2 ln(n) ln(2/delta)) / (eps n): noise per unit of gross error sensitivity (Eq. 13)."""
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return float(5 * np.sqrt(2 * np.log(size) * np.log(2 / delta)) / (epsilon * size))
