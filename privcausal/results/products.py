"""Products of modifiers in an effect, said in words."""

from __future__ import annotations

import numpy as np

from privcausal.inference.effect import Effect
from privcausal.learners import Estimate
from privcausal.spec.interactions import Interactions

SHOWN, LEAST = 5, 0.1
"""Largest number of products that are named, and the least size of one against the largest."""


def note(estimate: Estimate) -> str:
    """What a reader has to know of an effect with products; empty for others.

    The sd is that of all products of two terms together, levels too, over the released population,
    beyond what is additive.
    """
    found = sizes(estimate)
    if not found:
        return ""
    largest = max(found.values())
    kept = sorted((n for n in found if found[n] >= LEAST * largest), key=lambda n: -found[n])
    named = ", ".join(f"{name} (sd {found[name]:.2g})" for name in kept[:SHOWN])
    more = " and smaller ones" if len(kept) > SHOWN else ""
    return (
        f"The moments speak for products of modifiers in the effect, beside its additive part: "
        f"{named}{more}. Effects by modifier are averages over the others."
    )


def sizes(estimate: Estimate) -> dict[str, float]:
    """Standard deviation of what two terms' products add to the effect, by their names."""
    found: dict[str, float] = {}
    if not isinstance(estimate.effect, Effect):
        return found
    for piece in estimate.effect.pieces:
        psi = piece.additive.features
        if isinstance(psi, Interactions):
            parts = estimate.population.rows().phi(psi) * piece.additive.coef
            names = np.array(psi.names)
            found = {
                n: float(parts[:, names == n].sum(axis=1).std()) for n in dict.fromkeys(psi.names)
            }
    return found
