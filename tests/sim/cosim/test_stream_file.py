"""Frames from a file through a Verilated component: bytes, cycles, stalls, registers, and what is refused."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.base.errors import CheckFailed
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.sim.cosim.stream_file import StreamFile

pytestmark = pytest.mark.verilator


class Misbehaving(wiring.Component):
    """Passes beats on a cycle later, all bytes xored; ``fault`` chooses a rule to break."""

    def __init__(self):
        super().__init__(
            {
                "i": In(packet_stream(32)),
                "o": Out(packet_stream(32)),
                "length": In(stream.Signature(32)),
                "flip": In(8),
                "fault": In(3),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, o, length = self.i, self.o, self.length
        wanted, known = Signal(32), Signal()
        with m.If(~known):
            m.d.comb += length.ready.eq(1)
            with m.If(length.valid):
                m.d.sync += [wanted.eq(length.payload), known.eq(1)]
        m.d.comb += i.ready.eq(known & (o.ready | ~o.valid) & (self.fault != 1))
        with m.If(o.ready):
            m.d.sync += o.valid.eq((self.fault == 2) & o.p.last)  # 2: the last beat again
        with m.If(i.valid & i.ready):
            m.d.sync += [o.valid.eq(1), o.p.eq(i.p), o.p.data.eq(i.p.data ^ self.flip.replicate(4))]
            m.d.sync += wanted.eq(wanted - 4)
            with m.If(self.fault == 3):
                m.d.sync += o.p.keep.eq(0b0101)
            with m.If(i.p.last):
                m.d.sync += known.eq(0)
                with m.If(wanted > 4):  # the frame is shorter than its length said
                    m.d.sync += o.valid.eq(0)
        with m.Elif((self.fault == 4) & o.valid & ~o.ready):
            m.d.sync += o.p.data.eq(~o.p.data)
        return m


@pytest.fixture(scope="module")
def misbehaving():
    return StreamFile(Misbehaving(), quiet=True)


def _frames(seed, count=200):
    rng = random.Random(seed)
    return [rng.randbytes(rng.randrange(1, 200)) for _ in range(count)]


@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.6)])
def test_frames_go_through_with_and_without_stalls(stalls):
    register = StreamFile(RegisterSlice(shape=packet_layout(128)), quiet=True)
    frames = _frames(5)
    run = register.run(frames, stalls=stalls, seed=3)
    assert run.frames == frames
    assert len(run.input_cycles) == len(run.output_cycles) == sum(-(-len(frame) // 16) for frame in frames)
    if stalls == (0, 0):  # a beat a cycle, and a cycle of latency
        assert run.cycles == len(run.input_cycles) + 1
    else:
        assert len(run.input_cycles) / 0.4 * 0.8 < run.cycles < len(run.input_cycles) / 0.4 * 2
    assert not run.errors.any()


def test_registers_and_lengths_arrive(misbehaving):
    frames = _frames(6)
    lengths = [len(frame) for frame in frames]
    run = misbehaving.run(frames, lengths=lengths, registers={"flip": 0x5A}, stalls=(0.5, 0.5), seed=1)
    assert run.frames == [bytes(byte ^ 0x5A for byte in frame) for frame in frames]
    with pytest.raises(CheckFailed, match="nothing moves any more"):
        misbehaving.run(frames, lengths=[1000, *lengths[1:]])


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (1, "nothing moves any more"),
        (2, "o has more frames than i had"),
        (3, "keep of o is not what it may be"),
        (4, "o changed while it waited"),
    ],
)
def test_a_component_that_breaks_a_rule_fails(misbehaving, fault, complaint):
    with pytest.raises(CheckFailed, match=complaint):
        misbehaving.run([b"abcdefgh"] * 3, lengths=[8] * 3, registers={"fault": fault}, stalls=(0, 0.5), seed=2)


def test_what_a_run_cannot_do_is_refused(misbehaving):
    with pytest.raises(ValueError, match="frames must be one at least"):
        misbehaving.run([])
    with pytest.raises(ValueError, match="lengths must be as many as frames, 1, not 0"):
        misbehaving.run([b"a"])
    with pytest.raises(ValueError, match="registers must be among flip, fault, not speed"):
        misbehaving.run([b"a"], lengths=[1], registers={"speed": 1})
    component = _NoStreams()
    component._MustUse__used = True  # it never gets so far
    with pytest.raises(ValueError, match="must have packet streams i and o"):
        StreamFile(component)


class _NoStreams(wiring.Component):
    """Has nothing to feed."""

    i: In(8)

    def elaborate(self, platform):
        return Module()
