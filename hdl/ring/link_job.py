"""The ring link's job, its status and counters, and the beats of its payloads."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from amaranth.lib import data, enum

from fanin.hdl.net.headers import header_layout
from fanin.ring import MAX_FRAMES
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING

MAC_BITS = field_bits(ETHERNET, "source")
JOB_BITS = field_bits(RING, "job")
NODE_BITS = field_bits(RING, "nodes")
CODEC_BITS = field_bits(RING, "codec")
PARAMETERS_BITS = field_bits(RING, "parameters")
OPERATION_BITS = field_bits(RING, "operation")
SEQUENCE_BITS = field_bits(RING, "sequence")
COUNT_BITS = field_bits(RING, "count")
LENGTH_BITS = field_bits(RING, "length")
TIMEOUT_BITS = 32
RETRY_BITS = 16
ACK_FRAMES_BITS = 8
ACK_DELAY_BITS = 16
MAC_WIDTHS = (256, 512)
MAX_FRAME_BEATS = 1 << 12  # beyond any MAC's frames

# The headers in front of a payload, as a big-endian number, and what they say of the payload alone.
HEADER = data.StructLayout({"ring": header_layout(RING), "ethernet": header_layout(ETHERNET)})
FRAME = data.StructLayout({"operation": OPERATION_BITS, "count": COUNT_BITS, "length": LENGTH_BITS})


def link_beat(width: int) -> data.StructLayout:
    """A beat of a frame's payload: ``data``, first byte on the wire lowest, and whether it is the ``last``.

    ``operation`` (number of the descriptor), ``count`` (values of the operation) and ``length`` (words of the
    payload when decompressed) are the frame's: steady over its beats.
    """
    return data.StructLayout({"data": width, "last": 1, **FRAME.members})


class RingJob(data.Struct):
    """One node's part in one ring, as registers hold it; steady from ``start`` until idle after ``reset``.

    ``job`` numbers the ring, ``nodes`` counts its nodes, ``codec`` and ``parameters`` say how payloads are
    compressed: all as in the header, alike at all nodes. ``previous_mac`` sends to this node, this node to
    ``next_mac``. After ``timeout`` cycles (1 to 2^31) without progress frames are sent again, after
    ``retries`` (at least 1) such times in a row without any answer the job ends. Received frames are
    acknowledged once ``ack_frames`` (at least 1) were taken or consumed, or ``ack_delay`` cycles (at least 1)
    after the first of them.
    """

    job: JOB_BITS
    nodes: NODE_BITS
    codec: CODEC_BITS
    parameters: PARAMETERS_BITS
    own_mac: MAC_BITS
    previous_mac: MAC_BITS
    next_mac: MAC_BITS
    timeout: TIMEOUT_BITS
    retries: RETRY_BITS
    ack_frames: ACK_FRAMES_BITS
    ack_delay: ACK_DELAY_BITS


class LinkFailure(enum.Enum, shape=2):
    """Why a link stopped: the next node is silent, or the node before has another idea of the job."""

    NONE = 0
    TIMEOUT = 1
    MISMATCH = 2


class LinkStatus(data.Struct):
    """``running``: between ``start`` and failure or ``reset``. ``idle``: all frames taken on ``tx`` are
    acknowledged, and none is being sent. ``failed`` and its ``cause`` hold until ``reset``.
    """

    running: 1
    idle: 1
    failed: 1
    cause: LinkFailure


class LinkCounters(data.Struct):
    """One-cycle pulses, for counters outside.

    ``sent``: DATA frames, each once; ``retransmitted``: DATA frames again; ``acks``, ``naks``, ``probes``:
    those sent. ``received``: DATA frames taken. Dropped: ``bad_fcs`` (the MAC flagged it), ``foreign``
    (another ring's, or no frame of a ring at all), ``duplicates`` (DATA that had been taken),
    ``out_of_order`` (DATA after a gap, or beyond the room that was granted). Frames that arrive while the
    link does not run are not counted; one that is arriving when it starts is ``foreign``.
    """

    sent: 1
    retransmitted: 1
    acks: 1
    naks: 1
    probes: 1
    received: 1
    bad_fcs: 1
    foreign: 1
    duplicates: 1
    out_of_order: 1


def check_link(
    *,
    data_width: int = 512,
    frame_beats: int = 1,
    buffer_frames: int = 2,
    replay_frames: int = 2,
    first_sequence: int = 0,
) -> None:
    """Raises ValueError that names the first parameter of a link, or of its part, that is out of limits."""
    if data_width not in MAC_WIDTHS:
        raise ValueError(f"data_width must be 256 or 512, not {data_width!r}")
    if frame_beats not in range(1, MAX_FRAME_BEATS + 1):
        raise ValueError(f"frame_beats must be 1 to {MAX_FRAME_BEATS}, not {frame_beats!r}")
    if buffer_frames not in range(2, MAX_FRAMES + 1):
        raise ValueError(f"buffer_frames must be 2 to {MAX_FRAMES}, not {buffer_frames!r}")
    if replay_frames not in (1 << n for n in range(1, MAX_FRAMES.bit_length())):
        raise ValueError(f"replay_frames must be a power of two from 2 to {MAX_FRAMES}, not {replay_frames!r}")
    if first_sequence not in range(1 << SEQUENCE_BITS):
        raise ValueError(f"first_sequence must be 0 to 2^{SEQUENCE_BITS} - 1, not {first_sequence!r}")
