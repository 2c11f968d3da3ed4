# amaranth: UnusedElaboratable=no
"""Surroundings of a RetryScanner: operations that begin, are answered or not, and are sent again."""

import random

from fanin.golden.round_trip import RTT_BITS
from fanin.hdl.aggregation.retry import RetryScanner
from fanin.hdl.aggregation.slots import SlotState
from tests.support import new_seed, simulate

LOOK = 9  # cycles that finding a packet overdue and offering it take, and that the scan then stands still
EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31)]
VALUES = 2


class Slots:
    """What surrounds a scanner: window, slot states, sender; checks every offer in every cycle.

    A slot's round, and those of its last RESULT and CONFIRM, are numbers here. ``sent`` has, by slot, what was
    sent last: ``(ack, retries, cycle)``.
    """

    def __init__(self, ctx, dut, rng, *, n, timeout, limit, ceiling=None):
        self.ctx, self.dut, self.rng = ctx, dut, rng
        self.n, self.timeout, self.limit = n, timeout, limit
        self.now, self.begun = 0, 0
        self.results, self.confirms = [0] * n, [0] * n
        self.sent, self.pas = {}, {}
        self.scanned = SlotState.FREE
        # As of two cycles ago: is it the ACK that is waited for? None: neither.
        self.waited_for, self.soon_waited_for = [None] * n, [None] * n
        self.offered, self.failed, self.scans = [], [], []  # (cycle, index), cycles, indices
        for name, value in {"mask": n - 1, "ceiling": ceiling or timeout, "limit": limit}.items():
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.timeout, {"cycles": timeout % 2**RTT_BITS, "longest": ceiling is None})

    def round_of(self, slot):
        return self.begun // self.n + (slot < self.begun % self.n)

    def state(self, slot, parity):
        if self.confirms[slot] & 1 == parity:
            return SlotState.FREE
        return SlotState.WAIT_CONFIRM if self.results[slot] & 1 == parity else SlotState.WAIT_RESULT

    def awaits(self, slot):
        state = self.state(slot, self.round_of(slot) & 1)
        return {SlotState.WAIT_RESULT: False, SlotState.WAIT_CONFIRM: True}.get(state)

    @property
    def oldest(self):
        """Slot of the oldest operation in flight; that of the next one if there is none."""
        operations = range(max(0, self.begun - self.n), self.begun)
        waiting = (k for k in operations if self.awaits(k % self.n) is not None)
        return next(waiting, self.begun) % self.n

    def overdue(self, slot):
        """How long it has been, or None."""
        ack, _, when = self.sent.get(slot, (None, 0, 0))
        if ack is None or ack != self.awaits(slot) or self.now < when + self.timeout:
            return None
        return self.now - when - self.timeout

    def offer(self):
        """The offer in this cycle, checked; None without one."""
        offer = self.ctx.get(self.dut.offer)
        if not offer.valid:
            return None
        slot = offer.use.index
        ack, retries, when = self.sent[slot]
        assert self.now >= when + self.timeout, "not before its time"
        assert offer.ack == ack == self.waited_for[slot], "withdrawn when the slot moves on"
        assert offer.use.parity == self.round_of(slot) & 1
        assert offer.retries == retries + 1 <= self.limit
        assert ack or [offer.values[k] for k in range(VALUES)] == self.pas[slot]
        self.offered.append((self.now, slot))
        return slot

    def check_failure(self):
        """Some slot has cause to fail."""
        self.failed.append(self.now)
        assert any(
            ack == self.waited_for[slot] and retries == self.limit and self.now >= when + self.timeout
            for slot, (ack, retries, when) in self.sent.items()
        )

    async def cycle(
        self, *, begin=False, sends=True, ack=None, result=None, confirm=None, take=False, retries=0
    ):
        """One cycle; returns the slot whose packet was taken.

        ``sends``: what begins is sent at once; ``retries``: what a first transmission claims.
        """
        ctx, dut, rng = self.ctx, self.dut, self.rng
        slot, round_ = self.begun % self.n, self.begun // self.n + 1
        values = [rng.choice([*EXTREMES, rng.randrange(-(2**31), 2**31)]) for _ in range(VALUES)]
        offer = self.offer()
        taken = offer if take and not begin and ack is None else None
        sent = None
        if begin:
            sent, self.pas[slot] = (slot, False, retries) if sends else None, values
        elif ack is not None:
            sent = (ack, True, retries)
        elif taken is not None:
            sent = (taken, self.sent[taken][0], self.sent[taken][1] + 1)
        index, is_ack, count = sent or (rng.randrange(self.n), rng.getrandbits(1), rng.randrange(3))
        ctx.set(dut.sent, {"en": sent is not None, "index": index, "ack": is_ack, "retries": count})
        for name, value in {
            "next_index": slot,
            "oldest": self.oldest,
            "round": round_,
            "previous": round_ - 1,
            "keep": begin,
            "pa": values,
            "take": taken is not None,
            "scanned": self.scanned,
        }.items():
            ctx.set(getattr(dut, name), value)
        scan = ctx.get(dut.scan)
        assert scan.index < self.n
        assert scan.parity == self.round_of(scan.index) & 1
        self.scans.append(scan.index)
        if ctx.get(dut.failed):
            self.check_failure()
        self.waited_for = self.soon_waited_for
        self.soon_waited_for = [self.awaits(slot) for slot in range(self.n)]
        await ctx.tick()
        if result is not None:
            self.results[result] = self.round_of(result)
        if confirm is not None:
            self.confirms[confirm] = self.round_of(confirm)
        self.scanned = self.state(scan.index, scan.parity)
        if sent:
            self.sent[index] = (is_ack, count, self.now)
        self.begun += begin
        self.now += 1
        return taken


def run(story, *, n=4, slots=16, timeout=50, limit=100, cycles=3000, **setting):
    """Runs ``story(slots)``, which must end within so many cycles."""
    seed = new_seed()
    dut = RetryScanner(slots=slots, values=VALUES)
    around = []

    async def process(ctx):
        begun = Slots(ctx, dut, random.Random(seed), n=n, timeout=timeout, limit=limit, **setting)
        await ctx.tick()
        await story(begun)
        around.append(begun)

    simulate(dut, processes=[process], idle=cycles)
    assert around, "the story has come to its end"
    return around[0]


async def begin(slots, *, idle=0, count=1, result=()):
    """Let time pass, begin some operations, let some be answered and acknowledged."""
    for _ in range(idle):
        await slots.cycle()
    for _ in range(count):
        await slots.cycle(begin=True)
    for slot in result:
        await slots.cycle(result=slot)
        await slots.cycle()
        await slots.cycle(ack=slot)


async def until_offer(slots, limit=1000):
    for _ in range(limit):
        if slots.ctx.get(slots.dut.offer.valid):
            return slots.now
        await slots.cycle()
    raise AssertionError("nothing was offered")
