"""Results of fits: immutable objects without rows."""

from __future__ import annotations

import os

from privcausal.errors import named
from privcausal.request.request import COHORTS
from privcausal.results import stored
from privcausal.results.comparison import compare
from privcausal.results.fits import (
    AteResult,
    CateResult,
    EventStudyResult,
    GeneralizedResult,
    RegressionResult,
    Result,
)
from privcausal.results.guarantee import Guarantee
from privcausal.results.plan import PlanResult

_KINDS: dict[str, type[Result]] = {
    "CATE": CateResult, "OLS": RegressionResult, "logit": GeneralizedResult,
    "poisson": GeneralizedResult, COHORTS: EventStudyResult,
}  # fmt: skip
"""Results by estimand. All others are average effects."""


@named
def load(
    path: str | os.PathLike[str],
) -> AteResult | CateResult | RegressionResult | EventStudyResult:
    """Read a fit written by `save`, and compute it again from its releases.

    Raises
    ------
    DataError
        The file is not a fit of this package, is damaged, or comes from another version.

    Examples
    --------
    >>> import tempfile
    >>> study, path = pc.datasets.clinic(2000), tempfile.mkdtemp() + "/fit.json"
    >>> fit = pc.private(study.formula, study.frame, eps=1, bounds=study.bounds)
    >>> fit.save(path)
    >>> bool((pc.load(path).params == fit.params).all())
    True
    """
    content = stored.load_content(path)
    kind = _KINDS.get(content[0].plan.request.estimand, AteResult)
    return kind(*content)  # type: ignore[return-value]


__all__ = [
    "AteResult", "CateResult", "EventStudyResult", "GeneralizedResult", "Guarantee", "PlanResult",
    "RegressionResult", "Result", "compare", "load",
]  # fmt: skip
