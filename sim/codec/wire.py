"""Transfer of gradients: received values and bytes on the wire, for fanin's codecs and for truncation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import FLOAT_BITS, TAG_BYTES, Bfp, CodecConfig, Half, Inceptionn, Mx, Tag
from fanin.codec.golden import inceptionn
from fanin.codec.golden.codecs import roundtrip
from fanin.codec.golden.rounding import derived_seed

Float32 = npt.NDArray[np.float32]

_TAG_BYTES = np.array([TAG_BYTES[tag] for tag in Tag])


@dataclass(frozen=True)
class Truncation:
    """Truncation of the ``dropped`` lowest bits of a value, received as zeros (INCEPTIONN, figures 4 and 14).

    24 bits include the exponent's lowest bit. Raises ValueError unless 1 to 31 bits are dropped.
    """

    dropped: int

    def __post_init__(self) -> None:
        if self.dropped not in range(1, FLOAT_BITS):
            raise ValueError(f"dropped must be 1 to {FLOAT_BITS - 1} bits, not {self.dropped!r}")


AnyCodec = Truncation | CodecConfig | None


class Transfer(NamedTuple):
    """Received values of a vector, and the bytes that carried them: payload, without headers.

    ``forms``: number of values in each of INCEPTIONN's forms, in the order of ``Tag``; zeros for other codecs.
    """

    values: Float32
    size: int
    forms: tuple[int, ...] = (0,) * len(Tag)


def transfer(values: Float32, codec: AnyCodec, seed: int = 1) -> Transfer:
    """Send a vector once; ``seed`` is that of stochastic rounding. Raises ValueError for a codec without bytes
    on the wire.
    """
    match codec:
        case None:
            return Transfer(values, values.nbytes)
        case Truncation():
            mask = np.uint32((1 << FLOAT_BITS) - (1 << codec.dropped))
            received = (np.ascontiguousarray(values).view(np.uint32) & mask).view(np.float32)
            return Transfer(received, -(-values.size * (FLOAT_BITS - codec.dropped) // 8))
        case Inceptionn():
            received, tags = inceptionn.deliver(values, codec)
            forms = np.bincount(tags.reshape(-1), minlength=len(Tag))
            groups = -(-values.size // codec.group)
            size = groups * codec.tag_bytes + int(forms @ _TAG_BYTES)
            return Transfer(received, size, tuple(forms.tolist()))
        case Bfp() | Mx() | Half():
            size, _ = codec.stream_limits(values.size)
            return Transfer(roundtrip(values, codec, seed), size)
    raise ValueError(f"codec {codec.kind} has no bytes on the wire")


@dataclass
class LegBytes:
    """Bytes of one leg of an exchange.

    - ``uncompressed``: bytes as float32.
    - ``sent``: bytes on the wire.
    - ``forms``: values in each of INCEPTIONN's forms, of those sent by its codec.
    """

    uncompressed: int = 0
    sent: int = 0
    forms: tuple[int, ...] = field(default=(0,) * len(Tag), compare=False)

    @property
    def ratio(self) -> float:
        """Compression ratio; 1 without traffic."""
        return self.uncompressed / self.sent if self.sent else 1.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Per cent of the values in each form. Raises ValueError if INCEPTIONN's codec sent none."""
        if not sum(self.forms):
            raise ValueError("no value was sent by INCEPTIONN's codec")
        return tuple(100 * count / sum(self.forms) for count in self.forms)


@dataclass
class Traffic:
    """Bytes of the messages of all nodes together, by leg, without headers.

    ``sends``: number of vectors sent, from which each has other random bits.
    """

    legs: dict[str, LegBytes] = field(default_factory=dict)
    sends: int = field(default=0, compare=False)

    def send(self, leg: str, values: Float32, codec: AnyCodec = None, *, times: int = 1) -> Float32:
        """Count a vector that is sent ``times`` times; return the received values."""
        self.sends += 1
        received = transfer(values, codec, derived_seed(1, self.sends))
        forms = tuple(times * count for count in received.forms)
        sent = LegBytes(times * values.nbytes, times * received.size, forms)
        self.legs[leg] = sum_legs([self.legs.get(leg, LegBytes()), sent])
        return received.values

    @property
    def total(self) -> LegBytes:
        """Sum of all legs."""
        return sum_legs(self.legs.values())


def sum_legs(legs: Iterable[LegBytes]) -> LegBytes:
    """Return the sum of legs."""
    leg_list = list(legs)
    forms = tuple(map(sum, zip(*(leg.forms for leg in leg_list), strict=True)))
    return LegBytes(
        sum(leg.uncompressed for leg in leg_list), sum(leg.sent for leg in leg_list), forms or LegBytes().forms
    )
