"""How much one row may weigh in an average effect.

A score divides by the propensity. Where that is small, a score is large, and with it the noise that
hides it. Limits of the propensity save noise, and cost a bias: what they leave out of the fitted
propensity, times what the mean outcome errs by. The law of that bias is known from the releases,
as that of the nuisances' errors is, and joins the interval. So the limits are those of least
predicted squared error; without any weights but the arms' shares an average is the difference of
the arms' means, adjusted by the mean outcome alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privcausal.inference.effect import Effect
from privcausal.inference.score_cut import score_cut
from privcausal.learners.averages import Weighed, noise_per_cut, rough_sums
from privcausal.learners.estimands import average_target
from privcausal.learners.ground import Ground
from privcausal.learners.nuisances import Partial, limited, remainder
from privcausal.spec.functions import Nuisance
from privcausal.vault import Outcome

FACTORS = (np.inf, 4.0, 3.2, 2.5, 2.0, 1.6, 1.25, 1.0)
"""Most that a row may weigh, in weights of a difference of means; the first has no limit."""


def weighed(
    ground: Ground,
    partials: tuple[Partial, ...],
    nuisances: tuple[Nuisance, ...],
    tau: Effect,
    stage: str,
) -> Weighed:
    """Nuisances with the limits of least predicted squared error, and the law of their bias.

    Parameters
    ----------
    partials : tuple of Partial
        Propensity and mean outcome, by fold; a known propensity has no limits.
    nuisances : tuple of Nuisance
        What the scores are made of, by fold.
    tau : Effect
        The effect that is known already.
    stage : str
        Of the scores, whose noise is known.
    """
    if partials[0].pair is None:
        return Weighed(nuisances, remainder(ground, partials))
    share = float(np.mean([p.e(ground.rows).mean() for p in partials]))
    centre, found, best = float(np.mean(tau(ground.rows))), None, np.inf
    for factor in FACTORS:
        parts = tuple(limited(p, share / factor, 1 - (1 - share) / factor) for p in partials)
        scored = tuple(replace(n, e=p.e) for n, p in zip(nuisances, parts, strict=True))
        rest = remainder(ground, parts, tau=tau)
        loss = rest.rms**2 + _noise(ground, scored, centre, stage)
        if found is None or loss < best:
            best, found = loss, Weighed(scored, rest, factor)
    assert found is not None
    return found


def _noise(ground: Ground, nuisances: tuple[Nuisance, ...], centre: float, stage: str) -> float:
    """Squared noise and bias of the best cut, for outcomes anywhere where they are seen."""
    window = ground.look.window if ground.look is not None else ground.outcome
    target = average_target(ground, nuisances, centre, within=Outcome(window.lo, window.hi))
    noise = noise_per_cut(ground, rough_sums(ground, target), stage)
    cut = score_cut(target.extremes, noise, None, None, ground.population.count)
    return float((noise * cut.at) ** 2 + cut.bias**2)
