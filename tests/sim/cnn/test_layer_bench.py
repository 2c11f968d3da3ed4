"""Jobs through a Verilated component: words, cycles, stalls, loops, registers, and what is refused."""

import numpy as np
import pytest
from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.base.errors import CheckFailed
from fanin.hdl.layers.interface import LayerControl, Mode, word_stream
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.sim.cnn.layer_bench import Job, LayerBench

pytestmark = pytest.mark.verilator


class Layer(wiring.Component):
    """Passes on three words a transfer, xored with ``flip``; in training through ``save`` and ``replay``.

    ``done`` comes 50 cycles after the last of ``control.frames`` transfers. ``fault`` chooses a rule to break.
    """

    def __init__(self):
        words = word_stream(3)
        super().__init__(
            {
                "features": In(words).array(1),
                "outputs": Out(words),
                "save": Out(words),
                "replay": In(words),
                "control": In(LayerControl),
                "done": Out(1),
                "flip": In(96),
                "fault": In(3),
            }
        )

    def elaborate(self, platform):
        m = Module()
        features, save, replay, outputs = self.features[0], self.save, self.replay, self.outputs
        train = self.control.mode == Mode.TRAIN
        m.submodules.slice = through = RegisterSlice(shape=features.payload.shape())
        m.d.comb += [
            through.i.payload.as_value().eq(features.payload.as_value() ^ self.flip),
            through.i.valid.eq(features.valid & (self.fault != 1)),
            features.ready.eq(through.i.ready & (self.fault != 1)),
        ]
        source = through.o
        m.d.comb += [
            save.payload.eq(source.payload),
            save.valid.eq(source.valid & train),
            replay.ready.eq(outputs.ready & train),
            source.ready.eq(Mux(train, save.ready, outputs.ready)),
            outputs.valid.eq(Mux(train, replay.valid, source.valid)),
            outputs.payload.eq(Mux(train, replay.payload, source.payload)),
        ]
        left, wait = Signal(24), Signal(range(101))
        m.d.comb += self.done.eq((left == 0) & (wait < 50) & (self.fault != 2))
        with m.If(self.control.start):
            m.d.sync += [left.eq(self.control.frames), wait.eq(100)]
        with m.Elif(left == 0):
            m.d.sync += wait.eq(Mux(wait == 0, 0, wait - 1))
        with m.Elif(outputs.valid & outputs.ready):
            m.d.sync += left.eq(left - 1)
        held = Signal()  # a transfer was offered and not taken
        m.d.sync += held.eq(outputs.valid & ~outputs.ready)
        with m.Switch(self.fault):
            with m.Case(3):
                m.d.comb += outputs.payload.as_value().eq(source.payload.as_value() ^ held)
            with m.Case(4):
                m.d.comb += outputs.valid.eq(source.valid & ~held)
            with m.Case(5):
                m.d.comb += outputs.valid.eq(source.valid & outputs.ready)
            with m.Case(6):
                m.d.comb += outputs.valid.eq(source.valid | (wait == 20))
        return m


@pytest.fixture(scope="module")
def bench():
    fifos = {f"fifo{width}": StreamFIFO(shape=width, depth=4) for width in (1, 8, 40, 64, 4096)}
    return LayerBench({"layer": Layer(), **fifos})


def feed(count, *, seed=0, bits=32):
    return np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint32)


LOOP = {"save": "replay"}
FLIP = 0x0123_4567_89AB_CDEF_0011_2233
FLIPS = np.array([0x0011_2233, 0x89AB_CDEF, 0x0123_4567], dtype=np.uint32)


def layer_job(mode, frames, seed):
    return Job(mode, frames, feeds={"features0": feed(3 * frames, seed=seed)}, expect={"outputs": 3 * frames})


@pytest.mark.parametrize("odds", [0, 0.3, {"outputs": 0.9}, {"features0": 0.9, "replay": 0.5}])
def test_words_go_through_jobs_loops_and_stalls(bench, odds):
    jobs = [layer_job(Mode.TRAIN, 700, 1), layer_job(Mode.EVALUATE, 500, 2), layer_job(Mode.TRAIN, 1, 3)]
    results = bench.run("layer", jobs, loops=LOOP, loop_latency=7, registers={"flip": FLIP}, odds=odds, seed=4)
    for job, result in zip(jobs, results, strict=True):
        expected = job.feeds["features0"] ^ np.tile(FLIPS, job.frames)
        assert np.array_equal(result.words["outputs"], expected)
        saved = expected if job.mode == Mode.TRAIN else []
        assert np.array_equal(result.words["save"], saved)
        last = int(result.cycles_of["outputs"][-1])
        assert result.cycles == last + 52, "done is waited for"
        if odds == 0:  # the register, and the way through the loop
            latency = 1 + 7 * (job.mode == Mode.TRAIN)
            first = result.cycles_of["features0"]
            assert np.array_equal(first, first[0] + np.arange(job.frames))
            assert np.array_equal(result.cycles_of["outputs"], first + latency)


