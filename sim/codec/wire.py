"""What a gradient becomes on its way and the bytes that carry it: our codecs, and truncation for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import FLOAT_BITS, TAG_BYTES, Bfp, CodecConfig, Inceptionn, Tag
from fanin.codec.golden import bfp, inceptionn

Float32 = npt.NDArray[np.float32]

_TAG_BYTES = np.array([TAG_BYTES[tag] for tag in Tag])


@dataclass(frozen=True)
class Truncation:
    """The ``dropped`` lowest bits of a value are not sent, and arrive as zeros (INCEPTIONN, figures 4 and 14).

    24 take the exponent's lowest bit, too. Raises ValueError unless 1 to 31 are dropped.
    """

    dropped: int

    def __post_init__(self) -> None:
        if self.dropped not in range(1, FLOAT_BITS):
            raise ValueError(f"dropped must be 1 to {FLOAT_BITS - 1} bits, not {self.dropped!r}")


AnyCodec = Truncation | CodecConfig | None


class Transfer(NamedTuple):
    """What arrives of a vector, and the bytes that carried it: payload, without headers.

    ``forms``: how many values took each of INCEPTIONN's forms, in the order of ``Tag``; else zeros.
    """

    values: Float32
    size: int
    forms: tuple[int, ...] = (0,) * len(Tag)


def transfer(values: Float32, codec: AnyCodec) -> Transfer:
    """Send a vector of ``values`` once. Raises ValueError for a codec without bytes on the wire."""
    match codec:
        case None:
            return Transfer(values, values.nbytes)
        case Truncation():
            kept = np.uint32((1 << FLOAT_BITS) - (1 << codec.dropped))
            received = (np.ascontiguousarray(values).view(np.uint32) & kept).view(np.float32)
            return Transfer(received, -(-values.size * (FLOAT_BITS - codec.dropped) // 8))
        case Inceptionn():
            received, tags = inceptionn.deliver(values, codec)
            forms = np.bincount(tags.reshape(-1), minlength=len(Tag))
            groups = -(-values.size // codec.group)
            size = groups * codec.tag_bytes + int(forms @ _TAG_BYTES)
            return Transfer(received, size, tuple(forms.tolist()))
        case Bfp():
            blocks = -(-values.size // codec.block)
            return Transfer(bfp.roundtrip(values, codec), -(-blocks * codec.block_bits // 8))
    raise ValueError(f"codec {codec.kind} has no bytes on the wire")


@dataclass
class Leg:
    """Bytes of one leg of an exchange: as float32 and as they travelled; and of the values that were sent by
    INCEPTIONN's codec how many took each form."""

    plain: int = 0
    sent: int = 0
    forms: tuple[int, ...] = field(default=(0,) * len(Tag), compare=False)

    @property
    def ratio(self) -> float:
        """Compression ratio; 1 where nothing travelled."""
        return self.plain / self.sent if self.sent else 1.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Per cent of the values in each form. Raises ValueError where INCEPTIONN's codec sent none."""
        if not sum(self.forms):
            raise ValueError("no value was sent by INCEPTIONN's codec")
        return tuple(100 * count / sum(self.forms) for count in self.forms)


@dataclass
class Traffic:
    """Bytes of all nodes' messages together, leg by leg; headers are not counted."""

    legs: dict[str, Leg] = field(default_factory=dict)

    def send(self, leg: str, values: Float32, codec: AnyCodec = None, *, times: int = 1) -> Float32:
        """What arrives of a vector that is sent so many ``times``."""
        arrived = transfer(values, codec)
        forms = tuple(times * count for count in arrived.forms)
        sent = Leg(times * values.nbytes, times * arrived.size, forms)
        self.legs[leg] = together([self.legs.get(leg, Leg()), sent])
        return arrived.values

    @property
    def total(self) -> Leg:
        """All legs together."""
        return together(self.legs.values())


def together(legs: Iterable[Leg]) -> Leg:
    """Several as one."""
    whole = list(legs)
    forms = tuple(map(sum, zip(*(leg.forms for leg in whole), strict=True)))
    return Leg(sum(leg.plain for leg in whole), sum(leg.sent for leg in whole), forms or Leg().forms)
