"""Registers of a cluster node: the single source of RTL, host driver, C header and documentation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fanin.cnn.facts import Network
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.memory import BEAT_BYTES, saving_stages
from fanin.cnn.watchdog import MIN_TIMEOUT
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
from fanin.hdl.layers.interface import FRAME_BITS, Mode
from fanin.hdl.layers.network_port import (
    FAILURE,
    HIGH_WORD,
    INDEX_BITS,
    LINK_COUNTERS,
    LINK_WORD_BITS,
    OwnSettings,
    PeerSettings,
)

IDENTITY = 0x464E4E43  # "CNNF" in memory order: fanin CNN
VERSION = 3
ACK_DELAY = 64  # cycles
STAGE_BITS = 12
STREAM_BITS = 13  # width of a stream's number
FIFO_BITS = 13  # width of a FIFO's number


class Failure(IntEnum):
    """Cause of a job's failure."""

    NONE = 0
    TIMEOUT = 1  #: nothing has moved for ``timeout`` cycles
    MEMORY = 2  #: memory answered a read or a write with an error
    SETTINGS = 3  #: a job of no frames, or of batches of none
    LINK = 4  #: a connection has failed, or its run was reset during the job
    ADDRESS = 5  #: an address is no multiple of a beat, or beyond the node's address space
    UNLOADED = 6  #: parameters are unknown: since the last reset of the node no LOAD has ended
    CONNECTION = 7  #: a connection has not begun its run, or still holds words of an earlier job


class Direction(IntEnum):
    """Direction of a stage's stream: forward to the next stages, or backward to the previous stages."""

    FORWARD = 0
    BACKWARD = 1


NODE_COUNTERS = {
    "cycles": "cycles in which a job was under way",
    "read_beats": f"beats of {BEAT_BYTES} bytes read from memory",
    "written_beats": f"beats of {BEAT_BYTES} bytes written to memory",
}


class StreamWord(IntEnum):
    """Word of a stream that the register ``stream_word`` shows, counted since the start of the last job."""

    BUSY = 0  #: cycles in which the stage worked, bits 31…0
    BUSY_HIGH = 1  #: cycles in which the stage worked, bits 47…32
    STARVED = 2  #: cycles in which the stage waited for an upstream stage, bits 31…0
    STARVED_HIGH = 3  #: cycles in which the stage waited for an upstream stage, bits 47…32
    BLOCKED = 4  #: cycles in which the stage waited for a downstream stage, bits 31…0
    BLOCKED_HIGH = 5  #: cycles in which the stage waited for a downstream stage, bits 47…32
    FRAMES = 6  #: frames that have left in full
    NONFINITE = 7  #: bit 31: an infinity or a NaN has left; bits 23…0: the first frame with one
    FIRST = 8  #: cycle of the job, modulo 2^32, by which frame ``timed_first`` has left in full
    LAST = 9  #: cycle of the job, modulo 2^32, by which frame ``timed_last`` has left in full
    UPDATED = 10  #: forward streams: cycle by which the stage has updated its parameters after ``LAST``


@dataclass(frozen=True)
class StageStream:
    """Stream that leaves a stage: its outputs, or the gradients of its input ``port``."""

    stage: int
    direction: Direction
    port: int = 0


class Fifo(IntEnum):
    """Kind of a watched FIFO, by its content."""

    FORWARD = 0  #: maps waiting before a stage of several inputs, in transfers of the source
    BACKWARD = 1  #: gradients waiting at a map with several consumers, in transfers of the consumer
    RING = 2  #: saved maps in memory, from the last burst's acknowledgement to the last beat's read, in frames
    SAVE = 3  #: queue of a saved map to memory, in beats


@dataclass(frozen=True)
class StageFifo:
    """FIFO of a stage: of the map or the gradients of its input ``port``, or of the map that it saves."""

    kind: Fifo
    stage: int
    port: int = 0


def stage_fifos(network: Network) -> tuple[StageFifo, ...]:
    """Return all FIFOs that a node watches, in the order of their numbers; some may be of size 0."""
    fifos = []
    for index, stage in enumerate(network.stages):
        for port, source in enumerate(stage.sources):
            if stage.layer.joins or stage.layer.pauses:
                fifos.append(StageFifo(Fifo.FORWARD, index, port))
            if len(network.consumers[source]) > 1 or network.stages[source].layer.pauses:
                fifos.append(StageFifo(Fifo.BACKWARD, index, port))
    for index in saving_stages(network):
        fifos += [StageFifo(Fifo.RING, index), StageFifo(Fifo.SAVE, index)]
    return tuple(fifos)


