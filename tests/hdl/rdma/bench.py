"""What the tests of the NIC's parts share: a testbench, and what the golden model says as the RTL says it."""

import random

from amaranth.sim import Simulator

from fanin.rdma.facts import Ending
from fanin.rdma.golden.nic import Status
from fanin.sim.rtl.monitor import Monitored
from fanin.sim.rtl.stalls import Side, Stalls
from fanin.wire.rdma import PATH_MTUS
from tests.support import EXCUSED

ENDINGS = {
    Ending.DONE: Status.DONE,
    Ending.REQUEST: Status.REQUEST,
    Ending.ACCESS: Status.ACCESS,
    Ending.OPERATION: Status.OPERATION,
    Ending.RETRIES: Status.RETRIES,
    Ending.FLUSHED: Status.FLUSHED,
}


class Bench:
    """A component, its clock, and the log of its output streams, which stall in phases."""

    drivers = ()  # processes that set inputs on which the output streams depend within the cycle

    def __init__(self, dut, streams, *, seed, stall=0.0, limit=100_000):
        self.dut, self.stall, self.limit = dut, stall, limit
        self.rng, self.stalls = random.Random(seed), Stalls(stall, seed)
        self.cycle = 0
        self.log = {name: [] for name in streams}

    async def collect(self, ctx):
        """Note every transfer with its cycle, counted from 0."""
        ports = {name: getattr(self.dut, name) for name in self.log}
        while True:
            for name, port in ports.items():
                ctx.set(port.ready, not self.stalls.pauses(name, Side.SINK, self.cycle))
            for name, port in ports.items():
                if ctx.get(port.valid) and ctx.get(port.ready):
                    self.log[name].append((self.cycle, ctx.get(port.payload)))
            self.noted()
            await ctx.tick()
            self.cycle += 1
            assert self.cycle < self.limit, "not done"

    def noted(self):
        """Called in every cycle, for subclasses."""

    async def put(self, ctx, port, fields):
        """One transfer."""
        ctx.set(port.payload, fields)
        ctx.set(port.valid, 1)
        ready = False
        while not ready:
            _, _, ready = await ctx.tick().sample(port.ready)
        ctx.set(port.valid, 0)

    def run(self, main, *others):
        """Until ``main`` ends."""
        simulator = Simulator(Monitored(self.dut, excused=EXCUSED))
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        for process in (*self.drivers, self.collect, *others):
            simulator.add_testbench(process, background=True)
        simulator.run()


async def cycles_until(ctx, signal, *, most=100):
    """Cycles from this one to the first one in which the signal is high."""
    for cycle in range(most):
        if ctx.get(signal):
            return cycle
        await ctx.tick()
    raise AssertionError(f"not within {most} cycles")


def connect_fields(index, connection, *, enable=1, peer=None):
    """A connection as the RTL's stream has it."""
    peer = peer or {"queue_pair": connection.peer, "mac": 7, "ip": 9, "port": 11}
    settings = {
        "enable": enable,
        "peer": peer,
        "mtu": PATH_MTUS.index(connection.mtu),
        "window": connection.window.bit_length() - 1,
        "retries": connection.retries,
        "send_psn": connection.send_psn,
        "receive_psn": connection.receive_psn,
    }
    return {"index": index, "settings": settings}


def post_fields(index, write):
    """A write as the RTL's stream has it."""
    fields = {name: getattr(write, name) for name in ("tag", "local", "remote", "rkey", "length")}
    immediate = {"with_immediate": write.immediate is not None, "immediate": write.immediate or 0}
    return {"index": index, **fields, **immediate}
