"""Registers of a ring node; source of the RTL, host driver, C header and documentation."""

from __future__ import annotations

from enum import IntEnum

from fanin.codec.facts import MAX_BOUND, Bfp, Codec, Inceptionn, Mode, Mx
from fanin.codec.formats import Element
from fanin.hdl.bus.common_registers import (
    control_register,
    counter_registers,
    failure_fields,
    identity_registers,
    node_map,
    shape_register,
    status_register,
)
from fanin.hdl.bus.register_map import WORD_BITS, Access, Field, Register, RegisterMap
from fanin.hdl.net.link.job import LinkCounters
from fanin.hdl.ring.link_job import COUNT_BITS, NODE_BITS, RING_JOB
from fanin.hdl.ring.share import SHARE_BITS
from fanin.ring.facts import MAX_NODES, MIN_NODES, TENSORS, RingConfig

IDENTITY = 0x464E5247  # "GRNF" in memory order: fanin ring
NIC_IDENTITY = 0x464E524E  # "NRNF": fanin ring NIC
#: Version 1 lacks ``mismatch`` and ``neighbours``, version 2 lacks ``agreed``. Version 3 has ``codec_kind`` in
#: ``shape``. Version 4 lacks ``rounding_seed`` and ``tensor``.
VERSION = 5

# Reset values of the registers, and the host's defaults.
TIMEOUT = 50_000  # cycles
RETRIES = 1000
ACK_DELAY = 500  # cycles
HOST_SHARE = 2  # sixteenths of the link


class Failure(IntEnum):
    """Cause of a node's failure; holds until the next ``start`` or ``stop``."""

    NONE = 0
    TIMEOUT = 1  #: the next node did not answer
    MISMATCH = 2  #: a neighbour has other settings or another descriptor; ``mismatch`` has the details
    MEMORY = 3  #: memory answered a read or a write with an error
    SETTINGS = 4  #: the registers are not valid for a ring; no job has begun


#: Differences of the job after MISMATCH, and what each one says of the neighbours.
JOB_DIFFERENCES = {
    "nodes": "the previous node has another number of nodes",
    "codec": "the previous node has another codec",
    "parameters": "the previous node has other codec parameters",
    "tensor": "the previous node has values of another format in memory",
    "rank": "the previous node has not the place before this node's: the hosts list the ring differently",
    "acknowledged": "the next node acknowledged a frame never sent: one of the two was restarted in this job",
}
#: Differences of a frame after MISMATCH.
FRAME_DIFFERENCES = {
    "operation": "the previous node is at another descriptor",
    "count": "the descriptor of the previous node has another number of values",
    "length": "a frame of the previous node has another number of words",
    "slice": "the previous node sent another slice",
    "complete": "the previous node sent partial sums instead of complete ones, or the reverse",
    "words": "a frame has fewer or more words than its header says",
    "totals": "the next node has stored other sums: memory, link or logic of one of the nodes is faulty",
}
MAX_POSTED = (1 << WORD_BITS) - 1  # descriptors of a job; keeps all its counters from wrapping
DIFFERS = "differs_"  # prefix of a difference's field
HEARD = "heard_"  # prefix of a neighbour's field

COMPLETED_LOW_BITS = 8  # enough to count all descriptors that can be unfinished

FAILURE_BITS = max(Failure).bit_length()


def _width(name: str) -> int:
    """Return the width of a member of the job."""
    return RING_JOB[name].width


def ring_constants(config: RingConfig) -> dict[str, int]:
    """Return the constant register fields that all nodes of a ring share; ``queue`` is each node's own."""
    blocks = dict.fromkeys(("block", "mantissa", "exponent", "offset", "element"), 0)
    match config.codec:
        case Bfp():
            blocks |= vars(config.codec)
        case Mx():
            blocks |= {"block": config.codec.block, "element": config.codec.element.id}
    return {
        "id": IDENTITY,
        "version": VERSION,
        "lanes": config.lanes,
        "frame_words": config.frame_words,
        "slice_frames": config.slice_frames,
        "codec_kind": config.codec_kind.id,
        "tensor": list(TENSORS).index(config.tensor_name),
    } | blocks


