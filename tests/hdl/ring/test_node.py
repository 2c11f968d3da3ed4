# amaranth: UnusedElaboratable=no
"""Whole rings of small nodes against the golden model: memories, links, registers and hosts included."""

from dataclasses import replace

import pytest

from fanin.codec.facts import Bf16, Bfp, Codec, Fp16, Inceptionn, Mx
from fanin.codec.formats import Element, Rounding
from fanin.hdl.emit import flat_ports
from fanin.hdl.ring.node import RingNode
from fanin.hdl.ring.registers import IDENTITY, VERSION, Failure
from fanin.ring.driver import RingDriver, RingMember
from fanin.ring.facts import RingConfig
from fanin.wire.link import LinkKind
from fanin.wire.ring import RING_LINK
from tests.hdl.ring.bench import BYTES, Ring, mac_of, vectors
from tests.support import new_seed

SMALL = RingConfig(lanes=8, frame_words=2, slice_frames=2, buffer_frames=4, replay_frames=2)
WORD_BYTES = SMALL.width // 8


def header(frame):
    return RING_LINK.read_header(frame)


def ring(counts, nodes, *, config=SMALL, **options):
    seed = new_seed()
    return Ring(config, nodes, vectors(counts, nodes, config, seed), seed, **options)


@pytest.mark.slow
def test_three_nodes_reduce_what_they_can_refuse_what_they_cannot_and_survive_a_lost_frame():
    """Three good descriptors among four bad ones; one DATA frame does not arrive."""
    lost = []

    def lose(sender, frame):
        if sender == 1 and header(frame)["kind"] == LinkKind.DATA and len(lost) < 1:
            lost.append(frame)
            return True
        return False

    async def script(run):
        await run.start()
        good = [(v.address, v.count) for v in run.vectors]
        bad = [(0x20, 0), (0x24, 1), (BYTES, 1), (BYTES - WORD_BYTES, SMALL.lanes + 1)]
        await run.post([good[0], *bad[:2], good[1], *bad[2:], good[2]])
        await run.wait()
        await run.count()

    run = ring([61, 1, 11], 3, lose=lose, script=script).run()
    for status, counters in zip(run.status, run.counters, strict=True):
        assert not status.failed
        assert (status.posted, status.completed, status.refused) == (3, 3, 4)
        assert counters["stored"] == sum(SMALL.words(vector.count) for vector in run.vectors)
        assert counters["bad_fcs"] == counters["foreign"] == 0
    assert len(lost) == 1
    assert run.counters[1]["retransmitted"] >= 1
    run.check()


