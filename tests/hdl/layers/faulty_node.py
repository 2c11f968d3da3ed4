# amaranth: UnusedElaboratable=no
"""A cluster node whose memory answers with errors where its host wants it to."""

from fanin.cnn.memory import ADDRESS_BITS
from fanin.hdl.bus.axi4 import OUTSTANDING
from fanin.hdl.layers.node import ClusterNode
from tests.hdl.bus.faulty_memory import FaultyMemory

BAD = 1 << (ADDRESS_BITS - 1)  # a base with this bit: each burst there is carried out, and answers SLVERR


class FaultyNode(FaultyMemory):
    """The node of ``network``, with errors in the answers to bursts whose address has the bit ``BAD``."""

    def __init__(self, *, network):
        self.network = network
        super().__init__(lambda: ClusterNode(network=network), bad=BAD, outstanding=4 * OUTSTANDING)
