"""Documents for reviewers of a fit or a plan: registry record, privacy label and checklist.

All privacy statements are computed from the plan, the guarantee and the releases, never typed in.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from privcausal.errors import CapabilityError, write
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.report import tables
from privcausal.report.summary import Summary
from privcausal.report.tables import FitView
from privcausal.request.plan import Plan
from privcausal.request.schema import Interval, Schema
from privcausal.results.base import ReleasedFit
from privcausal.results.guarantee import ALL_NUMBERS, KINDS, Guarantee, neighboring, promise
from privcausal.results.view import PACKAGES, version_of, view_of

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""Sectors that the registry accepts (opendp/deployments-registry-data, July 2026)."""

READER = (
    "The curator holds the rows and runs the package. The curator and all code in the same process "
    "are trusted. No other party is trusted: a reader of the released results may know every other "
    "row and have unlimited computing power."
)
FLOATS = (
    "Noise is discrete. OpenDP draws it from the operating system's entropy and adds it to whole "
    "numbers, so the low-order bits of floating-point numbers reveal no data. Running time, "
    "memory, and power consumption are not protected."
)
AS_PRINTED = (
    "The noise comes from a published method or from other software. Its privacy guarantee is a "
    "claim by the authors and is not proven here."
)
PROVEN = (
    "The call fixes the share of the budget for each stage. The documentation (Guarantees) proves "
    "the sensitivity of each release for any data. Tests repeat fits on neighboring data sets, "
    "check the distribution of the noise, and audit releases for excess privacy loss."
)
ROWS = (
    "Each row is processed separately. Unreadable values count as missing, values outside their "
    "bounds are clipped, and no count is exact. The formula, options, and stages were fixed before "
    "rows were read, and tuning uses released numbers only. The guarantee assumes that the formula "
    "and the declared domains were chosen without looking at the rows."
)
ACCESS = (
    "The package keeps no copy of the rows, and results contain released numbers only. The curator "
    "decides who may read the table."
)
GROUP_DISCLOSURE = (
    "A finding about a group applies to all its members, whether or not they are in the data."
)
AFTER = (
    "Estimates, intervals, tables, and plots are computed from the noisy releases. Proven methods "
    "restrict averages to the width of the outcome bounds."
)
LATER = "Later fits of the same rows are charged to one ledger with a cap."
ONCE = (
    "No ledger was used. The costs of fits of the same rows add up; other fits are not included "
    "here."
)


RECORD = """\
url_slug: {url_slug}
status: "Draft"
tier: 3
deployment:
  basic:
    name: {name}
    data_curators: {data_curators}
    intended_use: {intended_use}
    data_product_type: "Summary statistics"
    data_product_region: {data_product_region}
    publication_date: {publication_date}
    data_product_sector: {data_product_sector}
    description: {description}
  dp_variant:
    variant_name: {variant_name}
    data_domain: {data_domain}
    unprotected_quantities: {unprotected_quantities}
  privacy_loss:
    privacy_unit: {privacy_unit}
    privacy_unit_details: {privacy_unit_details}
    privacy_parameters:
      epsilon: {epsilon}
      delta: {delta}
    privacy_parameters_details: {privacy_parameters_details}
  deployment_model:
    model_name: "Central"
    model_name_details: {access}
    actors: {reader}
    release_type: "One release"
    release_type_details: {release_type_details}
    data_source_type: "Static"
    data_source_type_details: "A fit reads one table at one time."
    access_type: "Non-interactive"
    access_type_details: "Readers get released numbers and results computed from them."
  accounting:
    post_processing: {after}
    composition: {composition}
  implementation:
    preprocessing_and_hyperparameter_tuning: {preprocessing_and_hyperparameter_tuning}
    mechanisms: {mechanisms}
    justification: {justification}
  administrative:
    sources: {sources}
    registry_authors: {registry_authors}"""
"""A record of the registry at tier 3; a line whose field is None is left out."""


