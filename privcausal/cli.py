"""Command line of the package; `_parser` lists its commands and exit codes.

Messages go to stderr. They contain only arguments, column names and released numbers. An
unexpected error shows a constant text, because tracebacks and messages of other libraries may
quote values of rows.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from privcausal import __version__, errors
from privcausal.prices import at_least, at_most

if TYPE_CHECKING:
    from privcausal.request.schema import Schema

FINE, UNEXPECTED, WRONG_INPUT, NO_BUDGET, REFUTED = 0, 1, 2, 3, 4

_SORRY = (
    "Unexpected error. Its message is not shown, because it may contain values of rows. Make the "
    "same call in Python to see it, if you may see the rows. Budget charged to a ledger stays "
    "spent."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Words of the command line. If None, the arguments of this process.
    """
    chosen = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]  # fewer names, same call
        try:
            code = chosen.run(chosen)
            sys.stdout.flush()
        except errors.PrivcausalError as error:
            from privcausal.accounting import BudgetExhaustedError

            _say(f"{type(error).__name__}: {error}")
            return NO_BUDGET if isinstance(error, BudgetExhaustedError) else WRONG_INPUT
        except BrokenPipeError:  # the reader has stopped, as in `privcausal demo | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return UNEXPECTED
        except (Exception, KeyboardInterrupt):
            _say(_SORRY)
            return UNEXPECTED
    return FINE if code is None else int(code)


