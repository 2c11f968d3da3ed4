"""Connection of interfaces with a check of their shapes. Amaranth 0.5's ``connect()`` compares widths only."""

from typing import Any

from amaranth import Module, Value
from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import wiring


def _same_shape(a: Any, b: Any) -> bool:
    if isinstance(a, ShapeCastable) or isinstance(b, ShapeCastable):
        return bool(a == b)
    return Shape.cast(a) == Shape.cast(b)


def connect_typed(m: Module, a: Any, b: Any) -> None:
    """Connect two interfaces. Members of the same name must have the same *shape*, not only the same width.

    Raises ValueError that names the first member whose shapes differ.
    """
    shapes = {path: member.shape for path, member, _ in b.signature.flatten(b) if member.is_port}
    for path, member, _ in a.signature.flatten(a):
        other = shapes.get(path)
        if other is not None and not _same_shape(member.shape, other):
            raise ValueError(
                f"{'.'.join(map(str, path))} is {member.shape!r} on one side, {other!r} on the other"
            )
    wiring.connect(m, a, b)


def connect_bits(m: Module, source: Any, target: Any) -> None:
    """Connect a stream to another whose payload has another shape of the same width.

    Raises ValueError if the widths differ.
    """
    given, taken = Value.cast(source.payload), Value.cast(target.payload)
    if len(given) != len(taken):
        raise ValueError(f"the payload is {len(given)} bits wide on one side, {len(taken)} on the other")
    m.d.comb += [
        taken.eq(given),
        target.valid.eq(source.valid),
        source.ready.eq(target.ready),
    ]
