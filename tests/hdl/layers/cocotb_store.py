"""cocotb tests, run inside the simulator by test_store_peer.py: cocotbext-axi's memory behind a Store."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from fanin.cnn.memory import Frames, Ring, StoreConfig
from fanin.hdl.layers.interface import LayerControl, Mode
from tests.hdl.bus.cocotb_peers import stall
from tests.hdl.bus.cocotb_writer import offer

FRAMES = 9
IMAGES, RESULTS, SAVED = Frames(40, 4), Frames(3, 1), Frames(100, 5)
CONFIG = StoreConfig(readers=(IMAGES,), writers=(RESULTS,), rings=(Ring(SAVED, 3, 0x0FC0),), sections=(20, 7))
PARAMETERS, IMAGES_AT, RESULTS_AT = 0x40, 0x4FC0, 0x8000
SIZE = 1 << 16


def words(kind):
    """Frames of random words."""
    return [[random.getrandbits(32) for _ in range(kind.words)] for _ in range(FRAMES)]


def payloads(frames, kind):
    """The transfers that carry them."""
    flat = [word for frame in frames for word in frame]
    groups = [flat[at : at + kind.lanes] for at in range(0, len(flat), kind.lanes)]
    return [sum(word << 32 * n for n, word in enumerate(group)) for group in groups]


def content(frames, kind):
    """What memory holds of them."""
    return b"".join(
        b"".join(word.to_bytes(4, "little") for word in frame).ljust(64 * kind.beats, b"\0") for frame in frames
    )


async def start(dut):
    """Clock, reset and memory."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    for name in ("writers_stream0", "save_stream0", "dump0", "dump1"):
        getattr(dut, f"{name}_valid").value = 0
    for name in ("readers_stream0", "replay_stream0", "load0", "load1"):
        getattr(dut, f"{name}_ready").value = 0
    dut.control.value = 0
    bases = [PARAMETERS, IMAGES_AT, RESULTS_AT]
    dut.bases.value = sum(base // 64 << 34 * n for n, base in enumerate(bases))
    memory = AxiRam(AxiBus.from_prefix(dut, "memory"), dut.clk, dut.rst, size=SIZE)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    return memory


async def collect(dut, name, count, found, pause):
    """Take payloads from a stream."""
    valid, ready, payload = (getattr(dut, f"{name}_{signal}") for signal in ("valid", "ready", "payload"))
    while len(found) < count:
        ready.value = taken = random.random() >= pause
        await ReadOnly()
        if taken and int(valid.value):
            found.append(int(payload.value))
        await RisingEdge(dut.clk)
    ready.value = 0


async def job(dut, mode):
    """Begin a job, and await that the store is done."""
    for begins in (1, 0):
        settings = {"mode": mode, "start": begins, "frames": FRAMES, "batch": 4}
        dut.control.value = int(LayerControl.const(settings).as_bits())
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 2)
    while not int(dut.done.value):
        await RisingEdge(dut.clk)


async def train(dut, memory, pause):
    """Frames go in, out, and round by way of memory."""
    images, results, saved = (words(kind) for kind in (IMAGES, RESULTS, SAVED))
    memory.write(IMAGES_AT, content(images, IMAGES))
    taken, replayed = [], []
    parts = [
        offer(dut, "writers_stream0", payloads(results, RESULTS), pause),
        offer(dut, "save_stream0", payloads(saved, SAVED), pause),
        collect(dut, "readers_stream0", len(payloads(images, IMAGES)), taken, pause),
        collect(dut, "replay_stream0", len(payloads(saved, SAVED)), replayed, pause),
        job(dut, Mode.TRAIN),
    ]
    for part in [cocotb.start_soon(part) for part in parts]:
        await part
    assert taken == payloads(images, IMAGES)
    assert replayed == payloads(saved, SAVED)
    assert memory.read(RESULTS_AT, 64 * FRAMES) == content(results, RESULTS)


async def parameters(dut, memory, pause):
    """What was dumped is loaded."""
    states = [[random.getrandbits(32) for _ in range(words)] for words in CONFIG.sections]
    parts = [offer(dut, f"dump{n}", state, pause) for n, state in enumerate(states)]
    for part in [cocotb.start_soon(part) for part in [*parts, job(dut, Mode.DUMP)]]:
        await part
    assert memory.read(PARAMETERS, 128 + 28)[128:] == b"".join(w.to_bytes(4, "little") for w in states[1])
    found = [[], []]
    parts = [collect(dut, f"load{n}", len(state), found[n], pause) for n, state in enumerate(states)]
    for part in [cocotb.start_soon(part) for part in [*parts, job(dut, Mode.LOAD)]]:
        await part
    assert found == states


@cocotb.test(timeout_time=200, timeout_unit="us")
async def everything_arrives_at_full_rate(dut):
    memory = await start(dut)
    await train(dut, memory, pause=0.0)
    await parameters(dut, memory, pause=0.0)


@cocotb.test(timeout_time=400, timeout_unit="us")
async def everything_arrives_whatever_is_stalled(dut):
    memory = await start(dut)
    stall(memory.write_if)
    stall(memory.read_if)
    await train(dut, memory, pause=0.3)
    await parameters(dut, memory, pause=0.3)
    await train(dut, memory, pause=0.3)
