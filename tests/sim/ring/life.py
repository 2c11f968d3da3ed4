"""Life of ring nodes: jobs of any shape, aborts, wrong settings, late frames; then a clean job, and again."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.hdl.ring.registers import Failure
from fanin.job import worker_endpoint
from fanin.ring.driver import RingDriver, RingFindings, RingMember, RingNicDriver, RingStatus
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.switch.forward import Forwarder

QUICK = {"timeout": 400, "retries": 8}  # of a job that is to fail soon
PATIENT = {"timeout": 2000, "retries": 200}  # of a job that must not
KEPT = 400  # frames that may come again
GUARD = 0xA5
REGISTERS = ("own_mac", "previous_mac", "next_mac", "timeout", "retries", "count", "address", "watch")
REGISTERS += ("rounding_seed",)
#: What is wrong in a job; every node that completes a vector nevertheless has its golden sum.
ERRORS = ("none", "rank", "each itself first", "nodes", "count", "silent", "swapped")
MEMORY = "memory"  # the error of a job in which a read or a write is answered with an error
ETHERTYPE = (0x88B5).to_bytes(2, "big")  # of frames that are the hosts' own
UNSENT = 4  # frames of a host that wait at its node, at most


class LateSwitch(Forwarder):
    """A switch that delivers frames of any earlier time once more, of old jobs as of this one."""

    def __init__(self, nodes: int, seed: int, odds: float):
        super().__init__({worker_endpoint(node).mac: node for node in range(nodes)})
        self._rng, self._odds = random.Random(seed), odds
        self._kept: list[bytes] = []

    def inject(self, port: int, frame: bytes, time: int) -> list[tuple[int, bytes, int]]:
        """The frame, and now and then an older one."""
        deliveries = super().inject(port, frame, time)
        if self._rng.random() < 0.3:
            place = self._rng.randrange(KEPT)
            self._kept[place : place + 1] = [frame]
        while self._kept and self._rng.random() < self._odds:
            deliveries += super().inject(port, self._rng.choice(self._kept), time)
        return deliveries


@dataclass
class Job:
    """A job as it is meant: nodes in the ring's order, and the vectors' counts and gradients by node."""

    ring: list[int]
    counts: list[int]
    gradients: dict[int, list[Any]]
    error: str
    seed: int  # of its random bits
    posts: Counter[int] = field(default_factory=Counter)  # by node, since its last start or stop

    def sums(self, config: RingConfig) -> list[Any]:
        """Golden sums of the vectors."""
        each = zip(*(self.gradients[node] for node in self.ring), strict=True)
        bits = RandomBits(self.seed)
        return [all_reduce(list(vectors), config, bits=bits) for vectors in each]


class LifeHosts:
    """Live hosts of ring nodes: ``rounds`` times some dirty jobs, then a clean one that must be exact.

    With ``bad``, vectors at an address with that bit have errors of memory. With ``nic``, hosts send frames of
    their own all the time, through whatever happens to the ring: what comes is what was sent.
    """

    def __init__(
        self,
        board: Board,
        *,
        config: RingConfig,
        nodes: int,
        rounds: int,
        seed: int,
        bad: int = 0,
        nic: bool = False,
    ):
        self.done, self.progress, self.steps = False, 0, 0
        self._board, self._config, self._nodes, self._rounds = board, config, nodes, rounds
        self._driver, self._rng, self._values = (
            RingNicDriver(config) if nic else RingDriver(config),
            random.Random(seed),
            np.random.default_rng(seed),
        )
        self._number = 0  # of the job
        self._running: set[int] = set()
        self._reads: dict[int, list[int]] = {}
        self.ends: Counter[str] = Counter()
        self._bad, self._nic = bad, nic
        self._errors = (*ERRORS, MEMORY) if bad else ERRORS
        self._frames: set[bytes] = set()  # of hosts, that were sent
        self._traffic = random.Random(seed + 1)
        self._script = self._life()

    def start(self) -> None:
        """Begin."""
        if self._nic:
            for node in range(self._nodes):
                self._board.on_frame(node, functools.partial(self._receive, node))
            self._send()
        self._advance()

    # ---- frames of hosts ----

    def _send(self) -> None:
        """Have a host send a frame, and soon another one."""
        rng = self._traffic
        node, to = rng.sample(range(self._nodes), 2)
        if self._board.unsent(node) < UNSENT:
            macs = b"".join(worker_endpoint(each).mac.to_bytes(6, "big") for each in (to, node))
            frame = macs + ETHERTYPE + rng.randbytes(rng.choice([46, 47, 300, rng.randrange(46, 1500)]))
            self._frames.add(frame)
            self._board.send(node, frame)
        self._board.at(self._board.now + 4000 * rng.choice([1, 20, 400]), self._send)

    def _receive(self, node: int, frame: bytes) -> None:
        """Check that a frame is one that was sent to this node."""
        to = int.from_bytes(frame[:6], "big")
        known = frame in self._frames and to == worker_endpoint(node).mac
        self._check(known, node, f"its host got a frame that nobody sent to it: {frame[:40].hex()}")
        self.ends["frames of hosts"] += 1

    def may_skip(self) -> bool:
        """Time is never skipped."""
        return False

    def waiting(self) -> str:
        """Where the life is."""
        return f"round {self.progress}, job {self._number}: programs run at {sorted(self._running)}"

    def result(self) -> tuple[int, Counter[str]]:
        """Steps carried out, and how the jobs of nodes ended."""
        return self.steps, self.ends

    def _advance(self) -> None:
        try:
            request = next(self._script)
        except StopIteration:
            self.done = True
            return
        if isinstance(request, int):
            self._board.at(self._board.now + request * 4000, self._advance)
            return
        self._running, self._reads = {*request}, {}
        for node, program in request.items():
            self.steps += 1

            def then(reads: list[int], node: int = node) -> None:
                self._reads[node] = reads
                self._running.discard(node)
                if not self._running:
                    self._advance()

            self._board.run(node, program, then)

    # ---- the script ----

    def _life(self) -> Generator[Any]:
        while self.progress < self._rounds:
            for _ in range(self._rng.randrange(1, 4)):
                yield from self._dirty()
            yield from self._clean()
            self.progress += 1

    def _job(self, error: str, most: int) -> Job:
        """A job of random nodes and vectors; their memories hold the gradients."""
        rng = self._rng
        self._number += 1
        ring = rng.sample(range(self._nodes), rng.randrange(2, self._nodes + 1))
        counts = [
            rng.choice([1, rng.randrange(1, 200), rng.randrange(1, most)]) for _ in range(rng.randrange(1, 5))
        ]
        gradients = {n: [self._values.standard_normal(c).astype(np.float32) for c in counts] for n in ring}
        return Job(ring, counts, gradients, error, rng.randrange(1, 1 << 32))

    def _addresses(self, counts: list[int]) -> list[int]:
        words = np.cumsum([1, *(self._config.words(count) + 1 for count in counts)])
        return (words * self._config.width // 8).tolist()[:-1]

    def _fill(self, job: Job) -> None:
        for node in job.ring:
            memory = self._board.memory(node)
            memory[:] = GUARD
            for address, vector in zip(self._addresses(job.counts), job.gradients[node], strict=True):
                memory[address : address + vector.nbytes] = vector.view(np.uint8)

    def _member(self, job: Job, node: int, **times: int) -> RingMember:
        """What the node's host believes of the ring."""
        rank, macs = job.ring.index(node), [worker_endpoint(n).mac for n in job.ring]
        wrong = node == job.ring[self._number % len(job.ring)]
        if job.error == "each itself first":
            macs, rank = macs[rank:] + macs[:rank], 0
        elif job.error == "rank" and wrong:
            macs = macs[1:] + macs[:1]
            rank = (rank - 1) % len(macs)
        elif job.error == "nodes" and wrong:
            macs = [*macs[: rank + 1], worker_endpoint(99).mac, *macs[rank + 1 :]]
        elif job.error == "swapped" and wrong:
            macs = [*reversed(macs)]
            rank = macs.index(worker_endpoint(node).mac)
        return RingMember(
            id=self._number % 256, macs=macs, rank=rank, bits=RandomBits(job.seed), **(times or QUICK)
        )

    def _noise(self, program: HostProgram, most: int, *, settings: bool = True) -> int:
        """Writes of any registers but commands, and posts that must be refused; how many of these.

        Without ``settings`` only posts: a job takes its settings when its start is carried out.
        """
        rng, driver, refused = self._rng, self._driver, 0
        for _ in range(rng.randrange(most)):
            if not settings or rng.random() < 0.3:
                beyond = (1 << self._config.address_width) - self._config.width // 8
                place, count = rng.choice([(4, 1), (0, 0), (beyond, self._config.lanes + 1), (1 << 60, 1)])
                program.extend(driver.post(place, count).operations)
                refused += 1
            elif rng.random() < 0.3:
                fields = {"job_id": rng.randrange(256), "nodes": rng.randrange(256), "rank": rng.randrange(256)}
                program.extend(driver.batch().write("job", **fields).operations)
            else:
                name = rng.choice(REGISTERS)
                bits = driver.registers[name].bits
                program.extend(driver.batch().write(name, rng.getrandbits(bits)).operations)
        return refused

    def _posts(self, job: Job, node: int, program: HostProgram) -> None:
        for number, (address, count) in enumerate(zip(self._addresses(job.counts), job.counts, strict=True)):
            if job.error == MEMORY and number == len(job.counts) - 1 and node == job.ring[0]:
                address |= self._bad
            wrong = job.error == "count" and number and node == job.ring[0]
            program.extend(self._driver.post(address, count + wrong).operations)
            job.posts[node] += 1

    def _begin(self, job: Job, node: int, *, awaited: bool) -> HostProgram:
        """Configure, start and post, with what else a host might write, in the midst of whatever runs."""
        rng, driver, program = self._rng, self._driver, HostProgram()
        self._noise(program, 6)
        program.extend(driver.configure(self._member(job, node)).operations)
        if rng.random() < 0.2:  # both at once: start counts
            program.extend(driver.command("start", "stop").operations)
        else:
            program.extend(driver.start().operations)
        job.posts[node] = 0
        if awaited:
            program.poll_field(driver.registers, "status", "busy", 0)
        else:
            job.posts[node] += self._noise(program, 4, settings=False)
        self._posts(job, node, program)
        return program

    def _dirty(self) -> Generator[Any]:
        rng, driver = self._rng, self._driver
        job = self._job(rng.choice(self._errors), 9000)
        # Memory is what the host may write once nothing of the node's is under way.
        yield {n: self._idle(driver.command("stop").operations) for n in job.ring}
        self._fill(job)
        silent = job.ring[-1] if job.error == "silent" else None
        awaited = rng.random() < 0.7
        yield {n: self._begin(job, n, awaited=awaited) for n in job.ring if n != silent}
        yield rng.choice([1, rng.randrange(1, 300), rng.randrange(1, 4000)])
        noise = {}
        for node in job.ring:
            noise[node] = program = HostProgram()
            job.posts[node] += self._noise(program, 8, settings=awaited)
        yield noise
        yield rng.randrange(1, 500)
        yield from self._look(job, [n for n in job.ring if n != silent])
        action = rng.choice(["none", "stop one", "start one", "stop all", "wait"])
        if action == "stop one":
            yield {job.ring[0]: HostProgram().extend(driver.command("stop").operations)}
        elif action == "start one":  # its host begins the next job alone
            self._number += 1
            yield {job.ring[0]: self._begin(replace(job, error="none"), job.ring[0], awaited=False)}
            yield rng.randrange(1, 300)
            yield from self._look(job, job.ring[:1], exact=False)
        elif action == "stop all":
            yield {n: HostProgram().extend(driver.command("stop").operations) for n in job.ring}
        elif action == "wait":
            yield {n: self._idle() for n in job.ring}
            yield from self._look(job, [n for n in job.ring if n != silent])

    def _idle(self, before: Any = ()) -> HostProgram:
        program = HostProgram().extend(before)
        return program.poll_field(self._driver.registers, "status", "busy", 0)

    def _look(self, job: Job, nodes: list[int], *, exact: bool = True) -> Generator[Any]:
        """Check that no post is forgotten and, if ``exact``, that every vector reported as done is golden."""
        yield {n: self._ask() for n in nodes}
        sums = job.sums(self._config)
        for node in nodes:
            status, found, steady = self._answer(node)
            self._check(status.posted + status.refused == job.posts[node], node, f"posts {job.posts}: {status}")
            self._check(status.completed <= status.posted, node, f"{status}")
            done = range(min(status.completed, len(sums)) if exact else 0)
            wrong = [n for n in done if status.refused == 0 and not self._exact(node, job, n, sums[n])]
            self._check(not wrong, node, f"{job.error}: vectors {wrong} are wrong, {status}, {found}")
            named = bool(found.differs) == (status.cause is Failure.MISMATCH)
            self._check(named or not status.failed or not steady, node, f"{status} with {found}")
            self.ends[
                f"{job.error}: {status.cause.name}{' ' if found.differs else ''}{' '.join(found.differs)}"
            ] += 1

    def _clean(self) -> Generator[Any]:
        """A job that nothing of the former ones may touch."""
        job, driver = self._job("none", 12_000), self._driver
        starts = {}
        for node in job.ring:
            program = HostProgram()
            self._noise(program, 4)
            program.extend(driver.configure(self._member(job, node, **PATIENT)).operations)
            starts[node] = self._wait_for(program.extend(driver.start().operations))
        yield starts
        self._fill(job)
        posts = {n: HostProgram() for n in job.ring}
        for node, program in posts.items():
            self._posts(job, node, program)
            self._wait_for(program)
        yield posts
        yield {n: self._ask() for n in job.ring}
        sums = job.sums(self._config)
        for node in job.ring:
            status, found, _ = self._answer(node)
            want = RingStatus(True, False, False, Failure.NONE, len(sums), len(sums), 0)
            self._check(status == want, node, f"clean job: {status}, {found}")
            for number, expected in enumerate(sums):
                self._check(
                    self._exact(node, job, number, expected), node, f"clean job: vector {number} is wrong"
                )
            memory = self._board.memory(node).copy()
            for address, count in zip(self._addresses(job.counts), job.counts, strict=True):
                memory[address : address + 4 * count] = GUARD
            self._check(bool((memory == GUARD).all()), node, "clean job: memory around the vectors has changed")

    def _wait_for(self, program: HostProgram) -> HostProgram:
        return program.poll_field(self._driver.registers, "status", "busy", 0)

    def _ask(self) -> HostProgram:
        driver = self._driver
        batches = (driver.wait(), driver.findings(), driver.wait())
        return HostProgram().extend([each for batch in batches for each in batch.operations])

    def _answer(self, node: int) -> tuple[RingStatus, RingFindings, bool]:
        """The status, the findings, and whether no start that waited came between their reads."""
        driver, reads = self._driver, self._reads[node]
        wait, findings = driver.wait(), driver.findings()
        cut = sum(operation.data is None for operation in wait.operations)
        before, after = (driver.status_of(wait.results(part)) for part in (reads[:cut], reads[-cut:]))
        found = driver.findings_of(findings.results(reads[cut:-cut]))
        steady = (before.cause, before.running) == (after.cause, after.running) and found.cause is before.cause
        return before, found, steady

    def _exact(self, node: int, job: Job, number: int, expected: Any) -> bool:
        address = self._addresses(job.counts)[number]
        return bytes(self._board.memory(node)[address : address + expected.nbytes]) == expected.tobytes()

    def _check(self, holds: bool, node: int, text: str) -> None:
        if not holds:
            raise CheckFailed(f"job {self._number}, node {node}: {text}")
