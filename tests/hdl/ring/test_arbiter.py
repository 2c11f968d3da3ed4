"""Frames of the ring and of the host on one link: whole, in order, each side with its share."""

import itertools
import random

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.arbiter import IDLE_CYCLES, TransmitArbiter
from fanin.hdl.ring.share import OVERHEAD, UNITS
from fanin.hdl.stream.frame_store import FrameStore
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import MIN_FRAME_BYTES
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

WIDTH = 256
STEP = WIDTH // 8
MAX_FRAME = 1536
RING, HOST = 0xA5, 0x5A  # the first byte of a frame says whose it is


class Bench(wiring.Component):
    """An arbiter behind a store for each side; the ring's begins no long frame while it is to hold.

    ``hold`` has the effect that it has on the ring's link: a frame that stands at the store's end already goes.
    """

    def __init__(self, *, width=WIDTH):
        self.width = width
        frames_in = packet_stream(width)
        super().__init__(
            {"ring": In(frames_in), "host": In(frames_in), "share": In(4), "o": Out(frames_in), "held": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        size = {"width": self.width, "max_frame": MAX_FRAME, "capacity": 128}
        m.submodules.arbiter = arbiter = TransmitArbiter(**size)
        for name in "ring", "host":
            m.submodules[name] = store = FrameStore(**size, wait=True)
            port = getattr(self, name)
            m.d.comb += [
                store.i.valid.eq(port.valid),
                port.ready.eq(store.i.ready),
                *(store.i.p[field].eq(port.p[field]) for field in ("data", "keep", "last")),
            ]
            if name == "host":
                wiring.connect(m, store.o, arbiter.host)
                m.d.comb += arbiter.level.eq(store.level)
                continue
            offered = Signal()  # a frame may go, since it was begun before the hold
            go = offered | ~arbiter.hold
            m.d.comb += [
                arbiter.ring.valid.eq(store.o.valid & go),
                arbiter.ring.p.eq(store.o.p),
                store.o.ready.eq(arbiter.ring.ready & go),
            ]
            m.d.sync += offered.eq(arbiter.ring.valid & ~(arbiter.ring.ready & arbiter.ring.p.last))
        wiring.connect(m, arbiter.o, wiring.flipped(self.o))
        m.d.comb += [arbiter.share.eq(self.share), self.held.eq(arbiter.hold)]
        return m


def frames_of(rng, kind, sizes):
    return [bytes([kind]) + rng.randbytes(size - 1) for size in sizes]


def run(ring, host, *, share, seed, stall=0.0, width=WIDTH):
    """What leaves, frame by frame, with the cycles of its first and last beat."""
    offered = {name: list(beats(sent, width, errors=None)) for name, sent in (("ring", ring), ("host", host))}
    total = sum(map(len, offered.values()))
    dut = Bench(width=width)
    log = simulate(
        dut,
        drive=offered,
        collect={"o": total},
        stall=stall,
        settings={"share": share},
        seed=seed,
        limit=200_000,
    )
    out, begin = [], 0
    for at, (cycle, payload) in enumerate(log["o"]):
        if payload.last:
            (frame,) = frames(beat for _, beat in log["o"][begin : at + 1])
            out.append((log["o"][begin][0], cycle, frame))
            begin = at + 1
    return out


def cost(frame):
    """Bytes of the link that a frame takes."""
    return max(len(frame), MIN_FRAME_BYTES) + OVERHEAD


def of(kind, out):
    return [frame for _, _, frame in out if frame[0] == kind]


@pytest.mark.parametrize("share", [0, 2, 15])
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_each_side_keeps_its_order_and_its_bytes_and_no_frame_pauses(share, stall):
    rng = random.Random(seed := new_seed())
    sizes = [1, STEP, STEP + 1, 60, 64, MAX_FRAME - 1, MAX_FRAME]
    ring = frames_of(rng, RING, [rng.choice([64, 640, 1504]) for _ in range(40)])
    host = frames_of(rng, HOST, [rng.choice(sizes) for _ in range(60)])
    out = run(ring, host, share=share, seed=seed, stall=stall)
    assert of(RING, out) == ring
    assert of(HOST, out) == host
    if not stall:
        assert all(last - first == -(-len(frame) // STEP) - 1 for first, last, frame in out)


def shares(out, *, skip=30):
    """The host's share of the bytes while both sides have frames: ``skip`` frames are left out at each end."""
    last = {kind: max(n for n, (_, _, frame) in enumerate(out) if frame[0] == kind) for kind in (RING, HOST)}
    both = out[skip : min(last.values())]
    taken = {kind: sum(map(cost, of(kind, both))) for kind in (RING, HOST)}
    return taken[HOST] / sum(taken.values())


@pytest.mark.parametrize(
    ("share", "ring_size", "host_size"),
    [
        (1, 1504, 60),
        (2, 1504, 1536),
        (8, 1504, 60),
        (15, 64, 1536),
        (8, 64, 20),
        (8, 64, 40),
        *slow(*itertools.product((1, 2, 8, 15), (64, 640, 1504), (60, 100, 1536))),
    ],
)
def test_both_sides_have_their_share_where_both_want_more(share, ring_size, host_size):
    rng = random.Random(seed := new_seed())
    want = 120_000  # bytes of both
    part = share / UNITS
    counts = [
        int(want * own / (size + OVERHEAD)) + 40 for own, size in ((1 - part, ring_size), (part, host_size))
    ]
    ring, host = (frames_of(rng, RING, [ring_size] * counts[0]), frames_of(rng, HOST, [host_size] * counts[1]))
    out = run(ring, host, share=share, seed=seed)
    assert shares(out) == pytest.approx(part, abs=0.03)


def test_a_frame_on_the_ring_waits_for_one_of_the_host_at_most():
    """Though the host has frames without end, and nearly all of the link for its share."""
    rng = random.Random(seed := new_seed())
    dut = TransmitArbiter(width=WIDTH, max_frame=MAX_FRAME, capacity=128)
    ring = frames_of(rng, RING, [64] * 40)
    host = frames_of(rng, HOST, [100] * 100)
    waited = []

    async def watch(ctx):
        before = 0
        while True:
            _, _, valid, ready, last, ring_valid, ring_ready = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.p.last, dut.ring.valid, dut.ring.ready
            )
            if ring_valid and not ring_ready and valid and ready and last:
                before += 1
            if ring_valid and ring_ready:
                waited.append(before)
                before = 0

    offered = {"ring": list(beats(ring, WIDTH, errors=None)), "host": list(beats(host, WIDTH, errors=None))}
    simulate(
        dut,
        drive=offered,
        collect={"o": sum(map(len, offered.values()))},
        stall={"ring": 0.8, "o": 0.3},
        settings={"share": 15, "level": 50},
        seed=seed,
        processes=[watch],
    )
    assert max(waited) == 1


def test_a_side_that_is_alone_has_the_whole_link():
    rng = random.Random(seed := new_seed())
    for share in 0, 15:
        for kind, sizes in (RING, ([], [640] * 50)), (HOST, ([640] * 50, [])):
            host, ring = (frames_of(rng, kind, own) for own in sizes)
            out = run(ring, host, share=share, seed=seed)
            first, last = out[1][0], out[-1][1]
            assert last - first + 1 == 49 * 20, (share, kind)


def test_a_host_beyond_its_share_begins_when_the_ring_is_quiet():
    rng = random.Random(seed := new_seed())
    host, ring = frames_of(rng, HOST, [1536] * 3), frames_of(rng, RING, [640] * 4)
    out = run(ring, host, share=0, seed=seed)
    assert of(RING, out[:4]) == ring
    assert out[4][0] - out[3][1] == IDLE_CYCLES + 1
