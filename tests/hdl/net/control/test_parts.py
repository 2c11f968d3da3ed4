# amaranth: UnusedElaboratable=no
"""The parts around the responder: whose a frame is, two senders on one MAC, leases, sums."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.golden.control import BoardModel, Destination, destination
from fanin.hdl.net.control.demultiplexer import Demultiplexer
from fanin.hdl.net.control.frame_merger import FrameMerger
from fanin.hdl.net.control.header_sum import LATENCY, HeaderSum
from fanin.hdl.net.control.lease import LeaseKeeper, Verdict
from fanin.hdl.net.control.request_reader import Form, RequestReader
from fanin.wire.control import ControlFrame, Kind, Status, decode_control, encode_control
from fanin.wire.ethernet import internet_checksum
from tests.hdl.net.control.bench import OWN, beats, control_frame, frames_of, host, stream_beats
from tests.hdl.net.control.test_responder import Hosts
from tests.support import new_seed, simulate

ADDRESSES = {"own_mac": OWN.mac, "own_ip": OWN.ip}


def of(frames):
    return [beat for frame in frames for beat in stream_beats(frame)]


def split(frames, **options):
    """What a demultiplexer makes of frames: those of the node, and the board's own."""
    sorts = {whose: [f for f in frames if destination(f, OWN) is whose] for whose in Destination}
    log = simulate(
        Demultiplexer(),
        drive={"i": of(frames)},
        collect={"node": beats(sorts[Destination.NODE]), "board": beats(sorts[Destination.BOARD])},
        settings=ADDRESSES,
        **options,
    )
    assert frames_of(log["node"]) == sorts[Destination.NODE]
    assert frames_of(log["board"]) == sorts[Destination.BOARD]
    return log


def test_every_frame_goes_where_the_model_says_whatever_stalls():
    seed = new_seed()
    rng = random.Random(seed)
    hosts = Hosts(rng)
    frames = []
    for _ in range(120):
        frame = hosts.frame()
        at = rng.randrange(min(44, len(frame)))
        if rng.random() < 0.7:  # a bit that decides, most often
            frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
        frames.append(frame[: rng.choice((len(frame), len(frame), rng.randint(1, 40)))])
    sorts = {destination(f, OWN) for f in frames}
    assert sorts == set(Destination)
    split(frames, seed=seed)


@pytest.mark.parametrize(("name", "values"), [("node", {"magic": 0}), ("board", {})])
def test_frames_pass_the_demultiplexer_at_full_rate(name, values):
    """The tenth beat is taken in cycle 9, and the first one leaves 3 cycles later."""
    frame = control_frame(Kind.HELLO, 1, **values)
    if name == "node":
        frame = frame[:36] + b"\1" + frame[37:]
    log = split([frame] * 5, stall=0)
    cycles = [cycle for cycle, _ in log[name]]
    assert cycles == list(range(12, 12 + beats([frame] * 5)))


def test_two_senders_share_a_mac_frame_by_frame():
    seed = new_seed()
    rng = random.Random(seed)
    frames = [[bytes([n]) + rng.randbytes(rng.randint(0, 20)) for _ in range(40)] for n in range(2)]
    log = simulate(
        FrameMerger(),
        drive={f"i[{n}]": of(some) for n, some in enumerate(frames)},
        collect={"o": beats(frames[0]) + beats(frames[1])},
        seed=seed,
    )
    sent = frames_of(log["o"])
    assert [[frame for frame in sent if frame[0] == n] for n in range(2)] == frames


def test_two_senders_take_turns_without_a_pause():
    frames = [[bytes([n]) * 12] * 5 for n in range(2)]
    log = simulate(
        FrameMerger(), drive={f"i[{n}]": of(some) for n, some in enumerate(frames)}, collect={"o": 30}, stall=0
    )
    assert [frame[0] for frame in frames_of(log["o"])] == [0, 1] * 5
    assert [cycle for cycle, _ in log["o"]] == list(range(1, 31))


