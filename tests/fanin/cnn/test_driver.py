# amaranth: UnusedElaboratable=no
"""The driver of a cluster node, and memory as its host sees it."""

import numpy as np
import pytest

from fanin.cnn.driver import CnnDriver, HostMemory, Peer, StreamCounters, timed_batch
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.memory import MemoryMap
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.training import Job
from fanin.cnn.watchdog import MAX_TIMEOUT, MIN_TIMEOUT, watchdog
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.network_port import LINK_COUNTERS
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import (
    Direction,
    Failure,
    Fifo,
    StageFifo,
    StageStream,
    StreamWord,
    cluster_registers,
    network_constants,
    stage_fifos,
    stage_streams,
)
from fanin.host.causes import explain
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned
from fanin.wire.ethernet import Endpoint

MAP = MemoryMap(EXAMPLES["tiny"], frames=5)
REGISTERS = cluster_registers()


def value(batch, name):
    return dict(batch.operations)[REGISTERS.offset(name)]


def bits(number):
    return int(np.float32(number).view(np.uint32))


def command(*names):
    """The bits of commands."""
    fields = [field.name for field in REGISTERS["control"].parts]
    return sum(1 << fields.index(name) for name in names)


def test_a_job_is_written_before_it_begins():
    batch = CnnDriver(MAP).train(Job.of(5, 3, 0.3, 0.9))
    assert [value(batch, name) for name in ("mode", "frames", "batch")] == [1, 5, 3]
    assert value(batch, "eta") == bits(-0.3 / 3)
    assert value(batch, "last_eta") == bits(-0.3 / 2)
    assert value(batch, "momentum") == bits(0.9)
    assert [value(batch, name) for name in ("timed_first", "timed_last")] == [0, 2]
    assert batch.operations[-1] == (REGISTERS.offset("control"), command("start", "clear_counters"))


def test_each_connection_is_told_who_is_at_its_other_end():
    part = PlacedNetwork(EXAMPLES["tiny"], tuple("aaaabbaaaa")).parts[1]
    driver = CnnDriver(MemoryMap(part.network, frames=5, rings=part.rings))
    own, peers = Endpoint(0xA, 1), [Peer(0, Endpoint(0xB, 2), 3), Peer(1, Endpoint(0xC, 4))]
    batch = driver.connect(own, peers, run=7, link_timeout=900)
    assert [value(batch, name) for name in ("run", "own_mac", "own_ip", "link_timeout")] == [7, 0xA, 1, 900]
    place, control = REGISTERS.offset("connection"), REGISTERS.offset("control")
    macs = [
        operation.data for operation in batch.operations if operation.address == REGISTERS.offset("peer_mac")
    ]
    settings = [operation.data for operation in batch.operations if operation.address == place]
    commands = [operation.data for operation in batch.operations if operation.address == control]
    assert macs == [0xB, 0xC]
    assert settings == [0 | 0 << 6 | 3 << 14, 1 | 1 << 6 | 0 << 14]
    assert commands == [command("set_peer")] * 2 + [command("start_links")]
    with pytest.raises(ValueError, match="there must be 2 peers, one for each connection, not 1"):
        driver.connect(own, peers[:1], run=7)
    reads = [words for _ in LINK_COUNTERS for words in ((1, 2, 1))]
    counters = driver.links_of([*reads, 3, *reads, 4])
    assert [one["received"] for one in counters] == [1 << 32 | 2] * 2
    assert [one["failure"] for one in counters] == [3, 4]


@pytest.mark.parametrize(
    ("words", "count"),
    [((1, 5, 1), 1 << 32 | 5), ((1, 5, 2), 2 << 32 | 5), ((1, 0xFFFF_FFF0, 2), 1 << 32 | 0xFFFF_FFF0)],
)
def test_a_counter_that_runs_is_read_of_one_moment(words, count):
    """Its high word, its low word, its high word again: a carry may come between any two."""
    part = PlacedNetwork(EXAMPLES["tiny"], tuple("aaaabbaaaa")).parts[1]
    driver = CnnDriver(MemoryMap(part.network, frames=5, rings=part.rings))
    reads = [*words * len(LINK_COUNTERS), 0]
    assert {one["sent"] for one in driver.links_of(reads * 2)} == {count}
    numbers = [operation.data & 0x1F for operation in driver.links().operations if operation.data is not None]
    assert numbers[:4] == [16, 0, 16, 17]


