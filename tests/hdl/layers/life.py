"""The life of a cluster node, drawn from a seed: jobs of all kinds, and all that may go wrong with them.

A :class:`Life` is the live host of one node in the co-simulation. It keeps a model of what the node must know,
and after every step compares status, results and parameters with the golden model. It raises CheckFailed with
the seed and the number of the step that it did not expect.
"""

import random

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.cnn.driver import CnnDriver, HostMemory
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.memory import BEAT_BYTES, MemoryMap, state_stages
from fanin.cnn.training import Job
from fanin.cnn.watchdog import longest_silence
from fanin.hdl.layers.registers import Failure, StreamWord
from fanin.sim.cosim.program import HostProgram
from tests.hdl.layers.faulty_node import BAD

FRAMES = 4
PLACES = ("parameters", "images", "labels", "results")
POLL = 200  # cycles between two looks at the status
PATIENCE = 400  # looks
SPOILT = 0x7FC0DEAD
WHOLE_JOB = 8_000  # cycles: a job that went on would write its results by then


def memory_map(network):
    return MemoryMap(network, frames=FRAMES)


class Life:
    """Live hosts of one node, which do ``steps`` steps; one that is ``faulty`` has errors of memory, too."""

    def __init__(self, board, *, network, seed, steps, faulty):
        self.done = False
        self.progress = 0
        self._board, self._network, self._seed, self._steps = board, network, seed, steps
        self._faulty = faulty
        self._rng = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._driver = CnnDriver(memory_map(network))
        self._memory = HostMemory(memory_map(network), board.memory(0))
        self._golden = None  # None while the node's parameters are unknown
        self._failed = False  # only a reset helps
        self._again = False  # the job in hand was begun once more, which is refused
        self._counts = {}
        self._course = self._live()

    def may_skip(self):
        return False

    def waiting(self):
        return f"step {self.progress} of seed {self._seed}"

    def result(self):
        return self._counts

    def start(self):
        self._go(None)

    def _go(self, sent):
        try:
            program = self._course.send(sent)
        except StopIteration:
            self.done = True
            return
        if isinstance(program, int):
            self._board.at(self._board.now + program * 4_000, lambda: self._go(None))
        else:
            self._board.run(0, program, self._go)

    def _check(self, good, *what):
        if not good:
            raise CheckFailed(f"seed {self._seed}, step {self.progress}: {', '.join(map(str, what))}")

    # ---- what a host does ----

    def _do(self, batch):
        """Carry out a batch; the words that it reads."""
        return (yield HostProgram().extend(batch.operations))

    def _status(self):
        words = yield from self._do(self._driver.wait())
        return self._driver.status_of(self._driver.wait().results(words))

    def _await(self, flag):
        """The status once ``flag`` of it is low."""
        for _ in range(PATIENCE):
            status = yield from self._status()
            if not getattr(status, flag):
                return status
            yield POLL
        self._check(False, f"{flag} does not end", status)

    def _configure(self, timeout=1 << 20):
        yield from self._do(self._driver.configure(timeout=timeout))

    def _reset(self, *beside):
        yield from self._do(self._driver.command("reset", *beside))
        self._golden, self._failed = None, False
        status = yield from self._await("resetting")
        self._check(not status.running and status.cause is Failure.NONE, "after a reset", status)

    # ---- jobs ----

    def _data(self, frames):
        shape = self._network.stages[self._network.images].layer.output
        classes = self._network.stages[self._network.labels].layer.output.words
        images = self._numbers.standard_normal((frames, shape.h, shape.w, shape.c)).astype(np.float32)
        labels = np.eye(classes, dtype=np.float32)[self._numbers.integers(0, classes, frames)]
        self._memory.write_frames(images, labels)
        self._memory._words("results")[:] = SPOILT
        return images, labels

    def _draw(self, kind):
        """A job of a kind: the batch that begins it, and what checks what it has left."""
        driver, frames = self._driver, self._rng.randint(1, FRAMES)
        if kind == "load":
            states = initial_state(self._network, self._rng.randrange(1 << 30))
            stages = self._network.stages
            self._memory.write_parameters(
                [
                    state_image(stages[i].layer, stages[i].parallelism, states[i])
                    for i in state_stages(self._network)
                ]
            )

            def loaded():
                self._golden = GoldenNetwork(self._network, states)

            return driver.load(), loaded
        if kind == "dump":
            self._memory._words("parameters")[:] = SPOILT
            return driver.dump(), self._check_states
        images, labels = self._data(frames)
        job = Job.of(frames, self._rng.randint(1, FRAMES + 1), self._rng.choice([0.5, 0.25]), 0.75)

        def check():
            golden = self._golden
            expected = golden.train(images, labels, job) if kind == "train" else golden.evaluate(images)
            found = self._memory.read_results(frames).view(np.uint32)
            self._check(np.array_equal(found, expected.reshape(frames, -1).view(np.uint32)), kind, "results")

        return driver.train(job) if kind == "train" else driver.evaluate(frames), check

    def _check_states(self):
        stages = self._network.stages
        found = self._memory.read_parameters()
        for words, index in zip(found, state_stages(self._network), strict=True):
            layer, p = stages[index].layer, stages[index].parallelism
            good = np.array_equal(words, state_image(layer, p, self._golden.states[index]))
            self._check(good, "parameters of", stages[index].name)

    def _kind(self):
        return self._rng.choice(["train", "train", "evaluate", "dump", "load"])

    def _job(self, kind, *, during=None):
        """A job to its end: golden bits, or the reason why it was not begun."""
        begin, check = self._draw(kind)
        begins = not self._failed and (self._golden is not None or kind == "load")
        yield from self._do(begin)
        if during:
            yield from during(begins)
        status = yield from self._await("running")
        if self._failed:
            self._check(status.refused and status.needs_reset, "a start after a failure", status)
            return
        self._check(status.refused == (during is not None and self._again), "refused", status)
        if self._golden is None and kind != "load":
            self._check(status.cause is Failure.UNLOADED, kind, "without parameters", status)
            return
        self._check(status.cause is Failure.NONE, kind, status)
        check()

    def _clean(self):
        """What any prefix must leave possible: a reset where the node says so, then golden bits."""
        status = yield from self._status()
        if status.needs_reset:
            yield from self._reset()
        yield from self._configure()
        for kind in ("load", "train", "dump"):
            yield from self._job(kind)

    # ---- steps ----

    def _live(self):
        yield from self._configure()
        steps = [name for name in dir(type(self)) if name.startswith("_step_")]
        if not self._faulty:
            steps.remove("_step_bus_error")
        for number in range(1, self._steps + 1):
            self.progress = number
            name = self._rng.choice(steps)
            self._counts[name] = self._counts.get(name, 0) + 1
            yield from getattr(self, name)()
        yield from self._clean()

    def _step_clean(self):
        yield from self._clean()

    def _step_job(self):
        yield from self._job(self._kind())

    def _step_jobs_at_once(self):
        for _ in range(2):
            yield from self._job(self._rng.choice(["train", "evaluate"]))

    def _step_reset(self):
        beside = [name for name in ("start", "clear_counters", "reset_links") if self._rng.random() < 0.4]
        yield from self._reset(*beside)
        status = yield from self._status()
        self._check(status.refused or "start" not in beside, "start beside reset", status)

    def _step_abort(self):
        """A job is abandoned at any cycle; from the end of the reset on the node leaves memory alone."""
        kind = self._kind()
        begin, _ = self._draw(kind)
        yield from self._do(begin)
        yield self._rng.choice([self._rng.randint(1, 60), self._rng.randint(1, 8_000)])
        yield from self._reset()
        yield from self._leaves_memory(f"{kind} after a reset")

    def _leaves_memory(self, when):
        self._memory._words("results")[:] = SPOILT
        self._memory._words("parameters")[:] = SPOILT
        yield self._rng.choice([self._rng.randint(1, 1_000), WHOLE_JOB])
        for name in ("results", "parameters"):
            self._check((self._memory._words(name) == SPOILT).all(), f"{name} written: {when}")

    def _step_bus_error(self):
        kind = self._kind()
        begin, _ = self._draw(kind)
        own = ("parameters",) if kind in ("load", "dump") else ("images", "labels", "results")
        name = self._rng.choice(own)
        place = self._driver.memory_map.region(name).address
        yield from self._do(self._driver.batch().write(name, place | BAD))
        yield from self._do(begin)
        status = yield from self._await("running")
        if not self._failed and (self._golden is not None or kind == "load"):
            self._check(status.cause is Failure.MEMORY, kind, f"error at {name}", status)
            self._failed, self._golden = True, None
            yield 1_000  # bursts that were under way
            yield from self._leaves_memory(f"{kind} after an error")
        yield from self._configure()

    def _step_silence(self):
        """A watchdog that is too short fails the job, or does not; one as long as predicted never does."""
        short = self._rng.random() < 0.5
        kind = self._kind()
        begin, check = self._draw(kind)
        timeout = self._rng.randint(0, 400) if short else longest_silence([self._network]) + 1_000
        yield from self._configure(timeout)
        yield from self._do(begin)
        status = yield from self._await("running")
        if not self._failed and (self._golden is not None or kind == "load"):
            self._check(
                status.cause in (Failure.NONE, *[Failure.TIMEOUT] * short), f"timeout {timeout}", status
            )
            if status.cause is Failure.NONE:
                check()
            else:
                self._failed, self._golden = True, None
        yield from self._configure()

    def _step_bad_settings(self):
        """Each is refused with its cause, and the node goes on as if nothing had happened."""
        name = self._rng.choice([*PLACES, "frames", "batch"])
        begin, _ = self._draw("train")
        operations = list(begin.operations)
        if name in PLACES:
            place = self._driver.memory_map.region(name).address
            wrong = self._rng.choice([place + self._rng.randint(1, BEAT_BYTES - 1), place + (1 << 40)])
            operations[-1:-1] = self._driver.batch().write(name, wrong).operations
        else:
            operations[-1:-1] = self._driver.batch().write(name, 0).operations
        yield HostProgram().extend(operations)
        status = yield from self._await("running")
        cause = Failure.ADDRESS if name in PLACES else Failure.SETTINGS
        if not self._failed:
            self._check(status.cause is cause and not status.refused, f"{name} is wrong", status)
        yield from self._configure()

    def _step_meddle(self):
        """Registers are written and commands given during a job, which goes on as it was begun."""
        yield from self._job(self._kind(), during=self._meddle)
        yield from self._configure()

    def _meddle(self, begins):
        rng = self._rng
        self._again = begins and rng.random() < 0.5
        if self._again:  # at once: later on the job may have ended
            names = ("start", "set_peer", "start_links", "clear_counters")
            batch = self._driver.batch().write("mode", rng.randrange(4)).write("frames", rng.randrange(1 << 24))
            yield from self._do(
                batch.write("control", **{name: int(name == "start") or rng.randrange(2) for name in names})
            )
        for _ in range(rng.randint(1, 6)):
            yield rng.randint(1, 500)
            batch = self._driver.batch()
            match rng.randrange(4):
                case 0:
                    batch.write(rng.choice(PLACES), rng.randrange(1 << 64))
                case 1:
                    batch.write("mode", rng.randrange(4)).write("frames", rng.randrange(1 << 24))
                    batch.write("batch", rng.randrange(1 << 24)).write("eta", rng.randrange(1 << 32))
                case 2:
                    names = ("set_peer", "start_links", "clear_counters")
                    batch.write("control", **{name: rng.randrange(2) for name in names})
                case 3:
                    batch.write("timed_first", rng.randrange(1 << 24)).write("last_eta", rng.randrange(1 << 32))
            yield from self._do(batch)

    def _step_look_beyond(self):
        """Numbers of what does not exist show 0."""
        batch = self._driver.batch()
        streams, fifos = len(self._driver._streams), len(self._driver._fifos)
        number = self._rng.randint(streams, (1 << 13) - 1)
        for word in StreamWord:
            batch.write("stream", word=word, stream_number=number).read("stream_word")
        batch.write("fifo", self._rng.randint(fifos, (1 << 13) - 1)).read("fifo_level")
        words = yield from self._do(batch)
        self._check(not any(words), f"stream {number} shows", words)
