"""The transport's job, and its status, counters and events."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Value
from amaranth.lib import data, enum

from fanin.job import RETRY_BITS, SLOTS
from fanin.wire.aggregation import AGGREGATION
from fanin.wire.ethernet import ETHERNET, IPV4, UDP
from fanin.wire.fields import field_bits

MAC_BITS = field_bits(ETHERNET, "destination")
IP_BITS = field_bits(IPV4, "destination")
PORT_BITS = field_bits(UDP, "destination_port")
JOB_BITS = field_bits(AGGREGATION, "job")
SLOT_BITS = field_bits(AGGREGATION, "slot")
ROUND_BITS = field_bits(AGGREGATION, "round")
BITMAP_BITS = field_bits(AGGREGATION, "bitmap")
TIMEOUT_BITS = 32


class JobConfig(data.Struct):
    """One job, as registers hold it. All but ``enable`` must hold still while ``enable`` is set.

    ``log2_slots`` gives the job's slots, at most the transport's ``slots``, and at least what its protocol
    needs for an operation; ``base`` is a multiple of them; ``member`` has one bit set; ``timeout`` is in
    cycles, below 2^31; ``udp_port`` serves as source and destination, and the IP addresses and it matter to
    UDP only.
    """

    enable: 1
    job: JOB_BITS
    base: SLOT_BITS
    log2_slots: range(SLOTS.bit_length())
    member: BITMAP_BITS
    timeout: TIMEOUT_BITS
    retries: RETRY_BITS
    own_mac: MAC_BITS
    own_ip: IP_BITS
    switch_mac: MAC_BITS
    switch_ip: IP_BITS
    udp_port: PORT_BITS


class FailureCause(enum.Enum, shape=2):
    """Why a transport stopped: a packet stayed unanswered, or the round would wrap."""

    NONE = 0
    TIMEOUT = 1
    ROUND_WRAP = 2


class TransportStatus(data.Struct):
    """``idle``: no slot is in use. ``failed`` and its ``cause`` hold until the transport is reset."""

    idle: 1
    failed: 1
    cause: FailureCause


class FrameFaults(data.Struct):
    """Why a frame was dropped: one pulse each, at most one of them a frame; listed in order of precedence.

    ``mac_error``: the MAC flagged it (FCS). ``short``: headers or values are incomplete (of a foreign
    frame, the headers). ``foreign``: other traffic, or not addressed to this node. ``long``: bytes beyond
    the values and the 60-byte minimum. ``checksum``: IPv4 header checksum. ``malformed``: version, kind
    (one that does not go to workers), round 0, or the lengths in the IPv4 and UDP headers. ``other_job``:
    another job. ``slot_range``: a slot outside the job's.
    """

    mac_error: 1
    short: 1
    foreign: 1
    long: 1
    checksum: 1
    malformed: 1
    other_job: 1
    slot_range: 1


class TransportCounters(data.Struct):
    """One-cycle pulses, for counters outside.

    ``agg_sent`` and ``ack_sent``: first transmissions; ``retransmissions``: all further ones. ``results`` and
    ``confirms``: those that moved a slot on; ``duplicates``: those that had been received before; ``stale``:
    round or state of the slot is another. ``faults``: frames dropped before that.
    """

    agg_sent: 1
    ack_sent: 1
    retransmissions: 1
    results: 1
    confirms: 1
    duplicates: 1
    stale: 1
    faults: FrameFaults


class TransportEvents(data.Struct):
    """One-cycle pulses, for measurement.

    ``agg``: an operation's first AGG frame has left (its last beat was transferred); ``fa``: an FA was handed
    on.
    """

    agg: 1
    fa: 1


def slot_mask(job: Any) -> Value:
    """The job's slots, less 1, as wide as a slot number."""
    return Cat(*(job.log2_slots > bit for bit in range(SLOT_BITS)))
