"""Exchanges and training over RTL NICs: the golden model's bits, packets and bytes, whatever links do."""

import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP
from scapy.utils import rdpcap

from fanin.base.errors import InputError
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.exchange import Wire, count_weights, exchange
from fanin.golden.mlp import Mlp
from fanin.inceptionn.facts import Leg, Topology
from fanin.link import LinkConfig
from fanin.ring.groups import Scheme
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.inceptionn import training
from fanin.sim.inceptionn.cosim import InceptionnCosim
from fanin.sim.inceptionn.host import HostCosts
from fanin.sim.inceptionn.hosts import Plan
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset
from tests.support import new_seed

pytestmark = pytest.mark.verilator
RING, AGGREGATOR = Scheme
BAD = LinkConfig(gbps=10, drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
CODEC = Inceptionn()
FREE = HostCosts(packet=0.0, sum=0.0)


@pytest.fixture(scope="module")
def hardware():
    return InceptionnCosim(nodes=5, quiet=True)


@pytest.fixture(scope="module")
def large():
    """For the groups of figure 1."""
    return InceptionnCosim(nodes=21, quiet=True)


def gradients(topology, count, seed=0):
    """Some that shrink, and a stretch that does not."""
    rng = np.random.default_rng(seed)
    scale = np.full(count, 5e-4)
    scale[count // 2 : count // 2 + 900] = 10.0
    return [(rng.standard_normal(count) * scale).astype(np.float32) for _ in range(topology.workers)]


def check(run, plan, own):
    """The sum is the golden one: the run itself compares each node's with it. Its traffic, too."""
    wire = Wire(plan.packets)
    total = exchange(plan.topology, own, wire)
    if plan.topology.aggregator is not None:
        count_weights(plan.topology, total, wire)
    assert np.array_equal(run.outcome.total, total)
    assert len(run.outcome.sum_times) == plan.topology.nodes
    return wire


@pytest.mark.parametrize("topology", [Topology(5), Topology(4, AGGREGATOR)], ids=lambda topology: topology.name)
@pytest.mark.parametrize("codec", [None, CODEC], ids=str)
def test_packets_and_bytes_on_the_wire_are_the_golden_models(hardware, topology, codec):
    plan, own = Plan(topology, codec), gradients(topology, 6000)
    run = hardware.exchange(plan, own)
    wire = check(run, plan, own)
    assert {leg: traffic.packets for leg, traffic in run.legs.items()} == wire.frames
    assert {leg: traffic.payload for leg, traffic in run.legs.items()} == wire.payload
    raw = {leg: traffic.raw for leg, traffic in run.legs.items() if traffic.raw}
    assert set(raw) == ({Leg.RING, Leg.UP} & set(run.legs) if codec else set())


@pytest.mark.parametrize("topology", [Topology(3), Topology(2, AGGREGATOR)], ids=lambda topology: topology.name)
@pytest.mark.parametrize("codec", [None, CODEC, Inceptionn(6)], ids=str)
def test_whatever_links_do(hardware, topology, codec):
    plan, own = Plan(topology, codec), gradients(topology, 6000)
    run = hardware.exchange(plan, own, link=BAD, seed=new_seed())
    check(run, plan, own)
    ways = [way for link in run.raw.links for way in link.values()]
    assert sum(way[fault] for way in ways for fault in ("dropped", "duplicated", "reordered", "corrupted")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("link", [LinkConfig(gbps=10), BAD], ids=["good links", "bad links"])
@pytest.mark.parametrize(
    "topology",
    [
        Topology(16, AGGREGATOR, 4, AGGREGATOR),
        Topology(16, RING, 4, AGGREGATOR),
        Topology(16, RING, 4, RING),
    ],
    ids=lambda topology: topology.name,
)
def test_the_groups_of_figure_1(large, topology, link):
    plan, own = Plan(topology, CODEC), gradients(topology, 2000)
    check(large.exchange(plan, own, link=link, seed=new_seed()), plan, own)


def test_a_ring_takes_the_links_time_and_with_a_codec_less(hardware):
    """Where hosts take no time, links do: 2(p - 1)/p of the bytes with their headers, and acknowledgements."""
    topology, count = Topology(4), 40_000
    own = gradients(topology, count)
    plain, coded = (hardware.exchange(Plan(topology, codec, costs=FREE), own) for codec in (None, CODEC))
    packets = -(-count // 4 * 4 // 1460)
    step = (count + packets * (78 + 84 / 2)) * 0.8e-9
    assert plain.seconds == pytest.approx(6 * step, rel=0.06)
    assert 0.2 < coded.seconds / plain.seconds < 0.4


def test_a_nic_of_100_mhz_binds_where_it_compresses():
    """A frame takes it 52 cycles, 520 ns, which is more than the link needs for what is left of the frame."""
    slow = InceptionnCosim(nodes=5, clock_mhz=100, quiet=True)
    topology = Topology(4)
    plan, own = Plan(topology, CODEC, costs=FREE), gradients(topology, 40_000)
    nic = 6 * -(-10_000 // 365) * 520e-9
    assert nic < slow.exchange(plan, own).seconds < 1.6 * nic


@pytest.mark.end_to_end
@pytest.mark.parametrize("codec", [None, CODEC], ids=str)
def test_training_is_bit_exact_every_step(hardware, codec):
    job = DataParallel(network=Mlp((64, 16, 10)), nodes=3, batch=100, epochs=1)
    data = Dataset(job, *load_digits(0))
    seen = []
    trained = training.run(
        job, data, Plan(Topology(3), codec, costs=HostCosts(compute=1e-3)), link=BAD, progress=seen.append
    )
    assert len(trained.iterations) == data.steps
    assert all(each.total > each.compute == 1e-3 for each in trained.iterations)
    assert trained.raw.skipped_ps > data.steps * 0.9e9
    assert trained.legs[Leg.RING].packets > trained.golden.frames[Leg.RING] * 0.95
    assert seen == sorted(seen)


def test_a_node_that_dies_is_named(hardware):
    topology = Topology(3)
    plan = Plan(topology, None, stops={2: 20e-6})
    with pytest.raises(SimulationFailed, match=r"\bnode 2 has stopped answering: "):
        hardware.exchange(plan, gradients(topology, 30_000))


@pytest.fixture(scope="module")
def captured(hardware, tmp_path_factory):
    """An exchange, and the capture of its frames."""
    topology, capture = Topology(3, AGGREGATOR), tmp_path_factory.mktemp("captured") / "frames.pcap"
    own = [values.clip(-0.01, 0.01) for values in gradients(topology, 3000)]
    return hardware.exchange(Plan(topology, CODEC), own, pcap=capture), capture


def test_scapy_reads_the_capture(captured):
    run, capture = captured
    packets = rdpcap(str(capture))
    marks = Counter((packet[TCP].dport, packet[IP].tos) for packet in packets if len(packet[TCP].payload))
    up, down = run.legs[Leg.UP], run.legs[Leg.DOWN]
    assert marks[Leg.DOWN.port, 0] == 2 * down.packets  # into the switch, and out of it
    assert marks[Leg.UP.port, 0x28] == 2 * (up.packets - up.raw)
    for packet in packets:
        checksum = packet[IP].chksum
        del packet[IP].chksum
        assert type(packet)(bytes(packet))[IP].chksum == checksum


@pytest.mark.needs("tshark")
def test_tshark_reads_the_capture(captured):
    _, capture = captured
    fields = ["-T", "fields", "-e", "tcp.port", "-e", "_ws.malformed"]
    done = subprocess.run(["tshark", "-r", capture, *fields], capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == len(rdpcap(str(capture)))
    assert {malformed for _, malformed in lines} == {""}


def test_bad_input(hardware):
    with pytest.raises(InputError, match="nodes must be 2 to 97, not 1"):
        InceptionnCosim(nodes=1)
    plan = Plan(Topology(3))
    with pytest.raises(ValueError, match="nodes must be at most 5, as built, not 6"):
        hardware.exchange(replace(plan, topology=Topology(6)), gradients(Topology(6), 10))
    with pytest.raises(
        ValueError, match=r"gradients must be of one length, at least 1, for 3 workers, not of \[9\] for 2"
    ):
        hardware.exchange(plan, [np.zeros(9, np.float32)] * 2)
