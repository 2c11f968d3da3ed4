"""The one fixture: drive and collect the streams of a Component while they stall, all streams monitored."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from amaranth import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from fanin.sim.rtl.monitor import Monitored
from fanin.sim.rtl.stalls import Side, Stalls
from tests.lanes import draw

# Streams inside components that may change what they offer until it is taken, and why.
EXCUSED = {
    "AggTransport/RegisterSlice.i": "AGGs go before ACKs, ACKs before retransmissions, until one is taken",
    "ListSequencer.items": "an item without a word shows the next entry's, once it has arrived",
    "SparseForward.items": "as ListSequencer.items",
    "WordMerge.i": "its payload is turned as ``turn`` says, and that changes with the command",
}
PROBED = 0.1  # share of cycles in which ``valid`` is asked whether it waits for ``ready``


_drawn: Counter[str] = Counter()  # number of seeds drawn so far, by test


def new_seed() -> int:
    """A seed, printed so that a failure can be repeated with FANIN_SEED.

    In CI it derives from the tree's content and from the test, so that a run on the same tree is the same run.
    """
    if given := os.environ.get("FANIN_SEED"):
        seed = int(given)
    elif "CI" in os.environ:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]  # without the phase
        _drawn[test] += 1
        seed = int.from_bytes(draw("seed", test, _drawn[test])[:4])
    else:
        seed = random.SystemRandom().randrange(2**32)
    print(f"FANIN_SEED={seed}")
    return seed


def slow(*values: Any) -> list[Any]:
    """Values of a parameter, or tuples for several, that only ``make test-all`` tries."""
    several = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*each, marks=pytest.mark.slow) for each in several]


def resolve(component: Any, path: str) -> Any:
    """The port at a dotted path, ``a.b[2]`` included."""
    for part in path.replace("[", ".").replace("]", "").split("."):
        component = component[int(part)] if part.isdigit() else getattr(component, part)
    return component


class _Traffic:
    """What goes through the streams of a component: processes that drive and collect them, and their log."""

    def __init__(self, dut: Any, stalls: Stalls, left: dict[str, int]):
        self.dut, self.stalls, self.left = dut, stalls, left
        self.log: dict[str, list[tuple[int, Any]]] = {name: [] for name in left}

    def _note(self, name: str, cycle: int, payload: Any) -> None:
        self.log[name].append((cycle, payload))
        self.left[name] -= 1

    def drive(self, name: str, items: Sequence[Any]) -> Any:
        """A process that offers ``items``, with pauses between them."""
        port = resolve(self.dut, name)

        async def process(ctx: Any) -> None:
            cycle = 0
            for item in items:
                while self.stalls.pauses(name, Side.SOURCE, cycle):
                    await ctx.tick()
                    cycle += 1
                ctx.set(port.payload, item)
                ctx.set(port.valid, 1)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(port.ready)
                    cycle += 1
                self._note(name, cycle - 1, item)
                ctx.set(port.valid, 0)

        return process

    def collect(self, name: str, rng: random.Random) -> Any:
        """A process that is ready now and then, and sometimes asks whether ``valid`` waits for that."""
        port = resolve(self.dut, name)

        async def process(ctx: Any) -> None:
            def offer(cycle: int) -> None:
                if rng.random() < PROBED:
                    _probe(ctx, name, port)
                ctx.set(port.ready, not self.stalls.pauses(name, Side.SINK, cycle))

            cycle = 0
            offer(cycle)
            # One trigger serves all cycles.
            async for _, _, valid, ready, payload in ctx.tick().sample(port.valid, port.ready, port.payload):
                if valid and ready:
                    self._note(name, cycle, payload)
                cycle += 1
                offer(cycle)

        return process


def _probe(ctx: Any, name: str, port: Any) -> None:
    valid = []
    for ready in (0, 1):
        ctx.set(port.ready, ready)
        valid.append(ctx.get(port.valid))
    if valid[0] != valid[1]:
        raise AssertionError(f"{name}: valid waits for ready")


def simulate(
    dut: wiring.Component,
    *,
    drive: dict[str, Sequence[Any]] | None = None,
    collect: dict[str, int | None] | None = None,
    finished: Callable[[], bool] = lambda: True,
    stall: float | dict[str, float] = 0.3,
    settings: dict[str, Any] | None = None,
    excused: Collection[str] = (),
    processes: Sequence[Callable[[Any], Any]] = (),
    seed: int | None = None,
    limit: int = 20_000,
    idle: int = 4,
) -> dict[str, list[tuple[int, Any]]]:
    """Run a component until everything is driven and collected; AssertionError after ``limit`` cycles.

    ``drive`` maps an input stream to the payloads that it gets, ``collect`` an output stream to the number
    of payloads to await, and asks it now and then whether its ``valid`` waits for ``ready``. None awaits
    any number, until ``finished()``. ``stall`` are
    the odds that a stream pauses in a cycle, in phases in which now one side, now the other is much slower
    (:class:`~fanin.sim.rtl.stalls.Stalls`; a dict gives constant odds per stream, 0 runs at full rate). Every
    stream of the component, and of all parts of it, is monitored, but for those that are ``excused``.
    ``settings`` are constant inputs set before the first cycle.

    Returns, per stream named in either, ``(cycle, payload)`` of every transfer. After the last one the
    component runs ``idle`` cycles more, so that a transfer too many is seen.
    """
    rng = random.Random(new_seed() if seed is None else seed)
    drive, collect = drive or {}, collect or {}
    left = {name: len(items) for name, items in drive.items()}
    left |= {name: count or 0 for name, count in collect.items()}
    traffic = _Traffic(dut, Stalls(stall, rng.random()), left)

    async def main(ctx: Any) -> None:
        for path, value in (settings or {}).items():
            ctx.set(resolve(dut, path), value)
        for _ in range(limit):
            await ctx.tick()
            if finished() and all(count <= 0 for count in left.values()):
                await ctx.tick().repeat(idle)
                return
        pending = {name: count for name, count in left.items() if count > 0}
        raise AssertionError(f"after {limit} cycles still pending: {pending}")

    top = Module()
    top.domains.sync = ClockDomain()  # a purely combinational component has none of its own
    top.submodules.dut = Monitored(dut, excused={*EXCUSED, *excused})
    sim = Simulator(top)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    background = [traffic.drive(name, items) for name, items in drive.items()]
    background += [traffic.collect(name, random.Random(rng.random())) for name in collect]
    for process in [*background, *processes]:
        sim.add_testbench(process, background=True)
    sim.run()
    for name, count in left.items():
        assert count == 0 or collect.get(name, 0) is None, f"{name}: {-count} transfers too many"
    return traffic.log
