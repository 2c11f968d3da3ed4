# amaranth: UnusedElaboratable=no
"""Frames out are what scapy expects; frames in are judged by every field, and nothing stops the receiver."""

import random
from dataclasses import replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.hdl.aggregation.headers import frame_layout
from fanin.hdl.aggregation.job import FrameFaults
from fanin.hdl.aggregation.receive import FrameReceiver
from fanin.hdl.aggregation.transmit import FrameTransmitter
from fanin.hdl.net.checksum import LATENCY, OnesComplementSum
from fanin.hdl.net.headers import header_layout
from fanin.wire.aggregation import (
    AGGREGATION,
    ROUND_MAX,
    AggPacket,
    Encap,
    Kind,
    encode,
    encode_payload,
    frame_length,
)
from fanin.wire.ethernet import IPV4, internet_checksum
from fanin.wire.fields import pack_fields, unpack_fields
from tests.hdl.aggregation.bench import BASE, JOB, SWITCH, beats_of, config, own, packet_of, to_worker
from tests.support import new_seed, simulate, slow

FAULTS = list(FrameFaults.as_shape().members)
CHECKSUM_SETTLES = 5  # cycles
EXTREMES = (0, 1, -1, 2**31 - 1, -(2**31), 0x01020304, -2, 5)


def packets(rng, count, *, kinds, values=8):
    return [
        AggPacket(
            kind=rng.choice(kinds),
            job=JOB,
            slot=BASE + rng.randrange(8),
            round=rng.choice([1, 2, ROUND_MAX, rng.randint(1, ROUND_MAX)]),
            bitmap=1,
            values=tuple(rng.choice([*EXTREMES, rng.randint(-(2**31), 2**31 - 1)]) for _ in range(values)),
        )
        for _ in range(count)
    ]


def fields_of(packet):
    return {
        "kind": packet.kind,
        "slot": packet.slot,
        "round": packet.round,
        "values": list(packet.values),
    }


def test_layouts_put_the_first_field_of_a_header_on_top():
    for fields in (AGGREGATION, IPV4):
        values = {f.name: (1 << f.bits) - 1 - index for index, f in enumerate(fields) if f.bits > 8}
        word = int.from_bytes(pack_fields(fields, values), "big")
        view = header_layout(fields).from_bits(word)
        assert {name: view[name] for name in values} == values


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("values", [1, 8, 32])
def test_a_frame_layout_has_the_length_of_a_frame(encap, values):
    assert frame_layout(encap, values).size == 8 * frame_length(encap, values)


