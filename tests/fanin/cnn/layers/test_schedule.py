"""Blocks, loops and rings of a convolution, against counting them out."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import pytest

from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.raster import HAND_OVER, Raster
from fanin.cnn.layers.schedule import REUSE, Schedule, Step, Way

LAYERS = {
    "3×3": Conv(
        inputs=(Shape(8, 8, 2),),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        output_channels=4,
        gradient=True,
    ),
    "3×3 of stride 2": Conv(
        inputs=(Shape(8, 8, 4),),
        kernel=(3, 3),
        stride=(2, 2),
        padding=(0, 0, 1, 1),
        output_channels=4,
        gradient=True,
    ),
    "5×2, first": Conv(inputs=(Shape(7, 9, 2),), kernel=(5, 2), stride=(1, 1), output_channels=3),
    "gaps": Conv(
        inputs=(Shape(7, 7, 2),), kernel=(1, 2), stride=(3, 3), padding=(2, 2, 2, 2), output_channels=4
    ),
    "1×1": Conv(inputs=(Shape(3, 4, 4),), kernel=(1, 1), stride=(1, 1), output_channels=6, gradient=True),
    "1×1 of stride 2": Conv(
        inputs=(Shape(8, 8, 4),), kernel=(1, 1), stride=(2, 2), output_channels=4, gradient=True
    ),
    "groups": Conv(
        inputs=(Shape(5, 6, 4),),
        kernel=(3, 2),
        stride=(2, 1),
        padding=(1, 0, 1, 1),
        output_channels=6,
        groups=2,
        gradient=True,
    ),
    "depthwise": DepthwiseConv(
        inputs=(Shape(6, 6, 4),),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        output_channels=4,
        groups=4,
        gradient=True,
    ),
    "dense": Dense(inputs=(Shape(2, 2, 3),), output_channels=6, gradient=True),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def schedules(layer):
    """With each parallelism."""
    return [Schedule(layer, p) for p in layer.parallelisms()]


def frame_steps(schedule, way):
    """(cycle, output row, position in that row, step) of a frame whose blocks follow one another at once."""
    each = schedule.layer.output.w // schedule.p.ph
    for block in range(schedule.blocks):
        for cycle, step in schedule.steps(way):
            row, position = divmod(block * schedule.block.positions + step.p, each)
            yield block * schedule.block_cycles(way) + cycle, row, position, step


def accumulators(schedule, way, row, position, step):
    """What a step adds to, and the place of its terms in the order of the sum."""
    if way is Way.FORWARD:
        yield (row, position, step.g, step.og), (step.ky, step.kx, step.ig)
    elif way is Way.WEIGHT_GRADIENT:
        yield (step.ky, step.kx, step.g, step.ig, step.og), (row, position)
    else:
        down, right = schedule.layer.stride
        for ox in range(position * schedule.p.ph, (position + 1) * schedule.p.ph):
            yield (row * down + step.ky, ox * right + step.kx, step.g, step.ig), (row, ox, step.og)


@every_layer
def test_every_step_comes_once_in_the_cycles_that_are_said(layer):
    for schedule in schedules(layer):
        each, positions = layer.output.w // schedule.p.ph, schedule.block.positions
        channels = map(range, (schedule.groups, schedule.igs, schedule.ogs))
        places = product(range(layer.output.h), range(each), *map(range, layer.kernel), *channels)
        expected = {
            (row, position, Step(*indices, (row * each + position) % positions))
            for row, position, *indices in places
        }
        for way in schedule.ways:
            steps = list(frame_steps(schedule, way))
            assert {tuple(step[1:]) for step in steps} == expected
            assert len(steps) * layer.lanes(schedule.p) == layer.output.h * layer.output.w * layer.parameters
            cycles = [step[0] for step in steps]
            assert cycles == sorted(set(cycles))
            assert cycles[-1] < schedule.blocks * schedule.block_cycles(way) <= schedule.cycles


@every_layer
def test_sums_are_folded_in_the_order_of_the_docs_and_have_the_time_that_it_takes(layer):
    for schedule, way in product(schedules(layer), Way):
        terms = defaultdict(list)
        for cycle, row, position, step in frame_steps(schedule, way):
            for sum_, place in accumulators(schedule, way, row, position, step):
                terms[sum_].append((cycle, place))
        for found in terms.values():
            places = [place for _, place in found]
            assert places == sorted(set(places))
            if way in schedule.ways:
                assert all(b - a >= REUSE for (a, _), (b, _) in pairwise(found))


@every_layer
def test_nothing_waits_where_positions_and_weights_suffice(layer):
    for schedule in schedules(layer):
        positions = layer.output.h * layer.output.w // schedule.p.ph
        groups = min(schedule.ogs, schedule.igs) if layer.gradient else schedule.ogs
        waits = min(groups * schedule.groups * positions, schedule.weight_words) < REUSE
        multiplications = layer.output.h * layer.output.w * layer.parameters
        assert (schedule.cycles * layer.lanes(schedule.p) > multiplications) == waits


def spacing(raster, rows, period, *, to_reader, to_writer):
    """Cycles between two frames, with words and blocks as soon as they can, in a ring of so many rows.

    ``to_reader``: cycles from a row's last word to the block; ``to_writer``: from the block's end to the row.
    """
    row, step = Fraction(period, raster.height), Fraction(period, raster.steps)
    written, freed, end, ends = [], [], Fraction(0), []
    for frame in range(12):
        for k in range(raster.steps):
            while len(written) <= frame * raster.height + raster.last(k):
                begin = written[-1] if written else Fraction(0)
                if len(written) >= rows:
                    if len(written) - rows >= len(freed):
                        return None  # it is stuck
                    begin = max(begin, freed[len(written) - rows] + to_writer)
                written.append(begin + row)
            end = max(end, written[frame * raster.height + raster.last(k)] + to_reader) + step
            freed += (raster.first(k + 1) - raster.first(k)) * [end]
        ends.append(end)
    return ends[-1] - ends[-2]


@every_layer
def test_a_ring_lets_frames_follow_at_once(layer):
    for schedule in schedules(layer):
        period = schedule.period
        for raster, to_reader in product((schedule.features, schedule.outputs), (0, 4, HAND_OVER)):
            delays = {"to_reader": to_reader, "to_writer": HAND_OVER - to_reader}
            assert spacing(raster, raster.ring(period), period, **delays) == period


def test_a_ring_has_no_row_too_many():
    """Rows of a window, one that comes in, and one for the hand-over."""
    plain = Raster(
        height=32, width=8, groups=1, lanes=1, columns=8, positions=1, steps=32, kernel=(3, 3), top=1, left=1
    )
    assert plain.ring(32 * 72) == 5
    assert spacing(plain, 4, 32 * 72, to_reader=4, to_writer=4) > 32 * 72
    assert spacing(plain, 2, 32 * 72, to_reader=4, to_writer=4) is None


@pytest.mark.parametrize(
    ("p", "error"),
    [
        (Parallelism(pic=2, poc=1, ph=3, pi=1, po=1), "ph must divide 8, not 3"),
        (Parallelism(pic=1, poc=3, ph=1, pi=1, po=1), "poc must divide 4, not 3"),
        (Parallelism(pic=1, poc=1, ph=2, pi=1, po=4), "po must be one of 1, 2, not 4"),
    ],
)
def test_parallelism_that_does_not_fit_is_refused(p, error):
    with pytest.raises(ValueError, match=error):
        Schedule(LAYERS["3×3"], p).check()
