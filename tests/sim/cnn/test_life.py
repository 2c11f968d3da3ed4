# amaranth: UnusedElaboratable=no
"""A cluster's nodes live together: nodes reset in the midst of jobs, old frames, new runs; then golden bits."""

import functools
import random

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.cnn.driver import CnnDriver, HostMemory
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.training import Job
from fanin.hdl.layers.registers import Failure
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.cnn.device import load_states
from fanin.sim.cosim.program import HostProgram
from tests.sim.cnn.trial import THREE
from tests.support import new_seed

pytestmark = [pytest.mark.verilator, pytest.mark.slow]

FRAMES = 4
POLL = 200  # cycles between two looks at a status
PATIENCE = 2_000  # looks
LOSSY = LinkConfig(drop=0.01, duplicate=0.05, reorder=0.05, corrupt=0.01)


class ClusterLife:
    """Live hosts of all nodes: one after the other they do what a script wants."""

    def __init__(self, board, *, places, link_timeout, seed, steps):
        self.done = False
        self.progress = 0
        self._board, self._places, self._link_timeout = board, places, link_timeout
        self._seed, self._steps, self._rng = seed, steps, random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._drivers = [CnnDriver(place.memory_map) for place in places]
        self._memories = [HostMemory(place.memory_map, board.memory(n)) for n, place in enumerate(places)]
        self._run = 0
        self._causes = {}
        self._course = self._live()

    def may_skip(self):
        return False

    def waiting(self):
        return f"step {self.progress} of seed {self._seed}"

    def result(self):
        return self._causes

    def start(self):
        self._go(None)

    def _go(self, sent):
        try:
            wish = self._course.send(sent)
        except StopIteration:
            self.done = True
            return
        if isinstance(wish, int):
            self._board.at(self._board.now + wish * 4_000, lambda: self._go(None))
        else:
            node, batch = wish
            self._board.run(node, HostProgram().extend(batch.operations), self._go)

    def _check(self, good, *what):
        if not good:
            raise CheckFailed(f"seed {self._seed}, step {self.progress}: {', '.join(map(str, what))}")

    def _status(self, node):
        driver = self._drivers[node]
        words = yield node, driver.wait()
        return driver.status_of(driver.wait().results(words))

    def _await(self, node, flag):
        for _ in range(PATIENCE):
            status = yield from self._status(node)
            if not getattr(status, flag):
                return status
            yield POLL
        self._check(False, f"{flag} of node {node} does not end", status)

    def _reset(self, nodes):
        for node in nodes:
            yield node, self._drivers[node].reset()
        for node in nodes:
            yield from self._await(node, "resetting")

    def _connect(self):
        """A new run; the number of the last one is refused by those that had it."""
        for node, (driver, place) in enumerate(zip(self._drivers, self._places, strict=True)):
            yield node, driver.configure(timeout=30_000)
            for run in range(max(self._run, 1), self._run + 2):
                batch = driver.connect(
                    worker_endpoint(node), place.peers, run=run, link_timeout=self._link_timeout, link_retries=6
                )
                yield node, batch
                status = yield from self._status(node)
                self._check(status.links_refused == (run == self._run), f"run {run}", status)
        self._run += 1

    def _begin(self, batch_of):
        """Have all nodes begin a job, the host's last; whether each has ended well."""
        nodes = range(len(self._drivers))
        for node in reversed(nodes):
            yield node, batch_of(self._drivers[node])
        return nodes

    def _job(self, batch_of):
        for node in (yield from self._begin(batch_of)):
            status = yield from self._await(node, "running")
            self._check(status.cause is Failure.NONE and not status.refused, f"node {node}", status)

    def _data(self, frames):
        network = THREE.network
        shape = network.stages[network.images].layer.output
        classes = network.stages[network.labels].layer.output.words
        images = self._numbers.standard_normal((frames, shape.h, shape.w, shape.c)).astype(np.float32)
        labels = np.eye(classes, dtype=np.float32)[self._numbers.integers(0, classes, frames)]
        self._memories[0].write_frames(images, labels)
        return images, labels

    @staticmethod
    def _batch(driver, *, job, frames):
        return driver.train(job) if job else driver.evaluate(frames)

    def _clean(self):
        """Parameters in, some jobs, parameters out: golden bits."""
        states = initial_state(THREE.network, self._rng.randrange(1 << 30))
        golden = GoldenNetwork(THREE.network, states)
        load_states(self._places, self._memories, THREE.words(states))
        yield from self._job(lambda driver: driver.load())
        for _ in range(self._rng.randint(1, 2)):
            frames = self._rng.randint(1, FRAMES)
            images, labels = self._data(frames)
            job = Job.of(frames, self._rng.randint(1, FRAMES), 0.5, 0.75)
            trains = self._rng.random() < 0.7
            batch_of = functools.partial(self._batch, job=job if trains else None, frames=frames)
            yield from self._job(batch_of)
            expected = golden.train(images, labels, job) if trains else golden.evaluate(images)
            found = self._memories[0].read_results(frames).view(np.uint32)
            self._check(np.array_equal(found, expected.reshape(frames, -1).view(np.uint32)), "results")
        yield from self._job(lambda driver: driver.dump())
        found = {
            stage: words
            for place, memory in zip(self._places, self._memories, strict=True)
            for stage, words in zip(place.states, memory.read_parameters(), strict=True)
        }
        for words, good in zip(
            (found[stage] for stage in sorted(found)), THREE.words(golden.states), strict=True
        ):
            self._check(np.array_equal(words, good), "parameters")

    def _accident(self):
        """A job in which nodes are reset, or their connections; the others find out, or have ended."""
        rng = self._rng
        frames = rng.randint(1, FRAMES)
        self._data(frames)
        job = Job.of(frames, rng.randint(1, FRAMES), 0.5, 0.75)
        nodes = yield from self._begin(lambda driver: driver.train(job))
        yield rng.randint(1, 8_000)
        hit = rng.sample(list(nodes), rng.randint(1, len(nodes)))
        for node in hit:
            command = rng.choice(["reset", "reset_links"])
            yield node, self._drivers[node].command(command)
        for node in nodes:
            status = yield from self._await(node, "running")
            self._causes[status.cause.name] = self._causes.get(status.cause.name, 0) + 1
            self._check(status.cause in (Failure.NONE, Failure.LINK, Failure.TIMEOUT), f"node {node}", status)
            yield node, self._drivers[node].evaluate(1)
            status = yield from self._await(node, "running")
            ends = (Failure.LINK, Failure.TIMEOUT, Failure.UNLOADED, Failure.CONNECTION)
            self._check(status.refused or status.cause in ends, f"node {node} goes on", status)
        yield from self._reset(rng.sample(list(nodes), len(nodes)))

    def _live(self):
        for number in range(1, self._steps + 1):
            self.progress = number
            yield from self._connect()
            yield from self._clean()
            yield from self._accident()
        yield from self._connect()
        yield from self._clean()


@pytest.mark.parametrize("link", [LinkConfig(), LOSSY], ids=["good links", "bad links"])
def test_after_any_accident_a_new_run_has_golden_bits(link):
    cosim, seed = THREE.cosim, new_seed()
    places = [cosim._place(number, FRAMES) for number in range(len(cosim.parts))]
    result = cosim._cluster.run(
        memories=[[np.zeros(place.memory_map.end, np.uint8)] for place in places],
        phases=[],
        longest_wait=1 << 20,
        hosts=functools.partial(
            ClusterLife, places=places, link_timeout=cosim.link_timeout(link), seed=seed, steps=25
        ),
        independent_hosts=True,
        link=link,
        seed=seed,
        quiet_cycles=500,
    )
    print(result.hosts, result.cycles)
    assert result.hosts["LINK"]