def stage_streams(network: Network) -> tuple[StageStream, ...]:
    """Return all streams that leave stages, in the order of their numbers."""
    streams = []
    for index, stage in enumerate(network.stages):
        if not isinstance(stage.layer, (Output, Egress)):
            streams.append(StageStream(index, Direction.FORWARD))
        ports = 1 if isinstance(stage.layer, SoftCrossLoss) else len(stage.layer.inputs)
        back = stage.layer.gradient and not isinstance(stage.layer, Output)
        streams += [StageStream(index, Direction.BACKWARD, port) for port in range(ports * back)]
    return tuple(streams)


def network_ends(network: Network) -> tuple[int, ...]:
    """Return the indices of the stages that are ends of connections, in the order of the connections."""
    return tuple(i for i, stage in enumerate(network.stages) if isinstance(stage.layer, (Ingress, Egress)))


def network_constants(network: Network) -> dict[str, int]:
    """Return the identity constants of a node built for ``network``, by field."""
    digest = int(network.digest[:16], 16)
    return {
        "id": IDENTITY,
        "version": VERSION,
        "stages": len(network.stages),
        "connections": len(network_ends(network)),
        "digest_high": digest >> WORD_BITS,
        "digest_low": digest & ((1 << WORD_BITS) - 1),
    }


def _identity() -> tuple[Register, ...]:
    return (
        *identity_registers(IDENTITY, VERSION),
        shape_register(
            Field(
                "stages", STAGE_BITS, "stages of the device, including inputs, output and ends of connections"
            ),
            Field("connections", INDEX_BITS + 1, "stages that are ends of connections"),
        ),
        Register("digest_high", Access.RO, "bits 255…224 of the SHA-256 of the network and of its build"),
        Register("digest_low", Access.RO, "bits 223…192 of that SHA-256"),
    )


def _control() -> tuple[Register, ...]:
    return (
        control_register(
            Field("start", 1, "begin a job with the registers below; refused while the node is not idle"),
            Field("set_peer", 1, "give the connection at `connection` its values; refused while it has a run"),
            Field(
                "start_links",
                1,
                "all connections begin run `run`; refused while one has a run, and for the last run's number",
            ),
            Field("reset_links", 1, "all connections forget their run; a job under way fails with LINK"),
            Field("reset", 1, "the node forgets its job, its connections' runs and its parameters"),
            note="bits set in one write act in the order `reset_links`, `set_peer`, `start_links`. While "
            "`reset` is written or under way, `start`, `set_peer` and `start_links` are refused. After "
            "TIMEOUT, MEMORY and LINK `start` needs a `reset`",
        ),
        status_register(
            Field("running", 1, "a job is under way"),
            *failure_fields(Failure, "the last job has failed"),
            Field("nonfinite", 1, "an infinity or a NaN has left a stage"),
            Field("waits", 1, "after TIMEOUT: a stream offers a transfer that is not taken"),
            Field("waiting_stream", STREAM_BITS, "number of the first stream that waits"),
            Field("failed_connection", INDEX_BITS, "after LINK: lowest index of the failed connections"),
            Field("resetting", 1, "`reset` waits until memory has answered all requests"),
            Field("refused", 1, "the last `start` was refused"),
            Field("links_refused", 1, "the last `set_peer` or `start_links` was refused"),
        ),
    )


def _job(timeout: int) -> tuple[Register, ...]:
    modes = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode.__members__.values())
    places = {
        "parameters": "of the parameter image",
        "images": "of the first image",
        "labels": "of the first label",
        "results": "of the first result",
    }
    return (
        Register("mode", Access.RW, modes, bits=2),
        Register("frames", Access.RW, "frames of the job, if it evaluates or trains", bits=FRAME_BITS),
        Register("batch", Access.RW, "frames of a batch, if the job trains", bits=FRAME_BITS),
        Register("eta", Access.RW, "-learning rate / batch, binary32"),
        Register(
            "last_eta", Access.RW, "-learning rate / frames of the last batch, which may be shorter, binary32"
        ),
        Register("momentum", Access.RW, "binary32"),
        *(
            Register(name, Access.RW, f"byte address {target}, a multiple of {BEAT_BYTES}", bits=64)
            for name, target in places.items()
        ),
        Register(
            "timed_first", Access.RW, "the frame that begins the batch whose times are kept", bits=FRAME_BITS
        ),
        Register("timed_last", Access.RW, "the frame that ends that batch", bits=FRAME_BITS),
        Register(
            "timeout",
            Access.RW,
            "cycles without a transfer until TIMEOUT; the reset value depends on the network, and is at least "
            "the one shown here",
            reset=timeout,
        ),
    )


