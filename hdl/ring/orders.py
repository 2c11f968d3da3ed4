"""Orders of the sequencer to the engine's four paths, one order for each frame."""

from amaranth.lib import data, enum

from fanin.hdl.ring.link_job import COUNT_BITS, OPERATION_BITS, SLICE_BITS
from fanin.ring.facts import RingConfig


class Step(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Operation of a node on a slice (docs/systems/ring.md, "The engine").

    Paths decode single bits: bit 1 marks a TOTAL, which this node's own values complete; bit 2 marks sums that
    arrive complete.
    """

    LOCAL = 0b000  #: send own words
    ADD = 0b001  #: add own words to received ones and send the sum
    TOTAL = 0b011  #: as ADD; the sum is complete, and this node also stores its decoded form
    FORWARD = 0b100  #: store received words and send them unchanged
    STORE = 0b101  #: store received words


#: Steps that concern each path, and the fields of a frame that the path needs.
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


def path_fields(config: RingConfig, path: str) -> tuple[str, ...]:
    """Return the names of the fields of one path's orders."""
    return PATH_FIELDS[path] + (("partial",) if path == "rx" and config.has_plain_sums else ())


def word_address_bits(config: RingConfig) -> int:
    """Return the bits of a word's number in memory."""
    return config.address_width - config.word_bytes.bit_length() + 1


def path_layout(config: RingConfig, path: str) -> data.StructLayout:
    """Return the layout of one path's orders; an order describes a frame.

    ``words``: words of the frame.
    ``inside``: words of the frame inside the vector, counted from the first.
    ``lanes``: values of the last word inside the vector; 0 means all.
    ``address``: number of the first word in memory.
    ``slice``: number of the frame's slice in its segment.
    ``final``: the frame is the last one that the descriptor stores.
    ``partial``: the frame holds sums of several nodes, but not of all.
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
        "partial": 1,
    }
    return data.StructLayout({name: shapes[name] for name in path_fields(config, path)})
