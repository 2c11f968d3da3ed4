# amaranth: UnusedElaboratable=no
"""Banks against a plain array: what is written by pixel or block is read by block or pixel."""

import random

import pytest
from amaranth import Module
from amaranth.sim import Simulator

from fanin.cnn.layers.raster import Raster
from fanin.hdl.layers.banks import BLOCK, Banks

# Of a row of 8 columns and 12 channels: lanes, columns, stride, padding.
RASTERS = {
    "one": Raster(height=3, width=8, groups=12, lanes=1, columns=1, positions=1, steps=3),
    "lanes": Raster(
        height=3, width=8, groups=3, lanes=4, columns=1, positions=1, steps=3, kernel=(3, 3), left=1
    ),
    "columns": Raster(
        height=3, width=8, groups=6, lanes=2, columns=4, positions=1, steps=3, kernel=(3, 3), left=1
    ),
    "stride": Raster(
        height=3,
        width=8,
        groups=3,
        lanes=4,
        columns=2,
        positions=1,
        steps=3,
        kernel=(3, 5),
        stride=(1, 2),
        left=2,
    ),
    "odd": Raster(
        height=3, width=7, groups=4, lanes=3, columns=3, positions=1, steps=3, kernel=(3, 2), stride=(2, 3)
    ),
}
ROWS = 3


class Model:
    """A ring of rows as [row][column][channel], and the places of its words."""

    def __init__(self, raster):
        self.raster = raster
        self.words = [[[0] * (raster.groups * raster.lanes) for _ in range(raster.width)] for _ in range(ROWS)]

    def pixel(self, row, column, channel, words):
        """(place, channels)."""
        group, lane = divmod(channel, self.raster.lanes)
        place = {
            "address": self.raster.address(row, column, group),
            "rotate": self.raster.memory(column, group),
            "part": lane // words,
        }
        return place, range(channel, channel + words)

    def block(self, row, position, kx, group):
        """(place, [(column, whether it is there)])."""
        raster = self.raster
        offset, wrap = raster.tap(kx)
        first = position * raster.columns * raster.stride[1] + kx - raster.left
        columns = [first + j * raster.stride[1] for j in range(raster.columns)]
        exists = [0 <= column < raster.width for column in columns]
        address = row * raster.row_step + position * raster.column_step + offset + group
        place = {
            "address": address % (1 << (ROWS * raster.row_step - 1).bit_length()),
            "rotate": (wrap + group) % raster.columns,
            "wrap": wrap,
            "mask": sum(bit << j for j, bit in enumerate(exists)),
        }
        return place, list(zip(columns, exists, strict=True))


def widths(raster):
    """Of a pixel port: everything that the banks allow."""
    channels = raster.groups * raster.lanes
    narrow = [w for w in range(1, raster.lanes + 1) if raster.lanes % w == 0]
    return narrow + [
        m * raster.lanes for m in range(2, raster.columns + 1) if channels % (m * raster.lanes) == 0
    ]


def accesses(raster, words, model, rng, count):
    """Random places of a port and the (row, column, channel) or None of each of their words."""
    for _ in range(count):
        row = rng.randrange(ROWS)
        if words == BLOCK:
            positions = (raster.width // raster.stride[1]) // raster.columns
            group = rng.randrange(raster.groups)
            place, columns = model.block(
                row, rng.randrange(max(positions, 1)), rng.randrange(raster.kernel[1]), group
            )
            lanes = range(group * raster.lanes, (group + 1) * raster.lanes)
            yield place, [(row, x, c) if there else None for x, there in columns for c in lanes]
        else:
            column = rng.randrange(raster.width)
            channel = rng.randrange(raster.groups * raster.lanes // words) * words
            place, channels = model.pixel(row, column, channel, words)
            yield place, [(row, column, c) for c in channels]


def run(raster, writes, read, cycles=300, seed=1):
    """A write and a read in every cycle; AssertionError where a read differs from the array."""
    dut = Banks(raster=raster, rows=ROWS, writes=writes, reads=(read,))
    model, rng = Model(raster), random.Random(seed)
    write_list = list(accesses(raster, writes, model, rng, cycles))
    read_list = list(accesses(raster, read, model, rng, cycles))
    checked = 0

    async def bench(ctx):
        nonlocal checked
        awaited = [None] * Banks.READ
        for (place, written), (read_place, seen) in zip(write_list, read_list, strict=True):
            words = [rng.randrange(1 << 32) for _ in written]
            enabled = rng.random() < 0.8
            ctx.set(dut.write.en, enabled)
            ctx.set(dut.write.place, place)
            ctx.set(dut.write.data, words)
            ctx.set(dut.read0.place, read_place)
            awaited.append([0 if at is None else model.words[at[0]][at[1]][at[2]] for at in seen])
            for at, word in zip(written, words, strict=True):
                if enabled and at is not None:
                    model.words[at[0]][at[1]][at[2]] = word
            if (expected := awaited.pop(0)) is not None:
                assert [ctx.get(dut.read0.data[i]) for i in range(len(expected))] == expected
                checked += any(expected)
            await ctx.tick()

    top = Module()
    top.submodules.dut = dut
    sim = Simulator(top)
    sim.add_clock(4e-9)
    sim.add_testbench(bench)
    sim.run()
    assert checked > 20


@pytest.mark.parametrize("name", RASTERS)
def test_pixels_written_are_read_by_block(name):
    for words in widths(RASTERS[name]):
        run(RASTERS[name], words, BLOCK)


@pytest.mark.parametrize("name", RASTERS)
def test_blocks_written_are_read_by_pixel(name):
    for words in widths(RASTERS[name]):
        run(RASTERS[name], BLOCK, words)


@pytest.mark.parametrize("name", RASTERS)
def test_blocks_written_are_read_by_block(name):
    run(RASTERS[name], BLOCK, BLOCK)


@pytest.mark.parametrize("words", [3, 12])
def test_widths_that_meet_a_memory_twice_are_refused(words):
    with pytest.raises(ValueError, match=f"{words} words"):
        Banks(raster=RASTERS["columns"], rows=ROWS, writes=words, reads=(BLOCK,))
