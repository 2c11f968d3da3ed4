# amaranth: UnusedElaboratable=no
"""The parts around the responder: whose a frame is, two senders on one MAC, leases, sums."""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from fanin.golden.control import BoardModel, Destination, destination
from fanin.hdl.net.control.demultiplexer import Demultiplexer
from fanin.hdl.net.control.frame_merger import FrameMerger
from fanin.hdl.net.control.header_sum import LATENCY, HeaderSum
from fanin.hdl.net.control.lease import LeaseKeeper, Verdict
from fanin.hdl.net.control.request_reader import Form, RequestReader
from fanin.wire.control import ControlFrame, Kind, Status, decode_control, encode_control, hello_request
from fanin.wire.ethernet import internet_checksum
from tests.hdl.net.control.bench import OWN, beats, frames_of, hello, host, stream_beats
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


@pytest.mark.parametrize("name", ["node", "board"])
def test_frames_pass_the_demultiplexer_at_full_rate(name):
    """The tenth beat is taken in cycle 9, and the first one leaves 3 cycles later."""
    frame = hello(1)
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


class Lives:
    """Random hellos and requests at random times, around the end of the lease, at a keeper and at the model."""

    cycles = 40

    def __init__(self, rng):
        self.rng = rng
        self.dut = LeaseKeeper(lease_cycles=self.cycles)
        self.shown = []  # offers, the last one first
        self.model = BoardModel({}, own=OWN, lease_time=self.cycles + 1, draw=lambda: self.shown[0])
        self.now = 0
        self.seen = set()

    def someone(self, owner):
        """The owner of a lease, or another address."""
        other = host(self.rng.randrange(3))
        others = (other, replace(owner, ip=other.ip), replace(owner, mac=other.mac))
        return owner if self.rng.random() < 0.8 else self.rng.choice(others)

    def set(self, ctx, **values):
        for name, value in values.items():
            ctx.set(getattr(self.dut, name), value)

    async def hello(self, ctx):
        """An offer, of a number that is fit, whatever the first numbers are."""
        rng, model = self.rng, self.model
        who, unfit, fed = host(rng.randrange(3)), rng.randrange(4), []
        self.set(ctx, hello=1, host=who.ip, mac=who.mac)
        for n in range(10):
            fed.append(rng.choice((0, model.lease)) if n < unfit else rng.getrandbits(32) | 1)
            self.set(ctx, number=fed[-1])
            await ctx.tick()
            self.set(ctx, hello=0)
            if n == 1 + 2 * unfit:
                offer = ctx.get(self.dut.offer)
        self.now += 10
        assert ctx.get(self.dut.offer) == offer
        assert offer in fed
        assert offer not in (0, model.lease)
        self.shown.insert(0, offer)
        model.control(encode_control(hello_request(1)), who, self.now)

    def request(self):
        """Lease, sequence number and host of the next request."""
        rng, model = self.rng, self.model
        lease, owner = model.lease, model._host
        sequence = model._sequence + rng.choice((1, 1, 1, 0, -1, 1 << 30))
        if model.offer and rng.random() < 0.4:
            lease, sequence, owner = model.offer.lease, rng.choice((1, 1, 1, 2)), model.offer.host
        elif not lease or rng.random() < 0.2:
            lease, sequence = rng.choice((*self.shown[:3], 1)), rng.choice((1, 1, 2))
        return lease, sequence % (1 << 32), self.someone(owner)

    async def ask(self, ctx):
        dut, rng, model = self.dut, self.rng, self.model
        lease, sequence, who = self.request()
        release = rng.random() < 0.1
        self.set(ctx, lease=lease, sequence=sequence, host=who.ip, mac=who.mac, releases=release)
        cycles = self.cycles
        wait = rng.choice((2, 2, 3, cycles - 2, cycles - 1, cycles, cycles + 1))
        await ctx.tick().repeat(wait)
        self.now += wait
        assert ctx.get(dut.holder) == model.holder(self.now)
        await ctx.tick()  # the verdict is as old
        verdict = Verdict(ctx.get(dut.verdict))
        self.seen.add(verdict)
        before = dict(model.counters)
        request = ControlFrame(Kind.RELEASE if release else Kind.ACCESS, lease, sequence)
        reply = model.control(encode_control(request), who, self.now)
        counted = {name for name, count in model.counters.items() if count != before.get(name, 0)}
        says = {
            Verdict.CARRY_OUT: ("requests", Status.DONE),
            Verdict.REPEAT: ("repeats", Status.DONE),
            Verdict.STALE: ("stale", None),
            Verdict.HELD: ("refused", Status.HELD),
            Verdict.UNKNOWN: ("refused", Status.UNKNOWN),
            Verdict.FOREIGN: ("refused", None),
        }
        assert (counted, reply and decode_control(reply).status) == ({says[verdict][0]}, says[verdict][1])
        self.set(ctx, accept=1)
        await ctx.tick()
        self.set(ctx, accept=0)
        self.now += 2

    async def main(self, ctx):
        for _ in range(800):
            await (self.hello(ctx) if self.rng.random() < 0.3 else self.ask(ctx))


def test_leases_are_kept_as_by_the_model_to_the_cycle():
    """Both decide alike, and name the holder."""
    lives = Lives(random.Random(new_seed()))
    step(lives.dut, lives.main)
    assert lives.seen == set(Verdict)


def test_an_offer_and_its_lease_are_of_one_address_and_a_lease_uses_the_offer_up():
    dut = LeaseKeeper(lease_cycles=1000)
    right = {"host": 0x0A00_0001, "mac": 0x0200_0000_0001}
    others = [right | {"host": 0x0A00_0002}, right | {"mac": 0x0200_0000_0002}]

    async def judge(ctx, sequence, source):
        values = {"lease": 0xABCD, "sequence": sequence, "number": 0x1000 + sequence, **source}
        for name, value in values.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick().repeat(3)
        return Verdict(ctx.get(dut.verdict))

    async def pulse(ctx, name):
        ctx.set(getattr(dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(dut, name), 0)
        await ctx.tick().repeat(5)

    async def body(ctx):
        assert await judge(ctx, 1, {"host": 0, "mac": 0}) is Verdict.UNKNOWN
        for name, value in {"number": 0xABCD, **right}.items():
            ctx.set(getattr(dut, name), value)
        await pulse(ctx, "hello")
        assert ctx.get(dut.offer) == 0xABCD
        for other in others:
            assert await judge(ctx, 1, other) is Verdict.UNKNOWN
        assert await judge(ctx, 1, right) is Verdict.CARRY_OUT
        await pulse(ctx, "accept")
        assert ctx.get(dut.offer) == 0xABCD
        for other in others:
            assert await judge(ctx, 2, other) is Verdict.FOREIGN
        assert await judge(ctx, 2, right) is Verdict.CARRY_OUT
        assert await judge(ctx, 1, right) is Verdict.REPEAT

    step(dut, body)


def test_nothing_is_offered_before_the_first_hello():
    """A number that was drawn then would be the same after each reset, and offered to address 0."""
    dut = LeaseKeeper(lease_cycles=1000)

    async def body(ctx):
        for number in range(1, 20):
            ctx.set(dut.number, number)
            await ctx.tick()
            assert ctx.get(dut.offer) == 0

    step(dut, body)


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
