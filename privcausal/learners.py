"""The learners as option objects, to be given as `learner=`: ``pc.learners.R(...)``.

This is the public name of `privcausal.estimators`.
"""

from privcausal.estimators import *  # noqa: F403
from privcausal.estimators import __all__  # noqa: F401
