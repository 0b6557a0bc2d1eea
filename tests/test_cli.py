"""The command line on real files: every command, every exit code, and no row on stderr."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from functools import wraps
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import privcausal as pc
from privcausal import cli
from privcausal.errors import PrivcausalWarning
from privcausal.testing import seeded_noise
from privcausal.vault import read_file

ROOT = Path(__file__).resolve().parents[1]

BOUNDS = """
[bounds]
recovery = [0, 100]
programme = [0, 1]
age = [18, 95]
severity = [0, 10]
bmi = [15, 50]
ward = ["east", "north", "south", "west"]
"""
SPEC = f"""
formula = "recovery ~ programme | age + C(ward) | bmi"
eps = 2.0
complete = true
{BOUNDS}
"""
ATE_SPEC = f"""
formula = "recovery ~ programme | age"
task = "private"
{BOUNDS}
"""
CANARY = "8675309.25"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pc.datasets.clinic(300).frame


@pytest.fixture
def here(tmp_path: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec file and the clinic in every format, as the current directory."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "data.feather")
    pyarrow.feather.write_feather(table, tmp_path / "data.arrow", compression="uncompressed")
    frame.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "ate.toml").write_text(ATE_SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "privcausal", *words], cwd=cwd, capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


# -- commands --------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_prints_a_summary_and_writes_the_report(tmp_path):
    done = shell("demo", "--rows", "800", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Private Conditional Average Treatment Effect" in done.stdout
    assert "ward[north]" in done.stdout
    assert "Observations:                      800" in done.stdout
    assert "(1, 1e-05)-DP, proven" in done.stdout
    assert "Wrote the report to report.html" in done.stderr
    assert "true average effect is 6.80" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert sorted(os.listdir(tmp_path)) == ["report.html"]


@pytest.mark.slow
def test_demo_takes_its_budget_and_its_place(here, capsys):
    assert cli.main(["demo", "--rows", "400", "--eps", "3", "--out", "there.html"]) == 0
    assert "(3, 1e-05)-DP" in capsys.readouterr().out
    assert (here / "there.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "csv", "feather", "arrow"])
def test_fit_reads_every_format(here, capsys, suffix):
    words = ["fit", "ate.toml", f"data.{suffix}", "--report", "out.html", "--save", "fit.json"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "Private Average Treatment Effect" in said.out
    assert said.err.splitlines() == [
        "privcausal: Wrote the fit to fit.json",
        "privcausal: Wrote the report to out.html",
    ]
    assert "</html>" in (here / "out.html").read_text()
    assert isinstance(pc.load("fit.json"), pc.AteResult)


STARTS = {"text": " ", "latex": "\\begin", "html": "<div", "markdown": "**", "csv": "Private "}


@pytest.mark.parametrize(("style", "start"), STARTS.items())
def test_fit_prints_the_summary_asked_for(here, capsys, style, start):
    assert cli.main(["fit", "ate.toml", "data.parquet", "--summary", style]) == 0
    said = capsys.readouterr()
    assert start in said.out[:200]
    assert said.err == ""


def test_the_full_summary_is_printed(here, capsys):
    assert cli.main(["fit", "ate.toml", "data.parquet", "--full", "--save", "fit.json"]) == 0
    assert capsys.readouterr().out == f"{pc.load('fit.json').summary(full=True)}\n"


def test_option_objects_are_tables(here):
    (here / "spec.toml").write_text(f"""
        formula = "recovery ~ programme | age"
        eps = 3
        {BOUNDS}
        [learner]
        name = "dr"
        [base]
        name = "gam"
        functions = 2
        """)
    assert cli.main(["fit", "spec.toml", "data.parquet", "--save", "fit.json"]) == 0
    fit = pc.load("fit.json")
    assert "pc.bases.Gam(functions=2)" in fit.call
    assert fit.plan.learner == "dr"


def test_the_bar_is_on_stderr_where_it_is_asked_for(here, capsys):
    assert cli.main(["fit", "ate.toml", "data.parquet", "--progress"]) == 0
    said = capsys.readouterr()
    assert " stages [" in said.err
    assert " stages [" not in said.out
    assert cli.main(["fit", "ate.toml", "data.parquet", "--no-progress"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_fit_passes_every_option_on(here):
    (here / "spec.toml").write_text(f"""
        formula = "recovery ~ programme | age | bmi"
        learner = "dr"
        base = "linear"
        eps = 3
        delta = 1e-6
        complete = true
        neighbors = "add_remove"
        propensity = 0.5
        groups = ["ward", "age >= 65"]
        [control]
        split = "crossfit"
        cov_type = "HC0"
        shares = {{nuisance = 0.4}}
        {BOUNDS}""")
    assert cli.main(["fit", "spec.toml", "data.parquet", "--save", "fit.json"]) == 0
    fit = pc.load("fit.json")
    request = fit.plan.request
    assert (fit.plan.learner, fit.plan.base) == ("dr", "linear")
    assert (request.budget.epsilon, request.budget.delta) == (3, 1e-6)
    assert request.trust.neighbors == "add_remove"
    assert (request.propensity, request.split, request.cov_type) == (0.5, "crossfit", "HC0")
    assert request.groups == ("ward", "age >= 65")
    assert request.budget.shares == {"nuisance": 0.4}
    assert request.schema["age"] == pc.Interval(18, 95)
    assert request.schema["ward"] == pc.Levels(["east", "north", "south", "west"])
    assert request.schema.complete


@pytest.mark.slow
def test_fit_passes_the_estimand_on(here, capsys):
    (here / "spec.toml").write_text(f"""
        formula = "recovery ~ programme | age"
        task = "private"
        estimand = "ATT"
        base = "linear"
        {BOUNDS}""")
    assert cli.main(["fit", "spec.toml", "data.parquet", "--save", "fit.json"]) == 0
    assert pc.load("fit.json").params.index.tolist() == ["ATT"]
    assert cli.main(["plan", "spec.toml", "--n", "900"]) == 0
    assert "Plan of a Private Average Treatment Effect on the Treated" in capsys.readouterr().out


@pytest.mark.slow
def test_report_of_a_saved_fit(here, capsys):
    assert cli.main(["fit", "ate.toml", "data.parquet", "--save", "f.json", "--report", "a"]) == 0
    assert cli.main(["report", "f.json", "b"]) == 0
    assert (here / "a").read_bytes() == (here / "b").read_bytes()
    assert cli.main(["report", "f.json", "c", "--audience", "public"]) == 0
    assert len((here / "c").read_bytes()) < len((here / "b").read_bytes())
    assert "Wrote the report to c" in capsys.readouterr().err


def test_a_report_without_a_name_is_beside_the_fit(here, capsys):
    (here / "fits").mkdir()
    assert cli.main(["fit", "ate.toml", "data.parquet", "--save", "fits/f.json"]) == 0
    capsys.readouterr()
    assert cli.main(["report", "fits/f.json"]) == 0
    assert capsys.readouterr().err == "privcausal: Wrote the report to fits/f.html\n"
    assert (here / "fits" / "f.html").read_text().startswith("<!DOCTYPE html>")
    (here / "fits" / "f.json").rename(here / "fits" / "g.html")
    before = (here / "fits" / "g.html").read_bytes()
    assert cli.main(["report", "fits/g.html"]) == cli.WRONG_INPUT
    assert "would overwrite" in capsys.readouterr().err
    assert (here / "fits" / "g.html").read_bytes() == before


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_help_fits_on_a_screen_and_has_an_example(command, here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    example = re.search(rf"^example: privcausal ({command}\b.*)$", text, re.M)
    assert example is not None
    (here / "fit.json").touch()
    assert cli._parser().parse_args(example[1].split()).run is cli._COMMANDS[command][0]


def test_the_spec_file_of_the_help_is_read(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["fit", "--help"])
    spec = capsys.readouterr().out.partition("spec file:\n")[2]
    spec = spec.replace(" | income", "").replace("control = ", "# control = ")
    for text in (spec, spec.replace('learner = "adum"  ', 'learner = {name = "adum", cells = 4}')):
        (tmp_path / "spec.toml").write_text(text)
        assert cli.main(["plan", str(tmp_path / "spec.toml"), "--n", "900"]) == 0


def test_version_and_help():
    done = shell("--version", cwd=ROOT)
    assert done.stdout == f"privcausal {pc.__version__}\n"
    assert "demo" in shell("--help", cwd=ROOT).stdout
    said = shell("fit", "--help", cwd=ROOT).stdout
    for word in ("[ledger]", ".parquet", ".feather", ".csv", ".dta", ".sav", ".rds"):
        assert word in said
    assert shell(cwd=ROOT).returncode == 2


# -- the ledger ------------------------------------------------------------------------------

LEDGER = '\n[ledger]\npath = "study.db"\ndataset = "clinic"\neps = 2.5\n'


@pytest.mark.slow
def test_an_exhausted_ledger_is_exit_3_and_writes_nothing(here, capsys):
    study = here / "study"
    study.mkdir()
    (study / "spec.toml").write_text(ATE_SPEC + LEDGER)
    words = ["fit", "study/spec.toml", "data.parquet", "--save"]
    assert cli.main([*words, "1.json"]) == 0
    assert "Ledger 'clinic'" in capsys.readouterr().out
    # beside the spec file, not in the current directory
    assert pc.Ledger.open(study / "study.db").fits == 1
    (study / "spec.toml").write_text(ATE_SPEC.replace("task", "eps = 2.4\ntask") + LEDGER)
    assert cli.main([*words, "2.json"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "Not enough budget for this fit in ledger 'clinic'" in said.err
    assert not (here / "2.json").exists()
    assert pc.Ledger.open(study / "study.db").fits == 1


def test_no_output_may_overwrite_a_ledger_or_an_input(here, capsys):
    (here / "spec.toml").write_text(ATE_SPEC + LEDGER)
    before = (here / "data.parquet").read_bytes()
    for option in ("study.db", "data.parquet", "spec.toml"):
        assert cli.main(["fit", "spec.toml", "data.parquet", "--save", option]) == 2
    assert cli.main(["fit", "spec.toml", "data.parquet", "--save", "a", "--report", "./a"]) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert (here / "data.parquet").read_bytes() == before
    assert not (here / "study.db").exists()


# -- wrong input: 2 --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'ledger = "study.db"\n{SPEC}', "Write [ledger]"),
        (SPEC + LEDGER + "cap = 1", "Unknown key 'cap'"),
        (SPEC + "[ledger]\npath = 'l.db'\neps = 1", "requires path (text), dataset and eps"),
        (SPEC + "[ledger]\npath = 1\ndataset = 'a'\neps = 1", "requires path (text)"),
        (SPEC + "[ledger]\npath = 'l.db'\ndataset = 3\neps = 1", "dataset= must be a label"),
        (SPEC + "[ledger]\npath = 'no/l.db'\ndataset = 'a'\neps = 1", "LedgerError"),
        (SPEC + "[ledger]\npath = 'l.db'\ndataset = 'a'\neps = -1", "BudgetError"),
    ],
)
def test_a_bad_spec_is_exit_2_and_says_what_to_write(here, capsys, text, problem):
    (here / "spec.toml").write_text(text)
    assert cli.main(["fit", "spec.toml", "data.parquet", "--save", "fit.json"]) == 2
    said = capsys.readouterr()
    assert problem in said.err
    assert said.err.startswith("privcausal: ")
    assert said.out == ""
    assert not (here / "fit.json").exists()


def test_a_spec_that_is_not_text_is_exit_2(here, capsys):
    (here / "spec.toml").write_bytes(b"\xff\xfe\x00")
    assert cli.main(["fit", "spec.toml", "data.parquet"]) == 2
    assert "UTF-8" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_an_output_that_cannot_be_written_is_refused_first(here, capsys):
    (here / "old.json").write_text("")
    (here / "old.json").chmod(0o400)
    with pytest.raises(SystemExit):
        cli.main(["fit", "ate.toml", "data.csv", "--save", "old.json"])
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["data.xlsx", "data", "bad.feather"])
def test_bad_data_files_are_exit_2_and_quote_no_row(here, capsys, name):
    (here / name).write_text(CANARY)
    assert cli.main(["fit", "ate.toml", name, "--save", "fit.json"]) == 2
    said = capsys.readouterr()
    assert "DataError" in said.err
    assert CANARY not in said.err + said.out
    assert not (here / "fit.json").exists()


# -- the unexpected: 1 -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, KeyboardInterrupt, OSError])
def test_an_unexpected_error_shows_a_constant_text(here, capsys, broken, error):
    with broken("api.open_source", error(f"could not convert string to float: {CANARY}")):
        assert cli.main(["fit", "ate.toml", "data.parquet"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("privcausal: ") and said.err.count("\n") == 1
    assert CANARY not in said.err and said.out == ""


def test_a_fit_that_is_paid_for_is_saved_even_if_its_report_fails(here, capsys, broken):
    words = ["fit", "ate.toml", "data.parquet", "--report", "r.html", "--save", "f.json"]
    with broken("AteResult.report", OSError(28, "No space left on device")):
        assert cli.main(words) == 1
    said = capsys.readouterr()
    assert "The report r.html could not be written" in said.err
    assert "Wrote the report" not in said.err
    assert "Private Average Treatment Effect" in said.out
    assert pc.load("f.json").ate.shape == (1, 6)


def test_only_our_own_warnings_are_shown(here, capsys, monkeypatch):
    @wraps(pc.private)
    def warns(*_, **__):
        warnings.warn(f"mixed types near {CANARY}", RuntimeWarning, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the released count is small", PrivcausalWarning, stacklevel=1)
        raise pc.DataError("stop")

    monkeypatch.setattr(pc, "private", warns)
    before = warnings.showwarning
    assert cli.main(["fit", "ate.toml", "data.parquet"]) == 2
    assert warnings.showwarning is before
    assert capsys.readouterr().err == (
        "privcausal: warning: the released count is small\nprivcausal: DataError: stop\n"
    )


@pytest.mark.slow
def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path):
    command = [sys.executable, "-m", "privcausal", "demo", "--rows", "100"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert (tmp_path / "report.html").exists()


# -- CSV -------------------------------------------------------------------------------------


def estimate(name: str, spec: str = "ate.toml") -> float:
    with seeded_noise(1):
        assert cli.main(["fit", spec, name, "--save", "fit.json"]) == 0
    return float(pc.load("fit.json").params.iloc[0])


@pytest.mark.slow
def test_csv_spellings_of_the_same_values_give_the_same_fit(here, frame):
    written = frame.astype(object)
    written["programme"] = np.where(frame["programme"] == 1, "True", "false")
    written.loc[:9, "age"] = frame["age"][:10].astype(float)
    written.to_csv("data.csv", index=False)
    assert estimate("data.csv") == estimate("data.parquet")
    for column, missing in (("recovery", "NA"), ("age", "")):
        written.loc[4, column] = missing
        frame = frame.astype({column: float})
        frame.loc[4, column] = np.nan
    written.to_csv("data.csv", index=False)
    pyarrow.parquet.write_table(pa.Table.from_pandas(frame), "data.parquet")
    assert estimate("data.csv") == estimate("data.parquet")


def typed(text: str, tmp_path: Path) -> pa.Table:
    (tmp_path / "t.csv").write_text(text)
    known = {"k": frozenset(["1", "2", "NA"]), "t": frozenset(["no", "yes"]), "w": frozenset()}
    rows = read_file(tmp_path / "t.csv").typed(lambda _: known)
    return rows._frame.to_native()


def test_csv_columns_get_their_types_from_the_call(tmp_path):
    table = typed("y,t,x,w,k\n1,yes,0.5,a,1.0\n,no,?,NA,2\ninf,,1e3,3.0,NA\n", tmp_path)
    assert table["y"].to_pylist()[0] == 1.0
    assert np.isnan(table["y"].to_pylist()[1])
    assert table["y"].to_pylist()[2] == np.inf
    assert np.isnan(table["x"].to_pylist()[1])
    assert table["t"].to_pylist() == ["yes", "no", None]
    assert table["w"].to_pylist() == ["a", None, "3.0"]
    assert table["k"].to_pylist() == ["1", "2", "NA"]


@pytest.mark.filterwarnings("always")
def test_undeclared_columns_of_a_csv_are_told_before_the_fit(tmp_path, capsys):
    """An undeclared treatment, which may be text, is refused before the charge."""
    rows = "y,t,x,w\n" + "\n".join(f"{k % 7},{k % 2},{k % 3},{'ab'[k % 5 > 2]}" for k in range(300))
    (tmp_path / "t.csv").write_text(rows)
    text = "task = 'private'\nformula = 'y ~ t | x + C(w)'\neps = 9\n[bounds]\ny = [0, 6]\n"
    spent = f"[ledger]\npath = '{tmp_path / 'ledger.db'}'\ndataset = 'd'\neps = 9\n"
    (tmp_path / "t.toml").write_text(text + spent)
    assert cli.main(["fit", str(tmp_path / "t.toml"), str(tmp_path / "t.csv")]) == 2
    assert "Declare its two labels: bounds={'t': [0, 1]}" in capsys.readouterr().err
    assert pc.Ledger.open(tmp_path / "ledger.db").history.empty
    (tmp_path / "t.toml").write_text(text + "t = [0, 1]\n")
    assert cli.main(["fit", str(tmp_path / "t.toml"), str(tmp_path / "t.csv")]) == 0
    said = capsys.readouterr().err
    assert "read as numbers: 'x'. If a column holds labels, declare" in said


def test_one_strange_value_in_a_csv_changes_no_other_row(tmp_path):
    rows = ["1,yes,0.5,a,1.0"] * 3
    plain = typed("\n".join(["y,t,x,w,k", *rows, "2,no,1,b,2"]), tmp_path)
    strange = typed("\n".join(["y,t,x,w,k", *rows, "high,maybe,1 kg,3,x"]), tmp_path)
    assert plain.schema == strange.schema
    assert plain.slice(0, 3) == strange.slice(0, 3)


# -- audit -----------------------------------------------------------------------------------

AUDIT_SPEC = """
formula = "Y ~ T"
task = "private"
eps = 8.0

