"""Writes the stored fits and every format of what they show.

    python tests/golden/golden_files.py            # the formats anew, from the stored fits
    python tests/golden/golden_files.py --fits     # the fits anew too

The fits have seeded noise, so all of them say NOT PRIVATE. They are stored as JSON, which holds
their requests and releases, and the formats are made from that. After a change of the estimators
the load refuses the stored fits: make them anew. Read the difference before keeping it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import privcausal as pc
from privcausal.report.document import render_report
from privcausal.testing import seeded_noise

HERE = Path(__file__).parent

LONG = "systolic_blood_pressure_at_first_admission_in_mm_of_mercury"
"""A name that no table of 80 columns can hold whole."""

FITS = ("ate", "cate", "adum", "long")
FORMATS: dict[str, Callable[[Any], str]] = {
    "txt": lambda summary: summary.as_text(),
    "tex": lambda summary: summary.as_latex(),
    "html": lambda summary: summary.as_html(),
    "md": lambda summary: summary.as_markdown(),
}


def fits() -> dict[str, Any]:
    """One of each kind, on invented patients."""
    study = pc.datasets.clinic(3000, 9)
    frame, bounds, groups = study.frame, study.bounds, ["ward", "age >= 65"]
    renamed = {"severity": LONG, "ward": "ward_to_which_the_patient_was_first_admitted"}
    own = {renamed.get(name, name): domain for name, domain in bounds.items()}
    formula = study.formula
    for short, long in renamed.items():
        formula = re.sub(rf"\b{short}\b", long, formula)
    cells = pc.learners.ADUM(cells=6)
    with seeded_noise(17):
        return {
            "ate": pc.private(study.formula, frame, bounds=bounds, groups=groups),
            "cate": pc.privcate(study.formula, frame, bounds=bounds, groups=groups),
            "adum": pc.privcate(
                "recovery ~ programme | age + ward", frame, learner=cells, bounds=bounds
            ),
            "long": pc.privcate(
                formula, frame.rename(columns=renamed), base="linear", bounds=own,
                groups=[renamed["ward"]],
            ),
        }  # fmt: skip


def texts() -> dict[str, str]:
    """Every file but the fits: name and content."""
    loaded = {name: pc.load(HERE / f"{name}.json") for name in FITS}
    found = {
        f"{name}.{suffix}": write(fit.summary())
        for name, fit in loaded.items()
        for suffix, write in FORMATS.items()
    }
    table = pc.compare({"AIPW": loaded["ate"], "R-learner": loaded["cate"]}, groups=True)
    found |= {f"compare.{suffix}": write(table) for suffix, write in FORMATS.items()}
    for name in ("ate", "cate", "adum"):
        for audience in ("technical", "public"):
            found[f"report_{name}_{audience}.html"] = page(loaded[name], audience)
    return {name: text.rstrip("\n") + "\n" for name, text in found.items()}


def page(fit: Any, audience: Any) -> str:
    """The report without what other software decides: drawings, and names of versions."""
    view = replace(fit._view(), versions=())
    rendered = render_report(view, audience)
    rendered = re.sub(r"<style>.*?</style>", "<style/>", rendered, flags=re.DOTALL)
    return re.sub(r'(<svg role="img" aria-label="[^"]*").*?</svg>', r"\1/>", rendered,
                  flags=re.DOTALL)  # fmt: skip


def main() -> None:
    if "--fits" in sys.argv[1:]:
        for name, fit in fits().items():
            fit.save(HERE / f"{name}.json")
    for name, text in texts().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
