"""Shapes and port signatures that the parts of the GLM worker share."""

from amaranth import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.fixed import MAX_PRECISION
from fanin.glm.facts import MAX_DEPTH, MAX_LANES

WEIGHT = signed(32)
LOW_BITS = 24  # of every operand, in a SplitSum

_WORDS_LOG2 = (MAX_DEPTH * MAX_PRECISION - 1).bit_length()


class SplitSum(data.Struct):
    """An exact sum in two halves, so that no carry chain is wide: value = high · 2^24 + low.

    ``low`` adds up the low 24 bits of two operands a word; ``high`` the rest of them, arithmetically
    shifted. Wide enough for 4096 chunks of 64 lanes and 8 planes, whatever the weights.
    """

    low: unsigned(LOW_BITS + 1 + _WORDS_LOG2)
    high: signed(27)


class EngineShape(data.Struct):
    """How an engine steps through its words; constant from 4 cycles before ``start``.

    ``chunks``: per sample, C; ``planes``: bits of a feature, s; ``mini_batch``: micro-batches of a full
    mini-batch, B/8; ``epoch``: micro-batches of an epoch, ceil(S/8). An epoch's end ends a mini-batch too.
    All are at least 1.
    """

    chunks: 16
    planes: 4
    mini_batch: 24
    epoch: 32


class EngineEvents(data.Struct):
    """What an engine did in the cycle before, one bit each.

    ``forward_first`` and ``forward_last``: it accepted the first, the last word of a micro-batch;
    ``backward_first`` and ``backward_last``: backward took them from the replay FIFO. When it accepted no
    word, exactly one of the next four says why: ``model_wait`` (the chunk was not yet written by the
    mini-batch before), ``fifo_full`` (replay FIFO), ``pa_full`` (PA queue), ``no_word`` (none offered).
    ``backward_idle``: backward took no word, for want of a scale. All are 0 before the first ``start``; in
    the cycle after a ``start`` forward only looks up its credits, and no cause counts.
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
    """An engine's PAs, as the engine sees them: they are not stalled but paid for by credits.

    **Members**: ``payload``: Out, ``ArrayLayout(SplitSum, banks)``, and ``valid``: Out(1), a PA, taken in that
    cycle whatever happens; ``taken``: In(1), a pulse for each PA that has left the queue after it, which holds
    ``QUEUE``: the engine keeps no more on their way. So no engine's handshake waits for another's, and the
    engine's outputs follow none of its inputs within a cycle.
    """

    QUEUE = 16  # micro-batches; the way through the pipeline and back to a credit takes one 12 cycles

    def __init__(self, *, banks: int):
        super().__init__(
            {
                "payload": Out(data.ArrayLayout(SplitSum, banks)),
                "valid": Out(1),
                "taken": In(1),
            }
        )


class ModelPortSignature(wiring.Signature):
    """The host's way to one engine's model, as the host sees it; used only while the engine is not busy.

    **Members**: ``chunk`` and ``lane``: Out, which weight; ``read``: Out(1), a request; ``read_data``:
    In(signed(32)), the weight in the architectural memory, ``READ_LATENCY`` cycles after its request;
    ``write``: Out(1), ``write_data``: Out(signed(32)), goes to both memories. One access a cycle.
    """

    READ_LATENCY = 4  # memory, its output register, lane multiplexer in two steps

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
