# amaranth: UnusedElaboratable=no
"""A GLM node whose memory answers with errors where its host wants it to, and has an answer everywhere."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, flipped

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO

MEMORY = 1 << 16  # bytes of each memory; beyond it they come again
BAD = 1 << 20  # a burst at an address with this bit answers SLVERR
_OUTSTANDING = 64  # bursts of a port, at most


class FaultyGlmNode(wiring.Component):
    """The node of ``config`` before memories of ``MEMORY`` bytes, which err wherever an address has ``BAD``."""

    def __init__(self, *, config):
        self.config = config
        super().__init__(GlmNode(config=config).signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.node = node = GlmNode(config=self.config)
        connect_typed(m, flipped(self.axil), node.axil)
        connect_typed(m, node.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), node.mac_rx)
        m.d.comb += [self.status.eq(node.status), self.events.eq(node.events)]
        ports = [*zip(node.samples, self.samples, strict=True), (node.labels, self.labels)]
        ports += zip(node.lists, self.lists, strict=True) if self.config.sparse else ()
        for number, (inner, outer) in enumerate(ports):
            m.submodules[f"bad{number}"] = bad = StreamFIFO(shape=1, depth=_OUTSTANDING)
            for name, member in inner.signature.members.items():
                port, own = getattr(inner, name), getattr(outer, name)
                if name == "araddr":
                    m.d.comb += own.eq(port[: (MEMORY - 1).bit_length()])
                elif name == "rresp":
                    m.d.comb += port.eq(Resp.OKAY)
                else:
                    m.d.comb += own.eq(port) if member.flow == Out else port.eq(own)
            m.d.comb += [
                bad.i.valid.eq(inner.arvalid & outer.arready),
                bad.i.p.eq((inner.araddr & BAD).any()),
                bad.o.ready.eq(outer.rvalid & inner.rready & outer.rlast),
            ]
            with m.If(bad.o.p):
                m.d.comb += inner.rresp.eq(Resp.SLVERR)
        return m
