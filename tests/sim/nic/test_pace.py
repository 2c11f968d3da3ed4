"""Simulated time beside the wall clock: never ahead of it, and frames end the last part of a wait."""

import os
import pickle
import time

import pytest

from fanin.sim.nic.pace import Pace

MS = 10**9  # ps


def _waited(pace, time_ps, early_ps=0):
    began = time.monotonic()
    pace.wait(time_ps, early_ps)
    return time.monotonic() - began


def test_simulated_time_is_never_ahead():
    pace = pickle.loads(pickle.dumps(Pace(100)))  # it is made in one process and used in another
    began = time.monotonic()
    pace.wait(0, 0)
    for at in (MS // 10, MS // 2, MS):
        pace.wait(at, 0)
        assert time.monotonic() - began >= at * 1e-12 * 100


def test_a_frame_ends_the_last_part_of_a_wait_alone():
    reader, writer = os.pipe()
    try:
        pace = Pace(100)
        pace.watch(reader)
        pace.wait(0, 0)
        os.write(writer, b"x")
        assert 0.08 <= _waited(pace, MS, early_ps=MS // 10) < 1
        assert _waited(pace, 2 * MS, early_ps=0) >= 0.08
    finally:
        os.close(reader)
        os.close(writer)


def test_a_simulator_that_is_too_slow_does_not_catch_up():
    pace = Pace(1)
    pace.wait(0, 0)
    time.sleep(0.3)
    pace.wait(MS, 0)
    assert pace.slipped >= 0.25
    assert _waited(pace, 51 * MS) >= 0.04


@pytest.mark.parametrize("slowdown", [0.5, 0, -1, 1e10, float("nan")])
def test_a_slowdown_out_of_range_is_refused(slowdown):
    with pytest.raises(ValueError, match="slowdown must be"):
        Pace(slowdown)