[bounds]
Y = [0, 1]

[ledger]
path = "never.db"
dataset = "none"
eps = 1.0
"""


@pytest.mark.slow
def test_an_audit_needs_no_data_and_spends_nothing(here, capsys):
    (here / "audit.toml").write_text(AUDIT_SPEC)
    assert cli.main(["audit", "audit.toml", "--trials", "50", "--level", "1e-6"]) == 0
    out = capsys.readouterr().out
    assert "no claim refuted" in out
    assert "sums by arm" in out
    assert not (here / "never.db").exists()
    fits = ["audit", "audit.toml", "--fits", "--trials", "3", "--level", "1e-6"]
    assert cli.main(fits) == 0
    assert "all answers together" in capsys.readouterr().out


def test_an_audit_that_refutes_is_exit_4(here, capsys, monkeypatch):
    from privcausal.vault.queries.sums import ArmSums

    (here / "audit.toml").write_text(AUDIT_SPEC)
    monkeypatch.setattr(ArmSums, "sensitivity", lambda *_: 1.0)
    assert cli.main(["audit", "audit.toml", "--trials", "10"]) == 4
    assert "CLAIM REFUTED" in capsys.readouterr().out


# -- ledger ----------------------------------------------------------------------------------


def test_a_ledger_is_verified(here, capsys, frame):
    ledger = pc.Ledger(here / "study.db", "clinic", eps=2)
    pc.private("recovery ~ programme", frame, bounds={"recovery": (0, 100)}, ledger=ledger)
    assert cli.main(["ledger", "verify", "study.db"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Ledger 'clinic' is intact: 2 charges, eps 1 of 2 spent")
    (here / "study.db").write_bytes((here / "study.db").read_bytes()[:-3000])
    assert cli.main(["ledger", "verify", "study.db"]) == 2
    assert "LedgerError: study.db" in capsys.readouterr().err
    (here / "study.db").unlink()
    assert cli.main(["ledger", "verify", "study.db"]) == 2
    assert "was deleted, but its head still exists" in capsys.readouterr().err
    assert cli.main(["ledger", "verify", "no.db"]) == 2
    assert not (here / "no.db").exists()


# -- other tasks -----------------------------------------------------------------------------


def test_a_regression_of_a_csv_file(here, capsys):
    spec = f'formula = "recovery ~ age + C(ward)"\ntask = "regress"\n{BOUNDS}'
    (here / "ols.toml").write_text(spec)
    assert cli.main(["fit", "ols.toml", "data.csv", "--save", "fit.json"]) == 0
    assert "C(ward)[T.north]" in capsys.readouterr().out
    assert isinstance(pc.load(here / "fit.json"), pc.RegressionResult)


DID = """
formula = "y ~ treated"
task = "did"
unit = "id"
time = "year"
periods = [2018, 2019]
[bounds]
y = [0, 1]
treated = [0, 1]
"""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_differences_in_differences_of_a_file(here, capsys, suffix):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.repeat(np.arange(400), 2), "year": [2018, 2019] * 400})
    frame["treated"] = (frame["id"] % 2) * (frame["year"] == 2019)
    frame["y"] = 0.3 + 0.4 * frame["treated"] + rng.uniform(-0.1, 0.1, 800)
    getattr(frame, f"to_{suffix}")(here / f"panel.{suffix}", index=False)
    (here / "did.toml").write_text(DID)
    with seeded_noise(1):
        assert cli.main(["fit", "did.toml", f"panel.{suffix}", "--save", "fit.json"]) == 0
    assert abs(pc.load(here / "fit.json").params["ATT"] - 0.4) < 0.2
    staggered = DID.replace("y ~ treated", "y ~ 1").replace("[bounds]", 'cohort = "g"\n[bounds]')
    staggered = staggered.replace("treated = [0, 1]\n", "")
    (here / "did.toml").write_text(staggered + 'g = ["0", "2019"]\n')
    assert cli.main(["plan", "did.toml", "--n", "400"]) == 0
    assert "Plan of a Private Event Study" in capsys.readouterr().out
