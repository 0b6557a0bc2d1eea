"""Charges and ledgers for the tests of this room."""

import pytest

from privcausal.accounting import Charge, Cost, Ledger


@pytest.fixture(scope="session")
def charge():
    """A function that makes one charge: `charge(rho=..., neighbors=...)`."""

    def make(rho=0, epsilon=0, delta=0, gdp=False, neighbors="substitute", **fields):
        text = {"stage": "effect", "query": "moments, p = 17", "mechanism": "discrete Gaussian"}
        numbers = {"sensitivity": 1.5, "noise_sd": 12.25, "rows": 0.25}
        cost = Cost(rho, epsilon, delta, gdp)
        return Charge(**text | numbers | fields, neighbors=neighbors, cost=cost)

    return make


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture
def ledger(path):
    return Ledger(path, dataset="rhc", eps=2, delta=1e-5)
