"""Shared parts of commands that forward frames until they are interrupted."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from fanin.base.errors import InputError

if TYPE_CHECKING:
    from fanin.cli.p4.rates import Rates
    from fanin.host.ethernet import Interface
    from fanin.sim.switch.service.forwarding import Forwarding

Key = TypeVar("Key")


def add_seconds(part: argparse.ArgumentParser) -> None:
    """Declare ``--seconds``."""
    part.add_argument("--seconds", type=float, metavar="S", help="time until the command ends, in seconds")


def check_seconds(args: argparse.Namespace) -> None:
    """Raise InputError for ``--seconds`` that is not positive."""
    if args.seconds is not None and not args.seconds > 0:
        raise InputError(f"--seconds {args.seconds:g}: must be above 0")


def open_interfaces(stack: contextlib.ExitStack, names: Mapping[Key, str]) -> dict[Key, Interface]:
    """Open interfaces until the end of the stack. Raises InputError."""
    from fanin.host.ethernet import open_interface

    return {key: stack.enter_context(open_interface(name)) for key, name in names.items()}


def forward(forwarding: Forwarding, rates: Rates, seconds: float | None) -> None:
    """Forward frames until a signal, or for ``seconds`` s. Raises InterfaceLost."""
    from fanin.sim.switch.service import memory

    end = None if seconds is None else time.monotonic() + seconds

    def tick() -> None:
        memory.set_aside()
        rates.show()
        if end is not None and time.monotonic() >= end:
            forwarding.stop()

    memory.prepare()
    with stopped_by_signals(forwarding.stop):
        forwarding.run(tick)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGINT and SIGTERM inside the context."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def say(message: str) -> None:
    """Print a line on stderr."""
    print(f"fanin: {message}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    say(f"warning: {message}")
