"""The learners as option objects, to be given as `learner=`: ``pc.learners.R(...)``."""

from privcausal.estimators import (
    ADUM,
    DPCATE,
    DR,
    LEARNERS,
    TM,
    Auto,
    FirstStage,
    PrivateEstimator,
    R,
    S,
    T,
    TwoStage,
    X,
)

__all__ = [
    "ADUM",
    "DPCATE",
    "DR",
    "LEARNERS",
    "TM",
    "Auto",
    "FirstStage",
    "PrivateEstimator",
    "R",
    "S",
    "T",
    "TwoStage",
    "X",
]