def _say(text: str) -> None:
    print(f"privcausal: {text}", file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    # Our warnings contain released numbers only; a warning of another library may depend on a row.
    if issubclass(category, errors.PrivcausalWarning):
        _say(f"warning: {message}")


_FIT_HELP = """\
example: privcausal fit spec.toml data.csv --report fit.html --save fit.json

spec file:
  formula = "visit ~ mailed | age + C(region) | income"
  eps = 1.0            # and other arguments of the call: groups, unit, ...
  task = "privcate"    # or "private" (estimand = "ATT", or a list), "regress",
                       # "logit", "poisson", "did" (unit, time, periods, cohort)
  complete = false     # true: the columns used cannot have missing values
  learner = "adum"     # or {name = "adum", cells = 4}; the same for base
  control = {split = "crossfit"}  # further settings, as in pc.Control
  [bounds]             # public domains; part of the budget estimates any others
  visit = ["0", "1"]   # two values
  age = [18, 95]       # a range
  region = ["N", "S"]
  [ledger]             # the path is relative to the folder of the spec file
  path = "study.db"
  dataset = "mailing"
  eps = 2.0
"""

# -- arguments -------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="privcausal",
        description="Causal inference with differential privacy.",
        epilog="Exit codes: 0 success, 1 unexpected error, 2 wrong input, 3 not enough budget, 4 a "
        "privacy claim was refuted or a self-test failed.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for name, (run, words, more, arguments) in _COMMANDS.items():
        # Its own help page starts with the line of the general one.
        described = {"description": f"{words[0].upper()}{words[1:]}."} | more
        command = commands.add_parser(name, help=words, **described)
        for flag, options in arguments.items():
            command.add_argument(flag, **options)
        command.set_defaults(run=run)
    return parser


def _input(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return path


def _output(text: str) -> Path:
    """A path that can be written, checked before any budget is spent."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} must be a file in an existing folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def _page(text: str) -> Path:
    path = _output(text)
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise argparse.ArgumentTypeError(f"reports are HTML files, so name it '{path.stem}.html'")
    return path


def _check_distinct(*paths: Path | None) -> None:
    places = [path.resolve() for path in paths if path is not None]
    if len(set(places)) < len(places):
        raise errors.DataError("One file is named twice, so an output would overwrite it.")


# -- commands --------------------------------------------------------------------------------


def _print_summary(result: Any, style: str, **more: bool) -> None:
    print(getattr(result.summary(**more), f"as_{style}")().rstrip("\n"))


def _demo(chosen: argparse.Namespace) -> None:
    import privcausal as pc

    study = pc.datasets.clinic(chosen.rows)
    more = {"eps": chosen.eps, "bounds": study.bounds, "groups": ["ward", "age >= 65"]}
    fit = pc.privcate(study.formula, study.frame, **more)
    _write(fit.report, chosen.out, "report")
    print(fit)
    _say(f"The data are simulated. The true average effect is {study.ate:.2f}.")


def _fit(chosen: argparse.Namespace) -> None:
    import privcausal as pc
    from privcausal.accounting import Ledger
    from privcausal.vault import read_file

    task, formula, schema, options, ledger = _read_job(chosen.spec)
    _check_distinct(chosen.spec, chosen.data, chosen.report, chosen.save, ledger.get("path"))
    data: Any = chosen.data
    if data.suffix.lower() not in (".parquet", ".dta", ".sav", ".rds"):  # the call opens these
        data = read_file(data)
    options["progress"] = sys.stderr.isatty() if chosen.progress is None else chosen.progress
    options |= {"bounds": schema, "ledger": Ledger(**ledger) if ledger else None}
    fit = getattr(pc, task)(formula, data, **options)
    with ExitStack() as steps:  # the budget is spent, so later steps run even if one fails
        steps.callback(_print_summary, fit, chosen.summary, full=chosen.full)
        if chosen.report is not None:
            steps.callback(_write, fit.report, chosen.report, "report")
        if chosen.save is not None:
            steps.callback(_write, fit.save, chosen.save, "fit")


def _plan(chosen: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    import privcausal as pc
    from privcausal.accounting import Ledger

    task, formula, schema, options, ledger_options = _read_job(chosen.spec)
    _check_distinct(chosen.spec, chosen.plot)
    # Options of the fit that a plan also accepts; all other options must have their defaults.
    defaults = inspect.signature(getattr(pc, task)).parameters
    accepted = inspect.signature(pc.plan).parameters
    studied = task == "did" and "cohort" in options
    options = {"learner": "private" if studied else _learner(task), **options}
    for name in [name for name in options if name not in accepted]:
        if options.pop(name) != defaults[name].default:
            raise errors.CapabilityError(
                f"{chosen.spec.name}: A plan cannot use {name}. Leave it at its default."
            )
    eps = options.pop("eps", None)
    # With a half-width and n, the command computes eps, so the eps of the spec file is not used.
    if chosen.eps is not None or (chosen.width is not None and chosen.n is not None):
        eps = chosen.eps
    assumed = {
        name: getattr(chosen, name) for name in ("n", "width", "outcome_sd", "r2", "treated")
    }
    plan = pc.plan(formula, eps=eps, bounds=schema, **assumed, **options)
    _print_summary(plan, chosen.summary)
    path = ledger_options.get("path")
    # Opening a ledger that does not exist would create it.
    if path is not None and path.exists():
        ledger = Ledger(**ledger_options)
        for row in plan.fits(ledger).to_dict("records"):
            left = f"has enough budget; remaining after the fit: eps {at_least(row['left'])}"
            answer = left if row["affordable"] else "does not have enough budget"
            print(f"n {row['n']:,}, eps {at_most(row['eps'])}: ledger {ledger.dataset!r} {answer}")
    if chosen.plot is not None:
        figure = Figure((11, 4.5), layout="constrained")
        for kind, ax in zip(("eps", "n"), figure.subplots(1, 2), strict=True):
            plan.plot(kind, ax=ax)
        _write(figure.savefig, chosen.plot, "plot")


def _learner(task: str) -> str:
    """Name of the task for plans and audits."""
    if task == "did":
        raise errors.CapabilityError(
            "did() has no plan for two periods, and no audit. Use an average of changes: task = "
            '"private" and estimand = "ATT", without time, and with bounds of the change.'
        )
    return "r" if task == "privcate" else task


def _report(chosen: argparse.Namespace) -> None:
    from privcausal.results import load

    out = chosen.out or chosen.fit.with_suffix(".html")
    _check_distinct(chosen.fit, out)
    _write(partial(load(chosen.fit).report, audience=chosen.audience), out, "report")


def _ledger(chosen: argparse.Namespace) -> None:
    from privcausal.accounting import Ledger
    from privcausal.results.guarantee import ledger_summary

    ledger = Ledger.open(chosen.ledger)
    report = ledger.verify()
    if chosen.verify:
        print(report)
    elif chosen.csv:
        print(ledger.history.to_csv(index=False), end="")
        _say(report)
    else:
        print(ledger_summary(ledger))


def _audit(chosen: argparse.Namespace) -> int:
    from privcausal.auditing import audit, audit_all

    drawn = {"trials": chosen.trials, "level": chosen.level}
    if chosen.spec is None:
        if chosen.fits:
            raise errors.CapabilityError("--fits requires a spec file, because it audits one call.")
        result = audit_all(**drawn)
    else:
        # Do not open the spec's ledger, because an audit spends no budget.
        task, formula, schema, options, _ = _read_job(chosen.spec)
        options = {"learner": _learner(task), **options, **drawn}
        statistic = "fits" if chosen.fits else "queries"
        result = audit(formula, bounds=schema, statistic=statistic, **options)
    _print_summary(result, chosen.summary)
    return FINE if result.passes else REFUTED


def _selftest(_: argparse.Namespace) -> int:
    from privcausal.auditing import selftest

    holds = True
    for passes, line in selftest():
        print(line, flush=True)
        holds &= passes
    print("All checks passed." if holds else "SOME CHECKS FAILED.")
    return FINE if holds else REFUTED


def _write(write: Callable[[Path], None], path: Path, word: str) -> None:
    try:
        write(path)
    except (OSError, errors.DataError):
        _say(f"The {word} {path} could not be written.")
        raise
    _say(f"Wrote the {word} to {path}")


# -- the spec file ---------------------------------------------------------------------------

_TASKS = ("privcate", "private", "regress", "logit", "poisson", "did")
_KEYS = ("formula", "task", "bounds", "complete", "ledger")
_NOT_IN_A_FILE = {"formula", "data", "bounds", "ledger", "progress"}
_LEDGER = ("path", "dataset", "eps", "delta")


FileCall: TypeAlias = "tuple[str, str, Schema, dict[str, Any], Mapping[str, Any]]"
"""Task, formula, schema, options, and arguments of `Ledger` (or none) of a spec file's call."""


def _read_job(path: Path) -> FileCall:
    import privcausal
    from privcausal.request.request import Control
    from privcausal.request.schema import Schema

    problem = ""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
    except (OSError, ValueError):
        problem = "it is not UTF-8 text"
    if problem:
        raise errors.SchemaError(f"{path.name} is not valid TOML: {problem}.")
    task = content.get("task", "privcate")
    if task not in _TASKS:
        raise errors.CapabilityError(f"{path.name}: task must be one of {', '.join(_TASKS)}.")
    # Keywords of the call that a file can hold. The call itself checks their values.
    keywords = inspect.signature(getattr(privcausal, task)).parameters
    allowed = [name for name in keywords if name not in _NOT_IN_A_FILE]
    _check_keys(content, (*_KEYS, *allowed), path.name)
    if not isinstance(content.get("formula"), str):
        raise errors.FormulaError(
            f'{path.name}: Write formula = "outcome ~ treatment | modifiers".'
        )
    options = {name: content[name] for name in allowed if name in content}
    if "control" in options:
        settings = options["control"]
        if not isinstance(settings, dict):
            raise errors.CapabilityError(f"{path.name}: control must be a table. Write [control].")
        _check_keys(settings, [f.name for f in fields(Control)], f"[control] in {path.name}")
        options["control"] = Control(**settings)
    known_options: dict[str, Mapping[str, Any]] = {
        "learner": privcausal.learners.LEARNERS,
        "base": {**privcausal.bases.BASES, **privcausal.bases.OTHERS},
    }
    for key, choices in known_options.items():
        if isinstance(options.get(key), dict):  # an option object, in a table
            settings, place = dict(options[key]), f"[{key}] in {path.name}"
            option = choices.get(str(settings.pop("name", None)))
            if option is None:
                raise errors.CapabilityError(f"{place} requires name: {', '.join(choices)}.")
            _check_keys(settings, [f.name for f in fields(option) if f.init], place)
            options[key] = replace(option, **settings)
    ledger = content.get("ledger", {})
    if not isinstance(ledger, dict):
        raise errors.LedgerError(f"{path.name}: ledger must be a table. Write [ledger].")
    _check_keys(ledger, _LEDGER, f"[ledger] in {path.name}")
    complete = all(name in ledger for name in _LEDGER[:3]) and isinstance(ledger["path"], str)
    if "ledger" in content and not complete:
        raise errors.LedgerError(f"[ledger] in {path.name} requires path (text), dataset and eps.")
    # Next to the spec file, whatever the working directory: another ledger would be a new budget.
    ledger = {**ledger, "path": path.parent / ledger["path"]} if ledger else {}
    return task, content["formula"], Schema.from_toml(path), options, ledger


def _check_keys(content: Mapping[str, Any], allowed: Sequence[str], place: str) -> None:
    from privcausal.request.request import Control

    for name in content:
        if name not in allowed:
            if "control" in allowed and name in {f.name for f in fields(Control)}:
                raise errors.CapabilityError(f"{place}: {name} belongs in the table [control].")
            words = ", ".join(sorted(allowed))
            raise errors.CapabilityError(f"{place}: Unknown key {name!r}. Known keys are {words}.")


_SUMMARY = {
    "choices": ["text", "latex", "html", "markdown", "csv"],
    "default": "text",
    "help": "format of the printed table (default: text)",
}

_COMMANDS: dict[str, tuple[Callable[..., int | None], str, dict[str, Any], dict[str, Any]]] = {
    "demo": (_demo, "fit simulated data and write a report", {
        "epilog": "example: privcausal demo --rows 10000 --eps 0.5",
    }, {
        "--out": {
            "type": _page, "default": Path("report.html"), "metavar": "HTML",
            "help": "write the report to this file (default: report.html)",
        },
        "--rows": {
            "type": int, "default": 5000, "help": "number of simulated rows (default: 5000)",
        },
        "--eps": {"type": float, "default": 1.0, "help": "privacy budget (default: 1)"},
    }),
    "fit": (
        _fit, "run the fit that a spec file describes",
        {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": _FIT_HELP}, {
        "spec": {"type": _input, "help": "TOML file; see below"},
        "data": {"type": _input, "help": "a .parquet, .feather, .csv, .dta, .sav or .rds file"},
        "--report": {"type": _page, "metavar": "HTML", "help": "write a report to this file"},
        "--save": {"type": _output, "metavar": "JSON", "help": "save the fit to this file"},
        "--summary": _SUMMARY,
        "--full": {"action": "store_true", "help": "print every release and complete notes"},
        "--progress": {
            "action": argparse.BooleanOptionalAction,
            "help": "show a progress bar on stderr (default: only in a terminal)",
        },
    }),
    "plan": (_plan, "forecast the width of intervals, without data", {
        "epilog": "example: privcausal plan spec.toml --n 5000 --eps 0.5 1 2",
    }, {
        "spec": {"type": _input, "help": "TOML file; see privcausal fit --help"},
        "--n": {"type": int, "nargs": "+", "help": "one or more numbers of rows"},
        "--eps": {
            "type": float, "nargs": "+",
            "help": "privacy budgets (default: eps of the spec file)",
        },
        "--width": {
            "type": float,
            "help": "target half-width; finds eps for a given n, or n for a given eps",
        },
        "--outcome-sd": {
            "type": float, "metavar": "SD",
            "help": "standard deviation of the outcome within an arm (default: from its bounds)",
        },
        "--r2": {
            "type": float, "default": 0.0,
            "help": "share of the outcome variance that covariates explain (default: 0)",
        },
        "--treated": {
            "type": float, "default": 0.5,
            "help": "share of rows that are treated (default: 0.5)",
        },
        "--plot": {"type": _output, "metavar": "PNG", "help": "plot half-width against eps and n"},
        "--summary": _SUMMARY,
    }),
    "report": (_report, "write the HTML report of a saved fit", {
        "epilog": "example: privcausal report fit.json",
    }, {
        "fit": {"type": _input, "help": "a fit saved as JSON"},
        "out": {
            "type": _page, "nargs": "?", "metavar": "HTML",
            "help": "write the report to this file (default: beside the fit, ending in .html)",
        },
        "--audience": {
            "choices": ["technical", "public"], "default": "technical",
            "help": "public omits coefficients, settings and code (default: technical)",
        },
    }),
    "ledger": (_ledger, "check a ledger and show its remaining budget", {
        "epilog": "example: privcausal ledger study.db",
    }, {
        "verify": {
            "nargs": "?", "choices": ["verify"], "help": "only check that the ledger is intact",
        },
        # Do not use `_input`: a deleted ledger leaves its head file, which must be reported.
        "ledger": {"type": Path, "help": "the file that ledger= of a fit names"},
        "--csv": {"action": "store_true", "help": "print every charge as CSV"},
    }),
    "audit": (
        _audit, "try to refute the privacy claim of a fit", {
            "description": "Simulate two neighboring tables and test how well the released output "
            "distinguishes them. The claim is refuted if it does so better than the guarantee "
            "allows. No data are read and no budget is spent.",
            "epilog": "example: privcausal audit spec.toml --trials 50000",
        }, {
        "spec": {
            "type": _input, "nargs": "?",
            "help": "TOML file; see privcausal fit --help (default: audit all kinds of releases)",
        },
        "--trials": {"type": int, "default": 10_000, "help": "draws per table (default: 10000)"},
        "--level": {"type": float, "default": 1e-3, "help": "false alarm rate (default: 0.001)"},
        "--fits": {"action": "store_true", "help": "draw whole fits instead of single queries"},
        "--summary": _SUMMARY,
    }),
    "selftest": (_selftest, "test noise, replay and ledgers on this machine", {
        "epilog": "example: privcausal selftest",
    }, {}),
}  # fmt: skip
"""The commands: function, line of help, further options of the parser, and arguments."""
