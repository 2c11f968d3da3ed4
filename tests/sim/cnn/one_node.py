"""Simulator of a node that has a whole network."""

from fanin.cnn.parts import Part
from fanin.sim.cnn.cosim import ClusterCosim


def part_of(node):
    """The part of a node that has the whole network."""
    identity = {index: index for index in range(len(node.network.stages))}
    return Part("the node", node.network, identity, {}, node.rings, node.skews, node.gradient_skews)


class NodeCosim(ClusterCosim):
    """Simulator of one node that has the whole network."""

    def __init__(self, node, **settings):
        super().__init__([part_of(node)], **settings)
