"""Properties of a simulated link: delay, rate, faults, a host's software."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.wire.ethernet import FCS_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

MAX_DELAY_NS = 1e9
MIN_GBPS = 1e-3
_MAX_FRAME_BYTES = 9216
FAULTS = ("drop", "duplicate", "reorder", "corrupt")  # fields of LinkConfig
HOST = ("host_ns", "host_jitter_ns", "frame_bytes")  # fields of LinkConfig
TRUNK = ("delay_ns", "gbps", *FAULTS, "late_ns")  # fields that a link between switches may have of its own


def check_delay(name: str, value: float) -> None:
    """Raise ValueError, with the name of an option or a field, for a delay out of range."""
    if not 0 <= value <= MAX_DELAY_NS:
        raise ValueError(f"{name} must be in [0, {MAX_DELAY_NS:g}], not {value!r}")


@dataclass(frozen=True)
class LinkConfig:
    """Properties of a link, equal in both directions.

    - ``delay_ns``: propagation delay.
    - ``gbps``: rate in Gbit/s; infinite: frames take no time.
    - ``drop``, ``duplicate``, ``reorder``, ``corrupt``: probabilities per frame.
    - ``late_ns``: greatest extra delay of a reordered or duplicated copy, which later frames can overtake.
    - ``host_ns``: time of software per frame and direction, if a node's data is in a host's memory, not in the
      NIC.
    - ``host_jitter_ns``: mean of an exponentially distributed addition to ``host_ns``; frames stay in order.
    - ``frame_bytes``: a shorter frame takes as long on the wire as one of this size; its bytes do not change.
    """

    delay_ns: float = 100.0
    gbps: float = 100.0
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    late_ns: float = 2000.0
    host_ns: float = 0.0
    host_jitter_ns: float = 0.0
    frame_bytes: int = MIN_FRAME_BYTES

    def __post_init__(self) -> None:
        for name in FAULTS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, not {getattr(self, name)!r}")
        for name in ("delay_ns", "late_ns", "host_ns", "host_jitter_ns"):
            check_delay(name, getattr(self, name))
        if not MIN_FRAME_BYTES <= self.frame_bytes <= _MAX_FRAME_BYTES:
            limits = f"[{MIN_FRAME_BYTES}, {_MAX_FRAME_BYTES}]"
            raise ValueError(f"frame_bytes must be in {limits}, not {self.frame_bytes!r}")
        if not self.gbps >= MIN_GBPS:
            raise ValueError(f"gbps must be at least {MIN_GBPS:g}, not {self.gbps!r}")

    def duration(self, size: int) -> int:
        """Return the time of ``size`` bytes on the wire, in ps."""
        return round(size * 8000 / self.gbps)

    def wire_time(self, size: int) -> int:
        """Return the time in ps from a frame's first bit to its FCS's last; ``size``: without FCS, unpadded."""
        return self.duration(PREAMBLE_BYTES + max(size, self.frame_bytes) + FCS_BYTES)