@pytest.mark.slow
def test_a_command_shows_as_busy_in_the_very_next_read_and_until_it_is_carried_out():
    seen = []

    async def script(run):
        driver, bus = run.drivers[1], run.buses[1]
        await run.start()
        for command in None, "stop":
            if command:
                await bus.run(driver.command(command))
            while not (status := driver.status_of(await bus.run(driver.wait()))).finished:
                seen.append((command, status.running))
            seen.append((command, status.running))

    ring([1], 2, stall=0.0, script=script).run()
    assert [*dict.fromkeys(seen)] == [(None, False), (None, True), ("stop", False)]
    assert seen.count(("stop", False)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("codec", [None, Inceptionn(), Bfp(), Bfp(4, 7, 5, 8)], ids=str)
def test_four_nodes_end_with_the_sum_and_nothing_else_changes(codec):
    config = replace(SMALL, codec=codec)
    whole = config.lanes * config.slice_words * 4
    run = ring([2 * whole + 5, 1, 8 * 4 + 3], 4, config=config).run()
    assert [status.failed for status in run.status] == [False] * 4
    run.check()


@pytest.mark.slow
def test_a_seed_of_0_of_stochastic_rounding_ends_the_job_before_it_begins():
    config = replace(SMALL, codec=Fp16(Rounding.STOCHASTIC))

    async def script(run):
        await run.start()
        driver, bus = run.drivers[0], run.buses[0]
        await bus.run(driver.batch().write("rounding_seed", 0))
        await bus.run(driver.start())
        while not (status := driver.status_of(await bus.run(driver.wait()))).finished:
            pass
        run.status = [status]

    run = ring([9], 2, stall=0.0, config=config, script=script, halts=True).run()
    assert (run.status[0].failed, run.status[0].cause) == (True, Failure.SETTINGS)


MACS = [mac_of(n) for n in range(3)]
OPINIONS = {
    "nodes": {"members": {1: {"macs": MACS}}},
    "codec": {"configs": {1: replace(SMALL, codec=Inceptionn())}},
    "tensor": {"configs": {1: replace(SMALL, codec=Bf16(), tensor=Bf16()), 0: replace(SMALL, codec=Bf16())}},
    "exponent": {"configs": {n: replace(SMALL, codec=Bfp(exponent=bits)) for n, bits in enumerate((8, 5))}},
    "count": {"counts": {1: -1}},
}


@pytest.mark.slow
@pytest.mark.parametrize("about", OPINIONS)
def test_nodes_that_do_not_agree_end_with_a_mismatch_and_none_hangs(about):
    opinion = dict(OPINIONS[about])
    counts = opinion.pop("counts", {})

    async def script(run):
        await run.start()
        (vector,) = run.vectors
        for node, (driver, bus) in enumerate(zip(run.drivers, run.buses, strict=True)):
            await bus.run(driver.post(vector.address, vector.count + counts.get(node, 0)))
        await run.wait()

    run = ring([40], 2, stall=0.0, timeout=100, retries=3, script=script, halts=True, **opinion).run()
    causes = {status.cause for status in run.status}
    assert causes in ({Failure.MISMATCH}, {Failure.MISMATCH, Failure.TIMEOUT})
    assert not any(status.running or status.completed for status in run.status)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_memory_error_ends_the_job_on_all_nodes_and_the_next_one_is_good(kind):
    async def script(run):
        errors = getattr(run.memories[0], f"{kind}_errors")
        errors.add(run.vectors[0].address + WORD_BYTES)
        await run.start()
        await run.post()
        await run.wait()
        assert run.status[0].cause is Failure.MEMORY
        assert run.status[1].cause is Failure.TIMEOUT or run.status[1].completed == 1  # it had all sums by then
        errors.clear()
        for node, memory in enumerate(run.memories):
            memory.fill(node, run.vectors)
        await run.start(job=2)
        await run.post()
        await run.wait()

    run = ring([9 * SMALL.lanes], 2, timeout=100, retries=3, script=script, halts=True).run()
    assert not any(status.failed for status in run.status)
    assert [status.completed for status in run.status] == [1, 1]
    run.check()


@pytest.mark.slow
def test_a_wrong_bit_that_no_check_of_frames_sees_ends_the_job():
    """A bit changes in complete sums of node 0: nodes 1 and 2 store them so, node 0 does not."""
    changed = []

    def change(sender, frame):
        fields = header(frame)
        if sender == 0 and fields["kind"] == LinkKind.DATA and fields["complete"] and not changed:
            changed.append(frame)
            return frame[:60] + bytes([frame[60] ^ 0x10]) + frame[61:]
        return frame

    async def script(run):
        await run.start()
        await run.post()
        for node in 0, 2:
            driver, bus = run.drivers[node], run.buses[node]
            while not driver.status_of(await bus.run(driver.wait())).failed:
                pass
        await run.wait()
        run.findings = [
            driver.findings_of(await bus.run(driver.findings()))
            for driver, bus in zip(run.drivers, run.buses, strict=True)
        ]

    run = ring([61], 3, stall=0.0, timeout=300, retries=3, script=script, halts=True, change=change).run()
    assert [status.cause for status in run.status] == [Failure.MISMATCH, Failure.NONE, Failure.MISMATCH]
    assert [found.differs for found in run.findings] == [("totals",), (), ("totals",)]


@pytest.mark.slow
def test_every_descriptor_of_a_clean_job_is_compared():
    """The last answer comes when the next node has stored its last word: the counter is read until then."""

    async def script(run):
        await run.start()
        await run.post()
        await run.wait()
        while min([c["agreed"] for c in run.counters] or [0]) < len(run.vectors):
            await run.count()

    run = ring([61, 1, 11, 40], 2, script=script).run()
    run.check()
    assert all(counters["agreed"] >= 4 for counters in run.counters)
    assert not any(status.failed for status in run.status)


def test_ports_are_those_of_one_memory_one_mac_and_one_register_file():
    names = {port.name for port in flat_ports(RingNode(config=SMALL))}
    channels = {"araddr", "arlen", "rdata", "rlast", "awaddr", "awlen", "wdata", "wstrb", "bresp", "bready"}
    assert {f"memory_{name}" for name in channels} < names
    assert {"mac_tx_tdata", "mac_rx_tuser", "axil_awaddr"} < names


NO_BLOCKS = {"block": 0, "mantissa": 0, "exponent": 0, "offset": 0, "codec_kind": 0, "element": 0}
NO_BLOCKS |= {"tensor": 0}


def test_the_driver_refuses_a_node_that_is_made_otherwise():
    driver = RingDriver(SMALL)
    good = [IDENTITY, VERSION, {"lanes": 8, "frame_words": 2, "slice_frames": 2, "queue": 8}]
    driver.check_identity([*good, NO_BLOCKS])
    for name, value in {"lanes": 16, "frame_words": 3, "slice_frames": 1}.items():
        with pytest.raises(ValueError, match=f"the node's {name} must be"):
            driver.check_identity([*good[:2], good[2] | {name: value}, NO_BLOCKS])
    with pytest.raises(ValueError, match="the node's tensor must be"):
        driver.check_identity([*good, NO_BLOCKS | {"tensor": 1}])
    with pytest.raises(ValueError, match="the node's id must be"):
        driver.check_identity([IDENTITY + 1, *good[1:], NO_BLOCKS])


@pytest.mark.parametrize(
    ("codec", "name", "value"),
    [
        (Bfp(16, 7, 4, 7), "block", 8),
        (Bfp(16, 7, 4, 7), "mantissa", 6),
        (Bfp(16, 7, 4, 7), "exponent", 8),
        (Bfp(16, 7, 4, 7), "offset", 0),
        (Bfp(16, 7, 4, 7), "codec_kind", 0),
        (Mx(Element.E2M1, 16), "element", 0),
        (Mx(Element.E2M1, 16), "block", 32),
        (Bf16(), "codec_kind", 5),
    ],
    ids=str,
)
def test_the_driver_refuses_a_node_of_another_codec(codec, name, value):
    driver = RingDriver(replace(SMALL, codec=codec))
    good = [IDENTITY, VERSION, {"lanes": 8, "frame_words": 2, "slice_frames": 2, "queue": 8}]
    own = {
        Codec.BFP: {"block": 16, "mantissa": 7, "exponent": 4, "offset": 7, "codec_kind": 2},
        Codec.MX: {"block": 16, "codec_kind": 3, "element": 4},
        Codec.BF16: {"codec_kind": 4},
    }
    blocks = NO_BLOCKS | own[codec.kind]
    driver.check_identity([*good, blocks])
    with pytest.raises(ValueError, match=f"the node's {name} must be"):
        driver.check_identity([*good, blocks | {name: value}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"macs": MACS[:1]}, "macs must be those of 2 to 255 nodes, not of 1"),
        ({"rank": 3}, "rank must be 0 to 2, not 3"),
        ({"timeout": 0}, "timeout must be at least 1, not 0"),
        ({"ack_frames": 0}, "ack_frames must be at least 1, not 0"),
    ],
)
def test_a_member_must_have_a_place_in_its_ring(changes, message):
    with pytest.raises(ValueError, match=message):
        RingMember(**{"id": 1, "macs": MACS, "rank": 0} | changes)
