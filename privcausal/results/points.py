"""New data for `predict`: see `spec.points`."""

from __future__ import annotations

from privcausal.spec.points import middle, read_points

__all__ = ["middle", "read_points"]
