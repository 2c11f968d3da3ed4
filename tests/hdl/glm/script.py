"""The script of a GLM node's life: what its host does, and what may happen to memory and network meanwhile.

The script runs in Amaranth's simulator (:mod:`tests.hdl.glm.life`) and in the co-simulation
(:mod:`tests.sim.glm.life`): each says how registers are accessed, and what memory and network are.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.driver import NodeDriver, NodeJob, NodeMemories, NodeStatus
from fanin.glm.facts import GlmConfig, Partitioning
from fanin.hdl.bus.register_map import Access
from fanin.hdl.glm.node_registers import Failure
from fanin.host.driver import Operation
from fanin.sim.switch.base import Job as SwitchJob
from fanin.sim.switch.base import Member
from fanin.sim.switch.reference import ReferenceSwitch
from tests.hdl.aggregation.bench import BASE, SWITCH, own
from tests.hdl.glm.training import Job

REGION = 1 << 12  # bytes between memory regions
SMALL = {"chunks": 16, "epoch": 64, "mini_batch": 16}  # what a random run can have without running for ever
COMMANDS = ("start", "clear_model", "reset_transport", "clear_counters")
POLLS = 2000  # until a host gives up


@dataclass
class Script(ABC):
    """``steps`` random steps of one node, with a clean job now and then that must give the golden bits.

    A clean job begins with ``reset_transport`` and a new job id, whatever the node does, and everything that it
    needs is written; packets of earlier jobs are still under way. ``events`` are the steps so far.
    """

    node: GlmConfig
    seed: int
    steps: int
    events: list[str] = field(default_factory=list)
    clean: int = 0  # clean jobs so far
    poll: int = 0  # cycles between two looks at the status

    def begin(self) -> None:
        """Make what the script needs; nothing has happened."""
        self.rng = random.Random(self.seed)
        self.driver = NodeDriver(self.node)
        self.number, self.retries, self.timeout = 0, 1000, 300
        self.errors = 0.0  # odds that a read from memory fails
        self.fate: Callable[[bool], list[int]] = lambda up: [0]  # of a packet: the cycles after which it comes
        self.switch = ReferenceSwitch(endpoint=SWITCH, ports=2)
        self.new_job(self._random_job(), members=1)

    @abstractmethod
    async def access(self, operations: Sequence[Operation]) -> list[int]:
        """Access registers in this order; the words read."""

    @abstractmethod
    async def pass_time(self, cycles: int) -> None:
        """Let cycles pass."""

    @abstractmethod
    def lay(self, content: list[bytes]) -> None:
        """Put the job's data into the memories, each at its place."""

    def places(self) -> NodeMemories:
        """Addresses of the job's data."""
        ports = self.node.sample_ports
        places = [port * REGION for port in range(self.node.read_ports)]
        lists = zip(self.job.lists(0), places[ports + 1 :], strict=True) if self.node.sparse else ()
        lists = [each._replace(address=at) for each, at in lists]
        return NodeMemories(samples=places[:ports], labels=places[ports], lists=lists)

    # -- the host ------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """All steps, and a clean job at the end."""
        steps: dict[Callable[[], Awaitable[None]], int] = {
            self._wait: 3,
            self._network: 4,
            self._memory: 1,
            self._job: 4,
            self._doomed_job: 2,
            self._control: 4,
            self._register: 3,
            self._window: 1,
            self._clean_job: 2,
        }
        for _ in range(self.steps):
            (step,) = self.rng.choices(list(steps), list(steps.values()))
            self.events.append(step.__name__)
            await step()
        self.events.append("the end")
        await self._clean_job()

    def _note(self, text: str) -> None:
        self.events[-1] += f" {text}"

    async def _run(self, batch: Any) -> list[Any]:
        return batch.results(await self.access(batch.operations))

    async def _command(self, *names: str) -> None:
        await self._run(self.driver.command(*names))

    async def _status(self) -> NodeStatus:
        return self.driver.status_of(await self._run(self.driver.status()))

    async def _until_free(self, what: str) -> NodeStatus:
        for _ in range(POLLS):
            if not (status := await self._status()).busy:
                return status
            if self.poll:
                await self.pass_time(self.poll)
        raise AssertionError(f"{what}: the node is busy for ever")

    async def _wait(self) -> None:
        cycles = self.rng.choice([1, 2, 5, 30, 100, 400])
        self._note(str(cycles))
        await self.pass_time(cycles)

    async def _network(self) -> None:
        """The links' mood, for all that is sent from now on."""
        rng = self.rng
        fates: dict[str, Callable[[bool], list[int]]] = {
            "good": lambda up: [0],
            "dead": lambda up: [],
            "slow": lambda up: [rng.randrange(400)],
            "lossy": lambda up: [] if rng.random() < 0.3 else [rng.randrange(50)],
            "copies, some very late": lambda up: [0, rng.randrange(1500)],
        }
        name = rng.choice(list(fates))
        self._note(name)
        self.fate = fates[name]

    async def _memory(self) -> None:
        self.errors = self.rng.choice([0.0, 0.02, 0.3])
        self._note(f"errors {self.errors}")

    async def _job(self) -> None:
        """Configure and start any job, perhaps with a peer that is dead, and leave it to itself."""
        self.new_job(self._random_job(), members=self.rng.choice([1, 1, 2]))
        self.retries, self.timeout = self.rng.choice([(2, 60), (1000, 300)])
        await self._run(self._configuration())
        await self._command(*self.rng.choice([("start",), ("start", "clear_model")]))
        self._note(f"{self.number}")
        await self._wait()

    async def _doomed_job(self) -> None:
        """A job fails before its results come; they come while the host looks at the failure."""
        rng = self.rng
        self.errors = 0.0
        self.fate = lambda up: [0 if up else rng.randrange(100, 400)]
        self.new_job(self._random_job(), members=1)
        self.retries, self.timeout = 1, rng.choice([30, 60])
        await self._run(self._configuration())
        await self._command("start", "clear_model")
        await self._until_free("a doomed job")
        await self._wait()
        if rng.random() < 0.7:
            await self._clean_job()

    async def _control(self) -> None:
        names = [name for name in COMMANDS if self.rng.random() < 0.4]
        self._note(" ".join(names))
        await self._command(*names)

    async def _register(self) -> None:
        """Any register gets any value, or almost any."""
        registers = [r for r in self.driver.registers.registers if r.access is Access.RW]
        register = self.rng.choice(registers)
        value = self.rng.choice([0, 1, self.rng.getrandbits(32)])
        value %= SMALL.get(register.name, 1 << 32)
        index = self.rng.randrange(register.count)
        offset = self.driver.registers.offset(register.name, index)
        self._note(f"{register.name} {value:#x}")
        await self.access([Operation(offset, value)])

    async def _window(self) -> None:
        batch = self.driver.batch().write("model_address", self.rng.getrandbits(32) & self.rng.getrandbits(32))
        await self._run(batch.write("model_data", self.rng.getrandbits(32)).read("model_data"))

    # -- jobs ----------------------------------------------------------------------------------------------

    def _random_job(self) -> Job:
        rng, node = self.rng, self.node
        precision = rng.randint(1, 4)
        columns = rng.randint(1, min(node.columns, 100))
        decay = fixed.NO_DECAY
        if node.l2:
            decay = fixed.Decay(rng.randint(0, 6), rng.choice([None, rng.randrange(columns)]))
        return Job(
            seed=rng.getrandbits(32),
            node=node,
            samples=rng.randint(1, 40),
            columns=columns,
            batch=8 * rng.randint(1, 3),
            precision=precision,
            loss=rng.choice(list(Loss)),
            epochs=rng.randint(1, 2),
            decay=decay,
        )

    def new_job(self, job: Job, *, members: int) -> None:
        """A new id, as docs/systems/aggregation.md asks for; the data lie in memory."""
        self.job, self.number = job, (self.number + 1) % 256
        for old in list(self.switch._jobs):
            self.switch.remove_job(old)
        everyone = tuple(Member(w, 1 << w, own(w)) for w in range(members))
        self.switch.add_job(SwitchJob(self.number, BASE, self.node.slots, everyone))
        self.lay([region.tobytes() for region in job.contents(0)])

    def _configuration(self) -> Any:
        job = self.job
        settings = NodeJob(
            id=self.number,
            base=BASE,
            slots=self.node.slots,
            member=1,
            own=own(0),
            switch=SWITCH,
            timeout=self.timeout,
            retries=self.retries,
        )
        return self.driver.configure(
            job.shape,
            loss=job.loss,
            rate=job.learning_rate,
            epochs=job.epochs,
            decay=job.decay,
            job=settings,
            memories=self.places(),
        )

    async def _clean_job(self) -> None:
        rng = self.rng
        self.fate, self.errors = (lambda up: [0]), 0.0
        self.retries, self.timeout = 1000, 300
        self.new_job(self._random_job(), members=1)
        self._note(f"{self.number}: {self.job.shape}")
        await self._run(self._configuration())
        for names in rng.choice(
            [
                [("clear_model", "start", "clear_counters")],
                [("clear_model", "clear_counters"), ("start",)],
                [("reset_transport", "clear_model", "start", "clear_counters")],
            ]
        ):
            await self._command(*names)
        status = await self._until_free("a clean job")
        assert status == NodeStatus(busy=False, idle=status.idle, failed=False, cause=Failure.NONE), status
        await self._check()
        self.clean += 1

    async def _check(self) -> None:
        """The golden model, and counters that know of this job alone."""
        job, driver = self.job, self.driver
        counters = driver.counters_of(await self._run(driver.counters()))
        model = driver.model_of(await self._run(driver.read_model(job.shape.chunks)))
        golden = job.golden
        assert job.join([model]) == golden.model.tolist(), "the clean job's model is wrong"
        shape = job.shape
        operations = job.epochs * (
            shape.mini_batches * shape.operations
            if self.node.mode is Partitioning.DATA_PARALLEL
            else shape.micro_batches_per_epoch
        )
        words = shape.micro_batches_per_epoch * shape.words_per_micro_batch * self.node.engines
        if self.node.sparse:
            words = sum(each.words for each in job.lists(0))
        expected = {
            "words": job.epochs * words,
            "micro_batches": operations,
            "agg_sent": operations,
            "results": operations,
            "clamps": golden.clamps,
            "bad_short": 0,
            "bad_long": 0,
            "bad_foreign": 0,
            "bad_malformed": 0,
        }
        assert {name: counters[name] for name in expected} == expected