@pytest.mark.parametrize("stall", [0, 0.4])
@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize(("width", "values"), [(8, 8), (32, 3), (256, 8), (512, 8), (512, 40)])
def test_transmitted_frames_are_those_of_the_packer(width, values, encap, stall):
    rng = random.Random(new_seed())
    sent = packets(rng, 8, kinds=[Kind.AGG, Kind.ACK], values=values)
    beats = -(-8 * frame_length(encap, values) // width)
    log = simulate(
        FrameTransmitter(mac_width=width, encap=encap, values=values),
        drive={"i": [fields_of(p) for p in sent]},
        collect={"o": 8 * beats},
        stall=stall,
        settings={"job": config(log2_slots=3)},
    )
    frames, frame = [], b""
    for _, beat in log["o"]:
        frame += beat.data.to_bytes(width // 8, "little")[: beat.keep.bit_count()]
        if beat.last:
            frames.append(frame)
            frame = b""
    for packet, frame, (cycle, _) in zip(sent, frames, log["i"], strict=True):
        expected = encode(packet, encap=encap, source=own(), destination=SWITCH)
        if encap is Encap.UDP and cycle < CHECKSUM_SETTLES:
            frame, expected = (f[:24] + f[26:] for f in (frame, expected))
        assert frame == expected
    if not stall:
        cycles = [cycle for cycle, _ in log["o"]]
        begin = log["i"][0][0] + 1
        assert cycles == list(range(begin, begin + 8 * beats)), "one cycle of latency, no gap"


def receive(frames, *, width=512, encap=Encap.L2, values=8, stall=0.0, seed=0):
    """``(cycle, good, fault, packet)`` per frame, and the cycles of the frames' last beats.

    Frames are ``(bytes, error)``.
    """
    dut = FrameReceiver(mac_width=width, encap=encap, values=values)
    beats = [beat for frame, error in frames for beat in beats_of(frame, width, error=error)]
    seen, ahead = [], []

    async def note(ctx):
        cycle = 0
        async for _, _, valid, out, look in ctx.tick().sample(dut.o.valid, dut.o.payload, dut.ahead):
            if valid:
                faults = [name for name in FAULTS if out.fault[name]]
                assert len(faults) == (not out.good)
                if out.good:
                    assert (ahead[-1].slot, ahead[-1].round) == (out.packet.slot, out.packet.round)
                packet = {
                    "kind": out.packet.kind,
                    "slot": out.packet.slot,
                    "round": out.packet.round,
                    "values": [out.packet.values[k] for k in range(values)],
                }
                seen.append((cycle, "".join(faults) or packet))
            ahead.append(look)
            cycle += 1

    log = simulate(
        dut,
        drive={"i": beats},
        stall=stall,
        settings={"job": config(log2_slots=3)},
        processes=[note],
        seed=seed,
        idle=10,
    )
    ends = [cycle for cycle, beat in log["i"] if beat["last"]]
    assert len(seen) == len(frames), "every frame is judged once"
    return seen, ends


def judged(frames, **options):
    return [verdict for _, verdict in receive([(f, False) for f in frames], **options)[0]]


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize(("width", "values"), [(8, 8), (32, 3), (256, 8), (512, 8), (512, 40)])
def test_received_packets_are_those_sent(width, values, encap):
    rng = random.Random(new_seed())
    sent = packets(rng, 6, kinds=[Kind.RESULT, Kind.CONFIRM], values=values)
    frames = [(to_worker(p, encap=encap), False) for p in sent]
    for stall in (0, 0.3):
        seen, ends = receive(frames, width=width, encap=encap, values=values, stall=stall)
        assert [verdict for _, verdict in seen] == [fields_of(p) for p in sent]
        latency = 5 if encap is Encap.UDP else 2
        assert [cycle for cycle, _ in seen] == [end + latency for end in ends]


GOOD = AggPacket(Kind.RESULT, JOB, BASE + 3, 9, 3, tuple(range(1, 9)))


def changed(frame, at, value):
    """``frame`` with other bytes at an offset."""
    return frame[:at] + value + frame[at + len(value) :]


def l2_cases():
    frame = to_worker(GOOD)
    yield frame, None
    yield frame[:58], None  # no padding
    yield frame[:59], None
    yield frame[:57], "short"
    yield frame[:13], "short"
    yield b"", "short"
    yield frame + b"\0", "long"
    yield frame.ljust(64, b"\0"), "long"
    yield frame.ljust(1500, b"\0"), "long"
    yield changed(frame, 58, b"\xff\xff"), None  # padding is ignored
    yield changed(frame, 6, b"\xff" * 6), None  # whoever sent it
    yield changed(frame, 0, b"\xff" * 6), "foreign"  # broadcast
    yield changed(frame, 5, b"\x01"), "foreign"
    yield changed(frame, 12, b"\x08\x00"), "foreign"
    yield changed(frame, 12, b"\x81\x00"), "foreign"  # VLAN
    yield changed(frame, 12, b"\x08\x06")[:50], "foreign"  # headers suffice
    yield changed(frame, 14, b"\x21"), "malformed"  # version
    yield changed(frame, 14, b"\x10"), "malformed"  # AGG
    yield changed(frame, 14, b"\x12"), "malformed"  # ACK
    yield changed(frame, 14, b"\x15"), "malformed"
    for packet, fault in (
        (replace(GOOD, round=0), "malformed"),
        (replace(GOOD, job=JOB + 1), "other_job"),
        (replace(GOOD, slot=BASE - 1), "slot_range"),
        (replace(GOOD, slot=BASE + 8), "slot_range"),
        (replace(GOOD, slot=BASE + 7), None),
        (replace(GOOD, bitmap=2**32 - 1), None),
        (replace(GOOD, kind=Kind.CONFIRM), None),
    ):
        yield to_worker(packet), fault


def with_ip(frame, **fields):
    """``frame`` with other IPv4 fields, its checksum right."""
    header = unpack_fields(IPV4, frame[14:34]) | {"checksum": 0} | fields
    if "checksum" not in fields:
        header["checksum"] = internet_checksum(pack_fields(IPV4, header))
    return changed(frame, 14, pack_fields(IPV4, header))


def udp_cases():
    frame = to_worker(GOOD, encap=Encap.UDP)
    ip = unpack_fields(IPV4, frame[14:34])
    yield frame, None
    yield frame[:85], "short"
    yield frame[:41], "short"
    yield frame + b"\0", "long"
    yield to_worker(GOOD), "foreign"  # raw Ethernet
    yield changed(frame, 0, b"\x03"), "foreign"
    yield with_ip(frame, tos=255, ttl=1, identification=0xFFFF, source=2**32 - 1), None
    yield with_ip(frame, flags=2), None  # do not fragment
    yield with_ip(frame, flags=1), "foreign"  # more fragments
    yield with_ip(frame, fragment=1), "foreign"
    yield with_ip(frame, fragment=1 << 12), "foreign"
    yield with_ip(frame, ihl=6), "foreign"  # options
    yield with_ip(frame, version=6), "foreign"
    yield with_ip(frame, protocol=6), "foreign"
    yield with_ip(frame, destination=ip["destination"] ^ 1), "foreign"
    yield changed(frame, 36, b"\0\1"), "foreign"  # UDP port
    yield with_ip(frame, checksum=ip["checksum"] ^ 1), "checksum"
    yield with_ip(frame, checksum=0), "checksum"
    yield changed(frame, 22, b"\x3f"), "checksum"  # TTL
    yield with_ip(frame, length=ip["length"] - 1), "malformed"
    yield changed(frame, 38, b"\0\x35"), "malformed"  # UDP length
    yield changed(frame, 40, b"\x12\x34"), None  # any UDP checksum
    yield to_worker(replace(GOOD, job=0), encap=Encap.UDP), "other_job"
    yield to_worker(replace(GOOD, slot=0), encap=Encap.UDP), "slot_range"


@pytest.mark.parametrize("width", [64, 512, *slow(8)])
@pytest.mark.parametrize(("encap", "cases"), [(Encap.L2, l2_cases), (Encap.UDP, udp_cases)])
def test_every_check_drops_what_it_should_and_nothing_else(encap, cases, width):
    frames, faults = zip(*cases(), strict=True)
    verdicts = judged(frames, width=width, encap=encap)
    for frame, fault, verdict in zip(frames, faults, verdicts, strict=True):
        expected = fault or fields_of(packet_of(frame, encap=encap))
        assert verdict == expected, frame.hex()


@pytest.mark.parametrize("encap", list(Encap))
def test_a_frame_that_the_mac_flags_is_dropped_for_that(encap):
    good = to_worker(GOOD, encap=encap)
    seen, _ = receive([(good, True), (good[:20], True), (good, False)], encap=encap)
    assert [verdict for _, verdict in seen] == ["mac_error", "mac_error", fields_of(GOOD)]


@pytest.mark.parametrize("encap", list(Encap))
@pytest.mark.parametrize("width", [16, 128, 512])
def test_garbage_of_any_length_is_judged_once_and_the_next_frame_is_right(width, encap):
    seed = new_seed()
    rng = random.Random(seed)
    good = to_worker(GOOD, encap=encap)
    frames = []
    for _ in range(15):
        base = rng.choice([rng.randbytes(200), good * 3])
        frames += [base[: rng.choice([0, 1, rng.randrange(200)])], good]
    verdicts = judged(frames, width=width, encap=encap, stall=0.2, seed=seed)
    assert verdicts[1::2] == [fields_of(GOOD)] * 15


def test_scapy_reads_our_datagram():
    frame = to_worker(GOOD, encap=Encap.UDP)
    packet = Ether(frame)
    given = packet[IP].chksum
    del packet[IP].chksum
    assert Ether(bytes(packet))[IP].chksum == given
    assert packet[IP].len == len(frame) - 14
    assert packet[UDP].len == packet[IP].len - 20
    assert bytes(packet[UDP].payload) == encode_payload(GOOD)


def test_the_ones_complement_sum_is_that_of_the_header():
    rng = random.Random(new_seed())
    headers = [bytes(20), b"\xff" * 20, *(rng.randbytes(20) for _ in range(50))]
    dut = OnesComplementSum(words=10)
    sums = []

    async def drive(ctx):
        for header in [*headers, *[bytes(20)] * LATENCY]:
            ctx.set(dut.i, [int.from_bytes(header[k : k + 2], "big") for k in range(0, 20, 2)])
            _, _, out = await ctx.tick().sample(dut.o)
            sums.append(out)

    simulate(dut, processes=[drive], idle=len(headers) + LATENCY)
    assert [s ^ 0xFFFF for s in sums[LATENCY:]] == [internet_checksum(header) for header in headers]


@pytest.mark.parametrize("component", [FrameTransmitter, FrameReceiver])
def test_bad_parameters_are_refused(component):
    with pytest.raises(ValueError, match="mac_width must be a power of two from 8 to 512, not 1024"):
        component(mac_width=1024)
    with pytest.raises(ValueError, match="values must be 1 to 256, not 257"):
        component(mac_width=512, values=257)
