"""Where header fields lie in the beats of a stream of 32 bits, derived from :mod:`fanin.wire`.

Four bytes to a beat, the first in the lowest bits. A field that is kept as it came is in wire order:
:func:`~fanin.hdl.net.headers.swap_bytes` makes a number of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data

from fanin.wire.control import ABOUT, CONTROL, CONTROL_AT, IDENTITY_WORDS, MAX_FRAME, WORD_BYTES
from fanin.wire.ethernet import ETHERNET, IPV4
from fanin.wire.fields import Field, byte_length, field_bits, pack_fields

WIDTH = 8 * WORD_BYTES
BODY_AT = CONTROL_AT + byte_length(CONTROL)
BODY_BEAT = BODY_AT // WORD_BYTES
MAC_BITS, IP_BITS = field_bits(ETHERNET, "source"), field_bits(IPV4, "source")
LEASE_BITS, SEQUENCE_BITS = field_bits(CONTROL, "lease"), field_bits(CONTROL, "sequence")
SIZE_BITS = MAX_FRAME.bit_length()
PLACE_BITS = (MAX_FRAME // WORD_BYTES).bit_length()  # of a beat in its frame

#: What a board says of itself: ABOUT's fields between holder and offer, a word each.
AboutWords = data.ArrayLayout(WIDTH, IDENTITY_WORDS)
assert all(field.bits == WIDTH for field in ABOUT)
assert BODY_AT % WORD_BYTES == 0

#: What has become of a frame, a pulse for each: a request was carried out, answered again, not answered since
#: it was stale, refused, malformed; a frame was dropped, too long or without room; ARP or an echo was answered.
ResponderEvents = data.StructLayout(
    dict.fromkeys(
        ("requests", "repeats", "stale", "refused", "malformed", "dropped", "arps", "echoes"),
        1,
    )
)


class Wanted(NamedTuple):
    """What bits of a beat must be."""

    beat: int
    mask: int
    value: int

    def holds(self, word: Any) -> Value:
        """Whether the beat is so."""
        low = (self.mask & -self.mask).bit_length() - 1
        high = self.mask.bit_length()
        bits = [n for n in range(low, high) if self.mask >> n & 1]
        if len(bits) == high - low:
            return Value.cast(word)[low:high] == self.value >> low
        return (Value.cast(word) & self.mask) == self.value


def wanted(
    fields: Sequence[Field], at: int, *, only: Mapping[str, int] | None = None, **values: int
) -> Iterator[Wanted]:
    """What the beats of a header that begins at byte ``at`` must be for fields to have these values.

    ``only``: of a field, the bits to look at; all of them where it is not named.
    """
    looked = {f.name: (1 << f.bits) - 1 for f in fields if f.name in values} | dict(only or {})
    masks, images = (_beats(bytes(at) + pack_fields(fields, packed)) for packed in (looked, values))
    for beat, (mask, image) in enumerate(zip(masks, images, strict=True)):
        if mask:
            yield Wanted(beat, mask, image)


def _beats(header: bytes) -> list[int]:
    return [int.from_bytes(header[n : n + WORD_BYTES], "little") for n in range(0, len(header), WORD_BYTES)]


class Piece(NamedTuple):
    """The part of a field that lies in one beat: bits of both, in wire order."""

    beat: int
    word: slice
    field: slice


def pieces(fields: Sequence[Field], at: int, name: str) -> list[Piece]:
    """Where a field of whole bytes lies, of a header that begins at byte ``at``."""
    before = [f.name for f in fields].index(name)
    first = 8 * at + sum(f.bits for f in fields[:before])
    found: list[Piece] = []
    done, bits = 0, fields[before].bits
    while done < bits:
        beat, low = divmod(first + done, WIDTH)
        count = min(WIDTH - low, bits - done)
        found.append(Piece(beat, slice(low, low + count), slice(done, done + count)))
        done += count
    return found


def kept(m: Module, word: Any, place: Sequence[Any], fields: Sequence[Field], at: int, name: str) -> Signal:
    """A register that keeps a field, in wire order; ``place[n]`` says that ``word`` is beat n."""
    register = Signal(field_bits(fields, name), name=f"{name}_kept", reset_less=True)
    for piece in pieces(fields, at, name):
        with m.If(place[piece.beat]):
            m.d.sync += register[piece.field].eq(Value.cast(word)[piece.word])
    return register


class Agreement:
    """Conditions on beats of a frame, gathered as they pass: ``now`` is false once a beat has broken one.

    ``place[n]``: the beat on ``word`` is number n; all are low between beats. ``later`` is ``now`` of the cycle
    before. The first beat forgets what the frame before has broken.
    """

    def __init__(self, m: Module, place: Sequence[Any], conditions: Iterable[tuple[int, Any]], *, name: str):
        broken = Signal(name=f"{name}_broken")
        self.now = Signal(name=f"{name}_now")
        breaks = Cat(place[beat] & ~condition for beat, condition in conditions)
        m.d.comb += self.now.eq(~(broken & ~place[0] | breaks.any()))
        m.d.sync += broken.eq(~self.now)
        self.later = ~broken
