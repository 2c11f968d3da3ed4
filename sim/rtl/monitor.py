"""Protocol monitors, which check the stream contract on every stream of every component in a simulation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

from amaranth import Elaboratable, Format, Fragment, Module, Signal
from amaranth.hdl import Assert, Value
from amaranth.lib import stream, wiring


def streams_of(component: wiring.Component) -> Iterator[tuple[str, Any]]:
    """Yield every stream port of a component as ``(dotted name, interface)``, arrays included."""

    def walk(signature: wiring.Signature, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(signature, stream.Signature) or isinstance(
            getattr(value, "signature", None), stream.Signature
        ):
            yield path, value
            return
        for name, member in signature.members.items():
            if not member.is_signature:
                continue
            child = f"{path}.{name}" if path else name
            yield from _dimensions(member, getattr(value, name), child)

    def _dimensions(member: Any, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _dimensions(member, item, f"{path}[{index}]")
        else:
            yield from walk(member.signature, value, path)

    yield from walk(component.signature, component, "")


class Monitored(Elaboratable):
    """A component with a stream monitor in it and in each of its sub-components, at any depth.

    The contract: once valid, a payload holds, unchanged, until the cycle in which ready is high. A stream that
    breaks the contract ends the simulation with an AssertionError. Its text names the stream and the enclosing
    classes, outermost first: ``AxiReader/StreamFIFO.i``. A monitor is clocked logic inside the component, so
    resets, enables and renamed domains of the component apply to its monitor.

    ``excused``: streams without a monitor, each by the end of its name, such as ``StreamFIFO.i``.

    Optional members of a component:

    - ``domains``: clock domains of its streams outside ``sync``, by the stream's name.
    - ``required()``: further conditions that its user must keep, by the text of their error.
    """

    def __init__(self, component: Elaboratable, *, excused: Collection[str] = ()):
        self.component = component
        self.excused = excused

    def elaborate(self, platform: Any) -> Fragment:
        """Wrap ``Fragment.get``, which every elaboration calls: Amaranth has no other access to submodules."""
        get_fragment = Fragment.get
        enclosing_classes: list[str] = []

        def get(part: Any, platform: Any) -> Fragment:
            if not isinstance(part, wiring.Component):
                return get_fragment(part, platform)
            enclosing_classes.append(type(part).__name__)
            fragment = get_fragment(part, platform)
            fragment.add_subfragment(
                get_fragment(self._monitor(part, "/".join(enclosing_classes)), platform), "monitor"
            )
            enclosing_classes.pop()
            return fragment

        with mock.patch.object(Fragment, "get", get):
            return Fragment.get(self.component, platform)

    def _monitor(self, component: wiring.Component, classes: str) -> Module:
        m = Module()
        for path, port in streams_of(component):
            name = f"{classes}.{path}"
            if any(f"/{name}".endswith(f"/{excused}") for excused in self.excused):
                continue
            payload = Value.cast(port.payload)
            waiting = Signal()
            previous = Signal(payload.shape(), reset_less=True)
            domain = getattr(component, "domains", {}).get(path, "sync")
            m.d[domain] += [waiting.eq(port.valid & ~port.ready), previous.eq(payload)]
            message = Format(name + ": payload changed from {:#x} to {:#x} before ready", previous, payload)
            with m.If(waiting):
                m.d[domain] += Assert(port.valid, f"{name}: valid withdrawn before ready")
                m.d[domain] += Assert(payload == previous, message)
        for description, condition in getattr(component, "required", dict)().items():
            m.d.sync += Assert(condition, f"{classes}: {description}")
        return m
