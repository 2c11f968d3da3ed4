# amaranth: UnusedElaboratable=no
"""The queue of whole frames: what it keeps, what it drops, and when."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from fanin.hdl.stream.frame_store import MARGIN, FrameStore, store_capacity
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

WIDTH = 64
STEP = WIDTH // 8
DRAINED = 1500  # cycles in which a store becomes empty, whatever the phase of the stalls


def traffic(rng, count, *, max_frame):
    """Frames of all lengths, some too long, and which of them have errors."""
    edges = [3, STEP, STEP + 1, max_frame - 1, max_frame, max_frame + 1, max_frame + STEP, 3 * max_frame]
    sizes = [*edges, *(rng.choice([*edges, rng.randrange(1, max_frame + 1)]) for _ in range(count))]
    rng.shuffle(sizes)
    return [rng.randbytes(size) for size in sizes], {n for n in range(len(sizes)) if rng.random() < 0.2}


class Run:
    """A store that frames go through: the cycles of each frame's beats at both ends, and what it says."""

    def __init__(self, dut, sent, errors=(), *, seed, stall=0.3):
        self.dut, self.seed, self.stall = dut, seed, stall
        self.events, self.levels, self.out = Counter(), [], []
        offered = list(beats(sent, dut.width, errors=errors))
        processes = [self._watch, self._take]
        log = simulate(dut, drive={"i": offered}, stall=stall, seed=seed, processes=processes, idle=DRAINED)
        self.frames = frames(payload for _, payload in self.out)
        self.came = self._spans((cycle, payload["last"]) for cycle, payload in log["i"])
        self.left = self._spans((cycle, payload.last) for cycle, payload in self.out)

    async def _watch(self, ctx):
        while True:
            _, _, level, events = await ctx.tick().sample(self.dut.level, self.dut.events)
            self.levels.append(level)
            self.events.update({name: events[name] for name in ("left", "dropped", "bad") if events[name]})

    async def _take(self, ctx):
        stalls, o = Stalls(self.stall, self.seed), self.dut.o
        open_frame = False
        for cycle in range(10**9):
            ctx.set(o.ready, not stalls.pauses("o", Side.SINK, cycle))
            _, _, valid, ready, payload = await ctx.tick().sample(o.valid, o.ready, o.p)
            assert valid or not open_frame, "a frame pauses inside"
            if valid and ready:
                self.out.append((cycle, payload))
                open_frame = not payload.last

    @staticmethod
    def _spans(beats):
        spans, cycles = [], []
        for cycle, last in beats:
            cycles.append(cycle)
            if last:
                spans.append(cycles)
                cycles = []
        return spans

    def check(self, sent, kept):
        """What leaves is what is kept, and ``level`` is what a queue of whole frames would have in memory."""
        assert self.frames == [frame for frame, is_kept in zip(sent, kept, strict=True) if is_kept]
        assert self.events["left"] == sum(kept)
        kept_at = [
            (cycles[-1], len(cycles)) for cycles, is_kept in zip(self.came, kept, strict=True) if is_kept
        ]
        gone = [cycle for own in self.left for cycle in own]
        for cycle, level in enumerate(self.levels):
            whole = sum(beats for end, beats in kept_at if end < cycle - 1)
            # one that has not left may stand in the register behind the memory
            assert 0 <= whole - sum(at < cycle - 1 for at in gone) - level <= 1

    def room(self, kept, number):
        """The least room that a beat of a frame found: a model of the queue, from what went in and out."""
        stored = [
            cycle for own, is_kept in zip(self.came[:number], kept, strict=False) if is_kept for cycle in own
        ]
        gone = [cycle for own in self.left for cycle in own]
        previous = self.came[number - 1]
        if number and not kept[number - 1] and self.came[number][0] == previous[-1] + 1:
            return 0  # the beats of the one before, which was dropped, were seen as well
        return min(
            self.dut.capacity - len(stored) - beat + sum(at < cycle for at in gone)
            for beat, cycle in enumerate(self.came[number])
        )


@pytest.mark.parametrize("max_frame", [61, 64])
def test_a_store_that_waits_drops_what_is_bad_or_too_long_and_nothing_else(max_frame):
    rng = random.Random(seed := new_seed())
    dut = FrameStore(width=WIDTH, max_frame=max_frame, capacity=16, wait=True)
    sent, errors = traffic(rng, 80, max_frame=max_frame)
    kept = [n not in errors and len(frame) <= max_frame for n, frame in enumerate(sent)]
    run = Run(dut, sent, errors, seed=seed)
    run.check(sent, kept)
    assert run.events["bad"] == len(errors)
    assert run.events["dropped"] == len(sent) - len(errors) - sum(kept)


def test_a_store_that_does_not_wait_drops_whole_frames_and_only_without_room():
    rng = random.Random(seed := new_seed())
    dut = FrameStore(width=WIDTH, max_frame=80, capacity=32, wait=False)
    sent, errors = traffic(rng, 200, max_frame=80)
    run = Run(dut, sent, errors, seed=seed, stall={"i": 0.1, "o": 0.85})
    assert len(run.came) == len(sent)
    left = iter([*run.frames, None])
    following = next(left)
    kept = []
    for frame in sent:
        kept.append(frame == following)
        following = next(left) if kept[-1] else following
    run.check(sent, kept)
    refused = [n for n, f in enumerate(sent) if not kept[n] and n not in errors and len(f) <= 80]
    assert refused
    assert all(run.room(kept, n) <= MARGIN for n in refused)
    assert run.events["bad"] == len(errors)
    assert run.events["dropped"] == len(sent) - len(errors) - sum(kept)


def test_a_reader_that_never_comes_stalls_no_one_and_finds_whole_frames_later():
    rng = random.Random(seed := new_seed())
    dut = FrameStore(width=WIDTH, max_frame=80, capacity=32, wait=False)
    sent = [rng.randbytes(80) for _ in range(20)]
    run = Run(dut, sent, seed=seed, stall={"o": 1.0})
    assert [cycles[-1] for cycles in run.came] == [10 * n + 9 for n in range(20)]
    assert run.frames == []
    assert run.events == {"dropped": 17}  # three are just what fits
    assert run.levels[-1] == 29


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_frames_go_back_to_back_and_begin_two_cycles_after_their_end(wait, count):
    rng = random.Random(seed := new_seed())
    dut = FrameStore(width=WIDTH, max_frame=80, capacity=32, wait=wait)
    sent = [rng.randbytes(STEP * count) for _ in range(30)]
    run = Run(dut, sent, seed=seed, stall=0)
    assert [begins[0] - ends[-1] for ends, begins in zip(run.came, run.left, strict=True)] == [2] * 30
    cycles = [cycle for own in run.left for cycle in own]
    assert all(late - early == 1 for early, late in pairwise(cycles))
    assert [cycle for own in run.came for cycle in own] == list(range(30 * count))


def test_a_store_holds_two_of_the_longest_frames():
    assert store_capacity(9216, 512) == 512
    assert store_capacity(9216, 256) == 1024
    assert store_capacity(64, 64) >= 2 * 8 + MARGIN


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_frame": 0}, "max_frame must be at least 1 byte, not 0"),
        ({"capacity": 24}, "capacity must be a power of two from 18, not 24"),
        ({"capacity": 16}, "capacity must be a power of two from 18, not 16"),
    ],
)
def test_sizes_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        FrameStore(**{"width": 64, "max_frame": 80, "capacity": 32, "wait": True} | changes)
