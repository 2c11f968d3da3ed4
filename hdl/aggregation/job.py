"""Job of the transport, with its status, counters and events."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Value
from amaranth.lib import data, enum

from fanin.golden.round_trip import RTT_BITS
from fanin.hdl.net.round_trip import FLOOR_BITS, TIMEOUT_BITS
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


class JobConfig(data.Struct):
    """Aggregation job, as in the registers; all fields except ``enable`` are constant while ``enable`` is high.

    - ``log2_slots``: log2 of the job's slots, at most the transport's ``slots`` and at least the protocol's
      slots of an operation.
    - ``base``: first slot, a multiple of the job's slots.
    - ``member``: bitmap with this worker's bit set.
    - ``timeout``: cycles before a retransmission, below 2^31; if ``adaptive``, their upper limit.
    - ``adaptive``: timeouts follow the measured round trips.
    - ``floor``: minimum cycles from the mean round trip to the timeout if ``adaptive``.
    - ``retries``: retransmissions of a packet before the transport stops.
    - ``own_mac``, ``switch_mac``: addresses of the node and the switch.
    - ``own_ip``, ``switch_ip``, ``udp_port``: used with UDP only; the port is both source and destination.
    """

    enable: 1
    job: JOB_BITS
    base: SLOT_BITS
    log2_slots: range(SLOTS.bit_length())
    member: BITMAP_BITS
    timeout: TIMEOUT_BITS
    adaptive: 1
    floor: FLOOR_BITS
    retries: RETRY_BITS
    own_mac: MAC_BITS
    own_ip: IP_BITS
    switch_mac: MAC_BITS
    switch_ip: IP_BITS
    udp_port: PORT_BITS


class FailureCause(enum.Enum, shape=2):
    """Cause of a transport's stop: an unanswered packet, or a round that would wrap."""

    NONE = 0
    TIMEOUT = 1
    ROUND_WRAP = 2


class TransportStatus(data.Struct):
    """Status of a transport.

    - ``idle``: no slot is in use.
    - ``failed`` and its ``cause`` stay until the transport is reset.
    - ``round_trip``, ``round_trip_deviation``: smoothed round trip from AGG to RESULT and its mean deviation,
      in cycles; 0 without an estimate.
    """

    idle: 1
    failed: 1
    cause: FailureCause
    round_trip: RTT_BITS
    round_trip_deviation: RTT_BITS


class FrameFaults(data.Struct):
    """Reason for dropping a frame: one pulse, at most one bit per frame, in order of precedence.

    - ``mac_error``: the MAC flagged the frame (FCS).
    - ``short``: headers or values are incomplete; for a foreign frame, the headers.
    - ``foreign``: other traffic, or not addressed to this node.
    - ``long``: bytes beyond the values and the 60-byte minimum.
    - ``checksum``: wrong IPv4 header checksum.
    - ``malformed``: wrong version, kind (not one for workers), round (0), or lengths in the IPv4 and UDP
      headers.
    - ``other_job``: another job.
    - ``slot_range``: a slot outside the job's.
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
    """One-cycle pulses for external counters.

    - ``agg_sent``, ``ack_sent``: first transmission of an AGG or ACK.
    - ``retransmissions``: any further transmission.
    - ``results``, ``confirms``: packets that changed the state of a slot.
    - ``duplicates``: packets received before.
    - ``stale``: packets for another round or state of the slot.
    - ``faults``: frames dropped before the check of their slot.
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
    """One-cycle pulses for measurement.

    ``agg``: the last beat of an operation's first AGG frame was transferred. ``fa``: an FA was handed over.
    """

    agg: 1
    fa: 1


def slot_mask(job: Any) -> Value:
    """Return the job's slots minus 1, as wide as a slot number."""
    return Cat(*(job.log2_slots > bit for bit in range(SLOT_BITS)))
