"""Views of imagined fits, as the results would fill them: nothing here was estimated."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from privcausal.report.tables import Check, FitView, Shape, VarianceSource, odds_sentence

EFFECT_COLUMNS = (
    "estimate", "std_error", "max_bias", "p_value", "conf_low", "conf_high", "mark",
)  # fmt: skip
GATE_COLUMNS = ("estimate", "std_error", "max_bias", "conf_low", "conf_high", "se_sampling")
CELL_COLUMNS = ("treated", "control", "estimate", "std_error", "conf_low", "conf_high")
BUDGET_COLUMNS = (
    "stage", "query", "mechanism", "neighbors", "sensitivity",
    "noise_sd", "rho", "epsilon", "delta", "rows", "parallel",
)  # fmt: skip

HOSTILE = (
    "<script>alert('x')</script>",
    'he said "so" & <b>left</b>',
    "{{ 7 * 7 }} {% raw %} }}",
    "größe_β≤年齢",
    "C(" + "a_very_long_column_name_" * 8 + ")[T.last]",
    "two\nlines\tand\x1b[31m red \u202eback",
    "$x_1$ & 100% #1 ~ ^ \\input{passwd}",
    "--></svg><img src=x onerror=alert(1)>",
)


def effects(rows: dict[str, tuple[float, ...]], marks: str = "dp") -> pd.DataFrame:
    """Six numbers a row: estimate, standard error, bound of the bias, p, limits."""
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=list(EFFECT_COLUMNS[:-1]))
    return frame.assign(mark=marks)


def budget(*rows: tuple[object, ...]) -> pd.DataFrame:
    """stage, query, mechanism, sensitivity, noise sd, rho."""
    full = [
        (stage, query, mechanism, "substitute", sensitivity, sd, rho, 0.0, 0.0, 1.0, False)
        for stage, query, mechanism, sensitivity, sd, rho in rows
    ]
    return pd.DataFrame(full, columns=list(BUDGET_COLUMNS))


ASSUMPTIONS = (
    "No unmeasured confounding: given the listed covariates, who was treated does not depend "
    "on what the outcome would have been.",
    "Overlap: every kind of patient could have been treated and could have been left untreated.",
    "No interference: one patient's treatment does not change another's outcome.",
    "The outcome lies within its declared bounds; what lies outside was cut to them.",
)

VERSIONS = (("privcausal", "0.1.0"), ("opendp", "0.15.1"), ("numpy", "2.4.6"))


def ate_view(**changes: object) -> FitView:
    """An average effect: right heart catheterisation, as in the design's mock-up."""
    fields: dict[str, object] = {
        "title": "Private Average Treatment Effect",
        "outcome": "death180",
        "treatment": "rhc",
        "left": (
            ("Dep. variable", "death180"),
            ("Treatment", "rhc (1 vs. 0)"),
            ("Formula", "Y ~ T | age + C(cat1)"),
            ("Observations", "5,735"),
        ),
        "right": (
            ("Estimand", "ATE"),
            ("Estimator", "doubly robust (AIPW)"),
            ("Nuisance models", "gam, all rows"),
            ("Propensity", "clipped to [0.10, 0.90]"),
        ),
        "effects": effects({"ATE": (0.0532, 0.0224, 0.0, 0.01755, 0.00930, 0.0971)}),
        "uncertainty": (
            VarianceSource("sampling", 0.0136, 0.37, "random sampling of rows"),
            VarianceSource("privacy", 0.0178, 0.63, "noise added for privacy"),
        ),
        "budget": budget(
            ("bounds", "declared", "", 0.0, np.nan, 0.0),
            ("nuisance", "moments, p = 17", "discrete Gaussian", 3.1, 43.1, 0.0026),
            ("effect", "sum of DR scores", "discrete Gaussian", 10.0, 102.0, 0.0048),
            ("variance", "sum of squares", "discrete Gaussian", 28.7, 612.0, 0.0011),
        ),
        "total": "(0.5, 1e-05)-DP",
        "ledger": "Ledger 'rhc': epsilon 1.91 of 2 remaining.",
        "guarantee": (
            "(0.5, 1e-05)-DP, proven, one row replaced.",
            odds_sentence(0.5, 1e-5, "substitute"),
        ),
        "promise": ("(0.5, 1e-05)-DP, proven, one row replaced.",),
        "attack": attack(),
        "kind": "proven",
        "epsilon": 0.5,
        "delta": 1e-5,
        "rho": 0.0085,
        "unit_sentence": "One row is one patient's stay in intensive care.",
        "headline": (
            "Catheterisation raised the chance of death within 180 days by about 5 percentage "
            "points on average.",
            "The 95% interval runs from 1 to 10 points, and about two thirds of its variance is "
            "noise that was added on purpose.",
            "Whether any one patient was in the data cannot be told from these numbers with more "
            "than 62.3:37.7 odds by someone who started at even odds.",
        ),
        "notes": (
            "The number of rows, the bounds, and the clipping limits are public inputs; all "
            "numbers computed from the rows are noisy releases or derived from them.",
            "Causal reading needs no unmeasured confounding, overlap and no interference.",
        ),
        "assumptions": ASSUMPTIONS,
        "methods": (
            "Propensity and outcome regressions were fitted to noisy moments of an additive "
            "model; doubly robust scores were averaged and released with discrete Gaussian "
            "noise. The standard error adds the sampling variance, estimated from a released "
            "second moment, to the known variance of the noise.",
        ),
        "call": 'fit = pc.private(\n    "death180 ~ rhc | age + C(cat1)",\n    data,\n'
        "    eps=0.5,\n"
        '    bounds={"death180": (0, 1), "age": (18, 100)},\n    ledger="rhc.db",\n)',
        "versions": VERSIONS,
    }
    return FitView(**{**fields, **changes})  # type: ignore[arg-type]


