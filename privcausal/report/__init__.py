"""HOW IT LOOKS: plain tables in; text, LaTeX, HTML and pictures out. No rows come here."""

from __future__ import annotations

from privcausal.report.curves import plan_plot, utility_plot
from privcausal.report.document import check_html, render_report
from privcausal.report.pictures import figure_svg
from privcausal.report.plots import (
    budget_plot,
    coef_plot,
    effect_plot,
    gate_plot,
    interval_plot,
    uplift_plot,
)
from privcausal.report.summary import Printed, Summary, summarize
from privcausal.report.tables import Pairs, Prose, Rule, Table, TableColumn, TableGrid
from privcausal.report.view import Check, FitView, Shape, VarianceSource
from privcausal.report.words import odds_sentence, shape_line

__all__ = [
    "Check",
    "FitView",
    "Pairs",
    "Printed",
    "Prose",
    "Rule",
    "Shape",
    "Summary",
    "Table",
    "TableColumn",
    "TableGrid",
    "VarianceSource",
    "budget_plot",
    "check_html",
    "coef_plot",
    "effect_plot",
    "figure_svg",
    "gate_plot",
    "interval_plot",
    "odds_sentence",
    "plan_plot",
    "render_report",
    "shape_line",
    "summarize",
    "uplift_plot",
    "utility_plot",
]  # fmt: skip
