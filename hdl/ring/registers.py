"""The registers of a ring node, declared once: RTL, host driver, C header and documentation follow."""

from __future__ import annotations

from enum import IntEnum

from fanin.codec.facts import MAX_BOUND, Bfp, Codec, Inceptionn, Mode
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
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig

IDENTITY = 0x464E5247  # "GRNF" in memory order: fanin ring
NIC_IDENTITY = 0x464E524E  # "NRNF": fanin ring NIC
VERSION = 3  # 1: without ``mismatch`` and ``neighbours``; 2: without ``agreed``

# What the host asks for unless it says otherwise, and what the registers begin with.
TIMEOUT = 50_000  # cycles
RETRIES = 1000
ACK_DELAY = 500  # cycles
HOST_SHARE = 2  # of the link, in sixteenths


class Failure(IntEnum):
    """Why a node stopped; holds until the next ``start`` or ``stop``."""

    NONE = 0
    TIMEOUT = 1  #: the next node stayed silent
    MISMATCH = 2  #: the previous node has other settings or another descriptor; ``mismatch`` says what differs
    MEMORY = 3  #: memory answered a read or a write with an error
    SETTINGS = 4  #: the registers ask for what no ring can do; no job has begun


#: What may differ in a MISMATCH, and what that says of the previous node. Of the job:
JOB_DIFFERENCES = {
    "nodes": "the previous node counts another number of nodes",
    "codec": "the previous node has another codec",
    "parameters": "the codec of the previous node has other parameters",
    "rank": "the previous node has not the place before this node's: the hosts list the ring differently",
    "acknowledged": "the next node acknowledged a frame never sent: one of both was started anew in this job",
}
#: Of a frame:
FRAME_DIFFERENCES = {
    "operation": "the previous node is at another descriptor",
    "count": "the descriptor of the previous node has another number of values",
    "length": "a frame of the previous node has another number of words",
    "slice": "the previous node sent another slice",
    "complete": "the previous node sent partial sums for complete ones, or the reverse",
    "words": "a frame has fewer or more words than its header says",
    "totals": "the next node has stored other sums: memory, link or logic of one of the nodes is faulty",
}
MAX_POSTED = (1 << WORD_BITS) - 1  # descriptors of a job: none of its counters wraps
DIFFERS = "differs_"  # before the name of a difference: its field
HEARD = "heard_"  # before the name of a neighbour: its field

COMPLETED_LOW_BITS = 8  # more than descriptors can be unfinished

FAILURE_BITS = max(Failure).bit_length()


def _width(name: str) -> int:
    """Width of a member of the job."""
    return RING_JOB[name].width


def ring_constants(config: RingConfig) -> dict[str, int]:
    """What all nodes of a ring say of themselves, by field; ``queue`` is each node's own."""
    bfp = vars(config.codec) if isinstance(config.codec, Bfp) else dict.fromkeys(vars(Bfp()), 0)
    return {
        "id": IDENTITY,
        "version": VERSION,
        "lanes": config.lanes,
        "frame_words": config.frame_words,
        "slice_frames": config.slice_frames,
        "codec_kind": config.codec_kind.id,
    } | bfp


def ring_nic_constants(config: RingConfig) -> dict[str, int]:
    """What all nodes with a host packet port say of themselves; ``max_host_frame`` is each node's own."""
    return ring_constants(config) | {"id": NIC_IDENTITY}


def _identity(identity: int) -> tuple[Register, ...]:
    codecs = ", ".join(f"{codec.id} {codec}" for codec in Codec)
    return (
        *identity_registers(identity, VERSION),
        shape_register(
            Field("lanes", 5, "values of a word"),
            Field("frame_words", 8, "words of a frame"),
            Field("slice_frames", 9, "frames of a slice"),
            Field("codec_kind", 2, codecs),
            Field("queue", 8, "descriptors that may be unfinished"),
        ),
        Register(
            "block_format",
            Access.RO,
            "of a BFP codec, else 0",
            (
                Field("block", 7, "values that share an exponent"),
                Field("mantissa", 4, "bits of a magnitude"),
                Field("exponent", 4, "bits of an exponent"),
                Field("offset", 5, "powers of two by which its range lies lower"),
            ),
        ),
    )


def _control() -> tuple[Register, ...]:
    return (
        control_register(
            Field("start", 1, "a new job, with the registers below; whatever the node did before ends"),
            Field("stop", 1, "whatever the node does ends; without effect beside `start`"),
        ),
        status_register(
            Field("running", 1, "a job is under way; descriptors are taken"),
            *failure_fields(Failure, "the job has ended; `cause` says why"),
            Field("refused_any", 1, "a descriptor of this job was refused"),
            Field("busy", 1, "0: nothing is to be waited for, every descriptor is done or never will be"),
            Field("completed_low", COMPLETED_LOW_BITS, "the lowest bits of `completed`: one read says all"),
        ),
        Register("posted", Access.RO, f"descriptors accepted since `start`, {MAX_POSTED} at most"),
        Register("completed", Access.RO, "those of them whose sums are in memory; in order"),
        Register(
            "refused", Access.RO, f"descriptors refused since `start` or `stop`; {MAX_POSTED} is that or more"
        ),
        Register(
            "mismatch",
            Access.RO,
            "what differs, after MISMATCH",
            tuple(
                Field(f"{DIFFERS}{name}", 1, text)
                for name, text in (JOB_DIFFERENCES | FRAME_DIFFERENCES).items()
            ),
        ),
        Register(
            "neighbours",
            Access.RO,
            "frames of this job that have come since `start`",
            (
                Field(f"{HEARD}previous", 1, "a frame of the previous node, with the settings of this job"),
                Field(f"{HEARD}next", 1, "an answer of the next node"),
                Field(f"{HEARD}stranger", 1, "a frame of this job from another node than its kind comes from"),
            ),
        ),
    )


