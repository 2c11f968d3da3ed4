# amaranth: UnusedElaboratable=no
"""The node's registers, the driver that writes them, the model window and the check at start."""

from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.driver import NodeDriver, NodeJob, NodeMemories
from fanin.glm.facts import PRESETS, TrainShape
from fanin.hdl.glm.model_window import ModelWindow
from fanin.hdl.glm.node_registers import (
    COUNTERS,
    IDENTITY,
    VERSION,
    Failure,
    model_address,
    node_constants,
    node_registers,
)
from fanin.hdl.glm.run_check import RunCheck
from fanin.hdl.glm.shapes import ModelPortSignature
from fanin.host.driver import RegisterDriver
from fanin.wire.aggregation import Protocol
from fanin.wire.ethernet import Endpoint
from tests.support import resolve

TINY = PRESETS["tiny"]


class Store:
    """Registers as plain memory."""

    def __init__(self, config=TINY, **words: int):
        self.words: dict[int, int] = {}
        registers = node_registers(config)
        for name, word in words.items():
            self.words[registers.offset(name)] = word
        self.driver = RegisterDriver(registers, lambda a: self.words.get(a, 0), self.words.__setitem__)


def test_every_preset_has_a_map_that_fits_4_kib():
    for config in PRESETS.values():
        registers = node_registers(config)
        assert registers.size <= 4096
        assert all(f"`{name}`" in registers.markdown() for name in ("control", "status", *COUNTERS))


def test_counters_of_all_engines_take_steps_as_large_as_all_engines():
    registers = node_registers(PRESETS["u280"])
    assert [registers[name].step for name in ("cycles", "words", "stall_no_word", "clamps")] == [1, 4, 4, 4]
    assert all(registers[name].bits == 64 for name in COUNTERS)


def test_configuration_writes_what_the_shape_says():
    shape = TrainShape(node=TINY, workers=2, samples=100, columns=60, batch=32, precision=3)
    rate = fixed.learning_rate(0.5 / 32)
    job = NodeJob(
        id=5,
        base=64,
        slots=4,
        member=2,
        own=Endpoint(mac=0x0200_0000_0001, ip=0x0A00_0001),
        switch=Endpoint(mac=0x0200_0000_00FE),
        timeout=77,
    )
    memories = NodeMemories(samples=[0x1_0000_0000, 0x2000], labels=0x3000)
    driver, store = NodeDriver(TINY), Store()
    store.driver.run(driver.configure(shape, loss=Loss.HINGE, rate=rate, epochs=9, job=job, memories=memories))
    read = store.driver.read
    assert read("training") == {"planes": 3, "loss": 2, "clamp_bits": 30}
    assert read("rate") == {"mantissa": rate.mantissa, "shift": rate.shift}
    assert read("job") == {"job_id": 5, "log2_slots": 2, "slot_base": 64}
    assert [read(n) for n in ("chunks", "mini_batch", "epoch", "epochs")] == [4, 4, 13, 9]
    assert [read(n) for n in ("member", "timeout", "retries")] == [2, 77, 1000]
    assert read("own_mac") == 0x0200_0000_0001
    assert [read("sample_address", index=n) for n in range(2)] == [0x1_0000_0000, 0x2000]
    assert read("label_address") == 0x3000


L2 = replace(TINY, l2=True)
JOB = {
    "loss": Loss.HINGE,
    "rate": fixed.learning_rate(0.5 / 32),
    "epochs": 9,
    "memories": NodeMemories(samples=[0, 0], labels=0),
}


def _node_job(worker):
    end = Endpoint(mac=1, ip=1)
    return NodeJob(id=5, base=0, slots=4, member=1 << worker, own=end, switch=end, timeout=77)


def _decay_register(config, worker, decay):
    shape = TrainShape(node=config, workers=2, samples=100, columns=60, batch=32, precision=3)
    store = Store(config)
    driver = NodeDriver(config)
    store.driver.run(driver.configure(shape, job=_node_job(worker), decay=decay, **JOB))
    return store.driver.read("decay")


def test_the_decay_names_the_bias_where_a_worker_has_it():
    decay = fixed.Decay(7, spared=59)
    none = {"spared": 0, "spared_lane": 0, "spared_chunk": 0, "spared_engine": 0}
    assert _decay_register(L2, 0, decay) == {"decay_shift": 7} | none
    assert _decay_register(L2, 1, decay) == {"decay_shift": 7} | none | {
        "spared": 1,
        "spared_lane": 5,
        "spared_chunk": 3,
    }
    engines = replace(L2, engines=2)
    assert _decay_register(engines, 1, decay) == {
        "decay_shift": 7,
        "spared": 1,
        "spared_lane": 6,
        "spared_chunk": 1,
        "spared_engine": 1,
    }
    assert _decay_register(L2, 1, fixed.NO_DECAY) == {"decay_shift": 0} | none