def attack() -> pd.DataFrame:
    alarms = np.linspace(0.0, 1.0, 101)
    return pd.DataFrame({"false_alarms": alarms, "power": 1 - (1 - alarms**0.8) ** 1.25})


def shapes() -> tuple[Shape, ...]:
    """Age (a curve), income (a line), region (levels)."""
    age = np.linspace(18, 95, 60)
    tau = 0.06 + 0.05 * np.tanh((age - 55) / 14)
    half = 0.03 + 0.025 * ((age - 56) / 38) ** 2
    income = np.linspace(0, 120_000, 40)
    line = 0.09 - income * 6e-7
    return (
        Shape("age", "continuous", age, tau, tau - half, tau + half, "approximate 95% band"),
        Shape(
            "income", "continuous", income, line, line - 0.04, line + 0.04, "approximate 95% band"
        ),
        Shape(
            "region", "levels", ("North", "South", "West coast", "Islands"),
            (0.02, 0.08, 0.05, 0.11), (-0.02, 0.05, 0.01, 0.02), (0.06, 0.11, 0.09, 0.2),
            "95% interval",
        ),
    )  # fmt: skip


def gates() -> pd.DataFrame:
    rows = {
        "region = North": (0.021, 0.020, 0.0031, -0.0182, 0.0602, 0.012),
        "region = South": (0.081, 0.016, 0.0031, 0.0496, 0.1124, 0.011),
        "age >= 65": (0.094, 0.022, 0.0031, 0.0509, 0.1371, 0.014),
        "age < 65": (0.038, 0.019, 0.0031, 0.0008, 0.0752, 0.012),
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(GATE_COLUMNS))


def cate_view(**changes: object) -> FitView:
    """A heterogeneous effect: a mailing, with linear projection, groups and three shapes."""
    fields: dict[str, object] = {
        "title": "Private Conditional Average Treatment Effect",
        "outcome": "visit",
        "treatment": "mailed",
        "left": (
            ("Dep. variable", "visit"),
            ("Treatment", "mailed (1 vs. 0)"),
            ("Formula", "visit ~ mailed | age + C(region) + income | recency + frequency"),
            ("Units", "20,000"),
            ("Neighboring data", "one customer replaced"),
        ),
        "right": (
            ("Estimand", "CATE"),
            ("Learner", "R / gam"),
            ("Nuisance models", "gam, all rows"),
            ("Propensity", "clipped to [0.10, 0.90]"),
            ("Bounds", "some estimated privately"),
        ),
        "effects": effects(
            {
                "ATE": (0.0612, 0.0121, 0.0031, 4.2e-7, 0.0375, 0.0849),
                "age": (0.00131, 0.00042, 0.0001, 0.0018, 0.00049, 0.00213),
                "income": (-5.9e-7, 2.1e-7, 5e-8, 0.005, -1.0e-6, -1.8e-7),
                "C(region)[T.South]": (0.058, 0.0247, 0.0062, 0.019, 0.0096, 0.1064),
                "C(region)[T.West coast]": (0.031, 0.0291, 0.0073, 0.287, -0.0260, 0.0880),
                "C(region)[T.Islands]": (0.089, 0.0512, 0.0128, 0.082, -0.0114, 0.1894),
            }
        ),
        "gates": gates(),
        "shapes": shapes(),
        "bias": "Max bias: the influence of extreme rows was limited (clipped). Because this can "
        "bias ATE, its interval extends 2.00 standard errors to each side, not 1.96.",
        "uncertainty": (
            VarianceSource("sampling", 0.0092, 0.58, "random sampling of rows"),
            VarianceSource("privacy", 0.0079, 0.42, "noise added for privacy"),
        ),
        "budget": budget(
            ("bounds", "range of income", "noisy histogram", 1.414, 31.0, 0.0011),
            ("marginals", "16 bins, 4 columns", "discrete Gaussian", 2.8, 50.2, 0.0009),
            ("nuisance", "moments, p = 22", "discrete Gaussian", 4.2, 44.0, 0.0096),
            ("effect", "weighted moments, p = 14", "discrete Gaussian", 3.3, 34.2, 0.0070),
            ("average", "sum of R scores", "discrete Gaussian", 1.9, 29.9, 0.0036),
        ),
        "total": "(0.84, 1e-05)-DP",
        "ledger": None,
        "guarantee": (
            "(0.84, 1e-05)-DP, proven, one customer replaced.",
            odds_sentence(0.84, 1e-5, "substitute"),
        ),
        "promise": ("(0.84, 1e-05)-DP, proven, one customer replaced.",),
        "kind": "proven",
        "epsilon": 0.84,
        "delta": 1e-5,
        "rho": 0.0222,
        "unit_sentence": "One unit is one customer, with at most three rows.",
        "headline": (
            "The mailing raised visits by about 6 percentage points on average.",
            "The 95% interval runs from 4 to 8 points.",
            "Older customers respond more; no single customer's data can be told from this.",
        ),
        "notes": ("Bands cover the projection of the effect on the additive basis.",),
        "assumptions": ASSUMPTIONS[1:],
        "checks": (
            Check(
                "Standardized differences after weighting",
                "Each number contains noise of about 0.02. Cost: epsilon 0.1.",
                pd.DataFrame({"difference": [0.012, -0.031], "noise sd": [0.02, 0.02]},
                             index=["age", "income"]),
            ),
        ),
        "methods": ("R-learner on noisy moments of an additive basis.", "Bands are posterior."),
        "call": 'fit = pc.privcate("visit ~ mailed | age + C(region) + income", data, eps=0.84)',
        "versions": VERSIONS,
    }  # fmt: skip
    return FitView(**{**fields, **changes})  # type: ignore[arg-type]


