"""Positions of header fields in the beats of a stream of 32 bits, derived from :mod:`fanin.wire`.

A beat has four bytes, the first in the lowest bits. Stored fields stay in wire order;
:func:`~fanin.hdl.net.headers.swap_bytes` turns them into numbers.
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
PLACE_BITS = (MAX_FRAME // WORD_BYTES).bit_length()  # width of the number of a beat in its frame

#: Description of a board in ABOUT: its fields between holder and offer, one word each.
AboutWords = data.ArrayLayout(WIDTH, IDENTITY_WORDS)
assert all(field.bits == WIDTH for field in ABOUT)
assert BODY_AT % WORD_BYTES == 0

#: Pulses of a responder.
#:
#: - ``requests``: a control request was executed.
#: - ``repeats``: a control request was answered again.
#: - ``stale``: a control request was ignored, since it is older than the last one.
#: - ``refused``: a control request was rejected by the lease.
#: - ``malformed``: a request was rejected by its form.
#: - ``dropped``: a frame was too long or found no room.
#: - ``arps``, ``echoes``: an ARP or echo request was answered.
ResponderEvents = data.StructLayout(
    dict.fromkeys(
        ("requests", "repeats", "stale", "refused", "malformed", "dropped", "arps", "echoes"),
        1,
    )
)


class Wanted(NamedTuple):
    """Condition on the bits of a beat."""

    beat: int
    mask: int
    value: int

    def holds(self, word: Any) -> Value:
        """Return whether the beat meets the condition."""
        low = (self.mask & -self.mask).bit_length() - 1
        high = self.mask.bit_length()
        bits = [n for n in range(low, high) if self.mask >> n & 1]
        if len(bits) == high - low:
            return Value.cast(word)[low:high] == self.value >> low
        return (Value.cast(word) & self.mask) == self.value


def wanted(
    fields: Sequence[Field], at: int, *, only: Mapping[str, int] | None = None, **values: int
) -> Iterator[Wanted]:
    """Yield the conditions on a header's beats, from byte ``at`` on, for fields to have these values.

    ``only``: mask of the bits to compare, by field; all bits of fields without an entry.
    """
    looked = {f.name: (1 << f.bits) - 1 for f in fields if f.name in values} | dict(only or {})
    masks, images = (_beats(bytes(at) + pack_fields(fields, packed)) for packed in (looked, values))
    for beat, (mask, image) in enumerate(zip(masks, images, strict=True)):
        if mask:
            yield Wanted(beat, mask, image)


def _beats(header: bytes) -> list[int]:
    return [int.from_bytes(header[n : n + WORD_BYTES], "little") for n in range(0, len(header), WORD_BYTES)]


class Piece(NamedTuple):
    """Part of a field in one beat: bit ranges of the beat and of the field, in wire order."""

    beat: int
    word: slice
    field: slice


def pieces(fields: Sequence[Field], at: int, name: str) -> list[Piece]:
    """Return the pieces of a field of whole bytes, for a header from byte ``at`` on."""
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
    """Return a register that stores a field, in wire order; ``place[n]``: ``word`` is beat n."""
    register = Signal(field_bits(fields, name), name=f"{name}_kept", reset_less=True)
    for piece in pieces(fields, at, name):
        with m.If(place[piece.beat]):
            m.d.sync += register[piece.field].eq(Value.cast(word)[piece.word])
    return register


class Agreement:
    """Conjunction of conditions on a frame's beats, evaluated as they pass.

    ``now`` is low from the first beat that violates a condition; ``later`` is ``now`` delayed by a cycle.
    ``place[n]``: the beat on ``word`` is number n; all are low between beats. The first beat of a frame clears
    violations of the previous frame.
    """

    def __init__(self, m: Module, place: Sequence[Any], conditions: Iterable[tuple[int, Any]], *, name: str):
        broken = Signal(name=f"{name}_broken")
        self.now = Signal(name=f"{name}_now")
        breaks = Cat(place[beat] & ~condition for beat, condition in conditions)
        m.d.comb += self.now.eq(~(broken & ~place[0] | breaks.any()))
        m.d.sync += broken.eq(~self.now)
        self.later = ~broken
