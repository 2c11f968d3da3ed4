"""An interrupt waits until files are replaced."""

import os
import signal
import threading

import pytest

from fanin.base.interrupts import deferred_interrupts


def test_an_interrupt_comes_at_the_end_of_the_context():
    done = []

    def interrupt_twice():
        with deferred_interrupts():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            done.append("body")

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert done == ["body"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_termination_comes_at_the_end_of_the_outermost_context():
    received = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        with deferred_interrupts():
            with deferred_interrupts():
                os.kill(os.getpid(), signal.SIGTERM)
            assert received == []
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_a_failure_of_the_body_is_raised_in_place_of_the_interrupt():
    def fail():
        with deferred_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()


def test_another_thread_has_nothing_to_defer():
    entered = []

    def enter():
        with deferred_interrupts():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [signal.default_int_handler]
