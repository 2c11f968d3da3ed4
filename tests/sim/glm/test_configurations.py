# amaranth: UnusedElaboratable=no
"""Training in other configurations than the harness's: engines, encapsulation, mode, a hostile switch."""

import functools
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from scapy.layers.inet import IP, UDP
from scapy.utils import rdpcap

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, Partitioning, TrainShape
from fanin.glm.golden.train import train
from fanin.hdl.glm.node_registers import FAULT_COUNTERS
from fanin.job import FIRST_JOB, SWITCH, worker_endpoint
from fanin.job import SLOTS as SWITCH_SLOTS
from fanin.link import LinkConfig
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, RunRequest
from fanin.sim.cosim.simulator import Group, SimulationFailed, Simulator
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import (
    AggPacket,
    Encap,
    Kind,
    Protocol,
    decode_payload,
    encode,
    header_length,
    payload_length,
)
from fanin.wire.ethernet import IPV4, UDP_PORT, internet_checksum
from fanin.wire.fields import byte_length
from tests.sim.cosim.dummy import JOB, REGISTERS, SLOTS, DummyNode
from tests.support import new_seed

pytestmark = pytest.mark.verilator

TINY = PRESETS["tiny"]
PAIR = replace(TINY, engines=2, lanes=4)
PARALLEL = replace(TINY, engines=2, encap=Encap.UDP, mode=Partitioning.DATA_PARALLEL)
EPOCHS = 2
FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
IP_AT, UDP_AT = header_length(Encap.L2), header_length(Encap.L2) + byte_length(IPV4)


@pytest.fixture(scope="module")
def pairs():
    return Cosim(PAIR, workers=3, quiet=True)


@pytest.fixture(scope="module")
def parallel():
    return Cosim(PARALLEL, workers=2, quiet=True)


@functools.cache
def decaying(node):
    return Cosim(node, workers=2, quiet=True)


def problem(cosim, *, loss=Loss.LOGISTIC, rate=0.5, decay=fixed.NO_DECAY, **shape):
    """A random data set, its settings, and the golden model's epochs."""
    rng = np.random.default_rng(new_seed())
    shape = TrainShape(node=cosim.config, workers=cosim.workers, **shape)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    targets = rng.normal(size=shape.samples) if loss is Loss.LINEAR else rng.integers(0, 2, shape.samples)
    labels = fixed.labels(targets, loss, cosim.config.frac)
    run = {"loss": loss, "rate": fixed.learning_rate(rate / shape.batch), "epochs": EPOCHS}
    run |= {"decay": decay}
    golden = list(train(features, labels, shape, **run))
    assert len({epoch.model.tobytes() for epoch in golden}) == EPOCHS
    return (shape, features, labels), run, golden


def check(result, golden):
    for model, epoch in zip(result.models, golden, strict=True):
        np.testing.assert_array_equal(model, epoch.model)
    assert result.replicas_equal
    assert sum(node["clamps"] for node in result.counters) == sum(epoch.clamps for epoch in golden)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "columns"), [(1, 23), (4, 47), (8, 95)])
@pytest.mark.parametrize("loss", list(Loss))
def test_two_engines_a_node_train_the_golden_model(pairs, loss, precision, columns):
    data, run, golden = problem(pairs, loss=loss, samples=44, columns=columns, batch=16, precision=precision)
    result = pairs.train(*data, **run)
    check(result, golden)
    shape = data[0]
    for node in result.counters:
        assert node["micro_batches"] == EPOCHS * shape.micro_batches_per_epoch
        assert node["words"] == node["micro_batches"] * shape.words_per_micro_batch * PAIR.engines


@pytest.mark.slow
def test_clamped_activations_are_the_golden_ones(pairs):
    data, run, golden = problem(pairs, loss=Loss.LINEAR, rate=4000, samples=44, columns=95, batch=16)
    assert golden[-1].clamps > 0
    check(pairs.train(*data, **run), golden)


@pytest.mark.slow
@pytest.mark.parametrize("node", [replace(PAIR, l2=True), replace(PARALLEL, l2=True)], ids=["model", "data"])
@pytest.mark.parametrize("shift", [1, 5, 24])
def test_weights_decay_as_the_golden_models_while_frames_are_lost(node, shift):
    cosim = decaying(node)
    decay = fixed.Decay(shift, spared=46)
    shape = {"samples": 117, "columns": 47, "batch": 32}
    data, run, golden = problem(cosim, loss=Loss.HINGE, rate=4.0, decay=decay, **shape)
    network = NetworkConfig(link=FAULTS, seed=shift, timeout_ns=3000)
    result = cosim.train(*data, **run, network=network)
    check(result, golden)
    assert sum(counts["retransmissions"] for counts in result.counters) > 0


