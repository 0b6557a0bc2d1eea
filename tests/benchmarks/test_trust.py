"""The stored table of trust is what the stored figures give, and they hold."""

from __future__ import annotations

import trust


def test_the_table_is_that_of_the_figures() -> None:
    found = trust.stored()
    assert trust.TABLE.read_text(encoding="utf-8") == trust.table(found)
    # a part may be left to measure, and then the table does not claim it
    wrong = [words for words in trust.problems(found) if not words.startswith("not measured yet")]
    assert wrong == []


def test_what_does_not_hold_is_told() -> None:
    row = {
        "case": "trial", "relation": "substitute", "noise": "right", "query": "sums",
        "measure": "mu", "claimed": 1.0, "exact": 0.9, "bound": 1.2, "trials": 9, "holds": False,
    }  # fmt: skip
    whole = row | {"query": "all answers together", "bound": 0.1, "holds": True}
    narrow = whole | {"noise": "1.5 times too narrow"}
    below = {"gaussian": 1, "laplace": 0, "delta": 1e-5, "ours": 1.0, "least": 1.0, "truth": 1.1}
    found = {
        "audits": [row, whole, narrow],
        "mutants": [{"fault": "no noise", "check": "none", "found": None}],
        "ledger": [],
        "accounting": [below, below | {"ours": 2.0}],
    }
    told = " ".join(trust.problems(found))
    for words in (
        "sums is refuted", "far below what is there", "was not seen", "not found: no noise",
        "below its truth", "far above its truth",
    ):  # fmt: skip
        assert words in told
