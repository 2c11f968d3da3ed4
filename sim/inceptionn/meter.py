"""Traffic of an exchange on the wire: a switch that counts the frames of each leg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from fanin.codec.facts import TOS_RAW
from fanin.inceptionn.facts import HEADER_BYTES, Leg
from fanin.job import SwitchCounters
from fanin.sim.switch.base import Delivery
from fanin.sim.switch.forward import Forwarder
from fanin.wire.ethernet import (
    AROUND_FRAME,
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_TCP,
    IPV4,
    MIN_FRAME_BYTES,
    TCP,
)
from fanin.wire.fields import byte_length, unpack_fields

_IP = byte_length(ETHERNET)
_TCP = _IP + byte_length(IPV4)
_LEG_OF_PORT = {leg.port: leg for leg in Leg}


@dataclass
class LegTraffic:
    """Frames of a leg that the switch has received: without frames lost before it, with retransmissions.

    - ``packets``: frames with payload.
    - ``raw``: packets that the NIC left uncompressed, since they would not have shrunk.
    - ``acknowledgements``: frames without payload.
    - ``payload``: bytes of payload.
    - ``wire``: bytes with headers, padding, preamble, FCS and gap.
    """

    packets: int = 0
    raw: int = 0
    acknowledgements: int = 0
    payload: int = 0
    wire: int = 0

    @property
    def header_share(self) -> float:
        """Share of the wire's bytes that are no payload; 0 without traffic."""
        return 1 - self.payload / self.wire if self.wire else 0.0

    def add(self, other: LegTraffic) -> LegTraffic:
        """Return the sum of both."""
        return LegTraffic(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


@dataclass
class MeterCounters(SwitchCounters):
    """A switch's counters, and those of each leg."""

    legs: dict[Leg, LegTraffic] = field(default_factory=dict)

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name; a leg's counters begin with its name."""
        flat = {name: value for name, value in super().as_dict().items() if name != "legs"}
        for leg, traffic in self.legs.items():
            flat |= {f"{leg.name} {name}": value for name, value in asdict(traffic).items()}
        return flat


def legs_of(counters: Mapping[str, int]) -> dict[Leg, LegTraffic]:
    """Return the traffic of each leg, from the counters of a run whose switch was a :class:`Meter`."""
    traffic: dict[Leg, LegTraffic] = {}
    for name, value in counters.items():
        leg, _, counter = name.partition(" ")
        if counter:
            setattr(traffic.setdefault(Leg[leg], LegTraffic()), counter, value)
    return traffic


class Meter(Forwarder):
    """Forwarder that counts frames by leg."""

    def __init__(self, ports: Mapping[int, int]):
        super().__init__(ports)
        self._traffic: dict[Leg, LegTraffic] = {}

    @classmethod
    def of(cls, macs: Sequence[int]) -> Meter:
        """Return the switch whose port n leads to the n-th of these addresses."""
        return cls({mac: port for port, mac in enumerate(macs)})

    def counters(self) -> MeterCounters:
        """Return the forwarder's counters, and each leg's."""
        return MeterCounters(**vars(super().counters()), legs=self._traffic)

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Count a frame, and return it at its destination's port."""
        if len(frame) >= HEADER_BYTES:
            self._count(frame)
        return super().inject(port, frame, time)

    def _count(self, frame: bytes) -> None:
        ip = unpack_fields(IPV4, frame[_IP:])
        ethertype = unpack_fields(ETHERNET, frame)["ethertype"]
        leg = _LEG_OF_PORT.get(unpack_fields(TCP, frame[_TCP:])["destination_port"])
        if (ethertype, ip["protocol"]) != (ETHERTYPE_IPV4, IP_PROTOCOL_TCP) or leg is None:
            return
        payload = ip["length"] - (HEADER_BYTES - _IP)
        traffic = self._traffic.setdefault(leg, LegTraffic())
        traffic.packets += payload > 0
        traffic.acknowledgements += payload == 0
        traffic.raw += payload > 0 and ip["tos"] == TOS_RAW
        traffic.payload += payload
        traffic.wire += max(len(frame), MIN_FRAME_BYTES) + AROUND_FRAME
