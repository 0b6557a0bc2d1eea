"""Products of modifiers in an effect, said in words."""

from __future__ import annotations

from privcausal.inference.effect import Effect
from privcausal.spec.interactions import Interactions

SHOWN, LEAST = 5, 0.1
"""Largest number of products that are named, and the least size of one against the largest."""


def note(effect: object) -> str:
    """What a reader has to know of an effect with products; empty for others.

    A product's coefficient is its standard deviation over the released population, beyond what is
    additive.
    """
    if not isinstance(effect, Effect):
        return ""
    found = {
        name: abs(float(coef))
        for piece in effect.pieces
        if isinstance(piece.additive.features, Interactions)
        for name, coef in zip(piece.additive.features.names, piece.additive.coef, strict=True)
    }
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
