"""Shared start and end of nodes in RTL at Linux interfaces."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fanin.base.errors import ToolFailed
from fanin.cli.serving import say, stopped_by_signals

if TYPE_CHECKING:
    from fanin.sim.cosim.run import Progress
    from fanin.sim.nic.stopping import Stop

T = TypeVar("T")


def serve_rtl(
    args: argparse.Namespace,
    interfaces: Sequence[str],
    start_message: str,
    serve: Callable[[Stop, Callable[[Progress], None]], T],
) -> T:
    """Run ``serve`` until a signal or the end of ``--seconds``, and return its result.

    ``start_message`` is printed when the node is ready, at the first progress of its hosts. Raises InputError
    for an interface that was removed, ToolFailed for another failure of the simulation.
    """
    from fanin.sim.cosim.simulator import SimulationFailed
    from fanin.sim.nic.outside import check_interfaces
    from fanin.sim.nic.stopping import Stop

    start = None

    def progress(state: Progress) -> None:
        nonlocal start
        if not state.operations:
            return
        if start is None:
            start = time.monotonic()
            say(start_message)
        if args.seconds is not None and time.monotonic() >= start + args.seconds:
            stop.request()

    with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
        stop = Stop(Path(folder) / "stop")
        try:
            with stopped_by_signals(stop.request):
                return serve(stop, progress)
        except SimulationFailed as error:
            check_interfaces(interfaces)  # one that has gone is the cause
            raise ToolFailed(str(error)) from error


def ratio(seconds: float, simulated: float | None) -> str:
    """Return a line with the ratio of simulated to real time; empty without simulated time."""
    if not simulated:
        return ""
    return (
        f"\n  {simulated * 1e3:,.3f} ms of the node's time in {seconds:.1f} s: 1 : {seconds / simulated:,.0f}"
    )
