"""Address decoder of AXI4-Lite: one bus for several slaves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp


class AxiLiteDecoder(wiring.Component):
    """Address decoder that passes each access to the slave whose region has its address.

    An access outside all regions is answered with DECERR. One access is in progress at a time, the oldest write
    before a read. A slave sees the address within its region.

    Members
    -------
    ``axil`` : In, :class:`AXI4LiteSignature` of ``address_width`` bits
        Bus from the master.
    ``m0``, ``m1`` : Out, :class:`AXI4LiteSignature` of the region's address bits
        Buses to the slaves, one for each region, in the order of ``regions``.

    Parameters
    ----------
    ``address_width`` : int, bits, 1 to 64
        Width of the master's addresses; 32 by default.
    ``regions`` : sequence of (base, address bits)
        Regions of the slaves. Each base is a multiple of its region's size; regions do not overlap.

    Latency
    -------
    1 cycle from a request to the slave, 1 from the slave's answer to the master's.

    Source
    ------
    Arm IHI 0022; docs/systems/boards.md, "Memory map".
    """

    def __init__(self, *, address_width: int = 32, regions: Sequence[tuple[int, int]]):
        self.address_width = address_width
        self.regions = tuple((int(base), int(bits)) for base, bits in regions)
        _check(address_width, self.regions)
        super().__init__(
            {"axil": In(AXI4LiteSignature(address_width=address_width))}
            | {f"m{n}": Out(AXI4LiteSignature(address_width=bits)) for n, (_, bits) in enumerate(self.regions)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Pass requests on without registers: the master holds its request until the slave has answered."""
        m = Module()
        axil = self.axil
        slaves = [getattr(self, f"m{n}") for n in range(len(self.regions))]
        is_write = Signal()
        selected = Signal(len(slaves))  # one bit for each slave; 0: no slave has the address
        is_offering = Signal()
        has_answer = Signal()
        has_write = axil.awvalid & axil.wvalid
        address = Mux(has_write, axil.awaddr, axil.araddr)
        accepted = {channel: Signal(name=f"{channel}_accepted") for channel in ("aw", "w", "ar")}
        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.sync += is_write.eq(has_write)
                m.d.sync += selected.eq(Cat(address[bits:] == base >> bits for base, bits in self.regions))
                m.d.sync += [flag.eq(0) for flag in accepted.values()]
                with m.If(has_write | axil.arvalid):
                    m.next = "OFFER"
            with m.State("OFFER"), m.If(has_answer):
                m.d.sync += [axil.bvalid.eq(is_write), axil.rvalid.eq(~is_write)]
                m.next = "ANSWER"
            with m.State("ANSWER"), m.If(axil.bvalid & axil.bready | axil.rvalid & axil.rready):
                m.d.sync += [axil.bvalid.eq(0), axil.rvalid.eq(0)]
                m.next = "IDLE"
        m.d.comb += [
            is_offering.eq(fsm.ongoing("OFFER")),
            axil.awready.eq(is_offering & has_answer & is_write),
            axil.wready.eq(is_offering & has_answer & is_write),
            axil.arready.eq(is_offering & has_answer & ~is_write),
        ]
        for n, slave in enumerate(slaves):
            for channel in ("aw", "w"):
                self._offer(m, slave, channel, is_offering & selected[n] & is_write, accepted[channel])
            self._offer(m, slave, "ar", is_offering & selected[n] & ~is_write, accepted["ar"])
        self._answer(m, slaves, is_offering & selected.any(), selected, has_answer)
        return m

    def _offer(self, m: Module, slave: Any, channel: str, is_offered: Any, accepted: Signal) -> None:
        """Offer the master's request to a slave on one channel until the slave takes it."""
        for name, member in slave.signature.members.items():
            if name.startswith(channel) and member.flow == Out and name != f"{channel}valid":
                port = getattr(self.axil, name)
                m.d.comb += getattr(slave, name).eq(port[: len(getattr(slave, name))])
        valid, ready = getattr(slave, f"{channel}valid"), getattr(slave, f"{channel}ready")
        m.d.comb += valid.eq(is_offered & ~accepted)
        with m.If(valid & ready):
            m.d.sync += accepted.eq(1)

    def _answer(
        self, m: Module, slaves: list[Any], is_awaited: Any, selected: Signal, has_answer: Signal
    ) -> None:
        """Return the answer of the selected slave to the master, or DECERR if no slave is selected."""
        axil = self.axil
        masks = [selected[n].replicate(len(axil.rdata)) for n in range(len(slaves))]
        response = Signal(Resp)
        valids, words, responses = [~selected.any()], [], [(~selected.any()).replicate(2) & Const(Resp.DECERR)]
        for n, slave in enumerate(slaves):
            m.d.comb += [slave.bready.eq(is_awaited & selected[n]), slave.rready.eq(is_awaited & selected[n])]
            valids.append(selected[n] & (slave.bvalid | slave.rvalid))
            words.append(masks[n] & slave.rdata)
            responses.append(masks[n][:2] & Value.cast(Mux(slave.bvalid, slave.bresp, slave.rresp)))
        m.d.comb += [has_answer.eq(Cat(valids).any()), response.eq(reduce(or_, responses))]
        with m.If(~axil.bvalid & ~axil.rvalid):
            m.d.sync += [axil.rdata.eq(reduce(or_, words)), axil.rresp.eq(response), axil.bresp.eq(response)]


def _check(address_width: int, regions: tuple[tuple[int, int], ...]) -> None:
    """Raise ValueError unless upper address bits alone identify every region."""
    if not regions:
        raise ValueError("regions must have at least one entry")
    for base, bits in regions:
        if not 1 <= bits <= address_width or base % (1 << bits) or base >> address_width:
            raise ValueError(
                f"regions must be at multiples of their size below 2^{address_width}, not {base:#x} of 2^{bits}"
            )
    ordered = sorted(regions)
    for (base, bits), (next_base, _) in pairwise(ordered):
        if base + (1 << bits) > next_base:
            raise ValueError(f"regions must not overlap, as those at {base:#x} and {next_base:#x} do")
