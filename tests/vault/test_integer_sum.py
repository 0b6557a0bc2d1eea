"""Sums of any number of rows: exact, cut where int64 ends, the same in any order."""

from __future__ import annotations

import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privcausal.vault.exit import ExactSum
from privcausal.vault.noise import LIMIT
from privcausal.vault.passes import in_threads

PARTS = st.lists(st.lists(st.integers(-(2**52), 2**52), min_size=3, max_size=3), max_size=40)


def summed(parts: list[list[int]]) -> ExactSum:
    total = ExactSum(3)
    for part in parts:
        total.add(np.array(part, np.int64))
    return total


@given(PARTS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_machines_and_order_do_not_matter(parts: list[list[int]], shuffle) -> None:
    expected = np.array(parts, np.int64).reshape(-1, 3).sum(axis=0)
    assert summed(parts).value().tolist() == expected.tolist()
    shuffle.shuffle(parts)
    cut = shuffle.randint(0, len(parts))
    driver = ExactSum(3)
    for machine in (parts[:cut], parts[cut:]):
        driver.merge(summed(machine).packed())
    assert driver.value().tolist() == expected.tolist()


def test_a_thousand_executors_and_1e11_rows_pass_int64_and_stay_exact() -> None:
    """1,000 partial sums of 1e8 rows each, 2^32 a row, as one executor would pack them."""
    rows, executors = 10**8, 1_000
    part = ExactSum(2)
    part._far[:] = [rows << 32, -(rows << 31) + 1]
    packed = part.packed()
    assert len(packed) == 2 * 16
    driver = ExactSum(2)
    for _ in range(executors):
        driver.merge(packed)
    assert driver._far.tolist() == [
        (rows * executors) << 32,
        -((rows * executors) << 31) + executors,
    ]
    assert (rows * executors) << 32 > 2**63
    # what leaves is cut to what int64 holds with its noise
    assert driver.value().tolist() == [LIMIT, -LIMIT]


@pytest.mark.slow
@given(st.lists(st.integers(-(2**70), 2**70), min_size=4, max_size=4), st.integers(0, 2**33))
@settings(deadline=None)
def test_the_cut_moves_no_two_sums_further_apart(values: list[int], change: int) -> None:
    one, other = ExactSum(4), ExactSum(4)
    one._far[:], other._far[:] = values, [v + change for v in values]
    moved = np.abs(one.value().astype(object) - other.value().astype(object))
    assert all(m <= change for m in moved)


def test_many_blocks_are_carried(limits) -> None:
    with limits(SAFE_BLOCKS=2):
        assert summed([[2**52, 1, -1]] * 5).value().tolist() == [5 * 2**52, 5, -5]


def test_threads_keep_the_order_and_read_few_blocks_ahead() -> None:
    read: list[int] = []
    most: list[int] = []

    def blocks():
        for k in range(50):
            read.append(k)
            yield k

    for done in in_threads(lambda k: (k, threading.get_ident()), blocks(), 2):
        most.append(len(read) - done[0])
    assert read == list(range(50))
    assert max(most) <= 4


def test_a_failure_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda k: 1 // k, [1, 0, 1], 2))


def test_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    """They are the process's: of two threads that change them, one may set them back too late."""
    first, second = threading.Event(), threading.Event()

    def step(k: int) -> None:
        if k == 0:  # enters first and leaves last, or would leave the other's filter behind
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                first.set()
                second.wait(5)
            return
        first.wait(5)
        inner = warnings.catch_warnings()
        inner.__enter__()
        warnings.simplefilter("ignore")
        second.set()
        time.sleep(0.1)
        inner.__exit__(None, None, None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        list(in_threads(step, [0, 1], 3))  # two in a pool, and the caller
        assert list(warnings.filters) == before