def disclosed(
    plan: Plan, promise: Guarantee, schema: Schema, budget: pd.DataFrame, ledger: str | None
) -> dict[str, Any]:
    """The fields of `RECORD` on privacy, of a real or planned fit.

    `budget` has one line per release, as in `Result.budget`. `schema` holds the declared or
    estimated domains.
    """
    if promise.kind == "none":
        raise CapabilityError(
            "A fit with test noise is not private, so it has no label and no record."
        )
    proven = promise.kind == "proven"
    estimated = len(budget) > 0 and bool((budget["stage"] == "bounds").any())
    columns = list[str]()
    for name, domain in schema.domains:
        values = "0 or 1"
        if isinstance(domain, Interval):
            values = f"in [{domain.lo:.12g}, {domain.hi:.12g}]"
        elif domain.labels is not None:
            values = f"one of {', '.join(domain.labels)}"
        columns.append(f"`{name}` {values}")
    missing = "No value is missing." if schema.complete else "Values may be missing."
    change = neighboring(promise.neighbors, promise.unit)
    units = "rows" if plan.request.trust.unit is None else "units"
    size = f"the number of {units}, " if promise.neighbors == "substitute" else ""
    domains = "the domains that were declared" if estimated else "the declared domains"
    tuning = "Some bounds were estimated privately and charged. " if estimated else ""
    # How the costs of stages add up.
    if plan.trade_off is not None:
        law = "The trade-off functions declared by its estimators are composed."
    elif not plan.rho:
        law = "Their epsilons and deltas add up."
    else:
        law = "rho adds up over stages and is converted once to epsilon and delta"
        law += " by the Gaussian trade-off function." if plan.gdp else " as zCDP."
        law += " Costs of stages in epsilon and delta are added." * bool(plan.epsilon)
    if any(stage.parallel for stage in plan.stages):
        law += " Stages that read disjoint rows are charged once (parallel composition)."
    composition = "One table of cells that already contained noise. No budget was charged here."
    if plan.stages:
        shares = tables.stage_shares(budget).items()
        composition = (
            f"{len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}, charged before rows are "
            f"read. {law} Shares of the cost: "
            f"{', '.join(f'{name} {share:.0%}' for name, share in shares)}."
        )
    names = sorted({str(name) for name in budget["mechanism"]}) if len(budget) else []
    noise = ", ".join(names) or "noise added by the publisher of the table"
    used = ", ".join(f"{name} {version_of(name)}" for name in PACKAGES)
    # The statement of a published guarantee also carries its standard warning.
    details = filter(None, (tables.ALERTS[promise.kind], promise.statement))
    return {
        "variant_name": "Approximate DP" if promise.delta else "Pure DP",
        "data_domain": f"All tables with the columns {'; '.join(columns)}. {missing}",
        "unprotected_quantities": f"Public: {size}{domains}, the names and types of columns, "
        "the formula, and all options of the call.",
        "privacy_unit": f"{promise.unit[:1].upper()}{promise.unit[1:]}",
        "privacy_unit_details": f"Neighboring data sets: {change} ({promise.neighbors}).",
        "epsilon": float(at_most(promise.epsilon)),
        "delta": promise.delta or None,
        "privacy_parameters_details": ". ".join(details),
        "access": ACCESS,
        "reader": READER,
        "after": AFTER,
        "release_type_details": ONCE if ledger is None else f"{LATER} {ledger}",
        "composition": composition,
        "preprocessing_and_hyperparameter_tuning": tuning + (ROWS if proven else AS_PRINTED),
        "mechanisms": f"{noise[:1].upper()}{noise[1:]}. {FLOATS if proven else AS_PRINTED} "
        f"Software: {used}.",
        "justification": PROVEN if proven else AS_PRINTED,
    }


