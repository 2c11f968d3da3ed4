"""Shapes and port signatures shared by the parts of the GLM worker."""

from amaranth import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.fixed import MAX_PRECISION
from fanin.glm.facts import MAX_DEPTH, MAX_LANES

WEIGHT = signed(32)
LOW_BITS = 24  # low bits of every operand in a SplitSum

_WORDS_LOG2 = (MAX_DEPTH * MAX_PRECISION - 1).bit_length()


class SplitSum(data.Struct):
    """Exact sum in two halves, which keeps carry chains short: value = high · 2^24 + low.

    ``low`` sums the low 24 bits of the operands, of which each word adds two; ``high`` sums each operand >> 24,
    an arithmetic shift. The widths are enough for 4096 chunks of 64 lanes and 8 planes, for any weights.
    """

    low: unsigned(LOW_BITS + 1 + _WORDS_LOG2)
    high: signed(27)


class EngineShape(data.Struct):
    """Loop counts of an engine; constant from 4 cycles before ``start``.

    All counts are at least 1. The end of an epoch also ends a mini-batch.

    - ``chunks``: chunks of a sample, C.
    - ``planes``: bits of a feature, s.
    - ``mini_batch``: micro-batches of a full mini-batch, B/8.
    - ``epoch``: micro-batches of an epoch, ceil(S/8).
    """

    chunks: 16
    planes: 4
    mini_batch: 24
    epoch: 32


class EngineEvents(data.Struct):
    """Events of an engine in the previous cycle, one bit each.

    - ``forward_first``, ``forward_last``: forward accepted the first or last word of a micro-batch.
    - ``backward_first``, ``backward_last``: backward took the first or last word of a micro-batch from the
      replay FIFO.
    - ``model_wait``: no word accepted; the previous mini-batch had not yet written the chunk.
    - ``fifo_full``: no word accepted; the replay FIFO was full.
    - ``pa_full``: no word accepted; the PA queue was full.
    - ``no_word``: no word accepted; none was offered.
    - ``backward_idle``: backward took no word, because it had no scale.

    If forward accepted no word, exactly one of the four causes is high. All bits are 0 before the first
    ``start``. In the cycle after a ``start`` forward only reads its credits, and no cause is high.
    """

    forward_first: 1
    forward_last: 1
    backward_first: 1
    backward_last: 1
    model_wait: 1
    fifo_full: 1
    pa_full: 1
    no_word: 1
    backward_idle: 1


class ActivationSignature(wiring.Signature):
    """PA port of an engine, seen from the engine; credits replace back-pressure.

    **Members**

    - ``payload``: Out, ``ArrayLayout(SplitSum, banks)``; a PA.
    - ``valid``: Out(1); the PA must be taken in this cycle.
    - ``taken``: In(1); a pulse for each PA that has left the queue after the engine.

    The queue of the receiver holds ``QUEUE`` PAs, and the engine has at most that many in flight. No engine's
    handshake therefore depends on another engine's, nor any output of the engine on an input in the same cycle.
    """

    QUEUE = 16  # micro-batches; a credit returns after 12 cycles, through the pipeline and back

    def __init__(self, *, banks: int):
        super().__init__(
            {
                "payload": Out(data.ArrayLayout(SplitSum, banks)),
                "valid": Out(1),
                "taken": In(1),
            }
        )


class ModelPortSignature(wiring.Signature):
    """Host port of one engine's model, seen from the host; used only while the engine is not busy.

    One access a cycle.

    **Members**

    - ``chunk``, ``lane``: Out; address of a weight.
    - ``read``: Out(1); request a read.
    - ``read_data``: In(signed(32)); the weight in the architectural memory, ``READ_LATENCY`` cycles after its
      request.
    - ``write``: Out(1); write ``write_data`` to both memories.
    - ``write_data``: Out(signed(32)); the new weight.
    """

    READ_LATENCY = 4  # memory, its output register, two steps of the lane multiplexer

    def __init__(self, *, depth: int, lanes: int):
        super().__init__(
            {
                "chunk": Out(range(depth)),
                "lane": Out(range(lanes)),
                "read": Out(1),
                "read_data": In(WEIGHT),
                "write": Out(1),
                "write_data": Out(WEIGHT),
            }
        )


def check_engine(*, lanes: int, banks: int, depth: int = 1, fifo_depth: int = 1) -> None:
    """Raise ValueError unless an engine of these parameters can be built."""
    if lanes not in range(2, MAX_LANES + 1) or lanes & (lanes - 1):
        raise ValueError(f"lanes must be a power of two from 2 to {MAX_LANES}, not {lanes!r}")
    if banks < 2 or banks % 2:
        raise ValueError(f"banks must be even and at least 2, not {banks!r}")
    if depth not in range(1, MAX_DEPTH + 1):
        raise ValueError(f"depth must be from 1 to {MAX_DEPTH} chunks, not {depth!r}")
    if fifo_depth < 1:
        raise ValueError(f"fifo_depth must be at least 1 word, not {fifo_depth!r}")
