"""What a reviewer asks of a fit or a plan: a registry record, a privacy label, a checklist.

Everything said of privacy is read off the plan, the guarantee and the releases; nobody types it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from privcausal.errors import CapabilityError
from privcausal.report.summary import Summary
from privcausal.report.tables import Pairs, Prose, Rule, Table, stage_shares
from privcausal.report.view import FitView
from privcausal.report.words import ALERTS, clean
from privcausal.request.plan import Plan
from privcausal.request.schema import Binary, Domain, Interval, Schema
from privcausal.results.exchange import Fit
from privcausal.results.guarantee import Guarantee, promise
from privcausal.results.view import PACKAGES, version_of

if TYPE_CHECKING:
    from privcausal.results.plan import PlanResult


class Shown(Fit, Protocol):
    """What is read of a result here."""

    @property
    def plan(self) -> Any: ...
    @property
    def budget(self) -> pd.DataFrame: ...
    @property
    def ledger_line(self) -> str | None: ...
    def _view(self, alpha: float = 0.05) -> FitView: ...


SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
"""Sectors that the registry knows (opendp/deployments-registry-data, July 2026)."""

READER = (
    "The curator holds the rows, runs the package and is trusted with them, as is other code in "
    "that process. Nobody else is trusted: whoever sees what is released may know every other row "
    "and have any computing power."
)
FLOATS = (
    "Noise is discrete, drawn by OpenDP from the operating system's entropy and added to whole "
    "numbers, so floats have no last bits to tell. Running time, memory and power are not "
    "protected."
)
AS_PRINTED = (
    "The noise is that of a published method or of others' code; what it promises is their claim "
    "and was not proven here."
)
PROVEN = (
    "The budget is divided among the stages in shares fixed by the call. The sensitivity of each "
    "release is proven in the package's page of guarantees, for any data; its tests replay fits on "
    "neighbouring tables, check the law of the noise and audit releases for more loss than stated."
)
ROWS = (
    "Each row is read by itself: what cannot be read is missing, what lies outside its bounds is "
    "cut, and no count is exact. Formula, options and stages were fixed before rows were read; "
    "what is tuned is tuned on released numbers. The guarantee takes for granted that formula and "
    "declared domains were chosen without looking at the rows."
)
ACCESS = (
    "The package keeps no copy of rows: results hold released numbers only. Who may read the table "
    "is the curator's to say."
)
GROUPS = "What is found of a group may be said of everyone in it, whether in the data or not."
ONCE = "No ledger was kept: fits of the same rows add up, and others are not counted here."


@dataclass(frozen=True)
class Disclosure:
    """Sentences on one fit, real or planned; each is a function of the arguments alone.

    `budget` has a line per release, as `Result.budget`; `schema` the domains as declared or bought.
    """

    plan: Plan
    promise: Guarantee
    schema: Schema
    budget: pd.DataFrame
    ledger: str | None = None

    @property
    def parameters(self) -> dict[str, float]:
        """Epsilon and delta, epsilon rounded up to four digits: no more than is true."""
        up = Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(self.promise.epsilon))
        slack = self.promise.delta
        return {"epsilon": float(up), **({"delta": slack} if slack else {})}

    @property
    def variant(self) -> str:
        return "Approximate DP" if self.promise.delta else "Pure DP"

    @property
    def price(self) -> str:
        return f"{self.variant}: " + ", ".join(f"{k} {v:g}" for k, v in self.parameters.items())

    @property
    def statement(self) -> str:
        """The guarantee, under the line that a published one carries everywhere."""
        return ". ".join(filter(None, (ALERTS[self.promise.kind], self.promise.statement)))

    @property
    def unit(self) -> str:
        return f"{self.promise.unit[:1].upper()}{self.promise.unit[1:]}"

    @property
    def adjacent(self) -> str:
        """Which tables are neighbours."""
        change = {
            "substitute": f"the data of {self.promise.unit} are replaced by any other",
            "add_remove": f"the data of {self.promise.unit} are in one of them only",
        }[self.promise.neighbors]
        return f"Two tables are neighbours if {change} ({self.promise.neighbors})."

    @property
    def domain(self) -> str:
        """Every column with its domain."""
        columns = "; ".join(f"`{name}` {_told(domain)}" for name, domain in self.schema.domains)
        lack = "No value is missing." if self.schema.complete else "Values may be missing."
        return f"All tables with the columns {columns}. {lack}"

    @property
    def sized(self) -> bool:
        """Whether the number of rows or units is public."""
        return self.promise.neighbors == "substitute"

    @property
    def bought(self) -> bool:
        """Whether bounds were."""
        return bool((self.budget["stage"] == "bounds").any())

    @property
    def public(self) -> str:
        """What no noise protects."""
        of = "rows" if self.plan.request.trust.unit is None else "units"
        size = [f"the number of {of}"] if self.sized else []
        domains = ["those domains that were declared"] if self.bought else ["declared domains"]
        names = ["names and types of columns", "the formula and all options of the call"]
        return f"Public: {', '.join([*size, *domains, *names])}."

    @property
    def tuning(self) -> str:
        bounds = "Bounds were bought from the rows with noise, and charged." if self.bought else ""
        told = ROWS if self.promise.kind == "proven" else AS_PRINTED
        return f"{bounds} {told}".strip()

    @property
    def composition(self) -> str:
        """How the stages add up."""
        plan = self.plan
        if not plan.stages:
            return "One table of cells with noise of its maker; nothing was charged here."
        if plan.trade_off is not None:
            law = "the trade-off functions that its estimators declare are composed"
        elif not plan.rho:
            law = "their epsilon and delta add up"
        else:
            law = "rho adds up over them and is converted once to epsilon and delta"
            law += " by the Gaussian trade-off function" if plan.gdp else " as zCDP"
            law += ", to which stages priced in epsilon and delta add theirs" * bool(plan.epsilon)
        side = any(stage.parallel for stage in plan.stages)
        beside = " Stages that read rows of their own are in parallel, charged once." * side
        shares = ", ".join(f"{k} {share:.0%}" for k, share in stage_shares(self.budget).items())
        return (
            f"{len(plan.stages)} stages, charged before rows are read: {law}.{beside} "
            f"Shares of the price: {shares}."
        )

    @property
    def mechanisms(self) -> str:
        """Which noise, and whose code draws it."""
        names = sorted({str(name) for name in self.budget["mechanism"]} - {""})
        used = ", ".join(f"{name} {version_of(name)}" for name in PACKAGES)
        told = f"{', '.join(names) or 'noise of the maker of the table'}."
        how = FLOATS if self.promise.kind == "proven" else AS_PRINTED
        return f"{told[:1].upper()}{told[1:]} {how} Software: {used}."

    @property
    def reuse(self) -> str:
        if self.ledger is None:
            return ONCE
        return f"Later fits of the same rows are charged to one ledger with a cap. {self.ledger}"

    @property
    def reasons(self) -> str:
        """Why what was chosen was chosen, and how it is checked."""
        return PROVEN if self.promise.kind == "proven" else AS_PRINTED


def _told(domain: Domain) -> str:
    if isinstance(domain, Interval):
        return f"in [{domain.lo:.12g}, {domain.hi:.12g}]"
    if isinstance(domain, Binary):
        return "0 or 1" if domain.labels is None else f"one of {', '.join(domain.labels)}"
    return f"one of {', '.join(domain.labels)}"


def disclosed(result: Shown) -> Disclosure:
    """Of a fit; one with test noise has no privacy to tell of."""
    if result.guarantee.kind == "none":
        raise CapabilityError("a fit with test noise is not private: it has no label or record")
    schema, line = result.estimate.schema, result.ledger_line
    return Disclosure(result.plan, result.guarantee, schema, result.budget, line)


class Disclosed:
    """What a fit writes for reviewers: nothing here is a release."""

    def label(self: Shown, *, name: str = "", curator: str = "", contact: str = "") -> Summary:
        """The privacy label: one page for whoever reads the result or is in the data.

        All that it says of privacy is computed from the fit. It prints itself as `summary()` does.

        Parameters
        ----------
        name, curator, contact : str
            What only a person knows: the product, who publishes it, and whom to ask.

        Raises
        ------
        CapabilityError
            The fit was made with test noise: it is not private.
        """
        said, view = disclosed(self), self._view()
        given = (("Product", name), ("Published by", curator), ("Contact", contact))
        of = "rows" if said.plan.request.trust.unit is None else "units"
        left = (
            *((key, clean(text)) for key, text in given if text),
            ("What is shown", view.title),
            ("Protected", said.unit),
            (f"Number of {of}", "public" if said.sized else "protected"),
        )
        right = (
            ("Guarantee", said.promise.kind),
            ("Variant", said.variant),
            *((key, f"{value:g}") for key, value in said.parameters.items()),
            ("Bounds", "bought" if said.bought else "declared"),
            ("Releases", str(len(said.budget))),
        )
        parts = {
            "What was found": view.headline[:-1],
            "What is promised": (view.headline[-1], said.adjacent, *view.guarantee[1:]),
            "What is not protected": (said.public, GROUPS),
            "Other results from the same data": (said.reuse,),
            "Who is trusted": (READER,),
            "How": (said.composition, said.mechanisms),
        }
        blocks = [Prose(tuple(map(clean, told)), head) for head, told in parts.items()]
        top = (Rule("="), Pairs("The promise", left, right), Rule("="))
        return Summary(Table("Privacy Label", (*top, *blocks, Rule("=")), ALERTS[view.kind]))

    def registry(
        self: Shown,
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
        """Write a record at tier 3 for the OpenDP deployments registry; see its repository
        opendp/deployments-registry-data. All fields on privacy are computed from the fit.

        Parameters
        ----------
        path : path
            A name of lower-case letters, digits and ``_``, ending in ``.yaml``.
        name, use, region : str
            The data product, what it is for, and where its people live or whose law applies.
        curators : list of str
            Who publishes it.
        published : str or date
            The day, as ``"2026-01-31"``.
        authors : list of str
            Who fills in the record; `curators` unless given.
        sector : {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"}
            Optional.
        sources : str
            Links, in markdown.

        Raises
        ------
        CapabilityError
            A field is not of the registry's form, or the fit was made with test noise.
        """
        if not re.fullmatch(r"[a-z0-9_]+\.yaml", Path(path).name):
            raise CapabilityError("name the record in a-z, 0-9 and _ only: record.yaml")
        for key, text in {"name": name, "use": use, "region": region}.items():
            _check([text], f"{key}= of a record is text")
        _check(curators, "curators= of a record is a list of names, one at least", least=1)
        _check(authors, "authors= of a record is a list of names")
        if sector not in (None, *SECTORS):
            raise CapabilityError(f"sector= is one of {', '.join(SECTORS)}")
        record = _record(disclosed(self), self._view(), {
            "name": name, "data_curators": [*curators], "intended_use": use,
            "data_product_type": "Summary statistics", "data_product_region": region,
            "publication_date": _day(published),
        } | ({"data_product_sector": sector} if sector else {}))  # fmt: skip
        record["deployment"]["administrative"] = {
            **({"sources": sources} if sources else {}),
            "registry_authors": [*(authors or curators)],
        }
        Path(path).write_text("\n".join(_yaml(record)) + "\n", encoding="utf-8")


# -- the checklist ---------------------------------------------------------------------------------


def checklist(result: PlanResult) -> Summary:
    """The parts of the pyramid of NIST SP 800-226 (2025), answered for one planned fit.

    NIST prints no questionnaire: the heads are its parts and hazards in our words.
    """
    (n, eps), *others = result.points
    if others:
        raise CapabilityError("a checklist is of one fit: plan for one n and one eps")
    plan, row = result.planner.plan(eps), result.table.iloc[0]
    what = promise(plan, kind="proven", what="all numbers of this fit together,")
    said = Disclosure(plan, what, plan.request.schema, result.budget)
    precise = (
        f"With {n:,} rows the {1 - result.question.alpha:.0%} interval of the average effect is "
        f"expected to be +- {row['half-width']:.3g}; privacy noise is {row['privacy_share']:.0%} "
        f"of its variance. {BIAS}"
    )
    parts = {
        "Privacy parameters": (said.price + ".", said.statement),
        "Unit of privacy": (said.unit + ". " + said.adjacent,),
        "What is not protected": (said.public,),
        "Composition and budget": (said.composition, SPENDING),
        "Algorithms and their correctness": (said.mechanisms, said.reasons),
        "Data before noise": (said.tuning,),
        "Utility and bias": (precise,),
        "Trust model and queries": (f"Central, not interactive. {READER}",),
        "Security and access": (ACCESS,),
        "Data collection": (COLLECTION,),
    }
    blocks = [
        Prose((*(clean(t) for t in told), f"See {EVIDENCE[head]}."), head)
        for head, told in parts.items()
    ]
    title = "Checklist after NIST SP 800-226"
    return Summary(Table(title, (Rule("="), *blocks, Rule("=")), ALERTS[what.kind]))


BIAS = (
    "Bias by clipping and by nuisances widens the interval. Noise is the same for groups of any "
    "size, so small groups get wide intervals."
)
SPENDING = (
    "Fits of the same rows add up. With ledger= each is charged to one cap before rows are read, "
    "and nothing is paid back."
)
COLLECTION = "Differential privacy protects what is released, not rows at rest or on their way."
EVIDENCE = {
    "Privacy parameters": "tests/accounting/test_conversion.py",
    "Unit of privacy": "vignettes/explanation/threat-model.md, tests/privacy/test_replay.py",
    "What is not protected": "vignettes/explanation/threat-model.md",
    "Composition and budget": "tests/accounting/test_ledger.py",
    "Algorithms and their correctness": "vignettes/explanation/guarantees.md, tests/vault",
    "Data before noise": "tests/test_bad_input.py, tests/privacy/test_noninterference.py",
    "Utility and bias": "vignettes/explanation/coverage.md",
    "Trust model and queries": "vignettes/explanation/threat-model.md",
    "Security and access": "SECURITY.md, tests/privacy/test_canary.py",
    "Data collection": "vignettes/explanation/known-limits.md",
}
"""Where in the repository the answer is shown."""


# -- the record ------------------------------------------------------------------------------------


def _record(said: Disclosure, view: FitView, basic: dict[str, Any]) -> dict[str, Any]:
    """The record but for who wrote it; its slug as the registry makes it."""
    named = (basic["name"], "-".join(basic["data_curators"]), basic["publication_date"][:4])
    slug = "_".join(re.sub(r"\W+", "_", part.lower()) for part in named).replace("_", "-")
    told = f"{view.title}: `{said.plan.request.formula}`."
    return {
        "url_slug": slug, "status": "Draft", "tier": 3,
        "deployment": {"basic": basic | {"description": told}} | _fields(said),
    }  # fmt: skip


def _fields(said: Disclosure) -> dict[str, Any]:
    """The registry's fields on privacy, those of tier 3 too."""
    return {
        "dp_variant": {
            "variant_name": said.variant, "data_domain": said.domain,
            "unprotected_quantities": said.public,
        },
        "privacy_loss": {
            "privacy_unit": said.unit, "privacy_unit_details": said.adjacent,
            "privacy_parameters": said.parameters, "privacy_parameters_details": said.statement,
        },
        "deployment_model": {
            "model_name": "Central", "model_name_details": ACCESS, "actors": READER,
            "release_type": "One release", "release_type_details": said.reuse,
            "data_source_type": "Static",
            "data_source_type_details": "A fit reads one table, as it is at that time.",
            "access_type": "Non-interactive",
            "access_type_details": "Readers get released numbers and functions of them.",
        },
        "accounting": {
            "post_processing": "Estimates, intervals, tables and plots are functions of the noisy "
            "releases; proven methods hold averages within the width of the outcome's bounds.",
            "composition": said.composition,
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": said.tuning,
            "mechanisms": said.mechanisms, "justification": said.reasons,
        },
    }  # fmt: skip


def _check(values: Sequence[str], wrong: str, least: int = 0) -> None:
    named = [v for v in values if isinstance(v, str) and v.strip()]
    if isinstance(values, str) or not len(named) == len(values) >= least:
        raise CapabilityError(wrong)


def _day(published: str | date) -> str:
    """A date as text; the exception of the reader is not kept."""
    try:
        return date.fromisoformat(str(published)).isoformat()
    except ValueError:
        pass
    raise CapabilityError("published= of a record is a date: write '2026-01-31'")


def _yaml(node: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of YAML, all text quoted and on one line: markdown reads a new line's + as a list."""
    for key, value in node.items():
        match value:
            case dict():
                yield f"{indent}{key}:"
                yield from _yaml(value, f"{indent}  ")
            case list():
                yield f"{indent}{key}:"
                yield from (f"{indent}  - {_quoted(one)}" for one in value)
            case str() if key == "url_slug":  # the registry compares it as it stands
                yield f"{indent}{key}: {value}"
            case str():
                yield f"{indent}{key}: {_quoted(value)}"
            case _:  # YAML 1.1 reads 1e-05 as text: a number needs its point
                number = repr(value)
                yield f"{indent}{key}: {number if '.' in number else number.replace('e', '.0e')}"


def _quoted(text: str) -> str:
    return json.dumps(clean(text), ensure_ascii=False)
