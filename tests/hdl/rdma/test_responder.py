# amaranth: UnusedElaboratable=no
"""The responder beside its golden model, packet by packet."""

import random
from collections import Counter

import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from fanin.hdl.rdma.responder import Responder
from fanin.rdma.facts import DROPPED, RdmaConfig
from fanin.rdma.golden.nic import Connection, Region, psn_after
from fanin.rdma.golden.nic import Responder as Golden
from fanin.wire.rdma import PATH_MTUS, REFUSED_OPCODES, Fault, Nak, Opcode, RdmaPacket, header_bytes
from tests.hdl.rdma.bench import Bench, connect_fields, cycles_until
from tests.support import new_seed, slow

CONFIG = RdmaConfig(address_width=20, queue_pairs=4, regions=2)  # a carry is in every second message
SIZE = CONFIG.width // 8
MEMORY = 1 << 16
KEY = 77
KINDS, ODDS = ["", "psn", "opcode", "size", "over", "rkey", "address", "length"], [80, 13, 1, 1, 1, 1, 1, 1]


def next_packet(rng, golden):
    """One that the golden model takes, more often than not; else one with something wrong."""
    mtu, state = golden.connection.mtu, golden._open
    if state is None:
        length = rng.choice([0, 1, mtu, mtu + 1, 2 * mtu, rng.randrange(4 * mtu)])
        many = length > mtu
        opcode = Opcode.WRITE_FIRST if many else rng.choice([Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE])
        address, size = rng.randrange(MEMORY - length), min(length, mtu)
    else:
        length = address = 0
        many, size = state.remaining > mtu, min(state.remaining, mtu)
        opcode = Opcode.WRITE_MIDDLE if many else rng.choice([Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMMEDIATE])
    psn, rkey = golden._expected, KEY
    match rng.choices(KINDS, ODDS)[0]:
        case "psn":
            psn = psn_after(psn, rng.choice([-1, 1, 2, -5, 1 << 22, rng.randrange(1 << 24)]))
        case "opcode":
            opcode = rng.choice([*list(Opcode)[:-1], *REFUSED_OPCODES])
        case "size":
            size = rng.randrange(mtu + 4)
        case "over":
            size = mtu + rng.randrange(1, 5)
            opcode, length = (Opcode.WRITE_LAST, 0) if state else (Opcode.WRITE_ONLY, size)
        case "rkey":
            rkey ^= 1 << rng.randrange(32)
        case "address":
            address += MEMORY
        case "length":
            length = rng.getrandbits(32)
    payload = rng.randbytes(size)
    if opcode in REFUSED_OPCODES:
        return RdmaPacket(opcode, 0, psn, rng.random() < 0.5, payload=payload)
    immediate = rng.getrandbits(32) if opcode.has_immediate else 0
    begins = opcode.begins
    return RdmaPacket(opcode, 0, psn, rng.random() < 0.5, address * begins, rkey * begins, length * begins,
                  immediate, payload=payload)  # fmt: skip


