"""The learners as option objects, to be given as `learner=`: ``pc.learners.R(...)``.

This is the public name of `privcausal.estimators`.

Examples
--------
>>> pc.learners.ADUM(cells=4).name
'adum'
"""

from privcausal.estimators import *  # noqa: F403
from privcausal.estimators import __all__  # noqa: F401
