"""What a gradient becomes on its way and the bytes that carry it: our codecs, and truncation for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fanin.codec import FLOAT_BITS, TAG_BYTES, Bfp, CodecConfig, Inceptionn, Tag
from fanin.golden.codec import bfp, inceptionn

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


def transfer(values: Float32, codec: AnyCodec) -> tuple[Float32, int]:
    """What arrives of a vector of ``values``, and the bytes that carried it: payload, without headers."""
    match codec:
        case None:
            return values, values.nbytes
        case Truncation():
            kept = np.uint32((1 << FLOAT_BITS) - (1 << codec.dropped))
            received = (np.ascontiguousarray(values).view(np.uint32) & kept).view(np.float32)
            return received, -(-values.size * (FLOAT_BITS - codec.dropped) // 8)
        case Inceptionn():
            tags, words = inceptionn.compress(values, codec)
            groups = -(-values.size // codec.group)
            return inceptionn.decompress(tags, words), groups * codec.tag_bytes + int(_TAG_BYTES[tags].sum())
        case Bfp():
            blocks = -(-values.size // codec.block)
            return bfp.roundtrip(values, codec), -(-blocks * codec.block_bits // 8)
    raise ValueError(f"codec {codec.kind} has no bytes on the wire")


@dataclass
class Leg:
    """Bytes of one leg of an exchange: as float32 and as they travelled."""

    plain: int = 0
    sent: int = 0

    @property
    def ratio(self) -> float:
        """Compression ratio; 1 where nothing travelled."""
        return self.plain / self.sent if self.sent else 1.0


@dataclass
class Traffic:
    """Bytes of all nodes' messages together, leg by leg; headers are not counted."""

    legs: dict[str, Leg] = field(default_factory=dict)

    def send(self, leg: str, values: Float32, codec: AnyCodec = None, *, times: int = 1) -> Float32:
        """What arrives of a vector that is sent so many ``times``."""
        received, size = transfer(values, codec)
        count = self.legs.setdefault(leg, Leg())
        count.plain += times * values.nbytes
        count.sent += times * size
        return received

    @property
    def total(self) -> Leg:
        """All legs together."""
        return together(self.legs.values())


def together(legs: Iterable[Leg]) -> Leg:
    """Several as one."""
    pairs = [(leg.plain, leg.sent) for leg in legs]
    return Leg(sum(plain for plain, _ in pairs), sum(sent for _, sent in pairs))
