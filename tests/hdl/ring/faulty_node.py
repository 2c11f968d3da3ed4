# amaranth: UnusedElaboratable=no
"""A ring node whose memory answers with errors where its host wants it to."""

from fanin.hdl.ring.node import RingNode
from tests.hdl.bus.faulty_memory import FaultyMemory

BAD = 1 << 39  # an address with this bit: each burst there is carried out, and answers SLVERR


class FaultyRingNode(FaultyMemory):
    """The node of ``config``, with errors in the answers to bursts whose address has the bit ``BAD``."""

    def __init__(self, *, config):
        assert config.address_width > BAD.bit_length() - 1
        self.config = config
        super().__init__(lambda: RingNode(config=config), bad=BAD, outstanding=64)
