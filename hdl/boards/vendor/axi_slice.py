"""Registers in all channels of an AXI port, for crossing a border between dies."""

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.buffer import RegisterSlice

_CHANNELS = ("aw", "w", "b", "ar", "r")


class AxiSlice(wiring.Component):
    """A register slice in each channel of an AXI4 or AXI4-Lite port.

    Members
    -------
    ``i`` : In, ``port``
        Side of the master.
    ``o`` : Out, ``port``
        Side of the slave.

    Parameters
    ----------
    ``port`` : wiring.Signature
        Signature of the port, as its master sees it.

    Latency
    -------
    1 cycle in each channel; one transfer a cycle.

    Source
    ------
    Arm IHI 0022, A2.4.1, "Register slices".
    """

    def __init__(self, *, port: wiring.Signature):
        self.port = port
        super().__init__({"i": In(port), "o": Out(port)})

    def elaborate(self, platform: Any) -> Module:
        """Insert a register slice into each channel, in the direction of its ``valid``."""
        m = Module()
        for channel in _CHANNELS:
            if f"{channel}valid" in self.port.members:
                forward = self.port.members[f"{channel}valid"].flow == Out
                self._slice(m, channel, *((self.i, self.o) if forward else (self.o, self.i)))
        return m

    def _slice(self, m: Module, channel: str, source: Any, target: Any) -> None:
        """Connect the channel's signals from ``source`` to ``target`` through a register slice."""
        fields = [name for name in self.port.members if _channel(name) == channel]
        payload = [name for name in fields if name not in (f"{channel}valid", f"{channel}ready")]
        values = Cat(getattr(source, name) for name in payload)
        m.submodules[channel] = register_slice = RegisterSlice(shape=len(values))
        m.d.comb += [
            register_slice.i.payload.eq(values),
            register_slice.i.valid.eq(getattr(source, f"{channel}valid")),
            getattr(source, f"{channel}ready").eq(register_slice.i.ready),
            Cat(getattr(target, name) for name in payload).eq(register_slice.o.payload),
            getattr(target, f"{channel}valid").eq(register_slice.o.valid),
            register_slice.o.ready.eq(getattr(target, f"{channel}ready")),
        ]


def _channel(name: str) -> str:
    """Return the channel of a signal: two letters for ``aw`` and ``ar``, one for the others."""
    return name[:2] if name[:2] in _CHANNELS else name[0]