def _parameters(fields: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of the guarantee as text, a delta only if there is one."""
    digits = {"epsilon": 4, "delta": DELTA_DIGITS}
    return {name: at_most(fields[name], n) for name, n in digits.items() if fields[name]}


class Disclosed(ReleasedFit):
    """Documents that a fit writes for reviewers; nothing here is a new release."""

    def _view(self, alpha: float = 0.05) -> FitView:
        return view_of(self, (), alpha)

    def label(self, *, name: str = "", curator: str = "", contact: str = "") -> Summary:
        """One-page privacy label for readers of the result and for people in the data.

        All privacy statements are computed from the fit. The label prints itself as `summary()`
        does.

        Parameters
        ----------
        name, curator, contact : str
            The product, its publisher, and the contact for questions. The fit does not know these.

        Raises
        ------
        CapabilityError
            The fit was made with test noise: it is not private.

        Examples
        --------
        >>> print(fit.label(name="Clinic study", curator="Clinic"))
        Privacy Label
        ...
        """
        view, promise, budget, plan = self._view(), self.guarantee, self.budget, self.plan
        fields = disclosed(plan, promise, self.estimate.schema, budget, self.ledger_line)
        facts = (("Product", name), ("Published by", curator), ("Contact", contact))
        size = "public" if promise.neighbors == "substitute" else "protected"
        left = (
            *((key, tables.clean(text)) for key, text in facts if text),
            ("Result", view.title),
            ("Protected unit", tables.clean(fields["privacy_unit"])),
            (f"Number of {'rows' if plan.request.trust.unit is None else 'units'}", size),
        )
        right = (
            ("Guarantee", KINDS[promise.kind]),
            ("Variant", fields["variant_name"]),
            *_parameters(fields).items(),
            ("Bounds", "some estimated privately" if self._bought else "declared"),
            ("Releases", str(len(budget))),
        )
        promised = (view.headline[-1], fields["privacy_unit_details"], *view.guarantee[1:])
        parts = {
            "Findings": view.headline[:-1],
            "Privacy guarantee": promised,
            "Not protected": (fields["unprotected_quantities"], GROUP_DISCLOSURE),
            "Other results from the same data": (fields["release_type_details"],),
            "Trust model": (READER,),
            "Method": (fields["composition"], fields["mechanisms"]),
        }
        blocks = [
            tables.Prose(tuple(map(tables.clean, texts)), head) for head, texts in parts.items()
        ]
        line, head = tables.Rule("="), tables.Pairs("The guarantee", left, right)
        content: tuple[tables.TableBlock, ...] = (line, head, line, *blocks, line)
        return Summary("Privacy Label", content, tables.ALERTS[view.kind])

    def registry(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        curators: Sequence[str],
        use: str,
        region: str,
        published: str | date,
        authors: Sequence[str] = (),
        sector: str | None = None,
        sources: str = "",
    ) -> None:
        """Write a tier 3 record for the OpenDP deployments registry.

        The format is defined in the repository opendp/deployments-registry-data. All privacy fields
        are computed from the fit.

        Parameters
        ----------
        path : path
            The file name: lower-case letters, digits and ``_``, ending in ``.yaml``.
        name, use, region : str
            The data product, its purpose, and the region where the people live or whose law
            applies.
        curators : list of str
            The publishers.
        published : str or date
            The day, as ``"2026-01-31"``.
        authors : list of str
            The authors of the record; `curators` by default.
        sector : {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"}
            Optional.
        sources : str
            Links, in markdown.

        Raises
        ------
        CapabilityError
            A field does not have the registry's form, or the fit was made with test noise.

        Examples
        --------
        >>> fit.registry("entry.yaml", name="Clinic study", curators=["Clinic"], use="Evaluation",
        ...              region="France", published="2026-01-31")
        """
        if not re.fullmatch(r"[a-z0-9_]+\.yaml", Path(path).name):
            raise CapabilityError(
                "The file name of a record must consist of a-z, 0-9, and _, and end in .yaml, for "
                "example record.yaml."
            )
        texts = {"name": name, "use": use, "region": region}
        required: dict[str, Sequence[str]] = {
            **{f"{key}= of a record must be text.": [text] for key, text in texts.items()},
            "curators= must be a list of at least one name.": curators,
            "authors= must be a list of names.": authors or ["-"],
        }
        for refusal, names in required.items():
            valid = names and all(isinstance(name, str) and name.strip() for name in names)
            if isinstance(names, str) or not valid:
                raise CapabilityError(refusal)
        if sector not in (None, *SECTORS):
            raise CapabilityError(f"sector= must be one of {', '.join(SECTORS)}.")
        try:  # the original exception is not chained
            day = date.fromisoformat(str(published)).isoformat()
        except ValueError:
            day = ""
        if not day:
            raise CapabilityError("published= must be a date, for example '2026-01-31'.")
        # The slug is made as the registry makes it.
        parts = (name, "-".join(curators), day[:4])
        slug = "_".join(re.sub(r"\W+", "_", part.lower()) for part in parts).replace("_", "-")
        fields = disclosed(
            self.plan, self.guarantee, self.estimate.schema, self.budget, self.ledger_line
        ) | {
            "name": name,
            "data_curators": curators,
            "intended_use": use,
            "data_product_region": region,
            "publication_date": day,
            "data_product_sector": sector,
            "description": f"{self._view().title}: `{self.plan.request.formula}`.",
            "sources": sources or None,
            "registry_authors": authors or curators,
        }
        # Every text is quoted and on one line: in multi-line text, markdown would read a + at the
        # start of a line as a list item. The registry compares the slug literally.
        lines = {"url_slug": slug}
        for key, value in fields.items():
            if isinstance(value, float):  # YAML 1.1 reads 1e-05 as text: a number needs its point.
                number = repr(value)
                lines[key] = number if "." in number else number.replace("e", ".0e")
            elif value is not None:
                several = not isinstance(value, str)
                quoted = (
                    json.dumps(tables.clean(text), ensure_ascii=False)
                    for text in (value if several else [value])
                )
                lines[key] = "".join(f"\n      - {text}" if several else text for text in quoted)
        absent = {f"{{{key}}}" for key, value in fields.items() if value is None}
        record = [line for line in RECORD.splitlines() if line.split()[-1] not in absent]
        text = "\n".join(record).format_map(lines)
        write(path, text.replace(": \n", ":\n") + "\n")


# -- the checklist ---------------------------------------------------------------------------------


def checklist(
    fits: Sequence[tuple[Plan, pd.DataFrame, Mapping[str, Any]]], level: float
) -> Summary:
    """Checklist from the pyramid of NIST SP 800-226 (2025), filled in for planned fits.

    NIST prints no questionnaire. The headings are its parts and hazards in our words. Each element
    of `fits` has the plan, its budget, and its row of the plan's table. Intervals are at `level`.
    """
    answers = []
    for plan, budget, row in fits:
        guarantee = promise(plan, kind="proven", what=ALL_NUMBERS)
        fields = disclosed(plan, guarantee, plan.request.schema, budget, None)
        price = ", ".join(map(" ".join, _parameters(fields).items()))
        point = f" at eps = {at_most(row['eps'])}" if len(fits) > 1 else ""
        sampling = float(row["se_sampling"])
        total = math.hypot(sampling, row["se_privacy"], row["se_nuisances"])
        precision = (
            f"With {row['n']:,.0f} rows{point}, the expected {level:.0%} interval of the average "
            f"effect is the estimate +/- {row['half-width from']:.3g} to "
            f"{row['half-width to']:.3g} (in about 80% of fits). The simulated standard error is "
            f"{total:.3g}; {sampling:.3g} from sampling alone."
        )
        statement = guarantee.statement.replace("Budget used:", "Budget of a fit:")
        answers.append(
            {
                "Privacy parameters": (f"{fields['variant_name']}: {price}.", statement),
                "Unit of privacy": (f"{fields['privacy_unit']}. {fields['privacy_unit_details']}",),
                "Unprotected quantities": (fields["unprotected_quantities"],),
                "Composition and budget": (fields["composition"], SPENDING),
                "Algorithms and their correctness": (fields["mechanisms"], fields["justification"]),
                "Data before noise": (fields["preprocessing_and_hyperparameter_tuning"],),
                "Utility and bias": (precision, BIAS_DISCLOSURE),
                "Trust model and queries": (f"Central, not interactive. {READER}",),
                "Security and access": (ACCESS,),
                "Data collection": (COLLECTION,),
            }
        )
    # Print an answer that is the same for all fits only once.
    parts = {
        head: dict.fromkeys(t for answer in answers for t in answer[head]) for head in answers[0]
    }
    blocks = [
        tables.Prose((*(tables.clean(t) for t in texts), f"See {EVIDENCE[head]}."), head)
        for head, texts in parts.items()
    ]
    title, line = "Checklist Based on NIST SP 800-226", tables.Rule("=")
    return Summary(title, (line, *blocks, line), tables.ALERTS["proven"])


BIAS_DISCLOSURE = (
    "The interval is wider to allow for bias from clipping and from nuisance models. The noise is "
    "the same for groups of any size, so small groups get wide intervals."
)
SPENDING = (
    "The costs of fits of the same rows add up. With ledger=, each fit is charged against one cap "
    "before rows are read. Charges are never refunded."
)
COLLECTION = (
    "Differential privacy protects released results. It does not protect rows in storage or in "
    "transit."
)
EVIDENCE = {
    "Privacy parameters": "tests/accounting/test_conversion.py",
    "Unit of privacy": "vignettes/explanation/threat-model.md, tests/privacy/test_replay.py",
    "Unprotected quantities": "vignettes/explanation/threat-model.md",
    "Composition and budget": "tests/accounting/test_ledger.py",
    "Algorithms and their correctness": "vignettes/explanation/guarantees.md, tests/vault",
    "Data before noise": "tests/test_bad_input.py, tests/privacy/test_noninterference.py",
    "Utility and bias": "vignettes/explanation/coverage.md",
    "Trust model and queries": "vignettes/explanation/threat-model.md",
    "Security and access": "SECURITY.md, tests/privacy/test_canary.py",
    "Data collection": "vignettes/explanation/known-limits.md",
}
"""Where in the repository the answer is documented."""
