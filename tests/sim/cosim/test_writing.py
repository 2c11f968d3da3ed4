"""Memories that are written, and links whose rate holds a MAC: with a node that copies and sends."""

import functools

import numpy as np
import pytest

from fanin.hbm import HBM2
from fanin.link import LinkConfig
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, RunRequest
from fanin.sim.cosim.simulator import Group, SimulationFailed, Simulator
from fanin.sim.switch.forward import Forwarder
from tests.sim.cosim.copy_node import REGISTERS, WIDTH, CopyNode, mac

pytestmark = pytest.mark.verilator

NODES = 2
SIZE = 1 << 14
WORD = WIDTH // 8
OVERHEAD = 24  # bytes of preamble, FCS and gap
at = REGISTERS.offset


@pytest.fixture(scope="module")
def simulator():
    return Simulator([Group(CopyNode(), NODES)], quiet=True)


@pytest.fixture
def before():
    return np.random.default_rng(4).integers(0, 256, (NODES, SIZE), dtype=np.uint8)


def program(node, *, copy=(0, 0, 0), strobe=0xFFFF_FFFF, frames=0, beats=1, last_bytes=WORD, pause=0):
    source, target, words = copy
    values = {
        "source": source, "target": target, "beats": words, "strobe": strobe, "frames": frames,
        "frame_beats": beats, "last_bytes": last_bytes, "pause": pause, "destination": mac(1 - node),
    }  # fmt: skip
    written = HostProgram()
    for name, value in values.items():
        written.write(at(name), value)
    return written.write(at("control"), 3).poll(at("status"), 0, 1).read(at("status")).read(at("received"))


def later(name):
    """Read a register when all frames have arrived."""
    program = HostProgram()
    for _ in range(300):
        program.read(at(name))
    return program


@pytest.fixture
def run(simulator, before, tmp_path):
    def go(changes=({}, {}), **request):
        paths = [tmp_path / f"memory{node}" for node in range(NODES)]
        for path, content in zip(paths, before, strict=True):
            content.tofile(path)
        fields = {
            "nodes": NODES,
            "period_ps": 4000,
            "memories": [[path] for path in paths],
            "phases": [
                Phase("run", [program(node, **change) for node, change in enumerate(changes)]),
                Phase("read", [later("received") for _ in range(NODES)]),
            ],
            "switch": functools.partial(Forwarder.of, [mac(node) for node in range(NODES)]),
            "jobs": [],
            "link": LinkConfig(delay_ns=0, gbps=float("inf")),
            "switch_ns": 0.0,
            "seed": 1,
            "watchdog": 5000,
        }
        result = simulator.run(RunRequest(**fields | request))
        return result, [np.fromfile(path, dtype=np.uint8) for path in paths]

    return go


def test_what_is_written_is_in_the_file_and_nothing_else_has_changed(run, before):
    result, after = run([{"copy": (0x20, 0x1FE0, 100)}, {"copy": (0, 0x3FE0, 1)}])
    expected = before.copy()
    expected[0, 0x1FE0 : 0x1FE0 + 100 * WORD] = before[0, 0x20 : 0x20 + 100 * WORD]
    expected[1, 0x3FE0:0x4000] = before[1, :WORD]
    assert np.array_equal(after, expected)
    assert result.bytes_read == result.bytes_written == [[100 * WORD], [WORD]]
    assert [int(reads[0]) for reads in result.phases[0].reads] == [0, 0]


def test_strobes_choose_bytes(run, before):
    strobe = 0x8000_F00D
    _, after = run([{"copy": (0, 0x1000, 8), "strobe": strobe}, {}])
    chosen = np.tile([strobe >> byte & 1 for byte in range(WORD)], 8).astype(bool)
    window = slice(0x1000, 0x1000 + 8 * WORD)
    assert np.array_equal(after[0][window], np.where(chosen, before[0, : 8 * WORD], before[0, window]))


def test_a_word_is_written_each_cycle(run):
    few, _ = run([{"copy": (0, 0x2000, 16)}, {}])
    many, _ = run([{"copy": (0, 0x2000, 256)}, {}])
    more = (many.phases[0].end - many.phases[0].start) - (few.phases[0].end - few.phases[0].start)
    assert abs(more - 240) <= 4  # the host looks every 4 cycles


def test_a_write_beyond_the_memory_names_node_port_and_address(run):
    with pytest.raises(
        SimulationFailed, match=f"node 1, memory port 0: write at {SIZE} beyond its {SIZE} bytes"
    ):
        run([{}, {"copy": (0, SIZE - WORD, 2)}])
    run([{}, {"copy": (0, SIZE - WORD, 2), "strobe": 0}])  # nothing is written there


def busy(result, node):
    """Cycles in which a node's link was occupied, and all from its first to its last."""
    begin, end = result.occupied[node].astype(np.int64).T
    return int((end - begin).sum()), int(end[-1] - begin[0])


@pytest.mark.parametrize("shapes", [((1, 32), (40, 32)), ((1, 14), (3, 1))], ids=["long", "padded"])
@pytest.mark.parametrize("rate", [20.3, 31.9])
def test_a_link_at_its_rate_is_busy_as_long_as_its_frames_take(run, rate, shapes):
    """Frames offered without a pause: the time is that of the bytes, whatever the fractions of a cycle."""
    frames = 25
    sent = [{"frames": frames, "beats": beats, "last_bytes": last_bytes} for beats, last_bytes in shapes]
    result, _ = run(sent, mac_bytes_per_cycle=rate)
    for node, (beats, last_bytes) in enumerate(shapes):
        size = max((beats - 1) * WORD + last_bytes, 60) + OVERHEAD
        occupied, all_of_it = busy(result, node)
        assert occupied == all_of_it  # no cycle between
        assert 0 <= occupied - max(size / rate, beats) * frames < 1  # beats: the node is the slower one
    assert [int(reads[-1]) for reads in result.phases[1].reads] == [frames] * NODES


def test_frames_of_another_protocol_are_carried_and_counted_as_such(run):
    result, _ = run([{"frames": 7, "beats": 2}, {}])
    assert result.frames == {"other": 7}
    assert result.switch["forwarded"] == result.links[1]["down"]["frames"] == 7
    assert result.watched is None
    assert busy(result, 0) == (14, 14)  # without a rate one follows the other
    assert result.occupied[1].size == 0


def test_cycles_in_which_no_frame_is_offered_are_idle(run):
    frames, beats, pause = 10, 4, 30
    result, _ = run([{"frames": frames, "beats": beats, "pause": pause}, {}], mac_bytes_per_cycle=16)
    intervals = np.diff(result.occupied[0].astype(np.int64), axis=1)
    cycles = -(-(beats * WORD + OVERHEAD) // 16)  # 10: the pause, from the last beat on, is longer
    assert intervals.tolist() == [[cycles]] * frames
    begin = result.occupied[0][:, 0].astype(np.int64)
    assert set(np.diff(begin)) == {beats + pause}


@pytest.mark.parametrize("port", ["mac", "memory"])
@pytest.mark.parametrize("rate", [-1.0, 1e6, float("nan")])
def test_a_rate_without_sense_is_refused(run, port, rate):
    with pytest.raises(ValueError, match=f"{port}_bytes_per_cycle must be 0 to 1024"):
        run(**{f"{port}_bytes_per_cycle": rate})


def test_memories_that_are_written_are_not_in_hbm(run):
    with pytest.raises(ValueError, match="hbm must be None for nodes that write their memories"):
        run(hbm=HBM2)
