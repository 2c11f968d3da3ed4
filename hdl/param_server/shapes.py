"""The layouts that the parts of the parameter server exchange."""

from __future__ import annotations

from amaranth.lib import data

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.param_server.facts import FLOAT_BYTES, MAX_PARAMETERS, MAX_ROWS, MAX_SLOTS, VERSION_BYTES, WIDTHS
from fanin.rdma.facts import RdmaConfig

FLOAT_BITS = 8 * FLOAT_BYTES
VERSION_BITS = 8 * VERSION_BYTES
WORDS_BITS = (MAX_PARAMETERS * FLOAT_BITS // min(WIDTHS)).bit_length()  # of a count of w's words
ROW_BITS = (MAX_ROWS - 1).bit_length()
SLOT_BITS = (MAX_SLOTS - 1).bit_length()


def settings_layout(config: RdmaConfig) -> data.StructLayout:
    """A server's sizes and places: those of :class:`~fanin.param_server.facts.ServerLayout`.

    ``words`` of w, and ``gradient_bytes``, which are as many; ``row_bytes`` and ``slot_bytes`` with all that
    belongs to a row or a gradient; ``base`` of row 0; ``step``: the bits of α/N; ``barrier``: w is pushed to
    all workers after a gradient of each; ``broadcast``: to all, whoever's gradients are new in it; ``scan``:
    after a scan of all workers, not after every gradient. ``barrier`` excludes the other two.
    """
    return data.StructLayout(
        {
            "workers": range(config.queue_pairs + 1),
            "slots": range(MAX_SLOTS + 1),
            "rows": range(MAX_ROWS + 1),
            "barrier": 1,
            "broadcast": 1,
            "scan": 1,
            "words": WORDS_BITS,
            "gradient_bytes": LENGTH_BITS,
            "row_bytes": LENGTH_BITS,
            "slot_bytes": LENGTH_BITS,
            "base": config.address_width,
            "step": FLOAT_BITS,
        }
    )


def worker_layout(config: RdmaConfig) -> data.StructLayout:
    """A worker, whose queue pair has the same ``index``.

    Its gradients are at ``table`` here; its model buffers at ``remote`` there, in the region ``rkey``.
    ``readmits``: the worker was excluded from the running job and is taken back. It keeps its table, its slot
    and its LGVnum.
    """
    return data.StructLayout(
        {
            "index": index_bits(config),
            "table": config.address_width,
            "remote": REMOTE_BITS,
            "rkey": RKEY_BITS,
            "readmits": 1,
        }
    )


def place_layout(config: RdmaConfig) -> data.StructLayout:
    """A worker's next gradient: the address of its ``trailer``, and the version that was applied last."""
    return data.StructLayout(
        {"index": index_bits(config), "trailer": config.address_width, "lgvnum": VERSION_BITS}
    )


def found_layout(config: RdmaConfig) -> data.StructLayout:
    """A gradient that has come: its ``version``, and updates by ``others`` that its model had had.

    With ``ends_scan`` it is none: a scan that found some has come round.
    """
    return data.StructLayout(
        {"index": index_bits(config), "version": VERSION_BITS, "others": VERSION_BITS, "ends_scan": 1}
    )


def streamed_layout(config: RdmaConfig) -> data.StructLayout:
    """The stream's next row: its ``address`` and ``words``. ``memory_only``: the NIC reads it from memory."""
    return data.StructLayout({"address": config.address_width, "words": WORDS_BITS, "memory_only": 1})


def order_layout(config: RdmaConfig) -> data.StructLayout:
    """A row to be made: its ``version``, and the gradient that it consumes: whose, and its version."""
    return data.StructLayout({"index": index_bits(config), "version": VERSION_BITS, "lgvnum": VERSION_BITS})