def test_a_gated_frame_enters_after_the_same_frame_has_left(bench):
    """Five frames of four transfers; the odds would let ``replay`` run far ahead of ``save``."""
    words, replayed = feed(60, seed=1), feed(60, seed=2)
    feeds = {"features0": words, "replay": replayed}
    job = Job(Mode.TRAIN, 5, feeds=feeds, expect={"save": 60, "outputs": 60})
    (result,) = bench.run("layer", [job], gates={"replay": "save"}, odds={"save": 0.9}, seed=3)
    assert np.array_equal(result.words["save"], words)
    assert np.array_equal(result.words["outputs"], replayed)
    left, entered = (result.cycles_of[name].reshape(5, 4) for name in ("save", "replay"))
    assert np.array_equal(entered[:, 0], left[:, -1] + 1)
    with pytest.raises(ValueError, match="gates must let an input wait for an output, not save for replay"):
        bench.run("layer", [job], gates={"save": "replay"})


def test_stalls_come_in_phases_of_either_side(bench):
    words = feed(20_000)
    (result,) = bench.run("fifo64", [Job(feeds={"i": words}, expect={"o": len(words)})], odds=0.5, seed=1)
    assert np.array_equal(result.words["o"], words)
    taken, given = (np.bincount(result.cycles_of[name] // 64) for name in ("i", "o"))
    assert (taken >= 60).any(), "both sides are fast"
    assert (taken[: len(given)] <= 6).mean() > 0.2, "one of them is nearly stopped"
    waits = result.cycles_of["o"] - result.cycles_of["i"]
    assert waits.max() > 60, "the queue is full while nothing leaves"
    assert waits.min() <= 2, "it is empty while little comes"


@pytest.mark.parametrize("width", [1, 8, 40, 64, 4096])
def test_payloads_of_any_width(bench, width):
    words = -(-width // 32)
    data = feed(50 * words)
    if width % 32:
        data[words - 1 :: words] &= (1 << width % 32) - 1
    job = Job(feeds={"i": data}, expect={"o": len(data)})
    first, again = bench.run(f"fifo{width}", [job, job], odds=0.4, seed=width)
    assert np.array_equal(first.words["o"], data)
    assert np.array_equal(again.words["o"], data)


def test_the_same_seed_is_the_same_run(bench):
    job = Job(feeds={"i": feed(300, bits=8)}, expect={"o": 300})
    runs = [bench.run("fifo8", [job], odds=0.4, seed=seed)[0].cycles_of["o"].tolist() for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (1, "cycle 2001: no transfer for 2000 cycles; .*: features0 0 of 20, outputs 0 of 20, done is 0"),
        (2, r"transfers so far: done is 0"),
        (3, r"outputs changed while it waited"),
        (4, r"outputs was not taken, and is not valid any more"),
        (5, r"outputs is valid only with a ready"),
        (6, r"outputs offers more than is expected \(after 20 transfers\)"),
    ],
)
def test_a_component_that_breaks_a_rule_fails(bench, fault, complaint):
    jobs = [layer_job(Mode.EVALUATE, 20, 1)]
    with pytest.raises(CheckFailed, match=f"^layer: job 0, .*{complaint}"):
        bench.run("layer", jobs, registers={"fault": fault}, odds=0.5, seed=2, patience=2000)


def test_words_that_a_loop_keeps_are_named(bench):
    job = Job(Mode.TRAIN, 20, feeds={"features0": feed(60)}, expect={"outputs": 30})
    with pytest.raises(CheckFailed, match=r"outputs offers more than is expected \(after 10 transfers\)"):
        bench.run("layer", [job], loops=LOOP)
    job = Job(Mode.EVALUATE, 20, feeds={"features0": feed(60), "replay": feed(3)}, expect={"outputs": 60})
    with pytest.raises(CheckFailed, match=r"no transfer for 10000 cycles; transfers so far: replay 0 of 1$"):
        bench.run("layer", [job])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"loops": {"replay": "save"}}, "loops must lead an output into an input, not replay into save"),
        ({"loops": {"sav": "replay"}}, "loops must be among .*, not sav"),
        ({"odds": {"output": 0.5}}, "odds must be among features0, outputs, save, replay, not output"),
        ({"registers": {"flop": 1}}, "registers must be among flip, fault, not flop"),
    ],
)
def test_what_a_component_has_not_is_refused(bench, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        bench.run("layer", [layer_job(Mode.TRAIN, 1, 1)], **options)


def test_words_must_fill_transfers_of_streams_in_no_loop(bench):
    with pytest.raises(ValueError, match="features0 must have a multiple of 3 words, not 2 more"):
        bench.run("layer", [Job(feeds={"features0": [1] * 5})])
    with pytest.raises(ValueError, match="outputs must have a multiple of 3 words, not 1 more"):
        bench.run("layer", [Job(expect={"outputs": 4})])
    with pytest.raises(ValueError, match="feeds must be among features0, not replay"):
        bench.run("layer", [Job(feeds={"replay": [1, 2, 3]})], loops=LOOP)
