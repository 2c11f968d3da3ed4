"""AXI4-Lite master with a timeout."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.register_map import WORD_BITS, WORD_BYTES


def lite_access(address_width: int) -> data.StructLayout:
    """Return the layout of an access to a 32-bit word: a write of ``data``, or a read."""
    return data.StructLayout({"write": 1, "address": address_width, "data": WORD_BITS})


#: Result of an access: the word that was read, and whether the access failed.
LiteResult = data.StructLayout({"data": WORD_BITS, "error": 1})


TIMEOUT = 1024  # cycles, by default


def check_timeout(timeout: int) -> None:
    """Raise ValueError unless a slave can answer within the timeout, in cycles."""
    if timeout < 2:
        raise ValueError(f"timeout must be at least 2 cycles, not {timeout!r}")


class AxiLiteMaster(wiring.Component):
    """AXI4-Lite master that performs one access at a time, each within a bounded time.

    An access without an answer in time has failed. Its request stays on the bus until the slave takes it, since
    a master must not withdraw a request. Until the late answer, which is dropped, all accesses fail
    immediately.

    Members
    -------
    ``request`` : In, stream of :func:`lite_access`
        Accesses to perform.
    ``result`` : Out, stream of LiteResult, always ready
        One result for each request. SLVERR, DECERR and a timeout are errors.
    ``axil`` : Out, :class:`AXI4LiteSignature`
        Bus to the slave.

    Parameters
    ----------
    ``address_width`` : int, bits, 1 to 64
        Width of an address; 32 by default.
    ``timeout`` : int, cycles from a request to the latest answer, at least 2
        1024 by default.

    Latency
    -------
    1 cycle from ``request`` to the bus, and from the bus' answer to ``result``.

    Source
    ------
    Arm IHI 0022; docs/systems/boards.md, "Control".
    """

    def __init__(self, *, address_width: int = 32, timeout: int = TIMEOUT):
        check_timeout(timeout)
        self.address_width = address_width
        self.timeout = timeout
        super().__init__(
            {
                "request": In(stream.Signature(lite_access(address_width))),
                "result": Out(stream.Signature(LiteResult, always_ready=True)),
                "axil": Out(AXI4LiteSignature(address_width=address_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the master. ``pending``: a request has no result yet; ``outstanding``: it has no answer yet."""
        m = Module()
        axil, request, result = self.axil, self.request, self.result
        pending = Signal()
        outstanding = Signal()
        cycles_left = Signal(range(self.timeout), init=self.timeout - 1)
        accept = Signal()
        has_answer = axil.bvalid | axil.rvalid
        m.d.comb += [
            request.ready.eq(~pending & ~result.valid),
            accept.eq(request.valid & request.ready),
            axil.awaddr.eq(axil.araddr),
            axil.wstrb.eq((1 << WORD_BYTES) - 1),
            axil.bready.eq(1),
            axil.rready.eq(1),
        ]
        m.d.sync += [
            result.valid.eq(0),
            result.p.data.eq(axil.rdata),
            result.p.error.eq(1),
        ]
        for channel in ("aw", "w", "ar"):
            with m.If(getattr(axil, f"{channel}ready")):
                m.d.sync += getattr(axil, f"{channel}valid").eq(0)
        with m.If(accept):
            m.d.sync += [pending.eq(1), cycles_left.eq(cycles_left.init)]
            with m.If(~outstanding):
                m.d.sync += [
                    outstanding.eq(1),
                    axil.araddr.eq(request.p.address),
                    axil.wdata.eq(request.p.data),
                    axil.arvalid.eq(~request.p.write),
                    axil.awvalid.eq(request.p.write),
                    axil.wvalid.eq(request.p.write),
                ]
            with m.Else():
                m.d.sync += [pending.eq(0), result.valid.eq(1)]
        with m.If(pending):
            m.d.sync += cycles_left.eq(cycles_left - 1)
            with m.If(has_answer | (cycles_left == 0)):
                m.d.sync += [pending.eq(0), result.valid.eq(1), result.p.error.eq(~has_answer | self._failed())]
        with m.If(outstanding & has_answer):
            m.d.sync += outstanding.eq(0)
        return m

    def _failed(self) -> Any:
        """Return whether the answer on the bus is SLVERR or DECERR: both have the upper bit set."""
        axil = self.axil
        return axil.bvalid & axil.bresp.as_value()[1] | axil.rvalid & axil.rresp.as_value()[1]
