"""Makes ledger_of_010.db and its head: run by the code of 0.1.0, once.

    python tests/accounting/ledger_of_010.py

It holds two fits of eps 0.5 at delta 1e-5, as zCDP. Later versions must count them as it did.
"""

import sqlite3
from pathlib import Path

from privcausal.accounting import Charge, Cost, Ledger, rho_of

HERE = Path(__file__).parent

if __name__ == "__main__":
    path = HERE / "ledger_of_010.db"
    ledger = Ledger(path, "study", 2)
    for run in ("first", "second"):
        cost = Cost(rho_of(0.5, 1e-5))
        text = ("effect", "moments, p = 17", "discrete Gaussian", "substitute")
        ledger.charge(run, [Charge(*text, 1.5, 12.25, cost)])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
