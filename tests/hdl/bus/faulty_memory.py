# amaranth: UnusedElaboratable=no
"""A node whose memory answers with errors where its host wants it to."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, flipped

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class FaultyMemory(wiring.Component):
    """The node that ``make`` makes, with errors in the answers to bursts whose address has the bit ``bad``.

    Each burst is carried out. ``outstanding``: bursts of a direction that may be under way.
    """

    def __init__(self, make, *, bad, outstanding):
        self._make, self._bad, self._outstanding = make, bad, outstanding
        super().__init__(make().signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.node = node = self._make()
        connect_typed(m, flipped(self.axil), node.axil)
        for name in set(node.signature.members) - {"axil", "memory"}:
            inner, outer = getattr(node, name), getattr(self, name)
            if node.signature.members[name].is_port:
                m.d.comb += outer.eq(inner)
            else:
                sends = node.signature.members[name].flow == Out
                connect_typed(m, *((inner, flipped(outer)) if sends else (flipped(outer), inner)))
        inner, outer = node.memory, self.memory
        for name, member in inner.signature.members.items():
            port, own = getattr(inner, name), getattr(outer, name)
            m.d.comb += own.eq(port) if member.flow == Out else port.eq(own)
        for request, answer, last in ("ar", "r", outer.rlast), ("aw", "b", 1):
            m.submodules[f"{request}_bad"] = bad = StreamFIFO(shape=1, depth=self._outstanding)
            address = getattr(inner, f"{request}addr")
            begins = getattr(inner, f"{request}valid") & getattr(outer, f"{request}ready")
            ends = getattr(outer, f"{answer}valid") & getattr(inner, f"{answer}ready") & last
            response = Signal(Resp, name=f"{answer}_response")
            with m.If(bad.o.p):
                m.d.comb += response.eq(Resp.SLVERR)
            m.d.comb += [
                getattr(outer, f"{request}addr").eq(address & ~self._bad),
                bad.i.valid.eq(begins),
                bad.i.p.eq((address & self._bad).any()),
                bad.o.ready.eq(ends),
                getattr(inner, f"{answer}resp").eq(response),
            ]
        return m
