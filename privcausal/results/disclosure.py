"""Documents for reviewers of a fit or a plan: registry record, privacy label and checklist.

All privacy statements are computed from the plan, the guarantee and the releases, never typed in.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from privcausal.errors import CapabilityError, write
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.report import tables
from privcausal.report.summary import Summary
from privcausal.report.view import FitView, Shape
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


def disclosed(
    plan: Plan, promise: Guarantee, schema: Schema, budget: pd.DataFrame, ledger: str | None
) -> dict[str, dict[str, Any]]:
    """The registry's privacy fields, including tier 3, of a real or planned fit.

    `budget` has one line per release, as in `Result.budget`. `schema` holds the declared or
    estimated domains.
    """
    if promise.kind == "none":
        raise CapabilityError(
            "A fit with test noise is not private, so it has no label and no record."
        )
    proven, estimated = promise.kind == "proven", _bought(budget)
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
    names = sorted({str(name) for name in budget["mechanism"]}) if len(budget) else []
    noise = ", ".join(names) or "noise added by the publisher of the table"
    used = ", ".join(f"{name} {version_of(name)}" for name in PACKAGES)
    delta = {"delta": promise.delta} if promise.delta else {}
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if promise.delta else "Pure DP",
            "data_domain": f"All tables with the columns {'; '.join(columns)}. {missing}",
            "unprotected_quantities": f"Public: {size}{domains}, the names and types of columns, "
            "the formula, and all options of the call.",
        },
        "privacy_loss": {
            "privacy_unit": f"{promise.unit[:1].upper()}{promise.unit[1:]}",
            "privacy_unit_details": f"Neighboring data sets: {change} ({promise.neighbors}).",
            "privacy_parameters": {"epsilon": float(at_most(promise.epsilon)), **delta},
            # The statement of a published guarantee also carries its standard warning.
            "privacy_parameters_details": ". ".join(
                filter(None, (tables.ALERTS[promise.kind], promise.statement))
            ),
        },
        "deployment_model": {
            "model_name": "Central", "model_name_details": ACCESS, "actors": READER,
            "release_type": "One release",
            "release_type_details": ONCE if ledger is None else f"{LATER} {ledger}",
            "data_source_type": "Static",
            "data_source_type_details": "A fit reads one table at one time.",
            "access_type": "Non-interactive",
            "access_type_details": "Readers get released numbers and results computed from them.",
        },
        "accounting": {"post_processing": AFTER, "composition": _composition(plan, budget)},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": tuning + (ROWS if proven else AS_PRINTED),
            "mechanisms": f"{noise[:1].upper()}{noise[1:]}. {FLOATS if proven else AS_PRINTED} "
            f"Software: {used}.",
            "justification": PROVEN if proven else AS_PRINTED,
        },
    }  # fmt: skip


def _parameters(parameters: Mapping[str, float]) -> dict[str, str]:
    digits = {"epsilon": 4, "delta": DELTA_DIGITS}
    return {key: at_most(value, digits[key]) for key, value in parameters.items()}


def _composition(plan: Plan, budget: pd.DataFrame) -> str:
    if not plan.stages:
        return "One table of cells that already contained noise. No budget was charged here."
    if plan.trade_off is not None:
        law = "The trade-off functions declared by its estimators are composed."
    elif not plan.rho:
        law = "Their epsilons and deltas add up."
    else:
        law = "rho adds up over stages and is converted once to epsilon and delta"
        law += " by the Gaussian trade-off function." if plan.gdp else " as zCDP."
        law += " Costs of stages in epsilon and delta are added." * bool(plan.epsilon)
    side = any(stage.parallel for stage in plan.stages)
    beside = " Stages that read disjoint rows are charged once (parallel composition)." * side
    shares = ", ".join(f"{name} {share:.0%}" for name, share in tables.stage_shares(budget).items())
    count = f"{len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}"
    return f"{count}, charged before rows are read. {law}{beside} Shares of the cost: {shares}."


def _bought(budget: pd.DataFrame) -> bool:
    return len(budget) > 0 and bool((budget["stage"] == "bounds").any())


def _fields(fit: Disclosed) -> dict[str, dict[str, Any]]:
    return disclosed(fit.plan, fit.guarantee, fit.estimate.schema, fit.budget, fit.ledger_line)


def _flat(groups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {field: value for group in groups.values() for field, value in group.items()}


class Disclosed(ReleasedFit):
    """Documents that a fit writes for reviewers; nothing here is a new release."""

    def _view(self, alpha: float = 0.05) -> FitView:
        return view_of(self, self._shown_shapes(alpha), alpha)

    def _shown_shapes(self, alpha: float) -> tuple[Shape, ...]:
        """The effect along each modifier, if the fit has curves that can be drawn."""
        return ()

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
        fields, view, promise = _flat(_fields(self)), self._view(), self.guarantee
        facts = (("Product", name), ("Published by", curator), ("Contact", contact))
        size = "public" if promise.neighbors == "substitute" else "protected"
        left = (
            *((key, tables.clean(text)) for key, text in facts if text),
            ("Result", view.title),
            ("Protected unit", tables.clean(fields["privacy_unit"])),
            (f"Number of {'rows' if self.plan.request.trust.unit is None else 'units'}", size),
        )
        right = (
            ("Guarantee", KINDS[promise.kind]),
            ("Variant", fields["variant_name"]),
            *_parameters(fields["privacy_parameters"]).items(),
            ("Bounds", "some estimated privately" if _bought(self.budget) else "declared"),
            ("Releases", str(len(self.budget))),
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
        return Summary(tables.Table("Privacy Label", content, tables.ALERTS[view.kind]))

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
        for key, text in {"name": name, "use": use, "region": region}.items():
            _check([text], f"{key}= of a record must be text.")
        _check(curators, "curators= must be a list of at least one name.", least=1)
        _check(authors, "authors= must be a list of names.")
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
        basic = {
            "name": name,
            "data_curators": [*curators],
            "intended_use": use,
            "data_product_type": "Summary statistics",
            "data_product_region": region,
            "publication_date": day,
            **({"data_product_sector": sector} if sector else {}),
            "description": f"{self._view().title}: `{self.plan.request.formula}`.",
        }
        administrative = {
            **({"sources": sources} if sources else {}),
            "registry_authors": [*(authors or curators)],
        }
        record = {
            "url_slug": slug,
            "status": "Draft",
            "tier": 3,
            "deployment": {"basic": basic, **_fields(self), "administrative": administrative},
        }
        write(path, "\n".join(_yaml(record)) + "\n")


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
        fields = _flat(disclosed(plan, guarantee, plan.request.schema, budget, None))
        price = ", ".join(map(" ".join, _parameters(fields["privacy_parameters"]).items()))
        at = f" at eps = {at_most(row['eps'])}" if len(fits) > 1 else ""
        sampling = float(row["se_sampling"])
        total = math.hypot(sampling, row["se_privacy"], row["se_nuisances"])
        precision = (
            f"With {row['n']:,.0f} rows{at}, the expected {level:.0%} interval of the average "
            f"effect is the estimate +/- {row['half-width']:.3g}, or +/- {row['cautious']:.3g} by "
            f"a cautious forecast. The expected standard error is {total:.3g}; {sampling:.3g} from "
            "sampling alone."
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
    return Summary(tables.Table(title, (line, *blocks, line), tables.ALERTS["proven"]))


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


# -- the record ------------------------------------------------------------------------------------


def _check(values: Sequence[str], wrong: str, least: int = 0) -> None:
    named = [v for v in values if isinstance(v, str) and v.strip()]
    if isinstance(values, str) or not len(named) == len(values) >= least:
        raise CapabilityError(wrong)


def _yaml(node: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of YAML; every text is quoted and on one line.

    In multi-line text, markdown would read a + at the start of a line as a list item.
    """
    for key, value in node.items():
        match value:
            case dict():
                yield f"{indent}{key}:"
                yield from _yaml(value, f"{indent}  ")
            case list():
                yield f"{indent}{key}:"
                yield from (f"{indent}  - {_quoted(item)}" for item in value)
            case str() if key == "url_slug":  # The registry compares this value literally.
                yield f"{indent}{key}: {value}"
            case str():
                yield f"{indent}{key}: {_quoted(value)}"
            case _:  # YAML 1.1 reads 1e-05 as text: a number needs its point.
                number = repr(value)
                yield f"{indent}{key}: {number if '.' in number else number.replace('e', '.0e')}"


def _quoted(text: str) -> str:
    return json.dumps(tables.clean(text), ensure_ascii=False)
