# amaranth: UnusedElaboratable=no
"""A board's node: hello, registers and memories, asked for in frames."""

from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from fanin.boards.run.build import _config
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.memory_map import BOARD, LABELS, NODE, list_memory, sample_memory
from fanin.hdl.boards.node import BoardNode
from fanin.hdl.boards.registers import IDENTITY, VERSION, board_registers
from fanin.hdl.glm.node_registers import IDENTITY as NODE_IDENTITY
from fanin.wire.control import (
    CONTROL_PORT,
    WRITE_BIT,
    ControlFrame,
    Kind,
    Status,
    decode_control,
    encode_control,
    hello_request,
)
from fanin.wire.ethernet import MIN_FRAME_BYTES, Endpoint, encode_udp

HOST = Endpoint(0x02_00_00_00_01_00, 0x0A_00_00_FE, 5000)
OWN = Endpoint(0x02_00_00_00_00_07, 0x0A_00_00_07, CONTROL_PORT)
PAYLOAD = 42  # bytes in front of it
LONGEST = 4000  # cycles until a reply


def answers(config, requests):
    """The replies of a board to a hello and to requests of the lease that it offers, one after the other."""
    identity = Identity(board=3, build=0xB01D, mac=OWN.mac, ip=OWN.ip)
    dut = BoardNode(config=config, identity=identity, clock_hz=50_000_000)
    replies = []

    async def ask(ctx, request):
        frame = encode_udp(encode_control(request), source=HOST, destination=OWN).ljust(MIN_FRAME_BYTES, b"\0")
        words = [frame[at : at + 4] for at in range(0, len(frame), 4)]
        for number, word in enumerate(words):
            ctx.set(dut.mac_rx.valid, 1)
            ctx.set(dut.mac_rx.p.data, int.from_bytes(word, "little"))
            ctx.set(dut.mac_rx.p.keep, (1 << len(word)) - 1)
            ctx.set(dut.mac_rx.p.last, number == len(words) - 1)
            await ctx.tick().until(dut.mac_rx.ready)
        ctx.set(dut.mac_rx.valid, 0)
        reply = b""
        for _ in range(LONGEST):
            if ctx.get(dut.mac_tx.valid):
                reply += ctx.get(dut.mac_tx.p.data).to_bytes(4, "little")
                if ctx.get(dut.mac_tx.p.last):
                    break
            await ctx.tick()
        await ctx.tick()
        size = int.from_bytes(reply[38:40], "big") - 8
        return decode_control(reply[PAYLOAD : PAYLOAD + size])

    async def run(ctx):
        ctx.set(dut.mac_tx.ready, 1)
        ctx.set(dut.link.up, 1)
        replies.append(await ask(ctx, hello_request(1)))
        for request in requests:
            leased = replace(request, lease=replies[0].words[-1])
            replies.append(await ask(ctx, leased))

    simulator = Simulator(dut)
    simulator.add_clock(20e-9)
    simulator.add_testbench(run)
    simulator.run()
    return replies


def access(sequence, *operations):
    words = tuple(word for pair in operations for word in pair)
    return ControlFrame(Kind.ACCESS, 0, sequence, len(operations), words)


def test_a_shell_says_what_it_is():
    registers = board_registers()
    own_ip = BOARD + registers.offset("own_ip")
    hello, read, held, nobodys = answers(
        None,
        [
            access(1, (BOARD, 0), (own_ip, 0), (BOARD + registers.offset("holder"), 0)),
            hello_request(2),
            access(2, (NODE, 0)),
        ],
    )
    assert hello.words[:3] == (0, VERSION << 16 | 3, 0xB01D)
    assert (read.status, read.words) == (Status.DONE, (IDENTITY, OWN.ip, HOST.ip))
    assert held.words[0] == HOST.ip
    assert hello.words[4] & 1  # the link is up
    assert (nobodys.status, nobodys.words) == (Status.BUS, (NODE,))


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "sparse"), [("ecp5-25", False), ("ecp5-85", False), ("ecp5-25", True)])
def test_node_and_memories_lie_where_the_map_says(preset, sparse):
    places = [sample_memory(0), sample_memory(1), LABELS] + [list_memory(0)] * sparse
    written = [(place + 8 | WRITE_BIT, 0xABC0 + n) for n, place in enumerate(places)]
    _, identity, _, read = answers(
        _config(preset, sparse=sparse),
        [
            access(1, (NODE, 0)),
            access(2, *written),
            access(3, *((place + 8, 0) for place in places)),
        ],
    )
    assert identity.words == (NODE_IDENTITY,)
    assert read.words == (0xABC0, 0xABC1, 0xABC2, 0xABC3)[: len(places)]


def test_a_node_whose_mac_is_too_wide_is_refused():
    wide = replace(_config("ecp5-25"), mac_width=64)
    with pytest.raises(ValueError, match="config must have a mac_width of 32, not 64"):
        BoardNode(config=wide, identity=Identity(board=1, build=1, mac=1, ip=1), clock_hz=1000)
