"""The HTML report: one file without network access or scripts, deterministic for a given view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from privcausal.errors import CapabilityError
from privcausal.prices import at_most, chance, odds
from privcausal.report import plots, tables
from privcausal.report.summary import grid_html
from privcausal.report.tables import FitView

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment

# A paragraph on methods and privacy for a paper, with its references.

WORKS = {
    "AIPW": "Robins, J. M., Rotnitzky, A. and Zhao, L. P. (1994). Estimation of regression "
    "coefficients when some regressors are not always observed. JASA 89, 846-866.",
    "ATT(g, t)": "Callaway, B. and Sant'Anna, P. H. C. (2021). Difference-in-differences with "
    "multiple time periods. Journal of Econometrics 225, 200-230.",
    "Right-censored": "Robins, J. M. and Rotnitzky, A. (1992). Recovery of information and "
    "adjustment for dependent censoring using surrogate markers. AIDS Epidemiology, 297-331.",
    "Kaplan-Meier": "Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete "
    "observations. JASA 53, 457-481.",
    "Cattaneo": "Cattaneo, M. D. (2010). Efficient semiparametric estimation of multi-valued "
    "treatment effects under ignorability. Journal of Econometrics 155, 138-154.",
    "Difference in means": "Neyman, J. (1923, 1990). On the application of probability theory to "
    "agricultural experiments. Statistical Science 5, 465-472.",
    "Differences in differences": "Sant'Anna, P. H. C. and Zhao, J. (2020). Doubly robust "
    "difference-in-differences estimators. Journal of Econometrics 219, 101-122.",
    "Anderson and Rubin": "Anderson, T. W. and Rubin, H. (1949). Estimation of the parameters of a "
    "single equation in a complete system of stochastic equations. Annals of Mathematical "
    "Statistics 20, 46-63.",
    "Kolesár": "Armstrong, T. B. and Kolesár, M. (2018). Optimal inference in a class of "
    "regression models. Econometrica 86, 655-683.",
    "R-learner": "Nie, X. and Wager, S. (2021). Quasi-oracle estimation of heterogeneous treatment "
    "effects. Biometrika 108, 299-319.",
    "DR-learner": "Kennedy, E. H. (2023). Towards optimal doubly robust estimation of "
    "heterogeneous causal effects. Electronic Journal of Statistics 17, 3008-3049.",
    "X-learner": "Kuenzel, S. R., Sekhon, J. S., Bickel, P. J. and Yu, B. (2019). Metalearners for "
    "estimating heterogeneous treatment effects using machine learning. PNAS 116, 4156-4165.",
    "boost": "Nori, H., Caruana, R., Bu, Z., Shen, J. H. and Kulkarni, J. (2021). Accuracy, "
    "interpretability, and differential privacy via explainable boosting. ICML.",
    "Betlei": "Betlei, A., Gregoir, T., Rahier, T., Bissuel, A., Diemert, E. and Amini, M.-R. "
    "(2021). Differentially private individual treatment effect estimation from aggregated data.",
    "discrete Gaussian": "Canonne, C., Kamath, G. and Steinke, T. (2020). The discrete Gaussian "
    "for differential privacy. NeurIPS 33.",
    "(chance: 50%)": "Dong, J., Roth, A. and Su, W. J. (2022). Gaussian differential privacy. "
    "JRSS-B 84, 3-37.",
}
"""References, by the text whose occurrence requires them."""

ALWAYS = (
    "Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity in "
    "private data analysis. TCC."
)


Audience: TypeAlias = Literal["technical", "public"]

SECTIONS = (
    "The result", "Who benefits?", "Can we read this as cause and effect?",
    "How is privacy protected?", "Methods and code", "Glossary",
)  # fmt: skip

BELIEFS = (0.01, 0.1, 0.5, 0.9)
"""The report shows the largest possible change of these prior beliefs."""

INSTEAD = {
    ".docx": "fit.summary().to_word('{stem}.docx')",
    ".tex": "open('{stem}.tex', 'w').write(fit.summary().as_latex())",
    ".md": "open('{stem}.md', 'w').write(fit.summary().as_markdown())",
    ".txt": "open('{stem}.txt', 'w').write(str(fit.summary()))",
    ".json": "fit.save('{stem}.json')",
    ".pdf": "fit.report('{stem}.html') and print the page to PDF in a browser",
}


def render_report(view: FitView, audience: Audience = "technical") -> str:
    """The report as one HTML page. The public edition omits coefficients, settings, methods and
    code.

    Raise `CapabilityError` for an unknown audience, or if the templates are missing.
    """
    if audience not in get_args(Audience):
        choices = ", ".join(get_args(Audience))
        raise CapabilityError(f"audience={audience!r} is not available. Choices: {choices}.")
    public = audience == "public"
    varied = view.shapes or view.gates is not None or view.cells is not None
    second = view.second or (SECTIONS[1] if varied else "Estimates")
    third = SECTIONS[2] if view.treatment else "Assumptions"
    fifth = "Methods" if public else SECTIONS[4]
    noises = {*view.budget["mechanism"]} - {""}
    below = None if public and view.treatment else view.effects
    notes = [note for note in view.notes if note not in (*view.reading, *view.assumptions)]
    facts = list[tuple[str, str, str]]()
    if view.effects is not None and len(view.effects):
        row = view.effects.iloc[view.lead]
        of = f"average effect on {view.outcome}" if view.treatment else "first coefficient"
        estimate, low, high = tables.interval(row)
        remark = "all sources of uncertainty" if view.more else "sampling and privacy noise"
        limits = f"{low} to {high}" if math.isfinite(row["conf_low"]) else "not finite"
        facts.append((str(row.name), estimate, of))
        facts.append((f"{tables.confidence(view.alpha)} interval", limits, remark))
    if view.kind == "none":
        facts.append(("Privacy", "none", "test noise"))
    else:
        slack = f"δ = {chance(view.delta)}" if view.delta else "pure (δ = 0)"
        kind = "proven" if view.kind == "proven" else "claimed"
        facts.append((f"Privacy ({kind})", f"ε = {at_most(view.epsilon)}", slack))
    page = _environment().get_template("report.html.j2")
    context = {
        "view": view,
        "public": public,
        "alert": tables.ALERTS[view.kind],
        "sections": (SECTIONS[0], second, third, SECTIONS[3], fifth, SECTIONS[5]),
        "facts": facts,
        "level": tables.confidence(view.alpha),
        "noise": noises.pop() if len(noises) == 1 else "",
        "pictures": {
            **dict.fromkeys(("interval", "groups", "gains", "budget", "attack")),
            "shapes": plots.shape_pictures(view),
            **plots.effect_pictures(view),
            **({} if public else plots.privacy_pictures(view)),
        },
        "hidden_shapes": len(view.shapes) - len(view.shapes[: plots.MOST_SHAPES]),
        "grids": _grids(view, public=public),
        "notes": [tables.first_sentence(note) for note in notes] if public else notes,
        "figures": _blocks(view.figures, "figure", below),
        "checks": _blocks(view.checks, "check", None),
        "call": [tables.clean(line) for line in view.call.split("\n")],
    }
    return page.render(context)


MEANINGS = {
    "sampling": "a different group of people could have been in the data",
    "privacy": "random noise limits what the results can reveal about any one person",
    "nuisances": "the adjustment for confounding was itself estimated from noisy numbers",
}
"""Sources of uncertainty, in words that need no other knowledge."""

PLAIN_WORDS = {"nuisances": "confounding", "nuisance": "adjustment for confounding"}
"""Simpler names of sources of uncertainty and stages, for the public edition."""


def _blocks(
    checks: Sequence[tables.Check], ident: str, below: pd.DataFrame | None
) -> list[tuple[object, ...]]:
    """Sentence, picture and table of each. The picture has the table, if it is not `below`."""
    blocks = list[tuple[object, ...]]()
    for i, check in enumerate(checks):
        # Any small frame: its index as names, floats with equal decimals, the rest as text
        head = str(check.frame.index.name or "")
        columns = [tables.labelled_names(head, check.frame.index, head or "row")]
        for _, series in check.frame.items():
            side: Literal["left", "right"] = "right" if series.dtype.kind in "iuf" else "left"
            cells: Iterable[str] = map(str, series)
            if series.dtype.kind == "f":
                values = [float(value) for value in series]
                most = max((abs(v) for v in values if math.isfinite(v)), default=1.0)
                cells = tables.alike(values, most)
            columns.append((tables.TableColumn(str(series.name), side), cells))
        grid = tables.filled(check.caption, *columns, frame=check.frame)
        inside = [] if below is None else zip(check.frame.axes, below.axes, strict=True)
        printed = below is not None and all({*part} <= {*whole} for part, whole in inside)
        picture: plots.Picture | None = None
        if check.draw is not None and sum(check.rows) <= plots.MOST_BARS:
            rows, title, name = check.rows, tables.clean(check.caption), f"{ident}{i}"
            height = 0.3 + 0.3 * sum(rows) + 0.9 * len(rows) if rows else check.height
            words, size = f"{title}: {tables.clean(check.sentence)}", (plots.WIDE, height)
            hidden_table, stacked = None if printed else grid, rows if len(rows) > 1 else ()
            picture = plots.drawn_picture(
                name, f"{check.caption}.", size, check.draw, words, hidden_table, stacked
            )
            # No caption if it is the title of the plot: once, it is there for screen readers.
            if picture.svg.count(escape(title)) > 1:
                picture = picture._replace(caption="")
        blocks.append((check.sentence, picture, grid))
    return blocks


def _grids(view: FitView, *, public: bool) -> dict[str, tables.TableGrid | None]:
    shares = tables.stage_shares(view.budget)
    words = PLAIN_WORDS if public else {}
    sources = [
        s._replace(label=words.get(s.label, s.label), meaning=MEANINGS.get(s.label, s.meaning))
        for s in view.uncertainty
    ]
    effects, slopes = view.effects, None
    if view.treatment and effects is not None:
        effects, slopes = effects.iloc[: view.averages], effects.iloc[view.averages :]
    facts = (*view.left, *view.right)
    columns = (tables.TableColumn("item", "left"), tables.TableColumn("value", "left"))
    return {
        **dict.fromkeys(("effects", "slopes", "groups", "cells")),
        **tables.fit_grids(view, effects, slopes, view.second or "Effects"),
        "sources": tables.source_grid(sources, packed=False) if sources else None,
        "shares": tables.filled(  # of the cost, for readers who do not use rho
            "Privacy budget by step",
            tables.labelled_names("step", (words.get(s, s) for s in shares)),
            (tables.TableColumn("share of the cost"), map(tables.share_percent, shares.values())),
        ),
        "odds": tables.filled(  # the largest change in a belief about one person
            f"Belief that {tables.ODDS[view.neighbors]}, as odds",
            tables.labelled_names("belief before", map(odds, BELIEFS), "belief before reading"),
            (
                tables.TableColumn("at least", words="can fall to"),
                (odds(p, -view.epsilon) for p in BELIEFS),
            ),
            (
                tables.TableColumn("at most", words="can rise to"),
                (odds(p, view.epsilon) for p in BELIEFS),
            ),
        ),
        "settings": tables.TableGrid("Settings", columns, facts) if facts else None,
    }


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    root = template_root()
    folders = {"": root, "parts/": root.joinpath("parts")}
    texts = {
        f"{place}{file.name}": file.read_text(encoding="utf-8")
        for place, folder in folders.items()
        for file in folder.iterdir()
        if file.is_file()
    }
    environment = Environment(
        loader=DictLoader(texts),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Remove control characters from names wherever they are printed.
        finalize=lambda value: value if isinstance(value, Markup) else tables.clean(value),
    )
    # This package writes both from escaped text only.
    environment.filters["table"] = lambda grid: Markup(grid_html(grid))
    environment.filters["drawn"] = lambda picture: Markup(picture.svg)
    environment.filters |= {"chance": chance, "at_most": at_most}
    return environment


def template_root() -> Traversable:
    """The templates: inside an installed package, or next to it in a source checkout."""
    inside = files("privcausal").joinpath("templates")
    if inside.joinpath("report.html.j2").is_file():
        return inside
    beside = Path(__file__).resolve().parents[2] / "templates"
    if (beside / "report.html.j2").is_file():
        return beside
    raise CapabilityError(
        "The report templates are missing from this installation. Reinstall privcausal."
    )
