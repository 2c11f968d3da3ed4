"""Several connections on one MAC: whole frames, in turn, control first, and each arrives where it belongs."""

import random

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.mac_hub import MacHub
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.connection import ConnectionFrame, encode_connection
from fanin.wire.ethernet import Encap, Endpoint
from fanin.wire.link import LinkKind
from tests.hdl.aggregation.bench import beats_of
from tests.support import new_seed, simulate, slow

WIDTH = 64


class Transmit(wiring.Component):
    """A hub whose frames say themselves whether they are control frames: bit 0 of their data."""

    def __init__(self, connections, width=WIDTH):
        self.hub = MacHub(connections=connections, data_width=width)
        frames = packet_stream(width)
        super().__init__({"tx": In(frames).array(connections), "mac_tx": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub = hub = self.hub
        for n, (outer, inner) in enumerate(zip(self.tx, hub.tx, strict=True)):
            wiring.connect(m, wiring.flipped(outer), inner)
            m.d.comb += hub.control[n].eq(outer.p.data[0])
        wiring.connect(m, hub.mac_tx, wiring.flipped(self.mac_tx))
        return m


def beats(connection, number, length, *, control=False):
    """A frame of ``length`` beats that says whose it is."""
    said = connection << 40 | number << 8 | control
    return [
        {"data": said | k << 20, "keep": (1 << WIDTH // 8) - 1, "last": int(k == length - 1)}
        for k in range(length)
    ]


def send(frames, *, stall=0.0, seed=0):
    """What a hub makes of each connection's frames: ``(cycle, frame)`` of each, last beats, and the log."""
    streams = [[beat for frame in of for beat in frame] for of in frames]
    log = simulate(
        Transmit(len(frames)),
        drive={f"tx[{n}]": stream for n, stream in enumerate(streams)},
        collect={"mac_tx": sum(map(len, streams))},
        stall=stall,
        seed=seed,
    )
    sent, frame = [], []
    for _, beat in log["mac_tx"]:
        frame.append({name: beat[name] for name in ("data", "keep", "last")})
        if beat.last:
            sent.append(frame)
            frame = []
    return sent, log


def owner(frame):
    return frame[0]["data"] >> 40


@pytest.mark.parametrize("connections", [1, 2, 5])
def test_every_frame_leaves_whole_and_in_its_connection_s_order(connections):
    seed = new_seed()
    rng = random.Random(seed)
    frames = [
        [beats(n, k, rng.randint(1, 4), control=rng.random() < 0.3) for k in range(20)]
        for n in range(connections)
    ]
    sent, _ = send(frames, stall=0.3, seed=seed)
    assert [[frame for frame in sent if owner(frame) == n] for n in range(connections)] == frames


@pytest.mark.parametrize("length", [1, 3])
def test_connections_take_turns_without_a_bubble(length):
    sent, log = send([[beats(n, k, length) for k in range(10)] for n in range(3)])
    assert [owner(frame) for frame in sent] == [0, 1, 2] * 10
    cycles = [cycle for cycle, _ in log["mac_tx"]]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


def test_one_connection_alone_sends_a_beat_a_cycle():
    _, log = send([[], [beats(1, k, 2) for k in range(10)], []])
    cycles = [cycle for cycle, _ in log["mac_tx"]]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


def test_a_control_frame_that_stands_goes_first():
    """Connection 3's third frame is one: it stands when 3 has sent two, and goes before 0, whose turn it is."""
    frames = [[beats(n, k, 4, control=(n, k) == (3, 2)) for k in range(4)] for n in range(4)]
    sent, _ = send(frames)
    order = [owner(frame) for frame in sent]
    assert order[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert order[8:10] == [0, 3]  # it stands a cycle after the frame before it has left: behind one of another
    assert sent[9] == frames[3][2]


@pytest.mark.parametrize(("connection", "cycles"), [(0, 1), (2, 2)])
def test_latency_out_is_that_of_the_docstring(connection, cycles):
    """The frame is offered in cycle 0; connection 0 has the turn after a reset."""
    frames = [[beats(n, 0, 1)] if n == connection else [] for n in range(3)]
    _, log = send(frames)
    assert log["mac_tx"][0][0] == cycles


class Receive(wiring.Component):
    """A hub's way in."""

    def __init__(self, numbers, **parameters):
        self.hub = MacHub(connections=len(numbers), **parameters)
        self.numbers = numbers
        frames = packet_stream(self.hub.data_width, error=True)
        ports = {"mac_rx": In(frames), "rx": Out(frames).array(len(numbers)), "foreign": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub = hub = self.hub
        wiring.connect(m, wiring.flipped(self.mac_rx), hub.mac_rx)
        for inner, outer in zip(hub.rx, self.rx, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        m.d.comb += [i.eq(number) for i, number in zip(hub.numbers, self.numbers, strict=True)]
        m.d.comb += self.foreign.eq(hub.foreign)
        return m


@pytest.mark.parametrize(
    ("encap", "width"),
    [
        (Encap.L2, 512),
        (Encap.UDP, 256),
        *slow((Encap.L2, 64), (Encap.UDP, 64), (Encap.UDP, 512), (Encap.L2, 256)),
    ],
)
def test_each_frame_arrives_at_its_connection_and_others_are_counted(encap, width):
    seed = new_seed()
    rng = random.Random(seed)
    numbers = (3, 200, 0)
    size = width // 8
    ends = Endpoint(1, 1), Endpoint(2, 2)
    arrive, expected, foreign = [], [[] for _ in numbers], 0
    for k in range(40):
        number = rng.choice([*numbers, 77])
        words = tuple(rng.getrandbits(32) for _ in range(rng.randint(1, 40)))
        made = ConnectionFrame(LinkKind.DATA, 1, number, sequence=k, words=words)
        frame = encode_connection(made, beat_bytes=size, source=ends[0], destination=ends[1], encap=encap)
        if rng.random() < 0.3:  # cut short, perhaps in front of the number
            frame = frame[: rng.randint(1, 64)]
        cut = beats_of(frame, width, error=rng.random() < 0.2)
        arrive += cut
        if number in numbers and len(frame) > {Encap.L2: 15, Encap.UDP: 43}[encap]:
            expected[numbers.index(number)] += cut
        else:
            foreign += 1
    dut = Receive(numbers, data_width=width, encap=encap)
    seen = {"foreign": 0}

    async def watch(ctx):
        async for _, _, ready, pulse in ctx.tick().sample(dut.mac_rx.ready, dut.foreign):
            assert ready, "a MAC does not wait"
            seen["foreign"] += pulse

    log = simulate(
        dut,
        drive={"mac_rx": arrive},
        collect={f"rx[{n}]": len(expected[n]) for n in range(3)},
        stall={"mac_rx": 0.3},
        processes=[watch],
        seed=seed,
    )
    for n, wanted in enumerate(expected):
        assert [{name: beat[name] for name in wanted[0]} for _, beat in log[f"rx[{n}]"]] == wanted
    assert seen["foreign"] == foreign


@pytest.mark.parametrize(
    ("encap", "width", "place"), [(Encap.L2, 512, 0), (Encap.UDP, 256, 1), (Encap.UDP, 64, 5)]
)
def test_latency_in_is_that_of_the_docstring(encap, width, place):
    made = ConnectionFrame(LinkKind.ACK, 1, 9)
    ends = Endpoint(1, 1), Endpoint(2, 2)
    frame = encode_connection(made, beat_bytes=width // 8, source=ends[0], destination=ends[1], encap=encap)
    sent = beats_of(frame, width) * 3
    log = simulate(
        Receive((9,), data_width=width, encap=encap),
        drive={"mac_rx": sent},
        collect={"rx[0]": len(sent)},
        stall=0,
    )
    cycles = [cycle for cycle, _ in log["rx[0]"]]
    assert cycles[0] - log["mac_rx"][place][0] == 1
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))
