"""The memory port of a device, and queues of streams that share it (docs/systems/cluster.md, "Store")."""

from __future__ import annotations

from fanin.cnn.layers.family import WORD_BITS, Memory

BEAT_BITS = 512  # of the memory port
BEAT_WORDS = BEAT_BITS // WORD_BITS
BURST = 16  # beats at most; bursts end at multiples of it
WRITE_DEPTH = 3 * BURST  # beats: one burst goes, one waits, one comes in
DISTRIBUTED_DEPTH = 64  # of a queue that lies in LUTs, at most (hdl/stream/fifo.py)
_LATENCY = 128  # cycles until a beat is there that one channel alone can wait for without a pause


def beat_bits(words: int) -> int:
    """Bits of the beats that so many words take in memory, from the beginning of one."""
    return BEAT_BITS * -(-words // BEAT_WORDS)


def read_depth(lanes: int) -> int:
    """Beats of a read channel's queue: what comes in while one burst is used, and what is on its way."""
    bursts = -(-_LATENCY * min(lanes, BEAT_WORDS) // (BEAT_WORDS * BURST))
    return (2 + bursts) * BURST


def _queue(depth: int) -> Memory:
    return Memory(width=BEAT_BITS, depth=depth, clocked=depth > DISTRIBUTED_DEPTH)


def read_queue(lanes: int) -> Memory:
    """Where what comes from memory waits for a stream of ``lanes`` words."""
    return _queue(read_depth(lanes))


WRITE_QUEUE = _queue(WRITE_DEPTH)  #: where what goes to memory waits for its burst
