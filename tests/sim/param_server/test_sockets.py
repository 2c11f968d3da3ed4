"""What TCP costs, by sockets on loopback: of the right order, and told when the other end goes away."""

import socket

import pytest

from fanin.sim.param_server import sockets


def test_a_byte_and_a_message_cost_what_loopback_lets_expect():
    found = sockets.measure(64_000)
    assert 1e-12 < found.byte < 1e-7
    assert 1e-7 < found.latency < 1e-2


def test_an_end_that_is_closed_is_no_endless_wait():
    here, there = socket.socketpair()
    there.close()
    with here, pytest.raises(ConnectionError, match="the other end is closed"):
        sockets._receive(here, bytearray(8))
