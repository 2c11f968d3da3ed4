# amaranth: UnusedElaboratable=no
"""The NIC's parts together: answers wait for the requester."""

from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from fanin.hdl.rdma.nic import RdmaNic
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, Write
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import ACK_SYNDROME, Nak, Opcode, RdmaPacket, encode
from tests.hdl.rdma.bench import connect_fields, post_fields
from tests.hdl.rdma.test_latencies import words_of

CONFIG = replace(PRESETS["tiny"], queue_pairs=2, regions=2, descriptors=2, address_width=16)
HERE, THERE = Endpoint(1, 2, 4791), Endpoint(3, 4, 50_000)


@pytest.mark.slow
def test_a_fatal_nak_is_not_lost_after_more_answers_than_can_wait():
    nic = RdmaNic(config=CONFIG)
    endings = []

    async def transfer(ctx, port, payload):
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def answer(ctx, psn, syndrome):
        packet = RdmaPacket(Opcode.ACKNOWLEDGE, FIRST_QUEUE_PAIR, psn, syndrome=syndrome)
        for word in words_of(encode(packet, source=THERE, destination=HERE), CONFIG.width // 8):
            ctx.set(nic.mac_rx.payload, word | {"error": 0})
            ctx.set(nic.mac_rx.valid, 1)
            await ctx.tick()
        ctx.set(nic.mac_rx.valid, 0)

    async def main(ctx):
        ctx.set(nic.own, {"mac": HERE.mac, "ip": HERE.ip})
        ctx.set(nic.timeout, 1 << 30)
        ctx.set(nic.mac_tx.ready, 1)
        await transfer(ctx, nic.connect, connect_fields(0, Connection(FIRST_QUEUE_PAIR, mtu=256)))
        for tag in range(2):
            await transfer(ctx, nic.post, post_fields(0, Write(tag, 0, 0, 0, 0)))
        await ctx.tick().repeat(60)
        for _ in range(40):  # the requester waits until the first one's completion is taken
            await answer(ctx, 0, ACK_SYNDROME)
        await answer(ctx, 1, Nak.REMOTE_ACCESS.syndrome)
        await ctx.tick().repeat(20)
        ctx.set(nic.completion.ready, 1)
        for _ in range(2):
            (said,) = await ctx.tick().sample(nic.completion.payload).until(nic.completion.valid)
            endings.append(Ending(said.ending))

    simulator = Simulator(nic)
    simulator.add_clock(1e-6)
    simulator.add_testbench(main)
    simulator.run_until(3e-3)
    assert endings == [Ending.DONE, Ending.ACCESS]
