# amaranth: UnusedElaboratable=no
"""PendingGroups: a group leaves when its bytes have come or its frame has ended, and not before."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from fanin.codec.facts import GROUPS
from fanin.hdl.codec.inceptionn.pending import PendingGroups
from fanin.hdl.codec.inceptionn.shapes import SLOTS, burst_bytes
from tests.support import new_seed

FRAMES = 300
AHEAD = 11  # bursts that may arrive after the one of the oldest group


def frames_of(rng, size):
    """Frames: the first burst after each, the position after its last byte, and its groups' ends."""
    first, frames = 0, []
    for _ in range(FRAMES):
        last = first + rng.choice((0, 0, 1, 2, 14))
        end = last * size + rng.randrange(1, size + 1)
        ends, at = [], first * size
        for _ in range(rng.randrange(1, 6)):
            at = min(at + rng.randrange(2, size + size // 8), (last + 2) * size)
            ends.append(at)
        frames.append((last + 1, end, ends))
        first = last + 1
    return frames


@pytest.mark.parametrize("group", GROUPS)
def test_groups_wait_for_their_bytes_and_no_longer(group):
    dut = PendingGroups(group=group)
    size = burst_bytes(group)
    seed = new_seed()
    rng = random.Random(seed)
    frames = deque(frames_of(rng, size))
    count = sum(len(ends) for _, _, ends in frames)
    seen = dict.fromkeys(("complete", "missing", "waited", "full"), 0)

    async def bench(ctx):
        arrived, given, burst = 0, 0, 0
        pending = deque()  # of each group: its end, and that of its frame once it is known
        next_burst, frame_end, ends = frames.popleft()
        pace, stall, cycle = 0.5, 0.5, 0
        while given < count:
            if cycle % 100 == 0:
                pace, stall = rng.choice((0.1, 0.5, 1.0)), rng.choice((0.0, 0.5, 0.95))
            where = f"seed {seed}, cycle {cycle}"
            while not ends and arrived >= next_burst and frames:
                next_burst, frame_end, ends = frames.popleft()
            known = arrived >= next_burst
            offers = bool(ends) and ends[0] <= (arrived + 2) * size and rng.random() < pace
            ctx.set(dut.arrived, arrived % SLOTS)
            ctx.set(dut.frame_end, {"valid": known, "position": as_position(frame_end, size)})
            ctx.set(dut.i.valid, offers)
            if offers:
                ctx.set(dut.i.p.end, as_position(ends[0], size))
                ctx.set(dut.i.p.group.tail, given % size)
            takes = rng.random() >= stall
            ctx.set(dut.o.ready, takes)
            assert ctx.get(dut.waiting) == bool(pending), where
            assert ctx.get(dut.i.ready) == (len(pending) < 2), where
            if pending:
                end, limit, ended = pending[0]
                assert ctx.get(dut.o.valid) == (ended or end <= limit), where
                if ctx.get(dut.o.valid):
                    assert ctx.get(dut.o.p.missing) == (end > limit), where
                    seen["missing" if end > limit else "complete"] += takes
                else:
                    seen["waited"] += 1
            leaves = bool(pending) and takes and ctx.get(dut.o.valid)
            enters = offers and len(pending) < 2
            seen["full"] += offers and not enters
            if enters:
                pending.append((ends.pop(0), 0, False))
            if leaves:
                pending.popleft()
                given += 1
            limit = frame_end if known else arrived * size
            pending = deque(entry if entry[2] else (entry[0], limit, known) for entry in pending)
            burst = (pending[0][0] if pending else ends[0] if ends else arrived * size) // size
            arrived += rng.random() < pace and arrived < burst + AHEAD
            cycle += 1
            await ctx.tick()
        assert all(seen.values()), seen

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


def as_position(byte, size):
    """A position in the shape of the ports."""
    return {"burst": byte // size % SLOTS, "offset": byte % size}