def test_a_node_without_connections_has_nothing_to_connect():
    assert CnnDriver(MAP).connect(Endpoint(1, 1), [], run=1).operations == []


@pytest.mark.parametrize(("name", "mode"), [("load", Mode.LOAD), ("dump", Mode.DUMP)])
def test_moving_parameters_needs_nothing_else(name, mode):
    batch = getattr(CnnDriver(MAP), name)()
    assert value(batch, "mode") == mode.value
    assert len(batch.operations) == 2


def test_places_are_those_of_the_memory_map():
    batch = CnnDriver(MAP).configure(timeout=77)
    for name in ("parameters", "images", "labels", "results"):
        assert value(batch, name) == MAP.region(name).address
    assert value(batch, "timeout") == 77


@pytest.mark.parametrize("frames", [0, 6])
def test_frames_that_memory_has_no_places_for_are_refused(frames):
    with pytest.raises(ValueError, match=f"frames must be 1 to 5, not {frames}"):
        CnnDriver(MAP).evaluate(frames)


def test_a_node_of_another_network_is_refused():
    driver, other = CnnDriver(MAP), CnnDriver(MemoryMap(EXAMPLES["residual"], frames=5))
    constants = network_constants(MAP.network)
    reads = [
        REGISTERS[name].pack({field.name: constants[field.name] for field in REGISTERS[name].parts})
        for name in ("id", "version", "shape", "digest_high", "digest_low")
    ]
    driver.check_identity(driver.identify().results(reads))
    with pytest.raises(ValueError, match="the node's stages must be 14, not 10"):
        other.check_identity(other.identify().results(reads))


def test_a_watchdog_is_as_long_as_the_network_needs():
    """MobileNetV2's last layer updates 1,280,000 parameters, one a cycle: more than 2^20 cycles."""
    mobile = unplanned(load_model("mobilenet_v2"))
    longest = max(stage.layer.parameters for stage in mobile.stages)
    assert longest > MIN_TIMEOUT
    assert 2 * longest < watchdog([mobile]) < MAX_TIMEOUT
    assert watchdog([MAP.network]) == MIN_TIMEOUT
    assert value(CnnDriver(MAP).configure(), "timeout") == MIN_TIMEOUT
    assert watchdog([mobile] * 8) == MAX_TIMEOUT  # devices wait for one another
    driver = CnnDriver(MemoryMap(mobile, frames=1))
    assert value(driver.configure(), "timeout") == watchdog([mobile])
    assert ClusterNode(network=MAP.network).register_map["timeout"].reset == MIN_TIMEOUT


DRIVER = CnnDriver(MAP)


def status(**fields):
    return DRIVER.status_of([REGISTERS["status"].unpack(REGISTERS["status"].pack(fields))])


def test_a_status_says_who_waits():
    assert status(running=1).running
    assert status(nonfinite=1).nonfinite
    assert status(cause=2).cause is Failure.NONE  # not failed
    failed = status(failed=1, cause=1, waits=1, waiting_stream=5)
    assert (failed.cause, failed.waiting_stream) == (Failure.TIMEOUT, StageStream(4, Direction.FORWARD))
    assert DRIVER.explain(failed) == (
        "TIMEOUT: what relu gives forward is not taken; "
        "look at the memory and the neighbours, or give a longer timeout, then reset the node"
    )
    assert DRIVER.explain(status(failed=1, cause=2)) == explain(Failure.MEMORY)
    assert status(failed=1, cause=2, waits=1).waiting_stream is None  # of a job before


def test_a_status_says_what_helps():
    helpless = {Failure.TIMEOUT, Failure.MEMORY, Failure.LINK}
    for cause in Failure:
        found = status(failed=cause is not Failure.NONE, cause=cause)
        assert found.needs_reset == (cause in helpless)
        assert cause in (Failure.NONE, Failure.LINK) or DRIVER.explain(found).startswith(f"{cause.name}: ")
    assert value(DRIVER.reset(), "control") == command("reset")
    assert status(resetting=1).resetting
    assert DRIVER.explain(status(refused=1)) == "REFUSED: the node was not idle when the job was to begin"
    assert status(links_refused=1).links_refused


