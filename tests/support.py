"""The one fixture: drive and collect the streams of a Component with random stalls, all streams monitored."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from amaranth import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from fanin.sim.rtl.monitor import ProtocolError, streams_of, watch

PROBED = 0.1  # share of cycles in which ``valid`` is asked whether it waits for ``ready``


def new_seed() -> int:
    """A seed, printed so that a failure can be repeated with FANIN_SEED."""
    seed = int(os.environ.get("FANIN_SEED", random.SystemRandom().randrange(2**32)))
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

    def __init__(self, dut: Any, stall: float | dict[str, float], left: dict[str, int]):
        self.dut, self.stall, self.left = dut, stall, left
        self.log: dict[str, list[tuple[int, Any]]] = {name: [] for name in left}

    def _odds(self, name: str) -> float:
        return self.stall.get(name, 0.0) if isinstance(self.stall, dict) else self.stall

    def _note(self, name: str, cycle: int, payload: Any) -> None:
        self.log[name].append((cycle, payload))
        self.left[name] -= 1

    def drive(self, name: str, items: Sequence[Any], rng: random.Random) -> Any:
        """A process that offers ``items``, with random pauses between them."""
        port, odds = resolve(self.dut, name), self._odds(name)

        async def process(ctx: Any) -> None:
            cycle = 0
            for item in items:
                while rng.random() < odds:
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
        """A process that is ready at random, and now and then asks whether ``valid`` waits for that."""
        port, odds = resolve(self.dut, name), self._odds(name)

        async def process(ctx: Any) -> None:
            cycle = 0
            while True:
                if rng.random() < PROBED:
                    _probe(ctx, name, port)
                ctx.set(port.ready, rng.random() >= odds)
                _, _, valid, ready, payload = await ctx.tick().sample(port.valid, port.ready, port.payload)
                if valid and ready:
                    self._note(name, cycle, payload)
                cycle += 1

        return process


def _probe(ctx: Any, name: str, port: Any) -> None:
    valid = []
    for ready in (0, 1):
        ctx.set(port.ready, ready)
        valid.append(ctx.get(port.valid))
    if valid[0] != valid[1]:
        raise ProtocolError(f"{name}: valid waits for ready")


def simulate(
    dut: wiring.Component,
    *,
    drive: dict[str, Sequence[Any]] | None = None,
    collect: dict[str, int] | None = None,
    stall: float | dict[str, float] = 0.3,
    settings: dict[str, Any] | None = None,
    processes: Sequence[Callable[[Any], Any]] = (),
    seed: int | None = None,
    limit: int = 20_000,
    idle: int = 4,
) -> dict[str, list[tuple[int, Any]]]:
    """Run a component until everything is driven and collected; AssertionError after ``limit`` cycles.

    ``drive`` maps an input stream to the payloads that it gets, ``collect`` an output stream to the number
    of payloads to await, and asks it now and then whether its ``valid`` waits for ``ready``. ``stall`` is the
    probability that a stream pauses in a cycle (per stream, if a dict; 0 runs at full rate); ``settings`` are
    constant inputs set before the first cycle. Returns, per stream named in either, ``(cycle, payload)`` of
    every transfer. After the last one the component runs ``idle`` cycles more, so that a transfer too many
    is seen.
    """
    rng = random.Random(new_seed() if seed is None else seed)
    drive, collect = drive or {}, collect or {}
    left = {name: len(items) for name, items in drive.items()} | dict(collect)
    traffic = _Traffic(dut, stall, left)

    async def main(ctx: Any) -> None:
        for path, value in (settings or {}).items():
            ctx.set(resolve(dut, path), value)
        for _ in range(limit):
            await ctx.tick()
            if all(count <= 0 for count in left.values()):
                await ctx.tick().repeat(idle)
                return
        pending = {name: count for name, count in left.items() if count > 0}
        raise AssertionError(f"after {limit} cycles still pending: {pending}")

    top = Module()
    top.domains.sync = ClockDomain()  # a purely combinational component has none of its own
    top.submodules.dut = dut
    sim = Simulator(top)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    background = [traffic.drive(name, items, random.Random(rng.random())) for name, items in drive.items()]
    background += [traffic.collect(name, random.Random(rng.random())) for name in collect]
    for process in [*background, *processes]:
        sim.add_testbench(process, background=True)
    for name, port in streams_of(dut):
        sim.add_process(watch(name, port))
    sim.run()
    for name, count in left.items():
        assert count == 0, f"{name}: {-count} transfers too many"
    return traffic.log
