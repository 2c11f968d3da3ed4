"""A link's job, its status and counters, and the beats of its payloads."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from amaranth.lib import data, enum

from fanin.wire.ethernet import ETHERNET, IPV4, Encap
from fanin.wire.fields import field_bits
from fanin.wire.link import MAX_FRAMES, LinkFormat

SEQUENCE_BITS = 32  # of every format's ``sequence``, and of its limit
MAC_BITS = field_bits(ETHERNET, "source")
IP_BITS = field_bits(IPV4, "source")
PRIORITY_BITS = 3
TIMEOUT_BITS = 32
RETRY_BITS = 16
ACK_FRAMES_BITS = 8
ACK_DELAY_BITS = 16
MAC_WIDTHS = (32, 64, 128, 256, 512)
MAX_FRAME_BEATS = 1 << 12  # beyond any MAC's frames


class LinkTiming(data.Struct):
    """When a link sends again, gives up, and answers; each at least 1.

    After ``timeout`` cycles (up to 2^31) without progress frames are sent again, after ``retries`` such times
    in a row without any answer the job ends. Received frames are acknowledged once ``ack_frames`` were taken or
    consumed, or ``ack_delay`` cycles after the first of them.
    """

    timeout: TIMEOUT_BITS
    retries: RETRY_BITS
    ack_frames: ACK_FRAMES_BITS
    ack_delay: ACK_DELAY_BITS


def _widths(form: LinkFormat, names: tuple[str, ...]) -> dict[str, int]:
    return {name: field_bits(form.fields, name) for name in names}


def job_layout(form: LinkFormat, encap: Encap = Encap.L2) -> data.StructLayout:
    """One end's part in a job; steady from ``start`` until idle after ``reset``.

    The format's fields of the job and those that both ends agree on; its fields of the sender, of this end and
    of the previous one (``rank``, ``previous_rank``); the addresses of this end, of the previous one
    (``previous_mac``), which sends to it, and of the next one, to which it sends, with UDP of IP as well
    (``previous_ip``) and a ``priority``; and LinkTiming.
    """
    ends = ("own", "previous", "next")
    addresses = {f"{end}_mac": MAC_BITS for end in ends}
    if encap is Encap.UDP:
        addresses |= {f"{end}_ip": IP_BITS for end in ends} | {"priority": PRIORITY_BITS}
    own = _widths(form, form.job + form.compared)
    previous = {previous_name(form, name): width for name, width in _widths(form, form.sender).items()}
    return data.StructLayout({**own, **previous, **addresses, **LinkTiming.as_shape().members})


def previous_name(form: LinkFormat, name: str) -> str:
    """Return the member of the job with the value of the field ``name`` in frames of the previous end."""
    return f"previous_{name}" if name in form.sender else name


def difference_layout(form: LinkFormat) -> data.StructLayout:
    """Reasons of a MISMATCH: the compared fields that differed, a bit each, and ``acknowledged``.

    ``acknowledged``: the peer acknowledged a frame that was never sent, as it does after one of both ends alone
    has been restarted with the number of the job that runs.
    """
    return data.StructLayout(dict.fromkeys((*form.compared, "acknowledged"), 1))


def frame_fields(form: LinkFormat) -> data.StructLayout:
    """What a DATA frame's header says of its payload."""
    return data.StructLayout(_widths(form, form.data))


def told_layout(form: LinkFormat) -> data.StructLayout:
    """What the user of a link says in its answers."""
    return data.StructLayout(_widths(form, form.told))


def payload_beat(form: LinkFormat, width: int) -> data.StructLayout:
    """A beat of a payload: ``data``, first byte on the wire lowest, whether it is the ``last``, and the frame's
    fields, which are steady over its beats.
    """
    return data.StructLayout({"data": width, "last": 1, **frame_fields(form).members})


class LinkFailure(enum.Enum, shape=2):
    """Why a link stopped: the peer is silent, it has another idea of the job, or a frame was lost for good."""

    NONE = 0
    TIMEOUT = 1
    MISMATCH = 2
    LOSS = 3  #: in published mode alone


class LinkStatus(data.Struct):
    """``running``: between ``start`` and failure or ``reset``. ``idle``: all frames taken on ``tx`` are
    acknowledged, and none is being sent. ``failed`` and its ``cause`` hold until ``reset``.
    """

    running: 1
    idle: 1
    failed: 1
    cause: LinkFailure


class LinkHeard(data.Struct):
    """What a frame that came says of the neighbours.

    ``previous``: a DATA or PROBE frame of the previous end, whose compared fields are the job's.
    ``next``: an answer of the next end.
    ``stranger``: a frame whose source is another end than its kind comes from.
    """

    previous: 1
    next: 1
    stranger: 1


class LinkCounters(data.Struct):
    """One-cycle pulses, for counters outside.

    ``sent``: DATA frames, each once; ``retransmitted``: DATA frames again; ``acks``, ``naks``, ``probes``:
    those sent. ``received``: DATA frames taken. Dropped: ``bad_fcs`` (the MAC flagged it), ``foreign``
    (another job's, or no frame of a link at all), ``duplicates`` (DATA that had been taken),
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
        raise ValueError(f"data_width must be a power of two from 32 to 512, not {data_width!r}")
    if frame_beats not in range(1, MAX_FRAME_BEATS + 1):
        raise ValueError(f"frame_beats must be 1 to {MAX_FRAME_BEATS}, not {frame_beats!r}")
    if buffer_frames not in range(2, MAX_FRAMES + 1):
        raise ValueError(f"buffer_frames must be 2 to {MAX_FRAMES}, not {buffer_frames!r}")
    if replay_frames not in (1 << n for n in range(1, MAX_FRAMES.bit_length())):
        raise ValueError(f"replay_frames must be a power of two from 2 to {MAX_FRAMES}, not {replay_frames!r}")
    if first_sequence not in range(1 << SEQUENCE_BITS):
        raise ValueError(f"first_sequence must be 0 to 2^{SEQUENCE_BITS} - 1, not {first_sequence!r}")