def test_only_a_node_whose_weights_can_decay_has_the_register_and_says_so():
    assert node_constants(L2)["l2"] == 1
    assert "l2" not in node_constants(TINY)


def test_a_node_that_can_do_without_overlap_says_so_and_is_told():
    config = replace(TINY, vanilla=True)
    assert node_constants(config)["vanilla"] == 1
    for vanilla in False, True:
        shape = TrainShape(node=config, workers=1, samples=100, columns=9, batch=16, vanilla=vanilla)
        store = Store(config)
        store.driver.run(NodeDriver(config).configure(shape, job=_node_job(0), **JOB))
        assert store.driver.read("training")["serial"] == vanilla
    with pytest.raises(KeyError):
        node_registers(TINY)["decay"]
    shape = TrainShape(node=TINY, workers=1, samples=100, columns=20, batch=32, precision=3)
    with pytest.raises(ValueError, match="decay must be none for a node that was made without l2"):
        NodeDriver(TINY).configure(shape, job=_node_job(0), decay=fixed.Decay(3), **JOB)


def test_the_driver_refuses_another_node():
    driver = NodeDriver(TINY)
    right = {
        "engines": 1,
        "banks": 8,
        "lanes": 8,
        "frac": 24,
        "data_parallel": 0,
        "udp": 0,
        "switchml": 0,
        "gradients": 0,
    }
    driver.check_identity([IDENTITY, VERSION, right, 4, 64, 4])
    with pytest.raises(ValueError, match="the node's id must be"):
        driver.check_identity([0, VERSION, right, 4, 64, 4])
    with pytest.raises(ValueError, match="engines must be 1, not 2"):
        driver.check_identity([IDENTITY, VERSION, right | {"engines": 2}, 4, 64, 4])


def test_status_names_the_cause_only_of_a_failure():
    driver = NodeDriver(TINY)
    fields = {"busy": 0, "idle": 1, "failed": 1, "cause": 1}
    assert driver.status_of([fields]).cause is Failure.TIMEOUT
    assert driver.status_of([fields | {"failed": 0}]).cause is Failure.NONE


class _Model:
    """A model port over a dictionary, with the port's latency."""

    def __init__(self, window: ModelWindow):
        self.window, self.weights = window, {}

    async def process(self, ctx):
        host = self.window.host
        answers = [0] * (ModelPortSignature.READ_LATENCY - 1)
        ports = (self.window.engine, host.chunk, host.lane, host.read, host.write, host.write_data)
        async for _, _, engine, chunk, lane, read, write, value in ctx.tick().sample(*ports):
            where = engine, chunk, lane
            if write:
                self.weights[where] = value
            answers.append(self.weights.get(where, 0) if read else 0)
            ctx.set(host.read_data, answers.pop(0))


def _use_window(*, enable: int, accesses: list[tuple[str, int | None]]) -> tuple[list[int], dict]:
    """Carry out ``(register, address or weight, None to read)``; what the reads gave, and the model."""
    window = ModelWindow(engines=2, lanes=4, depth=3)
    model, answers = _Model(window), []

    async def host(ctx):
        ctx.set(window.enable, enable)
        for name, value in accesses:
            port = getattr(window, name)
            request = port.read if value is None else port.write
            ctx.set(request, 1)
            ctx.set(port.write_data, (value or 0) & 0xFFFF_FFFF)
            (answer,) = await ctx.tick().sample(port.read_data).until(port.ready)
            answers.extend([answer] if value is None else [])
            ctx.set(request, 0)

    sim = Simulator(window)
    sim.add_clock(1e-8)
    sim.add_testbench(host)
    sim.add_testbench(model.process, background=True)
    sim.run()
    return answers, model.weights


def test_the_window_steps_from_lane_to_lane_and_from_chunk_to_chunk():
    weights = [-1, 2, -3, 4, -5, 2**31 - 1]
    writes = [("weight", weight) for weight in weights]
    reads = [("weight", None)] * len(weights)
    start = ("address", model_address(1, 0, 2))
    answers, model = _use_window(enable=1, accesses=[start, *writes, start, *reads, ("address", None)])
    assert [value - (value >> 31 << 32) for value in answers[:-1]] == weights
    assert answers[-1] == model_address(1, 2, 0)
    assert list(model) == [(1, 0, 2), (1, 0, 3), (1, 1, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3)]


def test_the_window_of_a_busy_node_answers_but_does_nothing():
    answers, model = _use_window(enable=0, accesses=[("weight", 7), ("weight", None)])
    assert answers == [0]
    assert model == {}


@pytest.mark.parametrize("beyond", [(2, 0, 0), (1, 3, 0), (1, 0x100, 0), (1, 1, 4), (255, 0, 0)])
def test_an_address_beyond_the_model_is_no_other_weight(beyond):
    inside = ("address", model_address(1, 1, 0))
    outside = ("address", model_address(*beyond))
    accesses = [
        inside,
        ("weight", 7),
        outside,
        ("weight", 9),
        outside,
        ("weight", None),
        inside,
        ("weight", None),
    ]
    answers, model = _use_window(enable=1, accesses=accesses)
    assert model == {(1, 1, 0): 7}
    assert answers == [0, 7]


