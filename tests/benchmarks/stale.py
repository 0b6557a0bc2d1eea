"""Tables and figures that are older than the code they describe.

``python tests/benchmarks/stale.py`` prints each table with its script, its commit, and the number
of later commits that change what fits compute. The page of coverage names script and commit, such
as (`did.py`, 439e0569). A stored file is of the commit that last wrote it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "vignettes" / "explanation" / "coverage.md"
COMPUTE = [f"privcausal/{part}" for part in ("estimators", "features", "inference", "vault")]
NAMED = re.compile(r"`(?:python tests/benchmarks/)?([\w/]+\.py)[^`|]*`[^`|]*?\b([0-9a-f]{8})\b")
STORED = {
    "regress.txt": "regress.py", "regress_rivals.txt": "regress_rivals.py", "plr.txt": "plr.py",
    "late.txt": "late.py", "heaps.txt": "heaps.py", "many.txt": "many.py", "trust.json": "trust.py",
    "speed.csv": "speed.py", "audits.csv": "audits.py", "rivals/rivals.csv": "rivals.py",
    "cate/rows.parquet": "cate_study.py", "niu/errors.csv": "niu_study.py",
    "dpcate/runs.csv": "dpcate_study.py", "adum/verdicts.csv": "adum_study.py",
    "lab/report.txt": "lab/run.py", "lab/ablation.txt": "lab/ablation.py", "logit.txt": "logit.py",
}  # fmt: skip
"""Files that a script writes, and the script."""


class Made(NamedTuple):
    """A table, the script that makes it, and the commit it is of."""

    table: str
    script: str
    commit: str


def git(*words: str) -> str:
    """The output of git; empty without a repository."""
    call = ["git", "-C", str(ROOT), *words]
    return subprocess.run(call, check=False, capture_output=True, text=True).stdout.strip()


def tables() -> list[Made]:
    """Everything on the page of coverage that names a commit, then all stored files."""
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    found = [Made(PAGE.name, script, commit) for script, commit in named]
    for name, script in STORED.items():
        path = str(HERE / name)
        found.append(Made(name, script, git("log", "-1", "--format=%h", "--abbrev=8", "--", path)))
    return found


def changes(commit: str) -> int:
    """Number of later commits that change what fits compute."""
    return int(git("rev-list", "--count", f"{commit}..HEAD", "--", *COMPUTE))


if __name__ == "__main__":
    rows = [(changes(one.commit), one) for one in tables()]
    for later, one in sorted(rows, key=lambda row: -row[0]):
        print(f"{later:5} later  {one.commit}  {one.script:20} {one.table}")