def _streams() -> tuple[Register, ...]:
    words = ", ".join(f"{word.value} {word.name.lower()}" for word in StreamWord)
    return (
        Register(
            "stream",
            Access.RW,
            "which word of which stream `stream_word` shows; streams are numbered by the network",
            (
                Field("word", max(StreamWord).bit_length(), words),
                Field("stream_number", STREAM_BITS, "forward and backward of stage 0, of stage 1, …"),
            ),
        ),
        Register("stream_word", Access.RO, "value of the word that `stream` selects, in the last job"),
    )


def _links() -> tuple[Register, ...]:
    own_bits, peer_bits = OwnSettings.members, PeerSettings.members
    words = ", ".join(f"{number} {name}" for number, name in enumerate((*LINK_COUNTERS, FAILURE)))
    words += f"; of the counters, bits 31…0, and bits 47…32 at {HIGH_WORD} more"
    return (
        Register("run", Access.RW, "number of the run, the same at all devices", bits=own_bits["run"]),
        Register("own_mac", Access.RW, "this node's MAC address", bits=own_bits["own_mac"]),
        Register("own_ip", Access.RW, "this node's IPv4 address, for UDP frames"),
        Register(
            "link_timeout",
            Access.RW,
            "cycles without an answer before a PROBE, and the longest wait before a frame is sent again",
            reset=2_000,
        ),
        Register(
            "link_retries", Access.RW, "timeouts in a row after which the connection fails", bits=16, reset=16
        ),
        Register(
            "acknowledge",
            Access.RW,
            "when the receiver answers",
            (
                Field("ack_frames", own_bits["ack_frames"], "after this number of frames", reset=4),
                Field(
                    "ack_delay",
                    own_bits["ack_delay"],
                    "or this number of cycles after the first of them",
                    reset=ACK_DELAY,
                ),
            ),
        ),
        Register(
            "connection",
            Access.RW,
            "a connection, for `set_peer`",
            (
                Field(
                    "connection_index",
                    INDEX_BITS,
                    "index of the connection: ends are numbered in the order of the stages",
                ),
                Field(
                    "connection_number",
                    peer_bits["connection"],
                    "number of the connection, the same at both ends",
                ),
                Field("priority", peer_bits["priority"], "priority of its frames, for UDP"),
            ),
        ),
        Register(
            "peer_mac", Access.RW, "MAC address of the device at the other end", bits=peer_bits["peer_mac"]
        ),
        Register("peer_ip", Access.RW, "IPv4 address of the device at the other end"),
        Register(
            "link",
            Access.RW,
            "which counter of which connection `link_count` shows; failure: 1 the peer is silent, 2 its frames "
            "do not fit, 3 a frame is lost",
            (
                Field("link_word", LINK_WORD_BITS, words),
                Field("link_index", INDEX_BITS, "index of the connection"),
            ),
        ),
        Register("link_count", Access.RO, "value of the counter that `link` selects"),
    )


def _fifos() -> tuple[Register, ...]:
    return (
        Register(
            "fifo",
            Access.RW,
            "which FIFO `fifo_level` shows; FIFOs are numbered by the network",
            bits=FIFO_BITS,
        ),
        Register(
            "fifo_level",
            Access.RO,
            "highest level in the last job, in transfers, frames of a ring, or beats to a ring",
        ),
    )


def cluster_registers(*, timeout: int = MIN_TIMEOUT) -> RegisterMap:
    """Return the register map of a cluster node: equal for all networks, except for the initial ``timeout``."""
    counters = counter_registers(NODE_COUNTERS, bits=64)
    return node_map(_identity(), _control(), _job(timeout), _streams(), _fifos(), _links(), counters)