@pytest.mark.slow
def test_without_overlap_the_bits_are_the_same_and_the_time_is_not():
    cosim = Cosim(replace(PAIR, vanilla=True), workers=3, quiet=True)
    data, run, golden = problem(cosim, samples=61, columns=95, batch=16)
    (shape, *samples), cycles = data, []
    for vanilla in False, True:
        result = cosim.train(replace(shape, vanilla=vanilla), *samples, **run)
        check(result, golden)
        cycles.append(sum(result.cycles))
    assert cycles[1] - cycles[0] >= EPOCHS * shape.mini_batches * shape.words_per_micro_batch
    network = NetworkConfig(link=FAULTS, seed=1, timeout_ns=3000)
    result = cosim.train(replace(shape, vanilla=True), *samples, **run, network=network)
    check(result, golden)
    assert sum(node["retransmissions"] for node in result.counters) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "batch"), [(64, 32), (64 + 5, 32), (64 + 21, 32), (61, 4), (61, 20)])
def test_data_parallel_replicas_are_equal_and_the_golden_model(parallel, samples, batch):
    """Of whole micro-batches and of short ones: 2 samples a worker, or 8 and 2."""
    data, run, golden = problem(parallel, samples=samples, columns=57, batch=batch)
    check(parallel.train(*data, **run), golden)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", Protocol)
def test_gradients_go_many_in_a_packet_over_links_with_faults(protocol):
    node = replace(
        TINY, lanes=32, mac_width=512, mode=Partitioning.DATA_PARALLEL, gradient_values=32, protocol=protocol
    )
    cosim = Cosim(node, workers=3, quiet=True)
    data, run, golden = problem(cosim, samples=60, columns=100, batch=12)
    check(cosim.train(*data, **run, network=NetworkConfig(link=FAULTS, timeout_ns=3000)), golden)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", Protocol)
def test_a_job_may_have_every_slot_of_the_switch(protocol):
    cosim = Cosim(replace(TINY, slots=SWITCH_SLOTS, protocol=protocol), workers=2, quiet=True)
    data, run, golden = problem(cosim, samples=64, columns=20, batch=32)
    check(cosim.train(*data, **run, network=NetworkConfig(link=FAULTS, timeout_ns=3000)), golden)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_udp_with_faults_changes_no_bit_and_its_checksums_are_right(parallel, tmp_path, seed):
    data, run, golden = problem(parallel, loss=Loss.HINGE, samples=117, columns=57, batch=16, precision=3)
    network = NetworkConfig(link=FAULTS, seed=seed, timeout_ns=3000)
    result = parallel.train(*data, **run, network=network, pcap=tmp_path / "x.pcap")
    check(result, golden)
    assert sum(node["retransmissions"] for node in result.counters) > 0
    assert sum(node["bad_checksum"] for node in result.counters) == result.raw.switch["malformed"] == 0
    packets = rdpcap(str(tmp_path / "x.pcap"))
    assert len(packets) > 3 * sum(node["agg_sent"] for node in result.counters)
    ways = set()
    for packet in packets:
        header = packet[IP].copy()
        del header.chksum
        assert IP(bytes(header)).chksum == packet[IP].chksum
        assert (packet[UDP].sport, packet[UDP].dport) == (UDP_PORT, UDP_PORT)
        ways.add((packet.src, packet[IP].src, packet.dst, packet[IP].dst))
    switch = "02:00:00:00:01:00", "10.0.0.254"
    workers = [(f"02:00:00:00:00:0{n}", f"10.0.0.{n}") for n in (1, 2)]
    assert ways == {(*a, *b) for worker in workers for a, b in [(worker, switch), (switch, worker)]}


def patched(frame, *flips):
    """``frame`` with bits of bytes flipped, and the right IPv4 checksum."""
    frame = bytearray(frame)
    for at, bits in flips:
        frame[at] ^= bits
    frame[IP_AT + 10 : IP_AT + 12] = bytes(2)
    frame[IP_AT + 10 : IP_AT + 12] = internet_checksum(frame[IP_AT:UDP_AT]).to_bytes(2, "big")
    return bytes(frame)


