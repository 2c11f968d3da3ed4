"""How the members of a group add their gradients up, whichever system does it (INCEPTIONN, figure 1)."""

from enum import StrEnum


class Scheme(StrEnum):
    """A ring of the members, or a node that adds up what all others send it."""

    RING = "ring"  # INC, algorithm 1
    AGGREGATOR = "aggregator"  # WA
