"""Memory port of a device, and queues of the streams that share it (docs/systems/cluster.md, "Store").

The RTL (hdl/layers/store.py) takes depths and sizes from here.
"""

from __future__ import annotations

from fanin.cnn.layers.family import WORD_BITS, Memory

BEAT_BITS = 512  # bits of a beat of the memory port
BEAT_WORDS = BEAT_BITS // WORD_BITS
BURST = 16  # maximum beats of a burst; bursts end at multiples of BURST
WRITE_DEPTH = 3 * BURST  # beats of a write queue: one burst leaves, one waits, one arrives
DISTRIBUTED_DEPTH = 64  # largest depth of a queue in LUTs (hdl/stream/fifo.py)
_LATENCY = 128  # cycles of read latency up to which a channel streams without a pause if no other one reads


def beat_bits(words: int) -> int:
    """Return the bits of the whole beats that ``words`` words take in memory."""
    return BEAT_BITS * -(-words // BEAT_WORDS)


def read_depth(lanes: int) -> int:
    """Return the beats of a read channel's queue: one burst in use, one arriving, and the bursts in flight.

    ``lanes``: words of a transfer. Bursts in flight are those that the stream uses up in ``_LATENCY`` cycles.
    """
    bursts = -(-_LATENCY * min(lanes, BEAT_WORDS) // (BEAT_WORDS * BURST))
    return (2 + bursts) * BURST


def _queue(depth: int) -> Memory:
    return Memory(width=BEAT_BITS, depth=depth, clocked=depth > DISTRIBUTED_DEPTH)


def read_queue(lanes: int) -> Memory:
    """Return the queue of data from memory for a stream of ``lanes`` words a transfer."""
    return _queue(read_depth(lanes))


WRITE_QUEUE = _queue(WRITE_DEPTH)  #: queue of data to memory, which waits for its burst