def ring_nic_constants(config: RingConfig) -> dict[str, int]:
    """Return the constants of nodes with a host packet port; ``max_host_frame`` is each node's own."""
    return ring_constants(config) | {"id": NIC_IDENTITY}


def _identity(identity: int) -> tuple[Register, ...]:
    codecs = ", ".join(f"{codec.id} {codec}" for codec in Codec)
    tensors = ", ".join(f"{number} {name}" for number, name in enumerate(TENSORS))
    elements = ", ".join(f"{element.id} {element}" for element in Element)
    return (
        *identity_registers(identity, VERSION),
        shape_register(
            Field("lanes", 5, "values of a word"),
            Field("frame_words", 8, "words of a frame"),
            Field("slice_frames", 9, "frames of a slice"),
            Field("queue", 8, "descriptors that may be unfinished"),
        ),
        Register(
            "block_format",
            Access.RO,
            "codec, and its format if it has blocks",
            (
                Field("block", 7, "BFP, MX: values that share an exponent or a scale; else 0"),
                Field("mantissa", 4, "BFP: bits of a magnitude; else 0"),
                Field("exponent", 4, "BFP: bits of an exponent; else 0"),
                Field("offset", 5, "BFP: powers of two by which the exponent range is lowered; else 0"),
                Field("codec_kind", 4, codecs),
                Field("element", 4, f"MX: {elements}; else 0"),
                Field("tensor", 2, f"values in memory: {tensors}"),
            ),
        ),
    )


def _control() -> tuple[Register, ...]:
    return (
        control_register(
            Field("start", 1, "end what the node does and start a job with the registers below"),
            Field("stop", 1, "end what the node does; ignored together with `start`"),
        ),
        status_register(
            Field("running", 1, "a job is running; descriptors are accepted"),
            *failure_fields(Failure, "the job has ended; `cause` says why"),
            Field("refused_any", 1, "a descriptor of this job was refused"),
            Field("busy", 1, "0: every descriptor is done or will never be; poll no longer"),
            Field("completed_low", COMPLETED_LOW_BITS, "lowest bits of `completed`, for one read of all state"),
        ),
        Register("posted", Access.RO, f"descriptors accepted since `start`, {MAX_POSTED} at most"),
        Register("completed", Access.RO, "accepted descriptors whose sums are in memory; they finish in order"),
        Register("refused", Access.RO, f"descriptors refused since `start` or `stop`; stops at {MAX_POSTED}"),
        Register(
            "mismatch",
            Access.RO,
            "differences found, after MISMATCH",
            tuple(
                Field(f"{DIFFERS}{name}", 1, text)
                for name, text in (JOB_DIFFERENCES | FRAME_DIFFERENCES).items()
            ),
        ),
        Register(
            "neighbours",
            Access.RO,
            "kinds of frames of this job received since `start`",
            (
                Field(f"{HEARD}previous", 1, "a frame of the previous node, with the settings of this job"),
                Field(f"{HEARD}next", 1, "an answer of the next node"),
                Field(f"{HEARD}stranger", 1, "a frame of this job from a node that must not send this kind"),
            ),
        ),
    )


