"""The sequencer's orders to the engine's four paths, one for each frame."""

from amaranth.lib import data, enum

from fanin.hdl.ring.link_job import COUNT_BITS, OPERATION_BITS, SLICE_BITS
from fanin.ring.facts import RingConfig


class Step(enum.Enum, shape=3):  # type: ignore[call-arg]
    """What becomes of a slice at a node (docs/systems/ring.md, "The engine").

    Each path decides by one bit: bit 1 marks a TOTAL from the others, bit 2 sums that come complete.
    """

    LOCAL = 0b000  #: own words are sent
    ADD = 0b001  #: own words are added to what comes, and the sum is sent
    TOTAL = 0b011  #: likewise, and what the others make of the sum is stored: it is complete
    FORWARD = 0b100  #: what comes is stored, and sent on as it is
    STORE = 0b101  #: what comes is stored


#: Which steps a path takes part in, and the fields of a frame that it needs.
PATH_STEPS = {
    "rx": (Step.ADD, Step.TOTAL, Step.FORWARD, Step.STORE),
    "local": (Step.LOCAL, Step.ADD, Step.TOTAL),
    "tx": (Step.LOCAL, Step.ADD, Step.TOTAL, Step.FORWARD),
    "store": (Step.TOTAL, Step.FORWARD, Step.STORE),
}
PATH_FIELDS = {
    "rx": ("step", "words", "operation", "count", "slice"),
    "local": ("step", "words", "inside", "lanes", "address"),
    "tx": ("step", "words", "operation", "count", "slice"),
    "store": ("step", "words", "inside", "lanes", "address", "final"),
}


def word_address_bits(config: RingConfig) -> int:
    """Bits of a word's number in memory."""
    return config.address_width - (config.width // 8).bit_length() + 1


def path_layout(config: RingConfig, path: str) -> data.StructLayout:
    """An order: what a path has to know of a frame.

    ``words``: of the frame; ``inside``: how many of them, from the first on, lie inside the vector;
    ``lanes``: values of the last of those, 0 if all; ``address``: the first word's number in memory;
    ``slice``: number of the frame's slice in the segment; ``final``: the descriptor's last frame to be stored.
    """
    shapes = {
        "step": Step,
        "words": range(config.frame_words + 1),
        "inside": range(config.frame_words + 1),
        "lanes": (config.lanes - 1).bit_length(),
        "address": word_address_bits(config),
        "operation": OPERATION_BITS,
        "count": COUNT_BITS,
        "slice": SLICE_BITS,
        "final": 1,
    }
    return data.StructLayout({name: shapes[name] for name in PATH_FIELDS[path]})
