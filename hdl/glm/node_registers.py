"""Register map of a node, declared once: RTL, host driver, C header and documentation derive from it."""

from __future__ import annotations

from enum import IntEnum

from fanin.fixed import MANTISSA_BITS, MAX_DECAY, Loss
from fanin.glm.facts import MICRO_BATCH, GlmConfig, Partitioning
from fanin.golden.round_trip import RTT_BITS
from fanin.hdl.aggregation.job import JobConfig
from fanin.hdl.bus.common_registers import (
    control_register,
    counter_registers,
    failure_fields,
    identity_registers,
    node_map,
    shape_register,
    status_register,
)
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap
from fanin.hdl.glm.decay import NodeDecay
from fanin.hdl.glm.shapes import EngineShape
from fanin.wire.aggregation import Encap, Protocol

IDENTITY = 0x464E494E  # "NINF" in memory order: fanin node
VERSION = 4

# Bits of lane, chunk and engine in a model address, from bit 0.
LANE_BITS, CHUNK_BITS, ENGINE_BITS = 8, 16, 8


class Failure(IntEnum):
    """Cause of a node's failure.

    Kept until ``reset_transport``, or, for SHAPE and ADDRESS, until the next ``start``.
    """

    NONE = 0
    TIMEOUT = 1  #: a packet stayed unanswered after all its retransmissions
    ROUND_WRAP = 2  #: the transport has used up its rounds
    SHAPE = 3  #: the registers describe a run that this node cannot do
    BUS = 4  #: a read from memory was answered with an error
    ADDRESS = 5  #: a memory address is misaligned, or its data reach beyond the address space
    LIST = 6  #: a sparse node's list names a chunk beyond `chunks`, or too many items for a micro-batch


FAILURE_BITS = max(Failure).bit_length()


def model_address(engine: int, chunk: int, lane: int = 0) -> int:
    """Return the value of the register ``model_address`` for one weight."""
    return (engine << CHUNK_BITS | chunk) << LANE_BITS | lane


def _width(layout: type, name: str) -> int:
    """Return the width in bits of the member ``name`` of a struct that a register drives."""
    return layout.as_shape()[name].width  # type: ignore[attr-defined]