def _job() -> tuple[Register, ...]:
    default = Inceptionn()
    bounds = f"errors are at most 2^-bound for each hop: 1…{MAX_BOUND}"
    modes = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode)
    macs = {"own_mac": "this node's", "previous_mac": "the previous node's", "next_mac": "the next node's"}
    return (
        Register(
            "job",
            Access.RW,
            "settings of the ring; these and the registers up to the descriptor are latched when `start` takes "
            "effect; a later write is for the next `start`",
            (
                Field("job_id", _width("job"), "number of the job: new at every start, equal at all nodes"),
                Field("nodes", NODE_BITS, f"number of nodes N: {MIN_NODES}…{MAX_NODES}"),
                Field("rank", NODE_BITS, "rank of this node, 0…N - 1; the next node has the next rank"),
            ),
        ),
        Register(
            "codec",
            Access.RW,
            "settings of INCEPTIONN, equal at all nodes",
            (
                Field("bound", MAX_BOUND.bit_length(), bounds, default.bound),
                Field("mode", 1, modes, default.mode),
            ),
        ),
        *(Register(name, Access.RW, f"{whose} MAC address", bits=_width(name)) for name, whose in macs.items()),
        Register(
            "watch",
            Access.RW,
            "1: probe the next node even while no descriptor is unfinished",
            bits=1,
        ),
        Register(
            "timeout",
            Access.RW,
            "cycles without progress before a PROBE, and the longest wait before a frame is sent again",
            reset=TIMEOUT,
        ),
        Register(
            "retries", Access.RW, "timeouts in a row before TIMEOUT", reset=RETRIES, bits=_width("retries")
        ),
        Register(
            "acknowledge",
            Access.RW,
            "when to acknowledge received frames",
            (
                Field("ack_frames", _width("ack_frames"), "after this number of frames taken or consumed", 1),
                Field("ack_delay", _width("ack_delay"), "or this number of cycles after the first", ACK_DELAY),
            ),
        ),
        Register(
            "address", Access.RW, "descriptor: byte address of the vector, a multiple of the word size", bits=64
        ),
        Register("count", Access.RW, "descriptor: number of values, at least 1", bits=COUNT_BITS),
        Register("post", Access.PULSE, "post the descriptor", (Field("post_descriptor", 1, "1"),)),
        Register(
            "rounding_seed",
            Access.RW,
            "stochastic rounding: seed of this node's random bits, not 0; the job's other nodes have others",
            reset=1,
        ),
    )


#: Counters of the engine and of the link.
ENGINE_COUNTERS = {
    "cycles": "cycles with at least one unfinished descriptor",
    "added": "words added",
    "stored": "words written to memory",
    "sent_beats": "beats given to the link to the next node, without retransmissions and headers",
    "agreed": "answers of the next node whose checksum equals this node's",
}
LINK_COUNTERS = {
    "sent": "DATA frames sent, each once",
    "retransmitted": "DATA frames sent again",
    "acks": "ACKs sent",
    "naks": "NAKs sent",
    "probes": "PROBEs sent",
    "received": "DATA frames taken",
    "bad_fcs": "frames dropped: FCS error found by the MAC",
    "foreign": "frames dropped: other traffic, or another ring's",
    "duplicates": "frames dropped: taken before",
    "out_of_order": "DATA frames after a gap (kept), or without room (dropped)",
}
assert LINK_COUNTERS.keys() == LinkCounters.as_shape().members.keys()


#: Further counters of a node with a host packet port.
HOST_COUNTERS = {
    "host_tx_frames": "frames of the host sent",
    "host_tx_dropped": "frames of the host dropped: too long",
    "host_rx_frames": "frames handed to the host",
    "host_rx_dropped": "frames for the host dropped: too long, or the host was too slow",
    "host_rx_bad_fcs": "frames for the host dropped: FCS error found by the MAC",
}


def _host() -> tuple[Register, ...]:
    share = "least share of the host's other traffic, in sixteenths of the link; 0: what the ring leaves"
    return (
        Register("host_share", Access.RW, share, bits=SHARE_BITS, reset=HOST_SHARE),
        Register("max_host_frame", Access.RO, "bytes of the host's longest frame, without FCS"),
    )


def ring_registers(config: RingConfig) -> RegisterMap:
    """Return the register map of a ring node; it does not depend on ``config``."""
    return node_map(
        _identity(IDENTITY),
        _control(),
        _job(),
        counter_registers(ENGINE_COUNTERS | LINK_COUNTERS, bits=64),
    )


def ring_nic_registers(config: RingConfig) -> RegisterMap:
    """Return the register map of a ring node with a host packet port; it does not depend on ``config``."""
    return node_map(
        _identity(NIC_IDENTITY),
        _control(),
        _job(),
        _host(),
        counter_registers(ENGINE_COUNTERS | LINK_COUNTERS | HOST_COUNTERS, bits=64),
    )
