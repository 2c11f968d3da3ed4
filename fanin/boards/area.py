"""Estimate of a GLM node's area on an ECP5 from its parameters, within 15 % of nextpnr's count.

Each part has a linear formula in its parameters, fitted to measurements of ``fanin bench board-area``. LUTs are
counted as nextpnr does, with bits of carry chains, their ends, and four LUTs for 16 words of 4 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from fanin.base.errors import DoesNotFit
from fanin.boards.facts import BOARD_PARTS, DEVICES, MEMORIES, BoardMemory, Resources
from fanin.boards.memory import memory_of, node_of
from fanin.fixed import VALUE_BITS
from fanin.glm.facts import ENTRY_BITS, PRESETS, GlmConfig
from fanin.wire.aggregation import Encap

USABLE = 0.95  # fraction of a device's LUTs; above it, the last ones have no legal place

_DEEPEST_DISTRIBUTED = 32  # words; a deeper memory is not made of LUTs
_DEEPEST_QUEUE = 64  # words; a deeper StreamFIFO is not made of LUTs
_LUTS_OF_16_WORDS = 1  # per bit
_RAM_BITS, _RAM_DEPTH = 36, 512  # bits and words of a block RAM at its widest


@dataclass(frozen=True)
class _Logic:
    """Number of LUTs and flip-flops."""

    luts: float
    flip_flops: float

    def __add__(self, other: _Logic) -> _Logic:
        return _Logic(self.luts + other.luts, self.flip_flops + other.flip_flops)

    def __mul__(self, count: float) -> _Logic:
        return _Logic(self.luts * count, self.flip_flops * count)


# Constant parts, and increments per lane, engine, bit and so on.
_ENGINE, _LANE = _Logic(2700, 1830), _Logic(1160, 678)
_DECAY_LANE = _Logic(300, 80)
_LIST = _Logic(2020, 880)  # of a sparse engine, without the list's reader
_TAG_FLAGS = 6  # bits of an item's tag in a sparse engine, besides its chunk
_MODEL_BIT = 2 * _LUTS_OF_16_WORDS  # 16 words of both models
_REDUCER, _REDUCER_ENGINE = _Logic(1400, 800), _Logic(800, 470)
_LOSS_SAMPLE, _LOSS_SEQUENCE = _Logic(525, 405), _Logic(204, 230)
_WORKER = _Logic(600, 250)
_TRANSPORT, _TRANSPORT_UDP, _SLOTS_16 = _Logic(2800, 3450), _Logic(900, 900), _Logic(270, 60)
_BLOCK_RAM_FAS = _Logic(-390, -260)  # relative to FAs in distributed memory
_READER, _ADDRESS_BIT, _QUEUE_BIT = _Logic(400, 230), _Logic(5.2, 5.5), _Logic(2, 2)
_REGISTERS, _COUNTERS_OF_THEIR_OWN, _COUNTERS_IN_MEMORY = _Logic(950, 800), _Logic(3900, 1650), _Logic(270, 310)
_WORD_BIT = _Logic(1.1, 2)  # registers after the readers
_BLOCK_MEMORY = _Logic(160, 100)
_SDRAM, _SDRAM_PORT = _Logic(930, 310), _Logic(505, 245)  # yosys counts with 3 and 5 ports
_OFFSET = _Logic(-60, 650)


def node_area(config: GlmConfig) -> Resources:
    """Estimate the resources of a node, without its memories of samples and labels."""
    engines = config.engines
    readers = [config.port_bits] * config.sample_ports + [config.label_width]
    readers += [ENTRY_BITS] * (config.sparse * engines)
    logic = _OFFSET + _WORKER + _ENGINE * engines + _LANE * (engines * config.lanes)
    logic += _DECAY_LANE * (config.l2 * engines * config.lanes)
    logic += _LIST * (config.sparse * engines)
    logic += _REDUCER + _REDUCER_ENGINE * engines
    logic += _LOSS_SAMPLE * config.loss_lanes + _LOSS_SEQUENCE * (config.loss_lanes < config.banks)
    logic += _TRANSPORT + _BLOCK_RAM_FAS * config.block_ram_fas
    logic += _TRANSPORT_UDP * (config.encap is Encap.UDP) + _SLOTS_16 * ceil(config.slots / 16)
    logic += (_READER + _ADDRESS_BIT * config.address_width) * len(readers)
    logic += _QUEUE_BIT * sum(readers) + _WORD_BIT * (engines * config.word_bits + config.label_width)
    logic += _REGISTERS + (_COUNTERS_IN_MEMORY if config.compact else _COUNTERS_OF_THEIR_OWN)
    distributed = config.depth <= _DEEPEST_DISTRIBUTED
    model_bits = 32 * config.lanes * engines
    luts = logic.luts + distributed * _MODEL_BIT * model_bits * ceil(config.depth / 16)
    return Resources(
        luts=round(luts),
        flip_flops=round(logic.flip_flops),
        block_rams=_block_rams(config, readers),
        multipliers=3 * config.loss_lanes + 3 * (not config.sparse),  # the others count the words of an epoch
    )


def _block_rams(config: GlmConfig, readers: list[int]) -> int:
    """Count block RAMs: replay FIFOs, models, tables of σ (one per 2 samples), queues, counters, FAs."""
    replay = _rams(config.word_bits, config.sample_fifo)
    if config.sparse:
        replay += _rams((config.depth - 1).bit_length() + _TAG_FLAGS, config.sample_fifo)
    models = 2 * config.lanes * _rams(32, config.depth) if config.depth > _DEEPEST_DISTRIBUTED else 0
    tables = 3 * ceil(config.loss_lanes / 2)
    queues = (
        sum(_rams(width, config.read_ahead) for width in readers) if config.read_ahead > _DEEPEST_QUEUE else 0
    )
    fas = _rams(VALUE_BITS * config.values, config.slots) if config.block_ram_fas else 0
    return config.engines * (replay + models) + tables + queues + 2 * config.compact + fas


def _rams(width: int, depth: int) -> int:
    """Return the block RAMs of a memory. Each doubling of the depth halves the width of a block RAM."""
    halvings = max(0, ceil(depth / _RAM_DEPTH) - 1).bit_length()
    return ceil(width / (_RAM_BITS >> halvings))


def memory_area(config: GlmConfig, memory: BoardMemory) -> Resources:
    """Estimate the memories of samples and labels: a ``BlockMemory`` per port, or one ``SdramMemory``."""
    ports = config.read_ports
    logic = _SDRAM + _SDRAM_PORT * ports if memory.sdram else _BLOCK_MEMORY * ports
    return Resources(
        luts=round(logic.luts),
        flip_flops=round(logic.flip_flops),
        block_rams=memory.block_rams(config.engines),
        multipliers=0,
    )


def check_fits(config: GlmConfig, device: str, memory: BoardMemory) -> None:
    """Raise DoesNotFit if node, memories and the parts around the node need more than ``device`` has.

    The error names the scarcest resource, the missing amount, and the largest preset that fits.

    - ``device``: a name in :data:`fanin.boards.facts.DEVICES`.
    """
    excess = _shortage(config, device, memory)
    if excess is None:
        return

    def fits(name: str) -> bool:
        node = replace(PRESETS[name], encap=config.encap, l2=config.l2, sparse=config.sparse)
        node_memory = memory_of(node, memory.sdram)
        return _shortage(node_of(node, node_memory), device, node_memory) is None

    fitting = filter(fits, MEMORIES)
    best = max(fitting, key=lambda name: (PRESETS[name].lanes, MEMORIES[name].sample_bytes), default=None)
    hint = f"--preset {best} fits" if best else "no preset fits"
    raise DoesNotFit(f"{config.name}: {excess}; {hint}")


def _shortage(config: GlmConfig, device: str, memory: BoardMemory) -> str | None:
    """Describe the resource with the highest use, if the device has too little of it; None if all fits."""
    required = vars(node_area(config) + memory_area(config, memory) + BOARD_PARTS)
    available = dict(vars(DEVICES[device]))
    available["luts"] = int(USABLE * available["luts"])
    name = max(required, key=lambda resource: required[resource] / available[resource])
    if required[name] <= available[name]:
        return None
    words = {
        "luts": "LUTs",
        "flip_flops": "flip-flops",
        "block_rams": "block RAMs",
        "multipliers": "multipliers",
    }
    excess = required[name] - available[name]
    return f"about {required[name]:,} {words[name]} are needed, {excess:,} more than an {device} has to give"