def read_streams(changes):
    """All counters, each its number, and nothing that is not finite, but for ``changes``."""
    count = len(stage_streams(MAP.network))
    words = [
        0 if word is StreamWord.NONFINITE else 16 * number + word
        for number in range(count)
        for word in StreamWord
    ]
    for number, frame in changes.items():
        words[len(StreamWord) * number + StreamWord.NONFINITE] = 1 << 31 | frame
    return DRIVER.streams_of(DRIVER.streams().results(words))


def test_counters_of_streams_are_put_together():
    relu = read_streams({5: 9})[5]
    assert relu == StreamCounters(
        StageStream(4, Direction.FORWARD),
        80 | 81 << 32,
        82 | 83 << 32,
        84 | 85 << 32,
        frames=86,
        nonfinite=9,
        first=88,
        last=89,
        updated=90,
    )
    writes = [data for _, data in DRIVER.streams().operations if data is not None]
    assert writes[len(StreamWord) * 5 + 3] == 5 << 4 | 3


@pytest.mark.parametrize(("frames", "batch", "timed"), [(96, 32, range(32)), (5, 8, range(5))])
def test_the_first_batch_is_timed(frames, batch, timed):
    assert timed_batch(Job.of(frames, batch, 0.1, 0.9)) == timed


def test_levels_are_those_of_the_fifos():
    network = EXAMPLES["residual"]
    driver = CnnDriver(MemoryMap(network, frames=5))
    fifos = stage_fifos(network)
    found = driver.fifos_of(driver.fifos().results(range(100, 100 + len(fifos))))
    assert list(found) == list(fifos)
    assert found[StageFifo(Fifo.FORWARD, 7, 1)] == 106
    kinds = [fifo.kind for fifo in fifos if fifo.kind in (Fifo.FORWARD, Fifo.BACKWARD)]
    norm1, fork, norm2 = [Fifo.FORWARD, Fifo.BACKWARD], [Fifo.BACKWARD], [Fifo.FORWARD]
    join = [Fifo.FORWARD, Fifo.BACKWARD]
    assert kinds == norm1 + fork + norm2 + 2 * join  # no labels


@pytest.mark.parametrize(
    ("nonfinite", "first"),
    [
        ({}, None),
        ({5: 3, 4: 2}, (3, Direction.BACKWARD)),  # an earlier frame
        ({6: 2, 5: 2}, (4, Direction.FORWARD)),  # forward before backward
        ({5: 2, 3: 2}, (3, Direction.FORWARD)),  # nearer to the images
        ({6: 2, 4: 2}, (4, Direction.BACKWARD)),  # nearer to the loss
        ({0: 0}, (0, Direction.FORWARD)),
    ],
)
def test_the_first_place_that_is_not_finite_is_found(nonfinite, first):
    found = DRIVER.first_nonfinite(read_streams(nonfinite))
    assert (found and (found.stream.stage, found.stream.direction)) == first


def test_memory_holds_what_the_host_wrote():
    content = np.full(MAP.end, 0xAA, np.uint8)
    memory = HostMemory(MAP, content)
    rng = np.random.default_rng(1)
    states = [rng.integers(0, 1 << 32, words, np.uint32) for words in MAP.store.sections]
    images, labels = rng.random((5, 6, 6, 2), np.float32), rng.random((5, 3), np.float32)
    memory.write_parameters(states)
    memory.write_frames(images, labels)
    assert all(map(np.array_equal, memory.read_parameters(), states))
    second = MAP.region("images").address + 320
    assert np.array_equal(content[second : second + 288].view("<f4"), images[1].ravel())
    region = MAP.region("results")
    content[region.address : region.end].view("<u4")[16:19] = [1, 2, 3]
    assert memory.read_results(2)[1].view(np.uint32).tolist() == [1, 2, 3]


def test_more_frames_than_fit_are_refused():
    memory = HostMemory(MAP, np.zeros(MAP.end, np.uint8))
    with pytest.raises(ValueError, match="at most 5 images"):
        memory.write_frames(np.zeros((6, 72), np.float32), np.zeros((6, 3), np.float32))
    with pytest.raises(ValueError, match=f"at least {MAP.end} bytes, not 3"):
        HostMemory(MAP, np.zeros(3, np.uint8))
