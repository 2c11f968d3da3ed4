"""Memory of a node on a board: block RAM or SDRAM, width of addresses, and check of a data set's size."""

from __future__ import annotations

from dataclasses import replace

from fanin.base.errors import DoesNotFit
from fanin.boards.facts import MEMORIES, BoardMemory
from fanin.boards.sdram import Sdram
from fanin.glm.facts import LABEL_BITS, MICRO_BATCH, GlmConfig, TrainShape, address_width


def memory_of(config: GlmConfig, sdram: Sdram | None) -> BoardMemory:
    """Return the memory of a node: a board's SDRAM, or the block RAM of the node's preset."""
    if sdram is None:
        return MEMORIES[config.name]
    samples, labels = sdram.split(config.sample_ports)
    return BoardMemory(sample_bytes=samples, label_bytes=labels, sdram=sdram)


def node_of(config: GlmConfig, memory: BoardMemory) -> GlmConfig:
    """Return the node with an address width for all of its memory."""
    return replace(config, address_width=address_width(memory))


def check_set_fits(shape: TrainShape, memory: BoardMemory) -> None:
    """Raise DoesNotFit if a worker's samples or labels exceed its node's memory for them."""
    micro_batches = shape.micro_batches_per_epoch
    bytes_by_kind = {
        "samples": (shape.words_per_micro_batch * shape.node.port_bits // 8, memory.sample_bytes),
        "labels": (MICRO_BATCH * LABEL_BITS // 8, memory.label_bytes),
    }
    fitting = min(available // used for used, available in bytes_by_kind.values())
    if micro_batches <= fitting:
        return
    name, (used, available) = max(bytes_by_kind.items(), key=lambda item: item[1][0] / item[1][1])
    advice = ", or more with fanin board build --memory sdram on a board that has SDR SDRAM"
    hint = "" if memory.sdram else advice
    raise DoesNotFit(
        f"the {name} of {shape.samples_per_worker:,} samples take {micro_batches * used:,} bytes, their "
        f"memory has {available:,}: at most {fitting * MICRO_BATCH:,} samples fit{hint}"
    )