@pytest.mark.parametrize(("sender", "cycle"), [(0, 1), (1, 2)])
def test_latency_of_the_merger_is_that_of_its_docstring(sender, cycle):
    log = simulate(FrameMerger(), drive={f"i[{sender}]": of([b"abc"])}, collect={"o": 1}, stall=0)
    assert log["o"][0][0] == cycle


def step(dut, body):
    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(body)
    sim.run()


def test_leases_are_kept_as_by_the_model_to_the_cycle():
    """Random requests at random times, around the end of the lease; both decide alike, and name the holder."""
    seed = new_seed()
    rng = random.Random(seed)
    cycles = 40
    dut = LeaseKeeper(lease_cycles=cycles)
    model = BoardModel({}, own=OWN, lease_time=cycles + 1)
    statuses = {Verdict.HELD: Status.HELD, Verdict.UNKNOWN: Status.UNKNOWN}
    sequences = {1: 0, 2: 0, 3: 0}
    seen = set()

    async def body(ctx):
        now = 0
        for _ in range(600):
            lease = rng.choice((1, 1, 1, 2, 3))
            sequences[lease] = max(0, rng.choice((1, sequences[lease] + rng.choice((1, 1, 1, 0, -1, 1 << 30)))))
            sequence, release = sequences[lease] % (1 << 32), rng.random() < 0.1
            who = host(lease).ip
            for name, value in (("lease", lease), ("sequence", sequence), ("host", who), ("releases", release)):
                ctx.set(getattr(dut, name), value)
            wait = rng.choice((2, 2, 3, cycles - 2, cycles - 1, cycles, cycles + 1))
            await ctx.tick().repeat(wait)
            now += wait
            assert ctx.get(dut.holder) == model.holder(now)
            await ctx.tick()  # the verdict is as old
            verdict = Verdict(ctx.get(dut.verdict))
            seen.add(verdict)
            before = dict(model.counters)
            request = ControlFrame(Kind.RELEASE if release else Kind.ACCESS, lease, sequence)
            reply = model.control(encode_control(request), who, now)
            counted = {name for name, count in model.counters.items() if count != before.get(name, 0)}
            if verdict in statuses:
                assert decode_control(reply).status == statuses[verdict]
            else:
                names = {Verdict.CARRY_OUT: "requests", Verdict.REPEAT: "repeats", Verdict.STALE: "stale"}
                assert counted == {names[verdict]}
            ctx.set(dut.accept, 1)
            await ctx.tick()
            ctx.set(dut.accept, 0)
            now += 2

    step(dut, body)
    assert seen == set(Verdict)


def test_a_sum_is_the_checksum_s_whatever_the_words():
    rng = random.Random(new_seed())

    async def body(ctx):
        for n in range(50):
            corners = (0xFFFF_FFFF, 0xFFFF_FFFF, 0, 1)  # their sums bring the last carry
            words = [rng.choice(corners) if n % 2 else rng.getrandbits(32) for _ in range(8)]
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            data = b""
            for word in words:
                low, high = rng.random() < 0.8, rng.random() < 0.8
                ctx.set(dut.word, word)
                ctx.set(dut.low, low)
                ctx.set(dut.high, high)
                await ctx.tick()
                raw = word.to_bytes(4, "little")
                data += raw[: 2 * low] + raw[2:] * high
            ctx.set(dut.low, 0)
            ctx.set(dut.high, 0)
            await ctx.tick().repeat(LATENCY - 1)
            assert ctx.get(dut.o).to_bytes(2, "little") == (~internet_checksum(data) & 0xFFFF).to_bytes(
                2, "big"
            )

    dut = HeaderSum()
    step(dut, body)


def test_the_reader_is_done_after_as_many_cycles_as_it_says():
    dut = RequestReader()

    count = []

    async def counter(ctx):
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for n in range(1, 40):
            if ctx.get(dut.done):
                count.append(n)
                assert Form(ctx.get(dut.form)) is Form.MALFORMED
                return
            await ctx.tick()

    step(dut, counter)
    assert count == [22]
