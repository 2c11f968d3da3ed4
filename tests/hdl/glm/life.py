"""The life of a node in Amaranth's simulator: host, memory and network err, and jobs come and go."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fanin.fixed import Loss
from fanin.glm import GlmConfig, Partitioning
from fanin.golden.glm import layout
from fanin.hdl.bus.register_map import Access
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.glm.node_registers import Failure
from fanin.host.glm import NodeDriver, NodeJob, NodeMemories, NodeStatus
from fanin.sim.rtl.memory import ReadMemory
from fanin.sim.switch.base import Job as SwitchJob
from fanin.sim.switch.base import Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket
from tests.hdl.aggregation.bench import BASE, SWITCH, own
from tests.hdl.bus.test_registers import Host
from tests.hdl.glm.cluster import Links
from tests.hdl.glm.training import Bench, Job
from tests.support import simulate

REGION = 1 << 12  # bytes between memory regions
SMALL = {"chunks": 16, "epoch": 64, "mini_batch": 16}  # what a random run can have without running for ever
COMMANDS = ("start", "clear_model", "reset_transport", "clear_counters")
POLLS = 2000  # until a host gives up


class _Errors:
    """Addresses that answer SLVERR: each read does so with these odds."""

    def __init__(self, rng: random.Random):
        self.rng, self.odds = rng, 0.0

    def __contains__(self, address: object) -> bool:
        return self.rng.random() < self.odds

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Life:
    """``steps`` random steps of one node, with a clean job now and then that must give the golden bits.

    A clean job begins with ``reset_transport`` and a new job id, whatever the node does, and everything that it
    needs is written; packets of earlier jobs are still under way. ``events`` are the steps so far.
    """

    node: GlmConfig
    seed: int
    steps: int
    events: list[str] = field(default_factory=list)
    clean: int = 0  # clean jobs so far

    def run(self) -> Life:
        """Simulate; AssertionError with the last steps where a clean job is wrong."""
        self.rng = random.Random(self.seed)
        self.driver = NodeDriver(self.node)
        self.bench = Bench(GlmNode(config=self.node))
        self.number, self.retries, self.timeout = 0, 1000, 300
        self.errors = _Errors(random.Random(self.rng.random()))
        self.fate: Callable[[bool], list[int]] = lambda up: [0]
        self.switch = ReferenceSwitch(endpoint=SWITCH, ports=2)
        self.links = Links(self.bench.part, self.switch, self._link, self.node.encap, 0.3, self.rng)
        self._new_job(self._random_job(), members=1)
        memories = [memory.process for memory in self._memories()]
        try:
            simulate(
                self.bench,
                collect={"done": 1},
                processes=[*memories, self.links.process, self._host],
                seed=self.seed,
                limit=10_000_000,
            )
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.events[-25:]])) from error
        return self

    def _link(self, up: bool, worker: int, packet: AggPacket, before: int) -> list[int]:
        return self.fate(up)

    def _memories(self) -> list[ReadMemory]:
        node = self.bench.part[0]

        def word(port: int, step: int) -> Callable[[int], int]:
            def read(address: int) -> int:
                content, offset = self.content[port], address - port * REGION
                if 0 <= offset <= len(content) - step:
                    return int.from_bytes(content[offset : offset + step], "little")
                return hash((address, port)) & ((1 << 8 * step) - 1)  # of nobody's

            return read

        return [
            ReadMemory(
                axi,
                word(port, len(axi.rdata) // 8),
                latency=7,
                stall=0.3,
                seed=self.seed + port,
                errors=self.errors,
            )
            for port, axi in enumerate([*node.samples, node.labels])
        ]

    # -- the host ------------------------------------------------------------------------------------------

    async def _host(self, ctx: Any) -> None:
        self.ctx = ctx
        self.bus = Host(ctx, self.bench.part[0].axil, self.rng, patience=0.0)
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
        await self._clean_job()
        await self.bench.end(ctx)

    def _note(self, text: str) -> None:
        self.events[-1] += f" {text}"

    async def _run(self, batch: Any) -> list[Any]:
        words = []
        for address, value in batch.operations:
            if value is None:
                word, response = await self.bus.read(address)
                words.append(word)
            else:
                response = await self.bus.write(address, value)
            assert response.value == 0
        return batch.results(words)

    async def _command(self, *names: str) -> None:
        await self._run(self.driver.command(*names))

    async def _status(self) -> NodeStatus:
        return self.driver.status_of(await self._run(self.driver.status()))

    async def _until_free(self, what: str) -> NodeStatus:
        for _ in range(POLLS):
            if not (status := await self._status()).busy:
                return status
        raise AssertionError(f"{what}: the node is busy for ever")

    async def _wait(self) -> None:
        cycles = self.rng.choice([1, 2, 5, 30, 100, 400])
        self._note(str(cycles))
        await self.ctx.tick().repeat(cycles)

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
        self.errors.odds = self.rng.choice([0.0, 0.02, 0.3])
        self._note(f"errors {self.errors.odds}")

    async def _job(self) -> None:
        """Configure and start any job, perhaps with a peer that is dead, and leave it to itself."""
        self._new_job(self._random_job(), members=self.rng.choice([1, 1, 2]))
        self.retries, self.timeout = self.rng.choice([(2, 60), (1000, 300)])
        await self._run(self._configuration())
        await self._command(*self.rng.choice([("start",), ("start", "clear_model")]))
        self._note(f"{self.number}")
        await self._wait()

    async def _doomed_job(self) -> None:
        """A job fails before its results come; they come while the host looks at the failure."""
        rng = self.rng
        self.errors.odds = 0.0
        self.fate = lambda up: [0 if up else rng.randrange(100, 400)]
        self._new_job(self._random_job(), members=1)
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
        assert (await self.bus.write(offset, value)).value == 0

    async def _window(self) -> None:
        batch = self.driver.batch().write("model_address", self.rng.getrandbits(32) & self.rng.getrandbits(32))
        await self._run(batch.write("model_data", self.rng.getrandbits(32)).read("model_data"))

    # -- jobs ----------------------------------------------------------------------------------------------

    def _random_job(self) -> Job:
        rng, node = self.rng, self.node
        precision = rng.randint(1, 4)
        return Job(
            seed=rng.getrandbits(32),
            node=node,
            samples=rng.randint(1, 40),
            columns=rng.randint(1, min(node.columns, 100)),
            batch=8 * rng.randint(1, 3),
            precision=precision,
            loss=rng.choice(list(Loss)),
            epochs=rng.randint(1, 2),
        )

    def _new_job(self, job: Job, *, members: int) -> None:
        """A new id, as docs/systems/aggregation.md asks for; the data lie in memory."""
        self.job, self.number = job, (self.number + 1) % 256
        for old in list(self.switch._jobs):
            self.switch.remove_job(old)
        everyone = tuple(Member(w, 1 << w, own(w)) for w in range(members))
        self.switch.add_job(SwitchJob(self.number, BASE, self.node.slots, everyone))
        regions = layout.split_ports(layout.pack_samples(job.features, job.shape, 0))
        regions.append(layout.pack_labels(job.labels, job.shape, 0))
        self.content = [region.tobytes() for region in regions]

    def _configuration(self) -> Any:
        job, ports = self.job, self.node.sample_ports
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
            job=settings,
            memories=NodeMemories(samples=[port * REGION for port in range(ports)], labels=ports * REGION),
        )

    async def _clean_job(self) -> None:
        rng = self.rng
        self.fate, self.errors.odds = (lambda up: [0]), 0.0
        self.retries, self.timeout = 1000, 300
        self._new_job(self._random_job(), members=1)
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
        words = job.epochs * shape.micro_batches_per_epoch * shape.words_per_micro_batch
        expected = {
            "words": words * self.node.engines,
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


def narrow(node: GlmConfig, **changes: Any) -> GlmConfig:
    """A node that is quick to simulate."""
    return replace(node, **{"lanes": 2, "read_ahead": 16} | changes)