def node_constants(config: GlmConfig) -> dict[str, int]:
    """Return the constants of a node's read-only registers, by field."""
    constants = {
        "id": IDENTITY,
        "version": VERSION,
        "engines": config.engines,
        "banks": config.banks,
        "lanes": config.lanes,
        "frac": config.frac,
        "data_parallel": int(config.mode is Partitioning.DATA_PARALLEL),
        "udp": int(config.encap is Encap.UDP),
        "switchml": int(config.protocol is Protocol.SWITCHML),
        "gradients": (config.gradient_values // MICRO_BATCH).bit_length() - 1,
        "depth": config.depth,
        "sample_fifo": config.sample_fifo,
        "slots": config.slots,
    }
    return constants | {name: 1 for name in ("l2", "vanilla", "sparse") if getattr(config, name)}


def _identity(config: GlmConfig) -> tuple[Register, ...]:
    shape = (
        Field("engines", 4, "engines, E"),
        Field("banks", 4, "samples of a micro-batch"),
        Field("lanes", 9, "features of a sample word"),
        Field("frac", 6, "fractional bits of weights, activations and gradients"),
        Field("data_parallel", 1, "1: gradients are summed over the network, 0: activations"),
        Field("udp", 1, "1: UDP over IPv4, 0: raw Ethernet"),
        Field("switchml", 1, "protocol; 1: switchml, 0: p4sgd"),
        Field("gradients", 2, "gradients of a packet, G: 8 · 2^G"),
        *((Field("l2", 1, "1: weights can decay"),) if config.l2 else ()),
        *((Field("vanilla", 1, "1: training without overlap is possible"),) if config.vanilla else ()),
        *((Field("sparse", 1, "1: samples are lists of chunks"),) if config.sparse else ()),
    )
    return (
        *identity_registers(IDENTITY, VERSION),
        shape_register(*shape),
        Register("depth", Access.RO, "chunks that an engine's model memory holds"),
        Register("sample_fifo", Access.RO, "words that an engine's replay FIFO holds"),
        Register("slots", Access.RO, "aggregation slots that the transport holds"),
    )


def _control() -> tuple[Register, ...]:
    return (
        control_register(
            Field("start", 1, "train `epochs` epochs from the memories' first sample on"),
            Field("clear_model", 1, "set all weights to 0"),
            Field("reset_transport", 1, "restart operation numbers at 0 and clear a failure"),
            note="in one write the order is `reset_transport`, `clear_model`, `start`; during a run that was "
            "not reset, `clear_model` and `start` are ignored",
        ),
        status_register(
            Field("busy", 1, "training, clearing the model or ending a run, or a command is pending"),
            Field("idle", 1, "the transport has nothing in flight, or has failed"),
            *failure_fields(Failure, "stopped; `cause` says why"),
        ),
    )


def _decay(config: GlmConfig) -> tuple[Register, ...]:
    """Return the register of the decay; a node whose weights cannot decay has none."""
    if not config.l2:
        return ()

    def bits(name: str) -> int:
        return _width(NodeDecay, name)

    return (
        Register(
            "decay",
            Access.RW,
            "L2 regularisation: decay of the weights in each mini-batch",
            (
                Field(
                    "decay_shift",
                    bits("decay_shift"),
                    f"weights lose 2^-decay_shift of themselves, 1…{MAX_DECAY}; 0: no decay",
                ),
                Field("spared", bits("spared"), "1: one weight, a bias, does not decay"),
                Field("spared_lane", bits("spared_lane"), "lane of the spared weight"),
                Field("spared_chunk", bits("spared_chunk"), "chunk of the spared weight"),
                Field("spared_engine", bits("spared_engine"), "engine of the spared weight"),
            ),
        ),
    )


def _training(config: GlmConfig) -> tuple[Register, ...]:
    serial = Field(
        "serial", 1, "1: no overlap; backward starts after a mini-batch's last FA, forward after backward"
    )
    losses = ", ".join(f"{loss.value} {loss.key}" for loss in Loss)
    return (
        Register(
            "training",
            Access.RW,
            "number format and loss",
            (
                Field("planes", _width(EngineShape, "planes"), "bits of a feature, s: 1…8"),
                Field("loss", 2, losses),
                Field("clamp_bits", 5, "c: PAs are clamped to [-2^c, 2^c - 1]; 15…31"),
                *((serial,) if config.vanilla else ()),
            ),
        ),
        Register(
            "rate",
            Access.RW,
            "learning rate over batch size, mantissa / 2^shift",
            (Field("mantissa", MANTISSA_BITS, "in [2^15, 2^16)"), Field("shift", 6, "0…39")),
        ),
        Register("chunks", Access.RW, "C: words of weights that an engine uses", bits=16),
        Register("mini_batch", Access.RW, "micro-batches of a full mini-batch, at least 1", bits=24),
        Register("epoch", Access.RW, "micro-batches of an epoch, at least 1"),
        Register("epochs", Access.RW, "epochs of one start, at least 1"),
    )


def _job() -> tuple[Register, ...]:
    def bits(name: str) -> int:
        return _width(JobConfig, name)

    return (
        Register(
            "job",
            Access.RW,
            "the aggregation job; change it only together with `reset_transport`",
            (
                Field("job_id", bits("job"), "id of the job"),
                Field("log2_slots", bits("log2_slots"), "log2 of the job's slots"),
                Field("slot_base", bits("base"), "the job's first slot in the switch, a multiple of its slots"),
            ),
        ),
        Register("member", Access.RW, "bitmap with this worker's bit set", bits=bits("member")),
        Register(
            "timeout",
            Access.RW,
            "cycles until a packet is sent again; with `adaptive`, the upper limit",
            bits=bits("timeout"),
        ),
        Register(
            "timers",
            Access.RW,
            "timeouts that follow the measured round trips",
            (
                Field("floor", bits("floor"), "minimum cycles from the mean round trip to the timeout"),
                Field("adaptive", bits("adaptive"), "1: timeouts follow the round trips; 0: `timeout` holds"),
            ),
        ),
        Register(
            "retries", Access.RW, "retransmissions of a packet before TIMEOUT", bits=bits("retries"), reset=1000
        ),
        Register("own_mac", Access.RW, "this node's MAC address", bits=bits("own_mac")),
        Register("switch_mac", Access.RW, "the switch's MAC address", bits=bits("switch_mac")),
        Register("own_ip", Access.RW, "this node's IPv4 address (UDP)", bits=bits("own_ip")),
        Register("switch_ip", Access.RW, "the switch's IPv4 address (UDP)", bits=bits("switch_ip")),
        Register("udp_port", Access.RW, "UDP port, source and destination", bits=bits("udp_port")),
    )


def _round_trips() -> tuple[Register, ...]:
    return tuple(
        Register(name, Access.RO, description, bits=RTT_BITS) for name, description in ROUND_TRIPS.items()
    )


def _memories(config: GlmConfig) -> tuple[Register, ...]:
    word = (
        f"lane in bits {LANE_BITS - 1}…0, chunk from bit {LANE_BITS}, engine from bit {LANE_BITS + CHUNK_BITS}"
    )
    return (
        Register(
            "sample_address",
            Access.RW,
            "byte address of an engine's sample words, low half (even ports) and high half (odd ports); "
            "a multiple of the port's bytes",
            bits=config.address_width,
            count=config.sample_ports,
        ),
        Register(
            "label_address",
            Access.RW,
            "byte address of the labels, int32, 8 a micro-batch; a multiple of the port's bytes",
            bits=config.address_width,
        ),
        *(_lists(config) if config.sparse else ()),
        Register("model_address", Access.WINDOW, f"address of the weight in model_data: {word}"),
        Register(
            "model_data",
            Access.WINDOW,
            "the weight at model_address, signed; each access advances the address to the next lane; while "
            "busy, and outside the model, a read gives 0 and a write does nothing",
        ),
    )


def _lists(config: GlmConfig) -> tuple[Register, ...]:
    """Return the registers of a sparse node's lists."""
    return (
        Register(
            "list_address",
            Access.RW,
            "byte address of an engine's list, 32 bits an entry; a multiple of 4",
            bits=config.address_width,
            count=config.engines,
        ),
        Register("list_entries", Access.RW, "entries of an epoch in an engine's list", count=config.engines),
        Register("sample_words", Access.RW, "sample words of an epoch of an engine", count=config.engines),
    )


#: Descriptions of counters by name. Counters of engine cycles sum over all engines.
COUNTERS = {
    "cycles": "cycles of runs: from the check, 35 cycles after `start`, to the last write of the model",
    "words": "sample words taken by forward, all engines together",
    "stall_no_word": "engine cycles without a word: memory had none",
    "stall_fifo_full": "engine cycles without a word: the replay FIFO was full",
    "stall_model_wait": "engine cycles without a word: the previous mini-batch had not yet written its chunk",
    "stall_pa_full": "engine cycles without a word: the network had not yet taken earlier PAs",
    "backward_idle": "engine cycles in which backward had no scale to work on",
    "clamps": "PAs clamped",
    "micro_batches": "micro-batches whose FA was delivered (data-parallel: packets of summed gradients)",
    "agg_sent": "AGG packets sent, without retransmissions",
    "ack_sent": "ACK packets sent, without retransmissions",
    "retransmissions": "packets sent again",
    "results": "RESULT packets that completed an operation",
    "confirms": "CONFIRM packets that freed a slot",
    "duplicates": "packets that had been received before",
    "stale": "packets whose round or state had passed",
    "bad_mac": "frames dropped: the MAC found an error (FCS)",
    "bad_short": "frames dropped: too short",
    "bad_long": "frames dropped: too long",
    "bad_foreign": "frames dropped: other traffic, or another node's",
    "bad_checksum": "frames dropped: IPv4 header checksum",
    "bad_malformed": "frames dropped: version, kind, round or a length is wrong",
    "bad_job": "frames dropped: another job",
    "bad_slot": "frames dropped: a slot outside the job's",
}


#: Descriptions of the measured round trip by name.
ROUND_TRIPS = {
    "round_trip": "smoothed round trip from AGG to RESULT, in cycles; 0: not yet known",
    "round_trip_deviation": "mean deviation of the round trips from AGG to RESULT, in cycles",
}

#: Stall causes of the engines; the counter of each is ``stall_`` and its name.
STALLS = ("no_word", "fifo_full", "model_wait", "pa_full")

#: Counter of each reason for dropping a frame.
FAULT_COUNTERS = {
    "mac_error": "bad_mac",
    "short": "bad_short",
    "foreign": "bad_foreign",
    "long": "bad_long",
    "checksum": "bad_checksum",
    "malformed": "bad_malformed",
    "other_job": "bad_job",
    "slot_range": "bad_slot",
}


def node_registers(config: GlmConfig) -> RegisterMap:
    """Return the register map of a node."""
    summed = ("words", "backward_idle", *(f"stall_{cause}" for cause in STALLS))
    steps = dict.fromkeys(summed, config.engines.bit_length()) | {"clamps": config.banks.bit_length()}
    return node_map(
        _identity(config),
        _control(),
        _training(config),
        _decay(config),
        _job(),
        _round_trips(),
        _memories(config),
        counter_registers(COUNTERS, bits=64, steps=steps),
    )
