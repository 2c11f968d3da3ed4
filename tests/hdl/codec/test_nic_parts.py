# amaranth: UnusedElaboratable=no
"""The parts of a NIC stage keep the latency and the pace that they state."""

import random
from itertools import pairwise

import pytest

from fanin.codec.facts import TOS_RAW
from fanin.hdl.codec.nic.assembler import FrameAssembler
from fanin.hdl.codec.nic.cutter import PayloadCutter
from fanin.hdl.codec.nic.meter import PayloadMeter
from fanin.hdl.codec.nic.parser import HeaderParser
from fanin.hdl.codec.nic.shapes import Kind
from fanin.hdl.codec.nic.verdict import FrameVerdict
from fanin.wire.ethernet import internet_checksum
from tests.fanin.codec.golden.packets import frame_of, gradients
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTH = 256
ZERO_SUMS = (0, 0xFFFF)  # the same in ones' complement


def first(log, name):
    return log[name][0][0]


def ends(log, name):
    return [cycle for cycle, payload in log[name] if payload["last"]]


def header(content, start=2, **fields):
    """Of a compressible UDP packet with that payload."""
    known = {
        "udp": 1,
        "words": start,
        "payload": len(content),
        "span": len(content) - 1,
        "empty": not content,
    }
    length = 28 + len(content)
    return {"compressible": 1, **known, "length": length, "end": length + 13, **fields}


def test_the_meter_counts_and_sums_every_frame():
    rng = random.Random(new_seed())
    sent = [rng.randbytes(rng.choice([1, 2, 31, 32, 33, 64, rng.randrange(1, 300)])) for _ in range(25)]
    log = simulate(
        PayloadMeter(),
        drive={"i": list(beats(sent, WIDTH, errors=None))},
        collect={"o": sum(-(-len(frame) // 32) for frame in sent), "total": len(sent)},
        stall=0.3,
    )
    assert frames(payload for _, payload in log["o"]) == sent
    for (_, total), frame in zip(log["total"], sent, strict=True):
        expected = ~internet_checksum(frame) & 0xFFFF
        assert total.bytes == len(frame)
        assert total.sum == expected or {total.sum, expected} == set(ZERO_SUMS)


def test_the_meter_keeps_its_pace():
    sent = [bytes(100)] * 12
    log = simulate(
        PayloadMeter(),
        drive={"i": list(beats(sent, WIDTH, errors=None))},
        collect={"o": 4 * len(sent), "total": len(sent)},
        stall=0,
    )
    assert first(log, "o") - first(log, "i") == 1
    assert first(log, "total") - ends(log, "o")[0] == 8
    assert log["i"][-1][0] - first(log, "i") == len(log["i"]) - 1


@pytest.mark.parametrize("count", [32, 64])
def test_the_meter_waits_for_no_total_and_keeps_32(count):
    """Frames of a beat, 1 to 32 bytes; nobody takes a total until all have passed."""
    sent = [bytes(1 + n % 32) for n in range(count)]
    dut, got = PayloadMeter(), []

    async def late(ctx):
        await ctx.tick().repeat(count + 20)
        ctx.set(dut.total.ready, 1)
        async for _, _, valid, total in ctx.tick().sample(dut.total.valid, dut.total.payload):
            if valid:
                got.append(total.bytes)

    log = simulate(
        dut,
        drive={"i": list(beats(sent, WIDTH, errors=None))},
        collect={"o": count},
        stall=0,
        processes=[late],
        idle=100,
        excused={"PayloadMeter/StreamFIFO.i"},  # the totals that have no place
    )
    assert log["o"][-1][0] - first(log, "o") == count - 1
    assert got == [len(frame) for frame in sent[:32]]


def test_the_parser_reads_a_header_four_cycles_behind_its_beats():
    content = gradients(100)
    sent = [frame_of(content), frame_of(content, "tcp_options", TOS_RAW), b"short"]
    log = simulate(
        HeaderParser(receive=True),
        drive={"i": list(beats(sent, WIDTH))},
        collect={"o": 5 + 6 + 1, "header": 3},
        settings={"enable": 1},
        stall=0,
    )
    udp, tcp, short = (payload for _, payload in log["header"])
    assert (udp.compressible, udp.raw, udp.udp, udp.words, udp.payload, udp.span) == (1, 0, 1, 2, 100, 97)
    assert (tcp.compressible, tcp.raw, tcp.udp, tcp.words, tcp.payload) == (0, 1, 0, 8, 100)
    assert (short.compressible, short.raw) == (0, 0)
    assert first(log, "header") - log["i"][1][0] == 4
    assert log["i"][-1][0] - first(log, "i") == len(log["i"]) - 1


def test_the_cutter_takes_four_cycles_more_than_beats():
    content = gradients(400)
    sent = [frame_of(content)] * 3
    log = simulate(
        PayloadCutter(receive=False),
        drive={"i": list(beats(sent, WIDTH)), "header": [header(content)] * 3},
        collect={"payload": 3 * 13, "record": 3},
        stall=0,
    )
    assert frames(payload for _, payload in log["payload"]) == [content] * 3
    assert log["payload"][0][0] - log["i"][2][0] == 2
    came = ends(log, "i")
    assert came[1] - came[0] == 14 + 4
    assert all(record.whole & record.cut & (record.bytes == 442) for _, record in log["record"])


def test_the_receivers_cutter_takes_the_stated_length_off():
    content = (800).to_bytes(2, "big") + gradients(400)
    sent = [frame_of(content)] * 3
    log = simulate(
        PayloadCutter(receive=True),
        drive={"i": list(beats(sent, WIDTH)), "header": [header(content, span=399)] * 3},
        collect={"payload": 3 * 13, "length": 3, "record": 3},
        stall=0,
    )
    assert frames(payload for _, payload in log["payload"]) == [content[2:]] * 3
    assert [length for _, length in log["length"]] == [800] * 3
    assert log["payload"][0][0] - log["i"][2][0] == 2
    came = ends(log, "i")
    assert came[1] - came[0] == 14 + 6


def test_a_verdict_takes_nine_cycles_and_comes_every_ten():
    record = {"header": header(bytes(100)), "bytes": 142, "whole": 1, "cut": 1}
    total = {"bytes": 40, "sum": 0x1234}
    log = simulate(
        FrameVerdict(receive=False),
        drive={"record": [record] * 3, "taken": [{"bytes": 100, "sum": 0}] * 3, "put": [total] * 3},
        collect={"job": 3},
        stall=0,
    )
    came = [cycle for cycle, _ in log["job"]]
    assert [b - a for a, b in pairwise(came)] == [10, 10]
    assert came[0] == 9
    assert all((job.kind, job.length, job.final) == (Kind.CODED, 28 + 42, 83) for _, job in log["job"])


def test_the_assembler_takes_three_cycles_more_than_beats():
    sent = bytes(range(200))
    queue = [{"data": beat["data"], "last": beat["last"]} for beat in beats([sent], WIDTH, errors=None)]
    log = simulate(
        FrameAssembler(receive=False),
        drive={"job": [{"kind": Kind.PASS, "final": 199}] * 3, "frame": queue * 3},
        collect={"o": 3 * len(queue)},
        stall=0,
    )
    assert frames(payload for _, payload in log["o"]) == [sent] * 3
    assert first(log, "o") == 4
    left = ends(log, "o")
    assert [b - a for a, b in pairwise(left)] == [len(queue) + 3] * 2
