"""Result objects of event studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import ncx2

from privcausal.errors import CapabilityError
from privcausal.estimators.cohorts import PLACES
from privcausal.inference import effects
from privcausal.report import plots, tables
from privcausal.report.view import Check
from privcausal.request.cohorts import comparisons, labels_of
from privcausal.request.panels import clock
from privcausal.results import frames
from privcausal.results.fits import PlotSource, Result


@dataclass(frozen=True, eq=False, repr=False)
class EventStudyResult(Result):
    """The result of `privcausal.did` with cohorts; `params` are all ATT(g, t).

    `plot` draws averages by time since treatment (kind ``"event"``).

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> first = np.repeat(rng.choice([0, 3, 4], 900), 4)  # 0: never treated
    >>> frame = pd.DataFrame({"id": np.repeat(range(900), 4), "year": [1, 2, 3, 4] * 900,
    ...                       "first": first, "Y": rng.random(3600)})
    >>> at = {"unit": "id", "time": "year", "cohort": "first", "periods": [1, 2, 3, 4]}
    >>> fit = pc.did("Y ~ 1", frame, **at, eps=4, bounds={"Y": (0, 1), "first": [0, 3, 4]})
    >>> list(fit.params.index)
    ['ATT(3, 2)', 'ATT(3, 3)', 'ATT(3, 4)', 'ATT(4, 2)', 'ATT(4, 3)', 'ATT(4, 4)']
    """

    def aggregate(
        self,
        kind: Literal["event", "cohort", "calendar", "overall"] = "event",
        alpha: float = 0.05,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Averages of ATT(g, t): estimate std_error max_bias conf_low conf_high se_sampling.

        Parameters
        ----------
        kind : {"event", "cohort", "calendar", "overall"}
            Rows are times since treatment (in the unit of the periods if these are numbers,
            otherwise in periods), cohorts, or periods. The last row is the average over treated
            event times, cohorts (by size), or periods. "overall" is the average over all treated
            cohorts and periods, weighted by the cohorts' sizes: ``type="simple"`` in the R package
            ``did``.
        simultaneous : bool
            True: one joint level for all rows but the last (sup-t bands).

        Examples
        --------
        >>> fit.aggregate("event").index.tolist()
        ['-2', '-1', '0', '1', 'average']
        """
        if kind not in (*PLACES, "overall"):
            raise CapabilityError(f"aggregate() takes one of {', '.join(PLACES)}, or overall.")
        averages, places = self._averages, [term.place for term in self._averages.groups]
        positions = [i for i, place in enumerate(places) if place.factor == kind]
        rows = len(averages.terms) + np.array(positions[:-1] or positions)
        z = frames.critical(averages.cov[np.ix_(rows, rows)], alpha, simultaneous=simultaneous)
        frame = self._table(groups=True, z=z).iloc[positions].drop(columns="p_value")
        return frame.set_axis(pd.Index([places[i].level or kind for i in positions], name=kind))

    def pretrends(self) -> Any:
        """Wald test that all ATT(g, t) before treatment are zero; see `wald_test`.

        The p-value allows for the maximum bias of clipping. A large one does not show that trends
        are parallel: `drift` of the result is the smallest difference of linear trends that the
        test rejects with probability 80% at level 5%, whatever the bias. It is per unit of time
        since treatment. A smaller difference may remain undetected (Roth 2022).

        Examples
        --------
        >>> bool(fit.pretrends().drift > 0)
        True
        """
        pairs, averages = comparisons(self.plan.request), self._averages
        estimated = np.isfinite(self.params.to_numpy())
        before = np.flatnonzero([pair.event < 0 and estimated[k] for k, pair in enumerate(pairs)])
        if not len(before):
            raise CapabilityError("No cohort has two periods before its treatment.")
        test = self.wald_test(np.eye(len(self.params))[before])
        test.drift, spread = np.inf, averages.cov[np.ix_(before, before)]
        if np.isfinite(spread).all():
            labels = labels_of(self.plan.request.schema, self.plan.request.trust.panel)[1]
            times = clock(labels)
            steps = np.array([times[pairs[k].period] - times[pairs[k].base] for k in before])
            nc = effects.largest_noncentrality(averages, before, np.eye(len(before)), spread)
            limit = ncx2.isf(0.05, len(before), nc)
            drift = brentq(
                lambda x: ncx2.sf(limit, len(before), x**2) - 0.8, 0.0, np.sqrt(limit) + 5
            )
            test.drift = (drift + np.sqrt(nc)) / np.sqrt(steps @ np.linalg.solve(spread, steps))
        return test

    def _pictures(self, alpha: float, labels: tables.Labels) -> dict[str, PlotSource]:
        def events() -> pd.DataFrame:
            frame, bands = (self.aggregate("event", alpha, joint) for joint in (False, True))
            bands = bands[["conf_low", "conf_high"]].set_axis(["band_low", "band_high"], axis=1)
            return frame.join(bands).iloc[:-1].dropna()

        def draw(ax: Any) -> Any:
            request = self.plan.request
            panel = request.trust.panel
            numeric = isinstance(clock(labels_of(request.schema, panel)[1])[0], float)
            time = tables.relabelled(panel.time, labels) if numeric else "periods"
            return plots.event_plot(events(), time, ax=ax, alpha=alpha)

        return {"event": (events, draw), **super()._pictures(alpha, labels)}

    def _figures(self, alpha: float, labels: tables.Labels) -> tuple[Check, ...]:
        events, draw = self._pictures(alpha, labels)["event"]
        frame = events()
        if frame.empty:
            return ()
        sentence = "No cohort has two periods before its treatment, so trends cannot be compared."
        if (frame.index.astype(float) < 0).any():
            test = self.pretrends()
            p = f"p = {tables.p_value_text(test.pvalue)}".replace("= <", "< ")
            sentence = (
                f"Wald test that all effects before treatment are zero, given max bias: {p}. It "
                f"detects linear trends that differ by {test.drift:.2g} per unit of time with "
                "probability 80%, and may miss smaller ones."
            )
        return (Check("Effect by time since treatment", sentence, frame, draw),)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise CapabilityError(
            "An event study has no nuisance models. Use aggregate(), pretrends() and contrast()."
        )

    ate = property(_refused)
    sensitivity = overlap = balance = _refused