GOOD = {
    "shape.chunks": 100,
    "shape.planes": 8,
    "shape.mini_batch": 1,
    "shape.epoch": 1,
    "training.epochs": 1,
    "training.shift": 39,
    "training.mantissa": 1 << 15,
    "training.clamp_bits": 15,
    "training.decay.decay_shift": 0,
    "training.serial": 0,
    "job.log2_slots": 6,
    "job.base": 128,
    "job.member": 1 << 31,
    "job.timeout": 1,
}
EDGES = [
    ({}, True),
    ({"shape.chunks": 101}, False),  # 808 words do not fit
    ({"shape.chunks": 128, "shape.planes": 1}, True),
    ({"shape.chunks": 129, "shape.planes": 1}, False),
    ({"shape.mini_batch": 1000}, True),
    ({"shape.mini_batch": 1001}, False),
    ({"shape.epoch": (2**32 - 1) // 800}, True),
    ({"shape.epoch": (2**32 - 1) // 800 + 1}, False),
    ({"shape.epoch": 2**32 - 1, "shape.chunks": 1, "shape.planes": 1}, True),
    ({"training.shift": 40}, False),
    ({"training.mantissa": (1 << 15) - 1}, False),
    ({"training.mantissa": (1 << 16) - 1, "training.clamp_bits": 31}, True),
    ({"training.clamp_bits": 14}, False),
    ({"training.decay.decay_shift": fixed.MAX_DECAY}, True),
    ({"training.decay.decay_shift": fixed.MAX_DECAY + 1}, False),
    ({"job.log2_slots": 7, "job.base": 128}, False),
    ({"job.base": 96}, False),
    ({"job.member": 1 << 31 | 1}, False),
    ({"job.timeout": 2**31 - 1}, True),
    ({"job.timeout": 2**31}, False),
    ({"training.serial": 1}, True),
    ({"training.serial": 1, "shape.mini_batch": 2}, False),  # 1600 words do not fit
    ({"training.serial": 1, "shape.mini_batch": 16, "shape.chunks": 25, "shape.planes": 2}, True),
    ({"training.serial": 1, "shape.mini_batch": 17, "shape.chunks": 25, "shape.planes": 2}, False),
]
ONE_WORD = {"training.serial": 1, "shape.chunks": 1, "shape.planes": 1}


@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_check_draws_every_line_where_the_hardware_ends(protocol):
    check = RunCheck(depth=128, fifo_depth=800, slots=64, max_mini_batch=1000, protocol=protocol, vanilla=True)
    operations = 64 // protocol.slots_per_operation
    edges = [
        *EDGES,
        ({"job.log2_slots": 1}, True),
        ({"job.log2_slots": 0}, protocol.slots_per_operation == 1),
        (ONE_WORD | {"shape.mini_batch": operations}, True),
        (ONE_WORD | {"shape.mini_batch": operations + 1}, False),
        (ONE_WORD | {"shape.mini_batch": operations, "job.log2_slots": 5}, False),
        (ONE_WORD | {"shape.mini_batch": 512}, False),
    ]
    verdicts, words = [], []

    async def body(ctx):
        for changes, _ in edges:
            for path, value in (GOOD | changes).items():
                ctx.set(resolve(check, path), value)
            await ctx.tick().repeat(RunCheck.LATENCY)
            verdicts.append(bool(ctx.get(check.ok)))
            words.append(ctx.get(check.words))

    sim = Simulator(check)
    sim.add_clock(1e-8)
    sim.add_testbench(body)
    sim.run()
    assert verdicts == [verdict for _, verdict in edges]
    for (changes, good), found in zip(edges, words, strict=True):
        shape = GOOD | changes
        if good:
            assert found == shape["shape.chunks"] * shape["shape.planes"] * shape["shape.epoch"]


@pytest.mark.parametrize("beats", [1, 8])
def test_the_check_counts_beats_of_labels_and_refuses_what_needs_more_than_32_bits(beats):
    check = RunCheck(depth=128, fifo_depth=800, slots=64, max_mini_batch=1000, label_beats=beats)
    most = (1 << 32) // beats - 1
    found = []

    async def body(ctx):
        for epoch in (3, most, most + 1):
            one_word = {"shape.chunks": 1, "shape.planes": 1, "shape.epoch": epoch & 0xFFFF_FFFF}
            for path, value in (GOOD | one_word).items():
                ctx.set(resolve(check, path), value)
            await ctx.tick().repeat(RunCheck.LATENCY)
            found.append((ctx.get(check.ok), ctx.get(check.label_words)))

    sim = Simulator(check)
    sim.add_clock(1e-8)
    sim.add_testbench(body)
    sim.run()
    assert found[:2] == [(1, 3 * beats), (1, most * beats)]
    assert not found[2][0]
