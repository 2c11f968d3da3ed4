"""Job of a link, with its status, its counters, and the beats of its payloads."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from amaranth.lib import data, enum

from fanin.hdl.net.round_trip import TIMEOUT_BITS
from fanin.wire.ethernet import ETHERNET, IPV4, Encap
from fanin.wire.fields import field_bits
from fanin.wire.link import FRAME_COUNTS, MAX_FRAMES, LinkFormat

SEQUENCE_BITS = 32  # width of every format's ``sequence``, and of its limit
MAC_BITS = field_bits(ETHERNET, "source")
IP_BITS = field_bits(IPV4, "source")
PRIORITY_BITS = 3
RETRY_BITS = 16
ACK_FRAMES_BITS = 8
ACK_DELAY_BITS = 16
MAC_WIDTHS = (32, 64, 128, 256, 512)
MAX_FRAME_BEATS = 1 << 12  # beyond any MAC's frames


class LinkTiming(data.Struct):
    """Times and counts for retransmission, failure and acknowledgement; each at least 1.

    - ``timeout``: cycles without progress (up to 2^31) before a PROBE, and the longest delay before a frame is
      sent again.
    - ``retries``: timeouts in a row, without any answer, before the job ends.
    - ``ack_frames``: received or consumed frames before an acknowledgement.
    - ``ack_delay``: cycles after the first of these frames before an acknowledgement.
    """

    timeout: TIMEOUT_BITS
    retries: RETRY_BITS
    ack_frames: ACK_FRAMES_BITS
    ack_delay: ACK_DELAY_BITS


def _widths(form: LinkFormat, names: tuple[str, ...]) -> dict[str, int]:
    return {name: field_bits(form.fields, name) for name in names}


def job_layout(form: LinkFormat, encap: Encap = Encap.L2) -> data.StructLayout:
    """Return the layout of one end's job; constant from ``start`` until idle after ``reset``.

    - The format's fields of the job, and those that both ends agree on.
    - The format's fields of the sender, for this end and for the previous one (``rank``, ``previous_rank``).
    - MAC addresses of this end (``own_mac``), of the previous one, which sends to it (``previous_mac``), and of
      the next one, to which it sends (``next_mac``).
    - With UDP, IP addresses of the three ends (``previous_ip``, …) and a ``priority``.
    - The fields of LinkTiming.
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
    """Return the layout of a MISMATCH's reasons.

    The layout has a bit for each compared field that differed, and ``acknowledged``: the peer acknowledged a
    frame that was never sent. This happens after only one of the ends has been restarted, with the number of
    the running job.
    """
    return data.StructLayout(dict.fromkeys((*form.compared, "acknowledged"), 1))


def frame_fields(form: LinkFormat) -> data.StructLayout:
    """Return the layout of the fields that a DATA frame's header has for its payload."""
    return data.StructLayout(_widths(form, form.data))


def told_layout(form: LinkFormat) -> data.StructLayout:
    """Return the layout of the fields that a link's user adds to its answers."""
    return data.StructLayout(_widths(form, form.told))


def payload_beat(form: LinkFormat, width: int) -> data.StructLayout:
    """Return the layout of a payload's beat.

    ``data``: first byte on the wire in the lowest bits. ``last``: last beat of the frame. Other fields: the
    frame's, constant over its beats.
    """
    return data.StructLayout({"data": width, "last": 1, **frame_fields(form).members})


class LinkFailure(enum.Enum, shape=2):
    """Cause of a link's stop: a silent peer, a peer with a different job, or a frame that was lost."""

    NONE = 0
    TIMEOUT = 1
    MISMATCH = 2
    LOSS = 3  #: only in published mode


class LinkStatus(data.Struct):
    """Status of a link.

    - ``running``: between ``start`` and failure or ``reset``.
    - ``idle``: all frames taken on ``tx`` are acknowledged, and no frame is being sent.
    - ``failed`` and its ``cause``: kept until ``reset``.
    """

    running: 1
    idle: 1
    failed: 1
    cause: LinkFailure


class LinkHeard(data.Struct):
    """Pulses that show that a neighbour is alive, one for each frame.

    - ``previous``: a DATA or PROBE frame of the previous end, whose compared fields are the job's.
    - ``next``: an answer of the next end.
    - ``stranger``: a frame from another source than the end that sends its kind.
    """

    previous: 1
    next: 1
    stranger: 1


class LinkCounters(data.Struct):
    """One-cycle pulses for external counters.

    Frames sent:

    - ``sent``: a DATA frame, for the first time.
    - ``retransmitted``: a DATA frame again.
    - ``acks``, ``naks``, ``probes``: an ACK, NAK or PROBE.

    Frames from the network:

    - ``received``: a DATA frame was accepted.
    - ``bad_fcs``: dropped, the MAC flagged it.
    - ``foreign``: dropped, of another job, or no frame of a link.
    - ``duplicates``: dropped, DATA that had been accepted before.
    - ``out_of_order``: DATA after a gap (accepted, unless in published mode), or beyond the room that was
      granted (dropped).

    Frames that arrive while the link does not run are not counted. A frame that is arriving at the start is
    ``foreign``.
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
    """Raise ValueError for the first parameter of a link, or of its part, that is out of range."""
    if data_width not in MAC_WIDTHS:
        raise ValueError(f"data_width must be a power of two from 32 to 512, not {data_width!r}")
    if frame_beats not in range(1, MAX_FRAME_BEATS + 1):
        raise ValueError(f"frame_beats must be 1 to {MAX_FRAME_BEATS}, not {frame_beats!r}")
    for name, frames in ("buffer_frames", buffer_frames), ("replay_frames", replay_frames):
        if frames not in FRAME_COUNTS:
            raise ValueError(f"{name} must be a power of two from 2 to {MAX_FRAMES}, not {frames!r}")
    if first_sequence not in range(1 << SEQUENCE_BITS):
        raise ValueError(f"first_sequence must be 0 to 2^{SEQUENCE_BITS} - 1, not {first_sequence!r}")
