"""The durable privacy budget of one data set over many analyses."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from privcausal.accounting import price, store
from privcausal.accounting.price import PICO, Charge, Cost, exact, pico
from privcausal.errors import BudgetError, LedgerError, Strict, is_number
from privcausal.prices import DELTA_DIGITS, at_least, at_most

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "run", "question", "day", "published", "stage", "query", "mechanism", "neighbors",
    "sensitivity", "noise_sd", "rho", "gaussian", "epsilon", "delta", "rows", "unit",
)  # fmt: skip


class BudgetExhaustedError(BudgetError):
    """The ledger's remaining budget is less than the request; the request was not charged.

    Attributes
    ----------
    requested : float
        Total epsilon of the refused charges alone, at the ledger's delta.
    remaining : Remaining
    payable : float
        Epsilon that the ledger could pay for a smaller fit of the same kind. It is 0 if too little
        delta remains.
    """

    def __init__(
        self, message: str, requested: float, remaining: price.Remaining, payable: float
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining
        self.payable = payable


@dataclass(frozen=True, slots=True)
class Spent:
    """The total of all charges of a ledger, in natural units."""

    epsilon: float  # The total guarantee, at the ledger's delta. It is less than the sum over fits.
    # `pure_epsilon`, `rho`, `delta`: sums of the charges in each of the three currencies
    pure_epsilon: float
    rho: float
    delta: float
    # "published" permanently, as soon as one charge relies on a published, unproven claim
    kind: Literal["proven", "published"] = "proven"


class Ledger(Strict):
    """A privacy budget that outlives the process; one file for one data set.

    Charges are committed to disk before a release is drawn. They are never refunded. A charge is
    refused if the total would exceed the cap.

    The ledger refuses every operation with a `LedgerError` if it is unreadable, read-only, changed
    or rolled back. It cannot detect that old copies of the file and of ``<path>.head`` were put
    back *together*. The file must be on a local disk, because locks do not work on network drives.

    The cap holds for prices fixed beforehand. It also holds for prices chosen after seeing answers
    in three cases:

    - No charge has a delta, and all charges are Gaussian noise (Smith and Thakurta 2022).
    - No charge has a delta, and all charges are other noise in rho (Feldman and Zrnic 2021).
    - All charges are pure epsilon in a ledger with ``delta=0`` (Rogers et al. 2016).

    In other cases the cap is not proven for prices chosen after seeing answers. For some such
    choices it fails, because the best way of counting then depends on the answers.

    Parameters
    ----------
    path : str or path-like
        Created if it does not exist; its folder must exist. Links are followed.
    dataset : str
        A public label of the data. Reopening requires the same label.
    eps, delta : float
        The cap on all charges together. ``delta=0`` accepts only charges of pure epsilon.
    allow_published : bool
        Whether published mechanisms (`privcausal.paper`) are accepted; fixed at creation.

    Examples
    --------
    >>> ledger = pc.Ledger("study.db", dataset="clinic", eps=2)
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.private(study.formula, study.frame, eps=1, bounds=study.bounds, ledger=ledger)
    >>> ledger.fits
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: str,
        eps: float,
        delta: float = 1e-5,
        allow_published: bool = False,
    ) -> None:
        if not isinstance(dataset, str) or not dataset.strip() or not dataset.isprintable():
            raise LedgerError("dataset= must be a label of the data: a nonempty, printable string.")
        if not isinstance(allow_published, bool):
            raise LedgerError("allow_published= must be True or False.")
        epsilon = price.check_epsilon(eps)
        if not (is_number(delta) and delta == 0):
            # This also refuses caps too small for any charge.
            price.rho_of(epsilon, price.check_delta(delta))
        wanted = {
            "id": uuid.uuid4().hex,
            "dataset": dataset,
            "epsilon": epsilon,
            "delta": float(delta),
            "allow_published": int(allow_published),
        }
        self._store = store.Store(path)
        self._store.create(wanted)
        self._header = self._store.open()
        # Refuse to reopen a ledger with other arguments than at its creation.
        name, header = self._store.path.name, self._header
        for key, word in (("dataset", "data set"), ("epsilon", "eps"), ("delta", "delta")):
            if wanted[key] != header[key]:
                raise LedgerError(
                    f"{name} is a ledger for a different {word}. It was created with "
                    f"{key}={header[key]!r}, not {wanted[key]!r}."
                )
        if wanted["allow_published"] != header["allow_published"]:
            raise LedgerError(
                f"{name} was created with allow_published={bool(header['allow_published'])}, which "
                "cannot change. Open it with the same value."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the existing ledger at `path`, with its original data set and cap.

        Examples
        --------
        >>> pc.Ledger.open("study.db").dataset
        'clinic'
        """
        ledger = cls.__new__(cls)
        ledger._store = store.Store(path)
        ledger._header = ledger._store.open()
        return ledger

    @property
    def dataset(self) -> str:
        """The label given at creation."""
        return str(self._header["dataset"])

    @property
    def epsilon(self) -> float:
        """The cap on the total epsilon."""
        return float(self._header["epsilon"])

    @property
    def delta(self) -> float:
        """The cap on the total delta; the total epsilon is stated for it."""
        return float(self._header["delta"])

    @property
    def allow_published(self) -> bool:
        """Whether published mechanisms are accepted."""
        return bool(self._header["allow_published"])

    @property
    def fits(self) -> int:
        """Number of charged runs, including those that failed afterwards."""
        return len({line["run"] for line in self._store.read().lines})

    @property
    def spent(self) -> Spent:
        """The total spent to date.

        Examples
        --------
        >>> round(ledger.spent.epsilon, 6)
        1.0
        """
        return self._spent(self._store.read())

    @property
    def remaining(self) -> price.Remaining:
        """The remaining budget under the cap; the remaining rho is also converted to epsilon.

        Examples
        --------
        >>> ledger.remaining.epsilon > 1
        True
        """
        return price.remaining(price.Events.of(self._store.read().costs), self.epsilon, self.delta)

    @property
    def history(self) -> pd.DataFrame:
        """One line per charge, in order; amounts in natural units, days in UTC.

        `question` is the call that was charged, without data and bounds. It is empty if an older
        version made the charge. `epsilon` is that of a pure charge. It is missing for all others,
        whose epsilon depends on what they are composed with: `runs` has the epsilon of a whole run.

        Examples
        --------
        >>> len(ledger.history) > 0
        True
        """
        import pandas as pd

        frame = pd.DataFrame(self._store.read().lines, columns=list(_COLUMNS))
        pairs = [store.question_of(run) for run in frame["run"]]
        frame[["run", "question"]] = pd.DataFrame(pairs, columns=["run", "question"], dtype=object)
        for name in ("rho", "epsilon", "delta"):
            frame[name] = frame[name].astype(float) / PICO
        frame["epsilon"] = frame["epsilon"].where(frame["epsilon"] > 0)
        floats = dict.fromkeys(("sensitivity", "noise_sd"), float)
        return frame.astype({"published": bool, "gaussian": bool, **floats})

    @property
    def runs(self) -> pd.DataFrame:
        """One line per run, in order: run question day releases rho pure delta epsilon.

        `epsilon` is the cost of the run alone at the ledger's delta, and infinite if undefined. The
        epsilons of several runs add up to more than `spent`. `pure` is in pure epsilon.

        Examples
        --------
        >>> len(ledger.runs)
        1
        """
        import pandas as pd

        book, costs, days = self._store.read(), defaultdict[str, list[Cost]](list), dict[str, str]()
        for line, cost in zip(book.lines, book.costs, strict=True):
            costs[line["run"]].append(cost)
            days.setdefault(line["run"], line["day"])  # the first charge's
        rows = []
        for run, day in days.items():
            events = price.Events.of(costs[run])
            amounts = (events.rho + events.gdp, sum(events.pure), events.delta)
            paid = (amount / PICO for amount in amounts)
            pure = events.pure and not (events.rho or events.gdp or events.delta)
            epsilon = sum(events.pure) / PICO if pure else price.total_epsilon(events, self.delta)
            rows.append((*store.question_of(run), day, len(costs[run]), *paid, epsilon))
        names = ["run", "question", "day", "releases", "rho", "pure", "delta", "epsilon"]
        return pd.DataFrame(rows, columns=names)

    def affordable(self, cost: Cost) -> bool:
        """Whether `cost` could be charged now. Another process may still charge first."""
        costs = [*self._store.read().costs, cost]
        return price.within(price.Events.of(costs), self.epsilon, self.delta)

    def after(self, *costs: Cost) -> price.Remaining | None:
        """The remaining budget after also paying `costs`; None if they cannot be paid."""
        events = price.Events.of([*self._store.read().costs, *costs])
        payable = price.within(events, self.epsilon, self.delta)
        return price.remaining(events, self.epsilon, self.delta) if payable else None

    def charge(self, run: str, charges: Sequence[Charge], published: bool = False) -> None:
        """Charge all `charges` of one fit in one transaction, committed before this returns.

        Parameters
        ----------
        run : str
            A new name. A run is never charged or answered twice.
        charges : sequence of Charge
            Their costs add up. For stages on disjoint rows, pass the joint cost, not one per stage.
        published : bool
            Whether the guarantee is only a published claim.

        Raises
        ------
        BudgetExhaustedError
            A `BudgetError`: the total would exceed the cap. The request was not charged.
        LedgerError
            The ledger cannot be used, or the run, the neighbors or the unit do not fit its
            contents. If the disk failed midway, the charge may have been spent and must not be
            answered.
        """
        charges = tuple(charges)
        lines = store.lines_of(run, charges, published)
        if published and not self.allow_published:
            raise LedgerError(
                f"Ledger {self.dataset!r} accepts only proven guarantees. Use a proven method, or "
                "a ledger that was created with allow_published=True."
            )

        def decide(book: store.Book) -> list[dict[str, Any]]:
            if any(line["run"] == run for line in book.lines):
                raise LedgerError(
                    f"Run {run!r} was already charged to this ledger. Use a new name."
                )
            if len({line["neighbors"] for line in (*book.lines, *lines)}) > 1:
                # A total over both relations would not be valid for either relation.
                raise LedgerError(
                    f"Ledger {self.dataset!r} cannot mix substitute and add_remove neighbors. "
                    "Keep a separate ledger for each."
                )
            units = dict.fromkeys(line["unit"] for line in (*book.lines, *lines))
            if len(units) > 1:
                both = " and ".join(map(repr, units))
                raise LedgerError(
                    f"Ledger {self.dataset!r} cannot mix the units {both}. "
                    "Keep a separate ledger for each."
                )
            self._check_cap(book.costs, [charge.cost for charge in charges])
            return lines

        self._store.append(decide)

    def verify(self) -> str:
        """Check pages, chain, head, neighbors, units and sums; report or raise `LedgerError`.

        Examples
        --------
        >>> print(ledger.verify())
        Ledger 'clinic' is intact: ...
        """
        book = self._store.read()
        self._store.check_pages()
        if not price.within(price.Events.of(book.costs), self.epsilon, self.delta):
            raise LedgerError(f"Ledger {self.dataset!r} contains more charges than its cap allows.")
        if len({line["neighbors"] for line in book.lines}) > 1:
            raise LedgerError(f"Ledger {self.dataset!r} mixes two definitions of neighbors.")
        if len({line["unit"] for line in book.lines}) > 1:
            raise LedgerError(f"Ledger {self.dataset!r} mixes two protected units.")
        return f"Ledger {self.dataset!r} is intact: {len(book.lines)} charges, {self._status(book)}"

    def __repr__(self) -> str:
        try:
            return f"<Ledger {self.dataset!r}: {self._status(self._store.read())}>"
        except LedgerError as error:
            return f"<Ledger {self.dataset!r}: unusable, {error}>"

    def _status(self, book: store.Book) -> str:
        spent, fits = self._spent(book), len({line["run"] for line in book.lines})
        label = ", claimed" if spent.kind == "published" else ""
        left = price.remaining(price.Events.of(book.costs), self.epsilon, self.delta)
        return (
            f"eps {at_most(spent.epsilon)} of {at_most(self.epsilon)} spent at "
            f"delta={at_most(self.delta, DELTA_DIGITS)} in {fits} fit{'s' * (fits != 1)}{label}; "
            f"the next fit can use up to {at_least(max(left.epsilon, left.pure_epsilon))}"
        )

    def _spent(self, book: store.Book) -> Spent:
        events = price.Events.of(book.costs)
        return Spent(
            epsilon=price.total_epsilon(events, self.delta),
            pure_epsilon=sum(events.pure) / PICO,
            rho=(events.rho + events.gdp) / PICO,
            delta=events.delta / PICO,
            kind="published" if any(line["published"] for line in book.lines) else "proven",
        )

    def _check_cap(self, spent: Sequence[Cost], new: Sequence[Cost]) -> None:
        if price.within(price.Events.of([*spent, *new]), self.epsilon, self.delta):
            return
        request, before = price.Events.of(new), price.Events.of(spent)
        requested = price.total_epsilon(request, self.delta)
        left = price.remaining(before, self.epsilon, self.delta)
        lines = [f"Not enough budget for this fit in ledger {self.dataset!r}."]
        payable = 0.0
        # Converting rho needs a delta beyond the fit's own. Without it, no epsilon would help.
        beyond = before.rho + before.gdp if request.delta else 0
        converts = request.rho + request.gdp + beyond > 0
        if request.delta + int(converts) > pico(left.delta):
            wanted = f"delta {'above ' * converts}{at_most(request.delta / PICO, DELTA_DIGITS)}"
            gone = float(exact(self.delta) - exact(left.delta))
            lines += [
                f"Requested  {wanted}    Remaining  delta {at_least(left.delta, DELTA_DIGITS)}",
                f"The limit is delta, not eps: {at_most(gone, DELTA_DIGITS)} of "
                f"{at_most(self.delta, DELTA_DIGITS)} is spent. Pure epsilon needs no delta.",
            ]
        else:
            # Subtract the fit's own delta first, then convert rho at the remaining delta.
            with_delta = price.Events.of([*spent, Cost(0, 0, request.delta)])
            rest = price.remaining(with_delta, self.epsilon, self.delta)
            payable = rest.pure_epsilon if request.pure else rest.epsilon
            delta = at_least(rest.delta, DELTA_DIGITS)
            at = "" if rest.delta == self.delta else f" at the remaining delta of {delta}"
            why = "as pure epsilon" if request.pure else f"from the remaining rho{at}"
            # Round the request up, and the remaining budget down.
            lines.append(
                f"Requested  eps {at_most(requested)}    Remaining  eps {at_least(payable)} ({why})"
            )
        message = "\n  ".join([*lines, "No budget was spent."])
        raise BudgetExhaustedError(message, requested, left, payable)
