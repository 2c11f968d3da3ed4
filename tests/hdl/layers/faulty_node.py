# amaranth: UnusedElaboratable=no
# amaranth: UnusedElaboratable=no
"""A cluster node whose memory answers with errors where its host wants it to."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, flipped

from fanin.cnn_memory import ADDRESS_BITS
from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.layers.memory_ports import OUTSTANDING
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO

BAD = 1 << (ADDRESS_BITS - 1)  # a base with this bit: each burst there is carried out, and answers SLVERR


class FaultyNode(wiring.Component):
    """The node of ``network``, with errors in the answers to bursts whose address has the bit ``BAD``."""

    def __init__(self, *, network):
        self.network = network
        super().__init__(ClusterNode(network=network).signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.node = node = ClusterNode(network=self.network)
        connect_typed(m, flipped(self.axil), node.axil)
        for name in set(node.signature.members) - {"axil", "memory"}:
            outer = flipped(getattr(self, name))
            ends = (getattr(node, name), outer) if name == "mac_tx" else (outer, getattr(node, name))
            connect_typed(m, *ends)
        inner, outer = node.memory, self.memory
        for name, member in inner.signature.members.items():
            port, own = getattr(inner, name), getattr(outer, name)
            m.d.comb += own.eq(port) if member.flow == Out else port.eq(own)
        for request, answer, last in ("ar", "r", outer.rlast), ("aw", "b", 1):
            m.submodules[f"{request}_bad"] = bad = StreamFIFO(shape=1, depth=4 * OUTSTANDING)
            address = getattr(inner, f"{request}addr")
            begins = getattr(inner, f"{request}valid") & getattr(outer, f"{request}ready")
            ends = getattr(outer, f"{answer}valid") & getattr(inner, f"{answer}ready") & last
            response = Signal(Resp, name=f"{answer}_response")
            with m.If(bad.o.p):
                m.d.comb += response.eq(Resp.SLVERR)
            m.d.comb += [
                getattr(outer, f"{request}addr").eq(address & ~BAD),
                bad.i.valid.eq(begins),
                bad.i.p.eq((address & BAD).any()),
                bad.o.ready.eq(ends),
                getattr(inner, f"{answer}resp").eq(response),
            ]
        return m
