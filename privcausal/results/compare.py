"""`compare`: several fits in one table, those of other packages too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from privcausal.accounting import Events, total_epsilon
from privcausal.errors import CapabilityError
from privcausal.report import numbers
from privcausal.report.comparison import TIDY, Comparison, Entry, Statistic, compared
from privcausal.report.words import clean
from privcausal.results.base import Result
from privcausal.results.exchange import ForMaketables, stat_text
from privcausal.results.foreign import read_foreign
from privcausal.results.frames import check_alpha
from privcausal.results.guarantee import price_text

if TYPE_CHECKING:
    import pandas as pd

Terms = Sequence[str] | Mapping[str, str] | None


def compare(
    fits: Mapping[str, Any] | Sequence[Any],
    *,
    terms: Terms = None,
    statistic: Statistic = "std_error",
    groups: bool = False,
    alpha: float = 0.05,
    title: str = "Comparison of Effect Estimates",
) -> Comparison:
    """One table of several fits, as text, LaTeX, HTML, Markdown or a Word document.

    Post-processing of released numbers: free. A fit of another package may stand beside the
    private ones; its numbers have no guarantee, and the table says so.

    Parameters
    ----------
    fits : mapping from names to fits, or sequence of fits
        Results of `private`, `privcate`, `from_cells` and `load`; results of statsmodels and
        pyfixest; whatever follows the maketables protocol; frames with broom's columns (term
        estimate std_error, and p_value conf_low conf_high where there are such). A sequence is
        numbered (1), (2), ...
    terms : sequence of str, or mapping, optional
        Terms to show, in this order; a mapping gives them names, and terms of one name share a
        row: ``{"ATE": "effect", "programme": "effect"}``. All are shown unless given.
    statistic : {"std_error", "conf_int", "p_value"}
        What stands below each estimate.
    groups : bool
        Whether averages of the declared groups are rows too.
    alpha : float
        Confidence intervals are at level 1 - alpha.
    title : str

    Returns
    -------
    Comparison
        `str()`, `.as_text()`, `.as_latex(caption=, label=)`, `.as_html()`, `.as_markdown()`,
        `.to_word(path)`; `.frame` and `.stats` hold its numbers.

    Raises
    ------
    CapabilityError
        Something that cannot be compared, an unknown term or statistic, or two terms of one fit
        in one row.
    """
    check_alpha(alpha)
    if statistic not in get_args(Statistic):
        known = ", ".join(map(repr, get_args(Statistic)))
        raise CapabilityError(
            f"statistic={str(statistic)[:40]!r} is unknown; choose one of {known}"
        )
    named = _named(fits)
    entries = [_entry(name, fit, alpha, groups) for name, fit in named.items()]
    if terms is not None:
        entries = _chosen(entries, terms)
    return compared(entries, title, statistic, alpha, _notes(named))


def _named(fits: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(fits, Mapping):
        named = {str(name): fit for name, fit in fits.items()}
    elif isinstance(fits, Sequence) and not isinstance(fits, str | bytes):
        named = {f"({place})": fit for place, fit in enumerate(fits, 1)}
    else:
        raise CapabilityError('compare takes several fits: {"DR": fit, "R": other}, or a list')
    # as handed to maketables a fit shows less of itself
    named = {n: fit.fit if isinstance(fit, ForMaketables) else fit for n, fit in named.items()}
    if not named:
        raise CapabilityError("there is nothing to compare: give at least one fit")
    return named


def _entry(name: str, fit: Any, alpha: float, groups: bool) -> Entry:
    if not isinstance(fit, Result):
        frame, facts = read_foreign(fit, alpha)
        return Entry(name, frame, {**facts, "Guarantee": "none"})
    return Entry(name, _terms(fit, alpha, groups), _facts(fit), fit.guarantee.kind)


def _terms(fit: Result, alpha: float, groups: bool) -> pd.DataFrame:
    import pandas as pd

    frame = fit.tidy(alpha)
    if not groups or fit.gate.empty:
        return frame
    ends = fit._group_table(alpha)
    return pd.concat([frame, ends], ignore_index=True)[list(TIDY)]


def _facts(fit: Result) -> dict[str, str]:
    plan = fit.estimate.plan
    share = float(fit.ate["privacy_share"].iloc[0])
    return {
        "Outcome": plan.request.formula.outcome,
        "Estimator": plan.learner if plan.base == "none" else f"{plan.learner} / {plan.base}",
        "Estimand": plan.request.estimand,
        "n": stat_text(fit, "N") or "private",
        "ε": stat_text(fit, "epsilon") or "",
        "δ": stat_text(fit, "delta") or "",
        "Neighbours": stat_text(fit, "neighbors") or "",
        "Privacy noise": numbers.percent(share) if math.isfinite(share) else "",
        "Guarantee": stat_text(fit, "guarantee") or "",
    }


def _chosen(entries: Sequence[Entry], terms: Sequence[str] | Mapping[str, str]) -> list[Entry]:
    """The entries with the wanted terms only, in the wanted order, under the wanted names."""
    if isinstance(terms, str):
        raise CapabilityError(f"terms is a list of names or a mapping: write [{terms[:40]!r}]")
    named = dict(terms) if isinstance(terms, Mapping) else {str(t): str(t) for t in terms}
    known = list(dict.fromkeys(str(t) for entry in entries for t in entry.terms["term"]))
    unknown = [term for term in named if term not in known]
    if unknown or not named:
        listed = ", ".join(repr(clean(term)) for term in known[:10])
        what = f"no fit has the term {clean(unknown[0])!r}" if unknown else "terms is empty"
        raise CapabilityError(f"{what}; the terms are {listed}{', ...' * (len(known) > 10)}")
    return [_with_terms(entry, named) for entry in entries]


def _with_terms(entry: Entry, named: Mapping[str, str]) -> Entry:
    frame = entry.terms.set_index("term")
    kept = [term for term in named if term in frame.index]
    shown = [named[term] for term in kept]
    if len(set(shown)) < len(shown):
        raise CapabilityError(f"two terms of {clean(entry.name)!r} would share one row")
    frame = frame.loc[kept].set_axis(shown).rename_axis("term").reset_index()
    return Entry(entry.name, frame, entry.facts, entry.kind)


def _notes(named: Mapping[str, Any]) -> list[str]:
    private = {name: fit for name, fit in named.items() if isinstance(fit, Result)}
    others = [clean(name) for name in named if name not in private]
    notes = []
    if private:
        notes.append("Those of private fits include the privacy noise, whose part of the first "
                     "term's variance is shown.")  # fmt: skip
    if others:
        notes.append(f"No guarantee covers {', '.join(others)}: made without this package.")
    return notes + _together(list(private.values()))


def _together(fits: Sequence[Result]) -> list[str]:
    """What proven fits of one unit have cost in sum, were they all of the same rows."""
    once = list({id(fit.estimate): fit for fit in fits}.values())
    promises = [fit.guarantee for fit in once]
    alike = {(p.kind, p.neighbors, p.unit) for p in promises}
    if len(once) < 2 or len(alike) > 1 or promises[0].kind != "proven":
        return []
    delta = max(p.delta for p in promises)
    costs = [release.charge.cost for fit in once for release in fit.estimate.releases]
    epsilon = total_epsilon(Events.of(costs), delta)
    if not math.isfinite(epsilon):
        return []
    price = price_text(math.ceil(epsilon * 1000) / 1000, delta, 4)
    return [f"If the private fits are of the same rows, with prices fixed beforehand, they are "
            f"{price} together."]  # fmt: skip
