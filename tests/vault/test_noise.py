"""The noise source: the right law at every scale, fresh each time, and honest about tests."""

from __future__ import annotations

import json
import os
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, kstest, spearmanr
from vault_helpers import assert_normal

import privcausal as pc
from privcausal import testing
from privcausal.accounting.price import FINEST
from privcausal.errors import LedgerError
from privcausal.testing import drawn_noise
from privcausal.typing import Vector
from privcausal.vault import noise

LEVEL = 1e-6
DRAWS = 20_000


def drawn(scale: float, size: int = DRAWS, exact: int = 0) -> Vector:
    query = noise.NoiseQuery("test", np.ones(size), 1.0, scale)
    return noise.OperatingSystem().with_noise(np.full(size, exact, np.int64), query) - exact


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.4, 3.7])
def test_noise_is_on_a_grid_of_two_to_a_power(scale: float) -> None:
    """Of 2^26 steps or more to a standard deviation, and of no more than twice as many."""
    values = drawn(scale)
    step = 2.0 ** -np.ceil(np.log2(FINEST / scale))
    assert FINEST <= scale / step < 2 * FINEST
    assert (np.rint(values / step) == values / step).all()
    assert (np.rint(values / (2 * step)) != values / (2 * step)).any()


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("scale", [0.4, 30.0, 1e4, 3.3e9, 1e13])
@pytest.mark.parametrize("exact", [0, -(2**32)])
def test_noise_is_normal(scale: float, exact: int) -> None:
    assert_normal(drawn(scale, exact=exact) / scale)


@pytest.mark.slow
def test_weights_scale_each_coordinate() -> None:
    weights = np.tile([1.0, np.sqrt(2.0), 5.0], DRAWS // 2)
    query = noise.NoiseQuery("test", weights, 1.0, 500.0)
    values = noise.OperatingSystem().with_noise(np.zeros(len(weights), np.int64), query)
    assert noise.OperatingSystem().sd(query) == pytest.approx(500.0 / weights)
    for weight in (1.0, np.sqrt(2.0), 5.0):
        z = values[weights == weight] * weight / 500.0
        z += np.random.default_rng(0).uniform(-1e-3, 1e-3, len(z))
        assert kstest(z, "norm").pvalue > LEVEL


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_a_scale_that_is_no_scale_is_refused(scale: float) -> None:
    with pytest.raises(Exception, match=r"scale|finite|positive|infinite|nan"):
        drawn(scale, 3)


def test_noise_is_fresh_each_time() -> None:
    """The law test alone would pass a source that repeats itself."""
    np.random.seed(0)  # noqa: NPY002  # no seed of anyone's reaches the noise
    first = drawn(1e9, 500)
    np.random.seed(0)  # noqa: NPY002
    second = drawn(1e9, 500)
    assert not (first == second).any()
    assert len(np.unique(first)) > 490
    assert spearmanr(first[:-1], first[1:]).pvalue > LEVEL


@pytest.mark.parametrize("rate", [1.0, 0.5, 128 / 2700, 1e-3])
def test_coins_have_their_rate_and_are_fresh(rate: float) -> None:
    """Each count passes with probability 1 - 1e-6."""
    coins = noise.OperatingSystem().coins
    first, second = coins(DRAWS, rate), coins(DRAWS, rate)
    for heads in (first, second):
        assert heads.dtype == bool
        assert heads.shape == (DRAWS,)
        assert binomtest(int(heads.sum()), DRAWS, rate).pvalue > LEVEL
    both = int((first & second).sum())
    assert binomtest(both, DRAWS, rate**2).pvalue > LEVEL
    assert coins(0, rate).tolist() == []


@pytest.mark.parametrize("rate", [0.5, 128 / 2700, 1 / 3, 2.0**-40, 1 - 2.0**-53, 1.0])
def test_a_coin_is_64_bits_against_the_rate(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest 64 bits that are heads, and the next ones, which are tails; bytes in turn."""
    cut = int(Fraction(rate) * 2**64)
    draws = [k for k in (0, cut - 1, cut, cut + 1, 2**64 - 1) if k < 2**64]
    firsts = bytes(k >> 56 for k in draws)
    tied = [k for k in draws if k >> 56 == cut >> 56]
    rest = b"".join(((k << 8) % 2**64).to_bytes(8, sys.byteorder) for k in tied)
    drawn_bytes = iter([firsts, rest])
    monkeypatch.setattr(os, "urandom", lambda size: next(drawn_bytes))
    heads = noise.OperatingSystem().coins(len(draws), rate)
    assert heads.tolist() == [k < cut for k in draws]


def test_the_default_source_is_real_in_every_thread() -> None:
    found: list[Any] = []
    with testing.seeded_noise(1):
        assert not noise.current().real
        thread = threading.Thread(target=lambda: found.append(noise.current().real))
        thread.start()
        thread.join()
    assert found == [True]
    assert noise.current().real


def test_a_test_source_is_left_when_its_block_fails() -> None:
    def fail() -> None:
        with testing.zero_noise():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert noise.current().real


def study() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"Y": rng.random(80), "T": rng.integers(0, 2, 80), "X": rng.random(80)})


SOURCES = {
    "zero": testing.zero_noise,
    "seeded": lambda: testing.seeded_noise(1),
    "recorded": lambda: testing.recorded(1),
}
CALLS: dict[str, Any] = {"privcate": pc.privcate, "private": pc.private}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_fit_with_test_noise_says_so(source: str, call: str) -> None:
    with SOURCES[source]():
        fit = CALLS[call]("Y ~ T | X", study(), bounds={"Y": (0, 1), "X": (0, 1)})
    assert fit.guarantee.kind == "none"
    printed = fit.summary()
    texts = (fit.guarantee.statement, str(printed), printed.as_html(), printed.as_latex())
    assert all("NOT PRIVATE" in text for text in (*texts, repr(fit)))


@pytest.mark.parametrize("source", SOURCES)
def test_a_ledger_takes_no_test_noise(source: str, tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "study.db", "study", eps=5)
    with SOURCES[source](), pytest.raises(LedgerError, match="test noise"):
        pc.private("Y ~ T | X", study(), bounds={"Y": (0, 1), "X": (0, 1)}, ledger=ledger)
    assert ledger.history.empty
    fit = pc.private("Y ~ T | X", study(), bounds={"Y": (0, 1), "X": (0, 1)}, ledger=ledger)
    assert fit.guarantee.kind == "proven"
    assert len(ledger.history) > 0


# -- processes and threads -----------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_draws_noise_of_its_own() -> None:
    """After the source was used: two children and their parent share no draw of either law."""

    def drawn() -> list[int]:
        return [int(v) for law in ("gaussian", "laplace") for v in drawn_noise(law, 1e12, 8)]

    drawn()
    seen = []
    for _ in range(2):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, json.dumps(drawn()).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            seen += json.load(pipe)
        os.waitpid(pid, 0)
    seen += drawn()
    assert len(seen) == len(set(seen)) == 48  # two alike by chance: below 1e-6