def uplift_view(**changes: object) -> FitView:
    """Uplift from cells, priced in pure epsilon, without an average."""
    cells = pd.DataFrame.from_dict(
        {
            "age [18, 40)": (1204.2, 1187.9, 0.021, 0.013, -0.0045, 0.0465),
            "age [40, 65)": (2410.0, 2380.3, 0.055, 0.009, 0.0374, 0.0726),
            "age [65, 95]": (411.7, 398.1, 0.098, 0.031, 0.0372, 0.1588),
        },
        orient="index",
        columns=list(CELL_COLUMNS),
    )
    rows = budget(("cells", "counts and sums, 6 cells", "discrete Laplace", 2.0, 4.0, 0.0))
    return cate_view(**{
        "title": "Private Uplift by Cell", "effects": None, "gates": None, "shapes": (),
        "uncertainty": (), "cells": cells, "checks": (), "budget": rows.assign(epsilon=1.0),
        "total": "1.00-DP", "epsilon": 1.0, "delta": 0.0, "rho": None,
        "guarantee": ("1-DP, proven.", odds_sentence(1.0, 0.0, "add_remove")),
        "promise": ("1-DP, proven.",),
        "neighbors": "add_remove", **changes,
    })  # fmt: skip


def hostile_view(kind: str = "proven") -> FitView:
    """Every name that can be chosen by whoever named the columns is an attack."""
    view = cate_view()
    names = [HOSTILE[i % len(HOSTILE)] for i in range(len(view.effects))]
    shapes_ = tuple(
        Shape(name, s.kind, s.grid if s.kind == "continuous" else HOSTILE[:4], s.estimate,
              s.conf_low, s.conf_high, name)
        for name, s in zip(HOSTILE[5:], view.shapes, strict=True)
    )  # fmt: skip
    text = " ".join(HOSTILE)
    return cate_view(
        title=HOSTILE[0], outcome=HOSTILE[1], treatment=HOSTILE[2],
        left=tuple((name, name) for name in HOSTILE),
        right=tuple(("Label", name) for name in HOSTILE[:6]),
        effects=view.effects.set_axis(names), gates=view.gates.set_axis(list(HOSTILE[4:])),
        shapes=shapes_, budget=view.budget.assign(query=list(HOSTILE[:5]), stage=HOSTILE[6]),
        total=text, ledger=text, guarantee=(text, text), promise=(text,),
        unit_sentence=text, headline=(text,) * 3,
        notes=HOSTILE, serious=2, assumptions=HOSTILE, methods=HOSTILE, call=text, kind=kind,
        uncertainty=tuple(VarianceSource(name, 0.01, 0.5, name) for name in HOSTILE[:2]),
        versions=tuple((name, name) for name in HOSTILE),
        checks=(Check(HOSTILE[0], HOSTILE[1], pd.DataFrame({HOSTILE[0]: [1.0]}, [HOSTILE[2]])),),
    )  # fmt: skip


PLAIN_TAGS = {"div", "style", "p", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td"}
"""All that the HTML of a summary or a comparison is made of."""


def check_latex_rows(latex: str) -> None:
    """Each row of a table has as many cells as the table has columns."""
    pattern = r"\\begin\{tabular\}\{([lrc]+)\}(.*?)\\end\{tabular\}"
    for columns, body in re.findall(pattern, latex, flags=re.DOTALL):
        rows = [line for line in body.split("\n") if line.endswith(r" \\")]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}