def received(golden, index, packet, *, fault=Fault.NONE):
    """The packet as the receiver hands it on."""
    opcode, size = packet.opcode, len(packet.payload)
    spoken = opcode not in REFUSED_OPCODES
    lane = header_bytes(opcode) % SIZE if spoken else 0
    allowed = golden._may_write(packet) if spoken and opcode.begins else False
    words = -(-(lane + size) // SIZE) if size and spoken else 0
    return {
        "fault": fault, "words": words, "index": index, "opcode": opcode,
        "acknowledge": packet.acknowledge, "psn": packet.psn, "size": size, "lane": lane,
        "address": packet.address % (1 << CONFIG.address_width), "length": packet.length, "allowed": allowed,
        "immediate": packet.immediate, "syndrome": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("stall", "packets"), [(0.4, 250), *slow((0.0, 500), (0.4, 500))])
def test_every_packet_is_taken_refused_and_answered_as_the_golden_model_does(stall, packets):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Responder(config=CONFIG)
    streams = ["store", "answer", "arrival"]  # no phases: each packet is given 30 cycles
    bench = Bench(dut, streams, seed=seed, stall=dict.fromkeys(streams, stall))
    seen, dropped, counted = set(), Counter(), Counter()

    async def write(ctx):
        """Tell of every payload that is kept, some cycles later."""
        due = []
        while True:
            ctx.set(dut.stored, due[:1] == [0])
            due = [left - 1 for left in due if left]
            _, _, valid, ready, order = await ctx.tick().sample(
                dut.store.valid, dut.store.ready, dut.store.payload
            )
            if valid and ready and order.keep:
                due.append(max([rng.randrange(1, 8), *(left + 1 for left in due)]))

    async def main(ctx):
        golden, arrived = {}, {}
        memory = bytearray(4 * MEMORY)
        regions = [Region(0, MEMORY, KEY, frozenset(range(4)))]
        for step in range(packets):
            index = rng.randrange(CONFIG.queue_pairs)
            if index not in golden or golden[index].failed:
                connection = Connection(index + 5, 0, rng.choice([0, (1 << 24) - 2]), rng.choice(PATH_MTUS))
                golden[index] = Golden(index, connection, memory, regions)
                arrived[index] = 0
                await bench.put(ctx, dut.connect, connect_fields(index, connection))
            model = golden[index]
            packet = next_packet(rng, model)
            fault = Fault.NONE if step % 10 else list(Fault)[step // 10 % len(Fault)]
            fields = received(model, index, packet, fault=fault)
            counted.update([DROPPED[fault]] if fault else [])
            before = model._expected
            address = packet.address if model._open is None else model._open.address
            answer = None if fault else model.receive(packet)
            taken = model._expected != before
            await bench.put(ctx, dut.i, fields)
            await ctx.tick().repeat(30)
            orders = [(o.keep, o.address if o.keep else 0, o.size, o.lane) for _, o in bench.log["store"]]
            wanted = [(1, address, fields["size"], fields["lane"])] if taken else []
            if not taken and fields["words"]:
                wanted = [(0, 0, fields["words"] * SIZE, 0)]
            assert orders == wanted, (seed, step)
            said = [(h.peer.queue_pair, h.opcode, h.psn, h.syndrome, h.msn) for _, h in bench.log["answer"]]
            model_says = answer and (answer.queue_pair, answer.opcode, answer.psn, answer.syndrome, answer.msn)
            assert said == ([model_says] if answer else []), (seed, step)
            arrivals = [(a.index, a.immediate, a.length) for _, a in bench.log["arrival"]]
            expected = [(a.queue_pair, a.immediate, a.length) for a in model.arrivals[arrived[index] :]]
            assert arrivals == expected, (seed, step)
            arrived[index] = len(model.arrivals)
            assert ctx.get(dut.enabled) >> index & 1 == (not model.failed)
            seen.add(answer and answer.syndrome)
            for log in bench.log.values():
                log.clear()

    async def count(ctx):
        """The pulses that say why packets were dropped."""
        while True:
            dropped.update([name for name in DROPPED.values() if ctx.get(getattr(dut.events, name))])
            await ctx.tick()

    bench.run(main, write, count)
    assert len(seen) >= 4, seen
    assert dropped == counted
    assert len(dropped) == 5


def test_a_packet_takes_four_cycles_and_a_newer_answer_replaces_an_older_one():
    dut = Responder(config=CONFIG)
    bench = Bench(dut, ["store"], seed=1)
    model = Golden(0, Connection(5, mtu=256), bytearray(MEMORY), [Region(0, MEMORY, KEY, frozenset([0]))])

    async def main(ctx):
        await bench.put(ctx, dut.connect, connect_fields(0, model.connection))
        await ctx.tick().repeat(3)
        began = bench.cycle + 1
        for psn in range(4):
            packet = RdmaPacket(Opcode.WRITE_ONLY, 0, psn, True, 64 * psn, KEY, 64, payload=bytes(64))
            await bench.put(ctx, dut.i, received(model, 0, packet))
            if psn == 0:
                await cycles_until(ctx, dut.answer.valid)  # what has been chosen is said
                began = bench.cycle + 1
        assert [cycle - began for cycle, _ in bench.log["store"][1:]] == [3, 7, 11]
        await ctx.tick().repeat(5)
        said = []
        ctx.set(dut.answer.ready, 1)
        for _ in range(20):
            if ctx.get(dut.answer.valid):
                said.append(ctx.get(dut.answer.payload).psn)
            await ctx.tick()
        assert said == [0, 3]

    bench.run(main)


@pytest.mark.parametrize("packets", [2, 3])
@pytest.mark.parametrize("mtu", PATH_MTUS)
def test_a_middle_packet_is_refused_where_the_last_one_is_due(mtu, packets):
    """Behind the message's first packet, and behind another one."""
    dut = Responder(config=CONFIG)
    bench = Bench(dut, ["store", "answer"], seed=1)
    model = Golden(0, Connection(5, mtu=mtu), bytearray(MEMORY), [Region(0, MEMORY, KEY, frozenset([0]))])
    opcodes = [Opcode.WRITE_FIRST, *[Opcode.WRITE_MIDDLE] * (packets - 1)]

    async def main(ctx):
        await bench.put(ctx, dut.connect, connect_fields(0, model.connection))
        for psn, opcode in enumerate(opcodes):
            length = packets * mtu if opcode.begins else 0
            packet = RdmaPacket(opcode, 0, psn, False, 0, KEY * opcode.begins, length, payload=bytes(mtu))
            await bench.put(ctx, dut.i, received(model, 0, packet))
            model.receive(packet)
        await ctx.tick().repeat(20)

    bench.run(main)
    assert model.failed
    assert [order.keep for _, order in bench.log["store"]] == [*[1] * (packets - 1), 0]
    assert [answer.syndrome for _, answer in bench.log["answer"]] == [Nak.INVALID_REQUEST.syndrome]


def test_a_connection_is_taken_once_the_payloads_of_the_old_one_are_in_memory():
    dut = Responder(config=CONFIG)
    bench = Bench(dut, ["store", "answer"], seed=1)
    model = Golden(0, Connection(5, mtu=256), bytearray(MEMORY), [Region(0, MEMORY, KEY, frozenset([0]))])

    async def main(ctx):
        await bench.put(ctx, dut.connect, connect_fields(0, model.connection))
        for psn in range(2):
            packet = RdmaPacket(Opcode.WRITE_ONLY, 0, psn, True, 64 * psn, KEY, 64, payload=bytes(64))
            await bench.put(ctx, dut.i, received(model, 0, packet))
        ctx.set(dut.connect.payload, connect_fields(0, model.connection, enable=0))
        ctx.set(dut.connect.valid, 1)
        for stored in range(2):
            for _ in range(30):
                assert not ctx.get(dut.connect.ready), stored
                await ctx.tick()
            ctx.set(dut.stored, 1)
            await ctx.tick()
            ctx.set(dut.stored, 0)
        await cycles_until(ctx, dut.connect.ready)
        await ctx.tick()
        assert not ctx.get(dut.enabled)

    bench.run(main)


def test_a_reset_ends_all_queue_pairs_although_their_rows_are_memory():
    dut, reset, top = Responder(config=CONFIG), Signal(), Module()
    top.submodules.dut = ResetInserter(reset)(dut)
    model = Golden(0, Connection(5, mtu=256), bytearray(MEMORY), [Region(0, MEMORY, KEY, frozenset([0]))])
    packet = RdmaPacket(Opcode.WRITE_ONLY, 0, 0, True, 0, KEY, 64, payload=bytes(64))
    kept = []

    async def take(ctx, port, payload):
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        (keep,) = await ctx.tick().sample(dut.store.payload.keep).until(port.ready)
        ctx.set(port.valid, 0)
        kept.append(keep)

    async def main(ctx):
        ctx.set(dut.store.ready, 1)
        await take(ctx, dut.connect, connect_fields(0, model.connection))
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await take(ctx, dut.i, received(model, 0, packet))
        assert not kept[-1], "a packet is taken for a queue pair that has not been connected since the reset"
        await take(ctx, dut.connect, connect_fields(0, model.connection))
        await take(ctx, dut.i, received(model, 0, packet))
        assert kept[-1]

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(main)
    simulator.run()