def _job() -> tuple[Register, ...]:
    default = Inceptionn()
    bounds = f"errors are at most 2^-bound a hop: 1…{MAX_BOUND}"
    modes = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode)
    macs = {"own_mac": "this node's", "previous_mac": "the previous node's", "next_mac": "the next node's"}
    return (
        Register(
            "job",
            Access.RW,
            "the ring; this and what follows, up to the descriptor, is taken when `start` is carried out; "
            "a later write is for the next `start`",
            (
                Field("job_id", _width("job"), "which ring: another number at every start, at all nodes"),
                Field("nodes", NODE_BITS, f"N: {MIN_NODES}…{MAX_NODES}"),
                Field("rank", NODE_BITS, "this node's place, 0…N - 1; the next node has the next one"),
            ),
        ),
        Register(
            "codec",
            Access.RW,
            "of INCEPTIONN, alike at all nodes",
            (
                Field("bound", MAX_BOUND.bit_length(), bounds, default.bound),
                Field("mode", 1, modes, default.mode),
            ),
        ),
        *(Register(name, Access.RW, f"{whose} MAC address", bits=_width(name)) for name, whose in macs.items()),
        Register(
            "watch",
            Access.RW,
            "1: ask the next node whether it lives also while no descriptor is unfinished",
            bits=1,
        ),
        Register("timeout", Access.RW, "cycles without progress until frames are sent again", reset=TIMEOUT),
        Register(
            "retries", Access.RW, "such times in a row until TIMEOUT", reset=RETRIES, bits=_width("retries")
        ),
        Register(
            "acknowledge",
            Access.RW,
            "when received frames are acknowledged",
            (
                Field("ack_frames", _width("ack_frames"), "after so many were taken or consumed", 1),
                Field("ack_delay", _width("ack_delay"), "or so many cycles after the first of them", ACK_DELAY),
            ),
        ),
        Register(
            "address", Access.RW, "descriptor: byte address of the vector, a multiple of the word", bits=64
        ),
        Register("count", Access.RW, "descriptor: values, at least 1", bits=COUNT_BITS),
        Register("post", Access.PULSE, "reduce that vector", (Field("post_descriptor", 1, "1"),)),
    )


#: What the node counts, of its engine and of its link.
ENGINE_COUNTERS = {
    "cycles": "cycles with a descriptor unfinished",
    "added": "words added",
    "stored": "words written to memory",
    "sent_beats": "beats given to the link to the next node, retransmissions and headers apart",
    "agreed": "answers of the next node with the checksum of sums that this node has",
}
LINK_COUNTERS = {
    "sent": "DATA frames sent, each once",
    "retransmitted": "DATA frames sent again",
    "acks": "ACKs sent",
    "naks": "NAKs sent",
    "probes": "PROBEs sent",
    "received": "DATA frames taken",
    "bad_fcs": "frames dropped: the MAC found an error",
    "foreign": "frames dropped: other traffic, or another ring's",
    "duplicates": "frames dropped: taken before",
    "out_of_order": "frames dropped: after a gap, or without room",
}
assert LINK_COUNTERS.keys() == LinkCounters.as_shape().members.keys()


#: And a node with a host packet port of what goes through that.
HOST_COUNTERS = {
    "host_tx_frames": "frames of the host sent",
    "host_tx_dropped": "frames of the host dropped: too long",
    "host_rx_frames": "frames handed to the host",
    "host_rx_dropped": "frames for the host dropped: too long, or it had not taken those before",
    "host_rx_bad_fcs": "frames for the host dropped: the MAC found an error",
}


def _host() -> tuple[Register, ...]:
    share = "sixteenths of the link that other traffic of the host has at least; 0: what the ring leaves"
    return (
        Register("host_share", Access.RW, share, bits=SHARE_BITS, reset=HOST_SHARE),
        Register("max_host_frame", Access.RO, "bytes of the host's longest frame, without FCS"),
    )


def ring_registers(config: RingConfig) -> RegisterMap:
    """The register map of a ring node; the same for all of them."""
    return node_map(
        _identity(IDENTITY),
        _control(),
        _job(),
        counter_registers(ENGINE_COUNTERS | LINK_COUNTERS, bits=64),
    )


def ring_nic_registers(config: RingConfig) -> RegisterMap:
    """The register map of a ring node with a host packet port; the same for all of them."""
    return node_map(
        _identity(NIC_IDENTITY),
        _control(),
        _job(),
        _host(),
        counter_registers(ENGINE_COUNTERS | LINK_COUNTERS | HOST_COUNTERS, bits=64),
    )
