"""Data layouts shared by the parts of the parameter server."""

from __future__ import annotations

from amaranth.lib import data

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, RKEY_BITS, index_bits
from fanin.param_server.facts import FLOAT_BYTES, MAX_PARAMETERS, MAX_ROWS, MAX_SLOTS, VERSION_BYTES, WIDTHS
from fanin.rdma.facts import RdmaConfig

FLOAT_BITS = 8 * FLOAT_BYTES
VERSION_BITS = 8 * VERSION_BYTES
WORDS_BITS = (MAX_PARAMETERS * FLOAT_BITS // min(WIDTHS)).bit_length()  # bits of a number of words of w
ROW_BITS = (MAX_ROWS - 1).bit_length()
SLOT_BITS = (MAX_SLOTS - 1).bit_length()


def settings_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a server's sizes and mode: :class:`~fanin.param_server.facts.ServerLayout`.

    ``workers``, ``slots``, ``rows``: numbers of workers, of gradients of each in flight, and of model rows.
    ``barrier``: push w to all workers after one gradient of each; excludes ``broadcast`` and ``scan``.
    ``broadcast``: push w to all workers, no matter whose gradients it includes.
    ``scan``: push w after a scan of all workers instead of after every gradient.
    ``words``: words of w.
    ``gradient_bytes``: bytes of these words.
    ``row_bytes``, ``slot_bytes``: bytes of a row and of a gradient, including all metadata.
    ``base``: address of row 0.
    ``step``: bits of α/N.
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
    """Return the layout of a worker.

    ``index``: number of the worker and of its queue pair.
    ``table``: address of its gradients here.
    ``remote``: address of its model buffers there.
    ``rkey``: key of the region that holds these buffers.
    ``readmits``: the worker was excluded from the running job and is readmitted; it keeps its table, its slot
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
    """Return the layout of a worker's next gradient: address of its ``trailer``, and last applied version."""
    return data.StructLayout(
        {"index": index_bits(config), "trailer": config.address_width, "lgvnum": VERSION_BITS}
    )


def found_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a gradient that was found, or of a scan's end.

    ``index``: its worker.
    ``version``: its version.
    ``others``: updates by other workers that its model included.
    ``ends_scan``: no gradient, but the end of a scan that found at least one.
    """
    return data.StructLayout(
        {"index": index_bits(config), "version": VERSION_BITS, "others": VERSION_BITS, "ends_scan": 1}
    )


def streamed_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a row for the streamed reads.

    ``address``, ``words``: its address and length.
    ``memory_only``: the NIC reads the row from memory, not from the stream.
    """
    return data.StructLayout({"address": config.address_width, "words": WORDS_BITS, "memory_only": 1})


def order_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of an order for a row.

    ``version``: version of the row.
    ``index``: worker whose gradient the row consumes.
    ``lgvnum``: version of that gradient.
    """
    return data.StructLayout({"index": index_bits(config), "version": VERSION_BITS, "lgvnum": VERSION_BITS})
