"""The vault holds the rows of one fit and releases noisy answers at a cost charged in advance.

`open_vault` charges the whole plan. `Vault.release` spends one stage of the plan: `Passes` sums the
rows' exact integers, and `Exit.noisy` adds the noise. `Vault.gather` computes the sums for several
stages in one pass, but only `release` and `release_folds` release them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar, assert_never

import numpy as np

from privcausal.accounting import Ledger, run_name
from privcausal.accounting.price import Release
from privcausal.errors import BudgetError, CapabilityError, DataError, LedgerError
from privcausal.features.design import Design
from privcausal.prices import as_typed
from privcausal.request.formula import Group
from privcausal.request.request import FOLDS, Plan, Stage, StageKey, check_release
from privcausal.request.schema import Schema
from privcausal.typing import Integers, Vector
from privcausal.vault import admission, guard, noise, passes
from privcausal.vault.batch import part_numbers
from privcausal.vault.estimators import DeclaredFit, FittedEstimators
from privcausal.vault.exit import SAFETY, Exit, Mechanism, Query, Solution
from privcausal.vault.published import (
    Process,
    PublishedAnswers,
    PublishedAte,
    PublishedLogits,
    PublishedProcess,
)
from privcausal.vault.queries.boosting import Boosting, PrivateNetwork
from privcausal.vault.queries.cells import ColumnHistograms, LabelSelection, SurvivalScore

P = ParamSpec("P")
R = TypeVar("R")

Claim: TypeAlias = PublishedAnswers | PublishedProcess | PublishedLogits
Answerable: TypeAlias = (
    Mechanism | ColumnHistograms | Solution | Boosting | PrivateNetwork | LabelSelection | Claim
)
"""Queries that `Vault.release` answers."""


def open_vault(
    source: admission.Source,
    plan: Plan,
    ledger: Ledger | None,
    question: str,
    watch: passes.Watch | None = None,
    *,
    published: bool = False,
) -> Vault:
    """Charge the whole plan to the ledger, then return the vault.

    All charges are committed before any row is read. They stay spent if the fit fails later.

    Parameters
    ----------
    question : str
        The public question that the ledger records.
    watch : callable, optional
        Progress callback. It receives each stage and the share of the stage that is done.
    published : bool
        The queries come from a published fit, so the guarantee is recorded as claimed, not proven.
        A plan with a published mechanism is always charged this way.
    """
    source_of_noise = noise.current()
    admission.admit(source, plan)
    if ledger is not None:
        if not callable(getattr(ledger, "charge", None)):
            raise LedgerError(
                f"ledger= must be a Ledger, not a value of type {type(ledger).__name__}. Write "
                "ledger=pc.Ledger('study.db', 'study', eps=2)."
            )
        if not source_of_noise.real:
            raise LedgerError(
                "A ledger cannot be charged for a fit with test noise, which is not private."
            )
        paper = plan.request.mode == "paper"
        # The ledger checks that a spent delta is still available. But a delta used to convert rho
        # must equal the ledger's own delta.
        converted = plan.rho > 0 and not paper
        if converted and ledger.delta != plan.request.budget.delta:
            raise LedgerError(
                f"This fit uses delta={as_typed(plan.request.budget.delta)}, but the ledger uses "
                f"delta={as_typed(ledger.delta)}. Use the ledger's delta."
            )
        exit_ = Exit(plan, source_of_noise)
        charges = [exit_.charge(stage, stage.query, "planned") for stage in plan.stages]
        ledger.charge(run_name(question), charges, published=paper or published)
    if plan.request.trust.panel is not None:
        source = admission.Source(admission.changes(source.rows, plan.request))
    return Vault(source, plan, source_of_noise, watch)


def _spending(
    step: Callable[Concatenate[Vault, Stage, P], R],
) -> Callable[Concatenate[Vault, StageKey, P], R]:
    """Guard a step that spends a stage. The stage leaves the plan before any row is read."""
    inside = guard.guarded(step)

    @wraps(step)
    def outside(vault: Vault, stage: StageKey, /, *args: P.args, **options: P.kwargs) -> R:
        return inside(vault, vault._take(stage, *args[:1]), *args, **options)

    return outside


class Vault(guard.Opaque):
    """Opaque handle on the rows of one fit.

    `passes` counts how often the rows were read. The count follows from the plan and from the
    earlier releases. `answers` holds the releases by stage, one for each fold. From these numbers
    `Replay` answers again. `silent` is whether test noise is zero.
    """

    __slots__ = (
        "_exit", "_gathered", "_parts", "_passes", "_plan", "_progress", "_unspent", "answers",
        "passes", "real_noise", "silent", "size",
    )  # fmt: skip

    @guard.guarded
    def __init__(
        self,
        source: admission.Source | None,
        plan: Plan,
        noise_source: noise.OperatingSystem,
        watch: passes.Watch | None = None,
        size: int | None = None,
    ) -> None:
        """Without a source, the vault has no rows, and `size` is their public number."""
        self._plan = plan
        self._parts = part_numbers(plan)
        self._unspent = {stage.name: stage for stage in plan.stages}
        self.size = size
        self.real_noise = noise_source.real
        probe = noise.NoiseQuery("probe", np.ones(1), 1.0, 1.0)
        self.silent = not (noise_source.real or noise_source.sd(probe).any())
        self.passes = 0
        self._exit = Exit(plan, noise_source)
        self._progress = passes.Progress(plan, watch)
        self._gathered: dict[str, list[tuple[Mechanism, list[Integers]]]] = {}
        self.answers: dict[str, tuple[Release, ...]] = {}
        if source is not None:
            self.size = admission.public_size(source, plan.request)
            self._passes = passes.Passes(source.rows, plan, noise_source.entropy, self._progress)

    @property
    def unspent(self) -> tuple[Stage, ...]:
        """Stages of the plan that were not spent, in order."""
        return tuple(self._unspent.values())

    def set_layout(
        self, schema: Schema, designs: Sequence[Design], groups: Sequence[Group]
    ) -> None:
        """Set the domains, designs, and groups used to clean rows from now on."""
        self._passes.set_layout(schema, designs, groups)

    def score_survival(self, score: SurvivalScore) -> None:
        """Replace survival outcomes by this score in all later layouts."""
        self._passes.score = score

    @guard.guarded
    def gather(
        self,
        sums: Mapping[StageKey, Mechanism | Sequence[Mechanism]],
        by_fold: Mapping[StageKey, Mechanism],
    ) -> None:
        """Compute in one pass the sums that `release` and `release_folds` will need later.

        This step releases nothing and spends nothing. The vault stores the exact sums until then.
        A stage may have several queries. Its release answers one of them and drops the others.
        """
        requests: list[tuple[StageKey, Mechanism, tuple[int | None, ...]]] = []
        for key, queries in sums.items():
            part = (self._parts[self._plan.stage(key).part],)
            several = [queries] if isinstance(queries, Mechanism) else queries
            requests += [(key, query, part) for query in several]
        requests += [(key, query, tuple(range(FOLDS))) for key, query in by_fold.items()]
        stages = dict.fromkeys(key for key, _, _ in requests)
        self._progress.start(next(iter(stages)))
        self.passes -= len(stages) - 1  # Each stage adds one when it is spent.
        sums_by_query = self._passes.sums([(query, parts) for _, query, parts in requests])
        for (key, query, _), exact in zip(requests, sums_by_query, strict=True):
            self._gathered.setdefault(key, []).append((query, exact))

    # -- releases ----------------------------------------------------------------------------

    @_spending
    def release(self, planned: Stage, query: Answerable) -> Release:
        """Noisy answer over the rows of the stage's part, at the stage's cost.

        A boosting query returns the noisy sums of all rounds, shape (rounds * width,). A network
        query returns its weights. A label selection returns labels and no numbers.
        """
        parts = (self._parts[planned.part],)
        self.answers[planned.name] = tuple(self._drawn(planned, query, parts))
        return self.answers[planned.name][0]

    def _drawn(
        self, stage: Stage, query: Answerable, parts: tuple[int | None, ...]
    ) -> Sequence[Release]:
        """Noisy answers over the rows of each part.

        A stage of several rounds or steps adds noise in each.
        """
        exit_ = self._exit
        # Stop a noise-free fit that has no complete row: all its sums would be exactly zero, and
        # later steps cannot divide by them. Queries without a layout do not need complete rows.
        needs_layout = not isinstance(query, ColumnHistograms | LabelSelection | Claim)
        if needs_layout and self.silent and self._passes.none_complete():
            raise DataError(
                "No row of the data is complete, so a fit without noise cannot estimate anything. "
                "A fit with real noise would not show this error."
            )
        match query:
            case ColumnHistograms():
                sums = [self._passes.raw_sum(query)]
            case Mechanism() if stage.name in self._gathered:
                gathered = self._gathered.pop(stage.name)
                sums = next(exact for other, exact in gathered if other is query)
            case Mechanism():
                sums = self._passes.sums([(query, parts)])[0]
            case Solution():
                sums = [query.solve(self._passes.batches(part)) for part in parts]
            case Boosting():
                round_noise, _ = self._round_noise(stage, query)
                self.passes += (query.rounds - 1) * len(parts)
                learned = [
                    query.learn(
                        self._passes.batches(part),
                        lambda exact: exit_.noisy(exact, round_noise),
                        self._progress.rounds,
                    )
                    for part in parts
                ]
                return [self._charged(stage, query, values) for values in learned]
            case PrivateNetwork():
                self.passes += (query.steps - 1) * len(parts)
                tables = [list(self._passes.batches(part)) for part in parts]
                name, coins = query.query, exit_.source.coins
                trained = [
                    query.train(
                        table,
                        exit_.neighbors,
                        coins,
                        lambda exact, moved, sd: exit_.noisy(
                            exact, noise.NoiseQuery(name, np.ones(len(exact)), moved, sd * SAFETY)
                        ),
                    )
                    for table in tables
                ]
                return [self._charged(stage, query, weights) for weights in trained]
            case LabelSelection():
                return [self._selected(stage, query)]
            case PublishedAnswers() | PublishedProcess() | PublishedLogits():
                values = query.answer(list(self._passes.batches()), stage, exit_.claimed)
                return [self._charged(stage, query, values)]
            case _:
                assert_never(query)
        noisy = [exit_.noisy(exact, exit_.noise_of(stage, query)) for exact in sums]
        return [exit_.with_charge(stage, query, values * query.units) for values in noisy]

    @_spending
    def release_folds(self, planned: Stage, query: Mechanism | Boosting) -> tuple[Release, ...]:
        """One release per fold. Folds are disjoint, so all releases together cost the stage once.

        A unit that is replaced by one with another name may change folds. Then one fold loses its
        part v of the sum, and another fold gains w. The joint vector changes by sqrt(|v|^2 + |w|^2)
        <= sqrt(2) r, where r is the sensitivity to adding or removing a row. The method checks that
        sqrt(2) r is at most the sensitivity of one sum to replacing a row. For a boosting query, it
        uses the sensitivity of one round's sum.
        """
        moved = np.sqrt(2.0) * query.sensitivity("add_remove")
        if query.sensitivity("substitute") < moved * (1 - 1e-9):
            raise CapabilityError(
                "This sum cannot be released by fold: a unit that moves between folds would cost "
                "more."
            )
        self.answers[planned.name] = tuple(self._drawn(planned, query, tuple(range(FOLDS))))
        return self.answers[planned.name]

    def release_published(
        self, effect: StageKey, variance: StageKey, mechanism: PublishedAte
    ) -> tuple[Release, Release]:
        """Release an estimate and its squared standard error, at the cost that a paper claims.

        The call spends two stages at once, because the standard error contains a term that depends
        on the estimate's cost. The noise scale is not reported, because it depends on the rows.
        """
        stages = self._take(effect), self._take(variance)
        mean, square = self._published(stages, mechanism)
        releases = (
            self._exit.claim(stages[0], "AIPW mean", mechanism.name, np.array([mean])),
            self._exit.claim(stages[1], "squared error", mechanism.name, np.array([square])),
        )
        self.answers |= {s.name: (release,) for s, release in zip(stages, releases, strict=True)}
        return releases

    @_spending
    def release_process(
        self, planned: Stage, mechanism: PublishedProcess
    ) -> tuple[Release, Process]:
        """A secret function to evaluate point by point, at the cost that a paper claims."""
        batches = list(self._passes.batches())
        process = mechanism.process(batches, planned, self._exit.claimed)
        return self._exit.claim(planned, mechanism.query, mechanism.name, np.zeros(0)), process

    @_spending
    def fit_declared(self, planned: Stage, order: DeclaredFit) -> tuple[FittedEstimators, Release]:
        """Fit a private estimator on the rows of the stage's part.

        The estimator adds its own noise. Its guarantee is the one that it declares.
        """
        part = self._parts[planned.part]
        learned = order.run(list(self._passes.batches(part)), self._exit.neighbors, planned.name)
        return learned, self._exit.claim(planned, planned.query, order.name, np.zeros(0))

    # -- answers by kind of query ------------------------------------------------------------

    def _selected(self, stage: Stage, selection: LabelSelection) -> Release:
        """Sorted labels of an undeclared text column whose noisy counts pass the threshold, and
        these counts.
        """
        labels, counts = self._passes.tally(selection.column)
        # Use only labels of rows that are kept. A unit may have any number of labels in its other
        # rows, but delta covers at most max_rows labels.
        counted = {label: c for label, c in zip(labels, counts.tolist(), strict=True) if c}
        names = sorted(counted)
        exact = np.array([counted[name] for name in names], np.int64)
        one_row = selection.sensitivity(self._exit.neighbors) / selection.max_rows
        query = self._exit.noise_query(stage, selection.query, np.ones(len(exact)), one_row)
        noisy = self._exit.noisy(exact, query)
        passed = noisy >= selection.threshold(query.scale)
        labels = tuple(name for name, p in zip(names, passed, strict=True) if p)
        return self._charged(stage, selection, noisy[passed].astype(np.float64), labels)

    # -- noise and costs, which follow from the stage and the query alone -----------------------

    def _charged(
        self, stage: Stage, query: Answerable, values: Vector, labels: tuple[str, ...] = ()
    ) -> Release:
        """An answer with its noise and its charge."""
        exit_ = self._exit
        match query:
            case Boosting():  # The budget table shows the rounds as one query of the same cost.
                noise_query, sensitivity = self._round_noise(stage, query)
                moved, spread = sensitivity * query.unit, noise_query.scale * query.unit
                sd = np.tile(exit_.source.sd(noise_query) * query.unit, query.rounds)
            case PrivateNetwork():  # Both are per step, in units of the clipping norm.
                moved, spread = query.sensitivity(exit_.neighbors), query.multiplier
                sd = np.full(query.size, np.nan)
            case LabelSelection():
                one_row = query.sensitivity(exit_.neighbors) / query.max_rows
                noise_query = exit_.noise_query(stage, query.query, np.ones(len(labels)), one_row)
                moved, spread = noise_query.sensitivity, noise_query.scale
                sd = exit_.source.sd(noise_query)
            case PublishedAnswers() | PublishedProcess() | PublishedLogits():
                return exit_.claim(stage, query.query, query.name, values)
            case _:
                return exit_.with_charge(stage, query, values)
        charge = exit_.charge(stage, query.query, query.name, moved, spread)
        return Release(values, sd, charge, labels)

    def _round_noise(self, stage: Stage, boosting: Boosting) -> tuple[noise.NoiseQuery, float]:
        """Noise of one round, and the sensitivity of one query that costs as much as all rounds."""
        exit_, ones = self._exit, np.ones(boosting.width)
        moved = boosting.sensitivity(exit_.neighbors, whole=True)
        whole = exit_.noise_query(stage, boosting.query, ones, moved)
        per_round = boosting.sensitivity(exit_.neighbors) * self._plan.request.trust.max_rows
        return noise.NoiseQuery(boosting.query, ones, per_round, whole.scale), whole.sensitivity

    @guard.guarded
    def _published(
        self, stages: tuple[Stage, Stage], mechanism: PublishedAte
    ) -> tuple[float, float]:
        batches = list(self._passes.batches(self._parts[stages[0].part]))
        return mechanism.answer(batches, *stages, self._exit.claimed)

    # -- spending ----------------------------------------------------------------------------

    def _take(self, key: StageKey, order: object = None) -> Stage:
        """Spend the stage of this key and return it, after checking that it fits the query."""
        if key not in self._unspent:
            raise BudgetError(f"Stage {key!r} is not in the plan, or was already spent.")
        stage = self._unspent[key]
        if all(query is not order for query, _ in self._gathered.get(key, [(order, [])])):
            raise CapabilityError(f"A different query was gathered for stage {key!r}.")
        law = "gaussian" if stage.rho else "laplace"
        if isinstance(order, Query) and getattr(order, "law", law) != law:
            raise CapabilityError(
                f"The weights of {order.query!r} do not match the noise of stage {key!r}."
            )
        if isinstance(order, Query) and not stage.rho:
            order.l1_sensitivity(self._exit.neighbors)  # Raises if there is no such bound.
        if self._plan.gdp and isinstance(order, Query):
            check_release(len(order.units), "columns or terms")
        if self._plan.gdp and isinstance(order, Boosting):
            check_release(order.width * order.rounds, "columns or rounds")
        self._progress.start(key)
        self.passes += 1
        return self._unspent.pop(key)