def hostile_frames(encap, worker, agg):
    """(counter, frame) that ``worker`` must drop when it has sent ``agg``: all but the RESULT that it awaits.

    Their values are wrong: one that is accepted changes the model.
    """
    answer = replace(agg, kind=Kind.RESULT, bitmap=0b11, values=tuple(range(1 << 20, 9 << 20, 1 << 20)))
    own = worker_endpoint(worker)

    def frame(*, to=own, **changes):
        return encode(replace(answer, **changes), encap=encap, source=SWITCH, destination=to)

    right, needed = frame(), header_length(encap) + payload_length()
    yield from (("bad_short", right[:size]) for size in (0, 1, 13, 14, header_length(encap), needed - 1))
    yield from (("bad_long", right + bytes(size)) for size in (1, 2, 8, 64, 1500))
    yield from (("bad_foreign", frame(to=replace(own, mac=own.mac ^ 1 << bit))) for bit in (0, 23, 24, 40, 47))
    yield "bad_foreign", frame(to=replace(own, mac=(1 << 48) - 1))
    yield from (("bad_foreign", right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :]) for at in (12, 13))
    yield from (("bad_job", frame(job=FIRST_JOB ^ 1 << bit)) for bit in (0, 1, 7))
    yield from (("bad_slot", frame(slot=answer.slot ^ 1 << bit)) for bit in (2, 3, 15))
    yield from (("bad_malformed", frame(version=version)) for version in (0, 2, 3, 15))
    yield from (("bad_malformed", frame(kind=kind)) for kind in (Kind.AGG, Kind.ACK, 5, 7, 9, 15))
    yield "bad_malformed", frame(round=0)
    yield from (("stale", frame(round=answer.round ^ 1 << bit)) for bit in (8, 16, 31))
    yield from (("stale", frame(round=answer.round + more)) for more in (1, 2))
    yield "stale", frame(kind=Kind.CONFIRM)
    if encap is Encap.UDP:
        yield from (("bad_foreign", frame(to=replace(own, ip=own.ip ^ 1 << bit))) for bit in (0, 15, 31))
        yield from (("bad_foreign", frame(to=replace(own, port=own.port ^ 1 << bit))) for bit in (0, 15))
        # version, options, more fragments, offset, protocol
        foreign = (IP_AT, 0x10), (IP_AT, 0x03), (IP_AT + 6, 0x20), (IP_AT + 7, 0x01), (IP_AT + 9, 0x01)
        yield from (("bad_foreign", patched(right, flip)) for flip in foreign)
        yield from (("bad_malformed", patched(right, (at, 0x08))) for at in (IP_AT + 3, UDP_AT + 5))
        for at in (IP_AT + 1, IP_AT + 8, IP_AT + 10, IP_AT + 11):
            yield "bad_checksum", right[:at] + bytes([right[at] ^ 0x80]) + right[at + 1 :]


class HostileSwitch(ReferenceSwitch):
    """Sends hostile frames, some for each of a node's first AGGs, before what answers it."""

    BURSTS = 8

    def __init__(self, ports, encap):
        super().__init__(endpoint=SWITCH, ports=ports)
        self.encap = encap
        self.bursts = [0] * ports

    def inject(self, port, frame, time):
        answers = super().inject(port, frame, time)
        agg = decode_payload(frame[header_length(self.encap) :])
        if agg.kind != Kind.AGG or self.bursts[port] == self.BURSTS:
            return answers
        frames = hostile_frames(self.encap, port, agg)
        burst = itertools.islice(frames, self.bursts[port], None, self.BURSTS)
        self.bursts[port] += 1
        return [*((port, wrong, time) for _, wrong in burst), *answers]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["pairs", "parallel"])
def test_hostile_frames_change_no_bit_and_each_is_counted_once(request, fixture):
    cosim = request.getfixturevalue(fixture)
    encap = cosim.config.encap
    data, run, golden = problem(cosim, samples=61, columns=41, batch=16)
    # A fixed timeout: hostile frames delay answers, which a timeout from round trips sometimes outruns.
    network = NetworkConfig(make_switch=functools.partial(HostileSwitch, encap=encap), timeout_ns=10_000)
    result = cosim.train(*data, **run, network=network)
    check(result, golden)
    some = AggPacket(Kind.AGG, FIRST_JOB, 0, 1, 1)
    sent = Counter(name for name, _ in hostile_frames(encap, 0, some))
    for node in result.counters:
        assert node["agg_sent"] >= HostileSwitch.BURSTS
        names = [*FAULT_COUNTERS.values(), "stale", "duplicates", "retransmissions"]
        assert {name: node[name] for name in names} == {name: sent[name] for name in names}


class ImpatientNode(wiring.Component):
    """A dummy node, but its events follow ``mac_rx`` within the cycle."""

    def __init__(self):
        super().__init__(DummyNode().signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dummy = dummy = DummyNode()
        for name in ("axil", "mac_tx", "mac_rx"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(dummy, name))
        wiring.connect(m, wiring.flipped(self.samples[0]), dummy.samples[0])
        m.d.comb += self.events.eq(self.mac_rx.valid)
        return m


def dummy_request(tmp_path, nodes):
    """One operation a node."""
    at = REGISTERS.offset
    (tmp_path / "memory").write_bytes(bytes(32))
    programs = [
        HostProgram()
        .write(at("worker"), node)
        .write(at("operations"), 1)
        .write(at("control"), 1)
        .poll(at("busy"), 0)
        for node in range(nodes)
    ]
    members = tuple(Member(n, 1 << n, worker_endpoint(n)) for n in range(nodes))
    return RunRequest(
        nodes=nodes,
        period_ps=4000,
        memories=[[tmp_path / "memory"]] * nodes,
        phases=[Phase("all", programs)],
        switch=functools.partial(ReferenceSwitch, endpoint=SWITCH, ports=nodes),
        jobs=[Job(JOB, 0, SLOTS, members)],
        link=LinkConfig(),
        switch_ns=0.0,
        seed=1,
        watchdog=5000,
    )


@pytest.mark.slow
def test_an_output_that_is_no_register_is_refused_in_a_node_simulated_apart(tmp_path):
    simulator = Simulator([Group(ImpatientNode(), 2)], quiet=True)
    with pytest.raises(
        SimulationFailed,
        match="output events of impatient_node is no register, so it cannot be simulated apart",
    ):
        simulator.run(dummy_request(tmp_path, 2))
