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


class BeatCondition(NamedTuple):
    """Condition that the bits of ``mask`` in a beat equal those of ``value``."""

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


def field_conditions(
    fields: Sequence[Field], at: int, *, masks: Mapping[str, int] | None = None, **values: int
) -> Iterator[BeatCondition]:
    """Yield the conditions on a header's beats, from byte ``at`` on, for fields to have these values.

    ``masks``: bits to compare, by field; a field without an entry is compared completely.
    """
    compared = {f.name: (1 << f.bits) - 1 for f in fields if f.name in values} | dict(masks or {})
    beat_masks, beat_values = (_beats(bytes(at) + pack_fields(fields, packed)) for packed in (compared, values))
    for beat, (mask, value) in enumerate(zip(beat_masks, beat_values, strict=True)):
        if mask:
            yield BeatCondition(beat, mask, value)


def _beats(header: bytes) -> list[int]:
    return [int.from_bytes(header[n : n + WORD_BYTES], "little") for n in range(0, len(header), WORD_BYTES)]


class FieldPart(NamedTuple):
    """Part of a field in one beat: bit ranges of the beat and of the field, in wire order."""

    beat: int
    word: slice
    field: slice


def field_parts(fields: Sequence[Field], at: int, name: str) -> list[FieldPart]:
    """Return the parts of a field of whole bytes, for a header from byte ``at`` on."""
    index = [f.name for f in fields].index(name)
    first = 8 * at + sum(f.bits for f in fields[:index])
    parts: list[FieldPart] = []
    done, bits = 0, fields[index].bits
    while done < bits:
        beat, low = divmod(first + done, WIDTH)
        count = min(WIDTH - low, bits - done)
        parts.append(FieldPart(beat, slice(low, low + count), slice(done, done + count)))
        done += count
    return parts


def stored_field(
    m: Module, word: Any, place: Sequence[Any], fields: Sequence[Field], at: int, name: str
) -> Signal:
    """Return a register that stores a field, in wire order; ``place[n]``: ``word`` is beat n."""
    register = Signal(field_bits(fields, name), name=f"{name}_stored", reset_less=True)
    for part in field_parts(fields, at, name):
        with m.If(place[part.beat]):
            m.d.sync += register[part.field].eq(Value.cast(word)[part.word])
    return register


class Agreement:
    """Conjunction of conditions on a frame's beats, evaluated as they pass.

    ``holds``: a cycle ago, no beat of the frame had violated its condition. ``place[n]``: the beat is number n
    of its frame; all are low between beats. The first beat of a frame clears violations of the previous frame.
    """

    def __init__(self, m: Module, place: Sequence[Any], conditions: Iterable[tuple[int, Any]], *, name: str):
        violated = Signal(name=f"{name}_violated")
        violations = Cat(place[beat] & ~condition for beat, condition in conditions)
        m.d.sync += violated.eq(violated & ~place[0] | violations.any())
        self.holds = ~violated
