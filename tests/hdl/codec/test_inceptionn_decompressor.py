# amaranth: UnusedElaboratable=no
"""InceptionnDecompressor: the golden model's values, exactly as many as asked for, whatever comes in."""

import random

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import GROUPS, Inceptionn, Mode
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor
from fanin.hdl.emit import emit_verilog
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from tests.hdl.codec.inceptionn_bench import compressed, decompressed, frames_of, incompressible, zeros
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate, slow

LATENCY = {8: 10, 16: 12}
BOTH_WAYS = {8: 16, 16: 19}
SLOTS = 16
every_group = pytest.mark.parametrize("group", GROUPS)
slow_16 = pytest.mark.parametrize("group", [8, pytest.param(16, marks=pytest.mark.slow)])


def with_stalls(*stalls):
    """The smaller group with the first of the stalls; the rest, slow."""
    small, *rest = ((group, stall) for stall in stalls for group in GROUPS)
    cases = [small, *slow(*rest)]
    return pytest.mark.parametrize(("group", "stall"), cases, ids=str)


class Loop(wiring.Component):
    """Compressor and decompressor, the one's output wired to the other's input."""

    def __init__(self, *, group):
        self.group = group
        block = InceptionnCompressor(group=group).signature.members
        super().__init__(
            {name: block[name] for name in ("i", "bound", "mode")}
            | {"length": In(stream.Signature(32)), "o": Out(packet_stream(32 * group, error=True))}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.compressor = compressor = InceptionnCompressor(group=self.group)
        m.submodules.decompressor = decompressor = InceptionnDecompressor(group=self.group)
        connect_typed(m, compressor.o, decompressor.i)
        for outer, inner in ((self.i, compressor.i), (self.length, decompressor.length)):
            connect_typed(m, wiring.flipped(outer), inner)
        connect_typed(m, decompressor.o, wiring.flipped(self.o))
        m.d.comb += [compressor.bound.eq(self.bound), compressor.mode.eq(self.mode)]
        return m


def run(dut, sent, lengths, *, stall=0.0, seed=0, settings=None, limit=20_000):
    """The log of a run, and each frame with its error."""
    width = 32 * dut.group
    log = simulate(
        dut,
        drive={"i": list(beats(sent, width, errors=None)), "length": lengths},
        collect={"o": sum(-(-length * 8 // width) for length in lengths)},
        settings=settings,
        stall=stall,
        seed=seed,
        limit=limit,
        idle=40,
    )
    errors = [beat.error for _, beat in log["o"] if beat.last]
    return log, list(zip(frames(beat for _, beat in log["o"]), errors, strict=True))


def check(sent, lengths, config, **options):
    """Run the decompressor against the model; the log."""
    log, got = run(InceptionnDecompressor(group=config.group), sent, lengths, **options)
    expected = [decompressed(frame, length, config) for frame, length in zip(sent, lengths, strict=True)]
    for index, (ours, right) in enumerate(zip(got, expected, strict=True)):
        assert ours == right, f"frame {index} of {lengths[index]} bytes, compressed {len(sent[index])}"
    return log


@with_stalls(0.4, 0.0, {"o": 0.8}, {"i": 0.7, "length": 0.9})
def test_frames_of_every_length_up_to_200_bytes(group, stall):
    seed = new_seed()
    rng = random.Random(seed)
    config = Inceptionn(group=group, mode=rng.choice(list(Mode)), bound=rng.choice([1, 8, 10, 15]))
    original = frames_of([*rng.sample(range(1, 201), 40), 1460], rng)
    sent = [compressed(frame, config) for frame in original]
    check(sent, [len(frame) for frame in original], config, stall=stall, seed=seed)


def spoilt(rng, config):
    """A compressed frame that is wrong, or right, and the length that is asked for."""
    length = rng.choice([1, 4, 4 * config.group, rng.randrange(1, 400), rng.randrange(1, 1500)])
    frame = compressed(frames_of([length], rng)[0], config)
    match rng.randrange(6):
        case 0:  # cut short
            return frame[: rng.randrange(1, len(frame) + 1)], length
        case 1:  # too long, often by more than the decompressor holds
            return frame + rng.randbytes(rng.choice([1, 31, 64, 40 * 4 * config.group])), length
        case 2:  # noise
            return rng.randbytes(rng.randrange(1, 300)), length
        case 3:  # tags that promise the most
            return b"\xff" * rng.randrange(1, 300), length
        case 4:  # far too short
            return frame[: rng.randrange(1, 4)], length + rng.randrange(3000)
        case _:
            return frame, length


@with_stalls(0.4, 0.0, {"o": 0.8})
def test_a_broken_frame_neither_hangs_nor_changes_its_length_nor_spoils_the_next(group, stall):
    seed = new_seed()
    rng = random.Random(seed)
    config = Inceptionn(group=group)
    cases = [spoilt(rng, config) for _ in range(30)]
    check([frame for frame, _ in cases], [length for _, length in cases], config, stall=stall, seed=seed)


@slow_16
def test_a_group_that_waits_keeps_its_bytes_while_what_follows_is_dropped(group):
    """Behind each group come more bursts than are held, and the output is ready in one cycle of thirty."""
    config = Inceptionn(group=group)
    size = 4 * group
    original = [incompressible(size, random.Random(n)) for n in range(12)]
    sent = [compressed(frame, config) + bytes(40 * size) for frame in original]
    check(sent, [size] * len(sent), config, stall={"o": 0.97}, seed=new_seed())


@slow_16
def test_a_frame_that_ends_at_any_byte_is_an_error_unless_it_is_whole(group):
    config = Inceptionn(group=group)
    rng = random.Random(new_seed())
    original = bytes(4 * group - 8) + incompressible(2 * 4 * group + 8, rng)
    whole = compressed(original, config)
    sent = [whole[:size] for size in range(1, len(whole) + 1)]
    log = check(sent, [len(original)] * len(sent), config)
    assert [beat.error for _, beat in log["o"] if beat.last] == [1] * (len(sent) - 1) + [0]


def cycles_of(log, name="o"):
    return [cycle for cycle, _ in log[name]]


@slow_16
def test_one_group_a_cycle_across_frames(group):
    """Frames of one group and of many, all of which fit in a burst a group."""
    rng = random.Random(new_seed())
    size = 4 * group
    original = [zeros(size * n, rng) for n in (1, 1, 1, 40, 1, 7)] + [
        bytes(size - 4) + incompressible(4, rng)
    ] * 20
    config = Inceptionn(group=group)
    log = check([compressed(frame, config) for frame in original], [len(frame) for frame in original], config)
    given = cycles_of(log)
    assert given == list(range(given[0], given[0] + len(given)))


@slow_16
def test_what_does_not_shrink_gives_16_groups_in_17_cycles(group):
    config = Inceptionn(group=group)
    original = incompressible(5 * 16 * 4 * group, random.Random(1))
    log = check([compressed(original, config)], [len(original)], config)
    taken, given = cycles_of(log, "i"), cycles_of(log)
    assert taken == list(range(taken[0], taken[0] + 5 * 17))
    assert {b - a for a, b in zip(given, given[16:], strict=False)} == {17}


@slow_16
def test_groups_that_together_fill_their_bursts_come_one_a_cycle(group):
    """Longest groups in turn with others as much shorter than a burst: steps over two bursts, and none."""
    config = Inceptionn(group=group)
    tags = config.tag_bytes
    values = group - tags // 2  # this one is shorter than a burst by as many bytes as the other is longer
    raw = incompressible(4 * group, random.Random(1))
    pair = raw + raw[: 4 * values] + bytes(4 * (group - values))
    sent = compressed(pair * 40, config)
    assert len(sent) == 80 * 4 * group
    given = cycles_of(check([sent], [len(pair) * 40], config))
    assert given == list(range(given[0], given[0] + 80))


@slow_16
def test_latency_is_as_documented(group):
    config = Inceptionn(group=group)
    original = [zeros(4, None), incompressible(4 * group, random.Random(2))]
    log = check([compressed(frame, config) for frame in original], [len(frame) for frame in original], config)
    begun = cycles_of(log, "i")[:2]
    assert [b - a for a, b in zip(begun, cycles_of(log), strict=True)] == [LATENCY[group]] * 2


@slow_16
def test_there_and_back_takes_at_most_20_cycles(group):
    """A frame of one group; then each group of one that does not shrink."""
    original = [zeros(4 * group, None), incompressible(20 * 4 * group, random.Random(2))]
    settings = {"bound": 10, "mode": Mode.STRICT}
    log, got = run(Loop(group=group), original, [len(frame) for frame in original], settings=settings)
    assert got == [(frame, 0) for frame in original]
    latencies = [b - a for a, b in zip(cycles_of(log, "i"), cycles_of(log), strict=True)]
    assert latencies[:2] == [BOTH_WAYS[group]] * 2
    assert max(latencies) <= BOTH_WAYS[group] + 1 <= 20


@pytest.mark.slow
@every_group
def test_verilog_comes_out(group):
    assert "module inceptionn_decompressor(" in emit_verilog(InceptionnDecompressor(group=group))


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="group must be 8 or 16 values, not 4"):
        InceptionnDecompressor(group=4)
