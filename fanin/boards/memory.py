"""Memory of a node on a board: block RAM or SDRAM, width of addresses, and check of a data set's size."""

from __future__ import annotations

from dataclasses import replace

from fanin.base.errors import DoesNotFit
from fanin.boards.facts import MEMORIES, SPARSE_MEMORIES, BoardMemory
from fanin.boards.sdram import Sdram
from fanin.glm.facts import ENTRY_BITS, LABEL_BITS, MICRO_BATCH, GlmConfig, TrainShape, address_width

_ADVICE = ", or more with fanin board build --memory sdram on a board that has SDR SDRAM"


def memory_of(config: GlmConfig, sdram: Sdram | None) -> BoardMemory:
    """Return the memory of a node: a board's SDRAM, or the block RAM of the node's preset."""
    if sdram is None:
        return (SPARSE_MEMORIES if config.sparse else MEMORIES)[config.name]
    samples, labels, lists = sdram.split(config.sample_ports, config.engines if config.sparse else 0)
    return BoardMemory(sample_bytes=samples, label_bytes=labels, list_bytes=lists, sdram=sdram)


def node_of(config: GlmConfig, memory: BoardMemory) -> GlmConfig:
    """Return the node with an address width for all of its memory."""
    return replace(config, address_width=address_width(memory))


def check_set_fits(shape: TrainShape, memory: BoardMemory) -> None:
    """Raise DoesNotFit if a worker's samples or labels exceed its node's memory for them.

    Samples and lists of a sparse node are not checked here, but by :func:`check_lists_fit`.
    """
    micro_batches = shape.micro_batches_per_epoch
    bytes_by_kind = {"labels": (MICRO_BATCH * LABEL_BITS // 8, memory.label_bytes)}
    if not shape.node.sparse:
        words = shape.words_per_micro_batch * shape.node.port_bits // 8
        bytes_by_kind |= {"samples": (words, memory.sample_bytes)}
    fitting = min(available // used for used, available in bytes_by_kind.values())
    if micro_batches <= fitting:
        return
    name, (used, available) = max(bytes_by_kind.items(), key=lambda item: item[1][0] / item[1][1])
    hint = "" if memory.sdram else _ADVICE
    raise DoesNotFit(
        f"the {name} of {shape.samples_per_worker:,} samples take {micro_batches * used:,} bytes, their "
        f"memory has {available:,}: at most {fitting * MICRO_BATCH:,} samples fit{hint}"
    )


def check_lists_fit(shape: TrainShape, *, words: int, entries: int, memory: BoardMemory) -> None:
    """Raise DoesNotFit if the words or the list of an epoch exceed a sparse engine's memory for them.

    ``words``, ``entries``: their numbers, each of the engine that has most.
    """
    bytes_by_kind = {
        "words": (words * shape.node.port_bits // 8, memory.sample_bytes),
        "list": (entries * ENTRY_BITS // 8, memory.list_bytes),
    }
    name, (used, available) = max(bytes_by_kind.items(), key=lambda item: item[1][0] / item[1][1])
    if used <= available:
        return
    verb = "takes" if name == "list" else "take"
    hint = "" if memory.sdram else _ADVICE
    raise DoesNotFit(
        f"the {name} of {shape.samples:,} samples {verb} {used:,} bytes, their memory has {available:,}: "
        f"about {shape.samples * available // used:,} samples fit{hint}"
    )
