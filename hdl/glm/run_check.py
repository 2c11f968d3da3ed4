"""Check of a run's registers before the run starts, and computation of its word counts."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from fanin.fixed import MAX_DECAY, MAX_PRECISION, MAX_SHIFT, Loss
from fanin.hdl.aggregation.job import JobConfig, slot_mask
from fanin.hdl.bus.axi_reader import COUNT_BITS
from fanin.hdl.glm.reducer import MIN_CLAMP
from fanin.hdl.glm.shapes import EngineShape
from fanin.hdl.glm.worker import Training
from fanin.hdl.net.round_trip import TIMEOUT_BITS
from fanin.wire.aggregation import Protocol

_HALF = 16  # the epoch's micro-batches are multiplied in halves, since a DSP takes 18 × 27 bits


class RunCheck(wiring.Component):
    """Check that this node can do the run that its registers describe, so that no run starts that would hang.

    Members
    -------
    ``shape`` : In, ``EngineShape``
        Loop counts. Valid: 1…8 planes, 1…``depth`` chunks, at most ``fifo_depth`` words a micro-batch (with
        ``lists`` the lists decide), 1…``max_mini_batch`` micro-batches a mini-batch, at least one an epoch.
    ``training`` : In, ``Training``
        Parameters of the run. Valid:

        - at least one epoch, and a loss that exists;
        - a shift of at most 39, and a mantissa of at least 2^15;
        - a clamp of 15 (65,535 workers) to 31 bits, and a decay's shift of at most 24;
        - without overlap, mini-batches that fit: the replay FIFO holds a mini-batch's words, and the job's
          slots hold an operation for each of its micro-batches.
    ``job`` : In, ``JobConfig``
        Aggregation job. Valid: at most ``slots`` slots and enough for one operation, a base that is a multiple
        of their number, one member bit, a timeout of 1…2^31 − 1 cycles.
    With ``lists``, ``entries`` : In, ``lists`` × 32
        Entries of an epoch's lists. Valid: at least one a micro-batch.
    ``words`` : Out, 32
        Sample words of an epoch, for each engine; valid while ``ok``.
    ``label_words`` : Out, 32
        Beats of an epoch's labels; valid while ``ok``.
    ``ok`` : Out, 1
        All inputs are valid, and ``words`` and ``label_words`` fit 32 bits.

    Parameters
    ----------
    ``depth`` : int, at least 1
        Chunks that an engine holds.
    ``fifo_depth`` : int, at least 1
        Words that an engine's replay FIFO holds.
    ``slots`` : int, a power of two
        Slots that the transport holds.
    ``max_mini_batch`` : int, at least 1
        Maximum number of micro-batches in a mini-batch.
    ``protocol`` : Protocol
        Protocol of the transport; gives the slots of an operation.
    ``label_beats`` : int, a power of two
        Beats of a micro-batch's labels; 1 by default.
    ``vanilla`` : bool
        Whether training without overlap is possible.
    ``lists`` : int
        Lists of a sparse node; 0: a dense one.

    Latency
    -------
    ``LATENCY`` = 6 cycles after the last change of an input.

    Source
    ------
    docs/systems/glm.md, "Start and end"; docs/systems/aggregation.md, "Job".
    """

    LATENCY = 6

    def __init__(
        self,
        *,
        depth: int,
        fifo_depth: int,
        slots: int,
        max_mini_batch: int,
        protocol: Protocol = Protocol.P4SGD,
        label_beats: int = 1,
        vanilla: bool = False,
        lists: int = 0,
    ):
        limits = {"depth": depth, "fifo_depth": fifo_depth, "slots": slots, "max_mini_batch": max_mini_batch}
        limits |= {"label_beats": label_beats}
        for name, value in limits.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self.depth = depth
        self.fifo_depth = fifo_depth
        self.slots = slots
        self.max_mini_batch = max_mini_batch
        self.protocol = protocol
        self.label_beats = label_beats
        self.vanilla = vanilla
        self.lists = lists
        super().__init__(
            {
                "shape": In(EngineShape),
                "training": In(Training),
                "job": In(JobConfig),
                "words": Out(COUNT_BITS),
                "label_words": Out(COUNT_BITS),
                "ok": Out(1),
            }
            | ({"entries": In(COUNT_BITS).array(lists)} if lists else {})
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute the word counts over several cycles, and register each condition; all inputs are constant."""
        m = Module()
        shape, training, job = self.shape, self.training, self.job
        # Values above a limit may be truncated before multiplication, since ``ok`` is low for them anyway.
        chunks = Signal(self.depth.bit_length())
        planes = Signal.like(shape.planes)
        epoch = Signal.like(shape.epoch)
        m.d.sync += [chunks.eq(shape.chunks), planes.eq(shape.planes), epoch.eq(shape.epoch)]  # near the DSPs
        micro_batch = Signal(len(chunks) + len(planes))
        fifo_words = micro_batch[: self.fifo_depth.bit_length()]
        low = Signal(len(fifo_words) + _HALF)
        high = Signal(len(fifo_words) + _HALF)
        words = Signal(len(low) + _HALF)
        m.d.sync += [
            micro_batch.eq(chunks * planes),
            low.eq(fifo_words * epoch[:_HALF]),
            high.eq(fifo_words * epoch[_HALF:]),
            words.eq(Cat(low[:_HALF], high + low[_HALF:])),
        ]
        label_words = shape.epoch << exact_log2(self.label_beats)
        m.d.comb += [self.words.eq(words), self.label_words.eq(label_words)]

        lower_bits = Signal.like(job.member)  # ``member`` is a power of two if it shares no bit with these
        mask = Signal.like(job.base)
        m.d.sync += [lower_bits.eq(job.member - 1), mask.eq(slot_mask(job))]
        conditions = [
            shape.planes.any() & (shape.planes <= MAX_PRECISION),
            shape.chunks.any() & (shape.chunks <= self.depth),
            shape.mini_batch.any() & (shape.mini_batch <= self.max_mini_batch),
            shape.epoch.any(),
            ~label_words[COUNT_BITS:].any(),
            training.epochs.any(),
            training.as_value()[_field("loss")] <= max(Loss),
            training.shift <= MAX_SHIFT,
            training.mantissa[-1],
            training.clamp_bits >= MIN_CLAMP,
            training.decay.decay_shift <= MAX_DECAY,
            job.log2_slots <= (self.slots - 1).bit_length(),
            ~(job.base & mask).any(),
            job.member.any(),
            ~(job.member & lower_bits).any(),
            job.timeout.any(),
            ~job.timeout[TIMEOUT_BITS - 1],
        ]
        if self.lists:
            conditions += [entries >= shape.epoch for entries in self.entries]
        else:
            conditions += [micro_batch <= self.fifo_depth, ~words[COUNT_BITS:].any()]
        if self.protocol.slots_per_operation > 1:
            conditions.append(job.log2_slots >= exact_log2(self.protocol.slots_per_operation))
        if self.vanilla:
            operations = Signal(len(mask) + 1)
            mini_batch = shape.mini_batch[: self.slots.bit_length()]  # larger ones fail the check of slots
            mini_batch_words = Signal(len(fifo_words) + len(mini_batch))
            m.d.sync += [
                operations.eq(mask[exact_log2(self.protocol.slots_per_operation) :] + 1),
                mini_batch_words.eq(fifo_words * mini_batch),
            ]
            conditions += [
                ~training.serial | (shape.mini_batch <= operations),
                ~training.serial | (mini_batch_words <= self.fifo_depth),
            ]
        satisfied = Signal(len(conditions))
        m.d.sync += [satisfied.eq(Cat(conditions)), self.ok.eq(satisfied.all())]
        return m


def _field(name: str) -> slice:
    """Return the bits of a field of ``Training``, as a slice.

    The slice, unlike the member, can be compared with numbers that the field's enum does not define.
    """
    field = Training.as_shape()[name]
    return slice(field.offset, field.offset + field.width)
