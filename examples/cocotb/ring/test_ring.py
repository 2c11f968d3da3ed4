"""Test of a ring node: sums vectors with a Python peer as the golden model does, also if frames are lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import cocotb
import numpy as np
from bench import Bench
from compare import check_equal
from link import Link

from fanin.golden import fp32
from fanin.hdl.ring.registers import Failure
from fanin.job import worker_endpoint
from fanin.ring.driver import RingDriver, RingMember
from fanin.ring.facts import PRESETS, Slice
from fanin.ring.golden.all_reduce import all_reduce

CONFIG = PRESETS["tiny"]
JOB = 1
NODE_MAC, PEER_MAC = (worker_endpoint(node).mac for node in range(2))
TIMEOUT = 1000  # cycles until the node, and the peer, send again
MEMORY, VECTOR_AT = 1 << 13, 0x400  # bytes
VALUES = 1000


def frames(piece: Slice) -> Iterator[slice]:
    """Return the frames of a slice, each as its values of the vector."""
    size = CONFIG.frame_words
    for start in range(piece.start, piece.start + piece.words, size):
        end = min(start + size, piece.start + piece.words)
        yield slice(start * CONFIG.lanes, end * CONFIG.lanes)


async def peer(link: Link, vector: np.ndarray) -> np.ndarray:
    """Act as node 1 of a ring of two (docs/systems/ring.md, "Arithmetic"). Return the peer's own sum."""
    segments = list(CONFIG.segments(vector.size, 2))
    last = segments[-1][-1]
    values = np.zeros((last.start + last.words) * CONFIG.lanes, np.float32)
    values[: vector.size] = vector
    for others, own in segments:
        for frame in frames(own):
            link.send(values[frame], slice=1, complete=0)
        for frame in frames(others):  # the node's slice ends here: its total goes back
            values[frame] = fp32.add(await link.receive(), values[frame])
            link.send(values[frame], slice=0, complete=1)
        for frame in frames(own):
            values[frame] = await link.receive()
    return values[: vector.size]


async def reduce(dut, loss: float) -> None:
    """Run one all-reduce, and check all results."""
    bench = Bench(dut, RingDriver(CONFIG))
    driver, memory = bench.driver, bench.memory("memory", MEMORY)
    rng = np.random.default_rng(random.getrandbits(32))
    vectors = [rng.normal(0, 1, VALUES).astype(np.float32) for _ in range(2)]
    content = bytearray(random.randbytes(MEMORY))
    content[VECTOR_AT : VECTOR_AT + 4 * VALUES] = vectors[0].tobytes()
    memory.write(0, bytes(content))
    link = Link(
        bench, CONFIG, own=PEER_MAC, peer=NODE_MAC, rank=1, job=JOB, count=VALUES, timeout=TIMEOUT, loss=loss
    )

    await bench.start()
    member = RingMember(id=JOB, macs=[NODE_MAC, PEER_MAC], rank=0, timeout=TIMEOUT, ack_delay=100)
    await bench.run(driver.configure(member), driver.start(), driver.post(VECTOR_AT, VALUES))
    other = cocotb.start_soon(peer(link, vectors[1]))
    while not (status := driver.status_of(await bench.run(driver.wait()))).finished:
        pass

    assert (status.cause, status.completed, status.refused) == (Failure.NONE, 1, 0)
    peer_sum = await other
    expected = all_reduce(vectors, CONFIG)
    content[VECTOR_AT : VECTOR_AT + 4 * VALUES] = expected.tobytes()
    check_equal("the node's memory", bytes(content), bytes(memory.read(0, MEMORY)))
    check_equal("the peer's vector", expected.tobytes(), peer_sum.tobytes())
    assert (link.lost > 0) == (loss > 0)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def two_nodes_have_the_same_sum(dut):
    """Stall memory and streams at random, without losses."""
    await reduce(dut, loss=0.0)


@cocotb.test(timeout_time=500, timeout_unit="us")
async def lost_frames_are_sent_again(dut):
    """Lose one frame in seven, including acknowledgements."""
    await reduce(dut, loss=1 / 7)
