"""Trainings, all-reduces and writes that may be spread over ranks: cases of ``spread.py``."""

import functools
import random
from dataclasses import replace

import numpy as np

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, Partitioning, TrainShape
from fanin.golden.mlp import Mlp
from fanin.hbm import HBM2
from fanin.link import LinkConfig
from fanin.param_server.facts import Algorithm, PushAfter, Receivers
from fanin.rdma.facts import FIRST_QUEUE_PAIR, RdmaConfig, Region, Write
from fanin.ring.facts import PRESETS as RING_PRESETS
from fanin.ring.facts import RingConfig
from fanin.ring.groups import Groups, Scheme
from fanin.sim.cnn.hosts import Cut
from fanin.sim.glm.cosim import Cosim
from fanin.sim.learning.learner import Training
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import DataParallel, Dataset, State
from fanin.sim.learning.workloads import build, load
from fanin.sim.network import NetworkConfig
from fanin.sim.param_server.cosim import ParamServerCosim
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.training import TrainingJob
from fanin.sim.rdma.cosim import Pair, RdmaCosim
from fanin.sim.ring.cosim import RingCosim
from fanin.sim.ring.groups import GroupsCosim
from fanin.sim.ring.rounds import JobSettings
from fanin.sim.ring.train_cosim import RingTrainingCosim, run_rtl
from fanin.sim.ring.training import Learning, RingTraining
from fanin.wire.aggregation import Protocol
from tests.sim.cnn.trial import THREE, Trial

BAD = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
LOSSY = {"link": BAD, "timeout": 3000}  # for servers
RING = {"lanes": 8, "frame_words": 16, "slice_frames": 20, "buffer_frames": 32, "replay_frames": 32}


def _train(seed, folder, workers, *, columns=41, hbm=None, **changes):
    node = replace(PRESETS["tiny"], **changes)
    shape = TrainShape(node=node, workers=workers, samples=61, columns=columns, batch=16)
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = (rng.integers(0, 2, shape.samples) << node.frac).astype(np.int32)
    return Cosim(node, workers=workers, hbm=hbm, quiet=True).train(
        shape,
        features,
        labels,
        loss=Loss.LOGISTIC,
        rate=fixed.learning_rate(0.5 / 16),
        epochs=4,
        network=NetworkConfig(link=BAD, seed=seed),
        events=200,
        pcap=folder / "capture.pcap",
    )


def train(seed, folder):
    """Model-parallel training over a bad network."""
    return _train(seed, folder, 16)


def in_hbm(seed, folder):
    """With samples in HBM, whose refreshes come at the same cycles in all nodes."""
    return _train(seed, folder, 16, hbm=HBM2)


def switchml(seed, folder):
    """The baseline's protocol."""
    return _train(seed, folder, 16, protocol=Protocol.SWITCHML)


def data_parallel(seed, folder):
    """Gradients are aggregated."""
    return _train(seed, folder, 4, columns=31, mode=Partitioning.DATA_PARALLEL)


def ring(seed, folder):
    """An all-reduce of several vectors."""
    rng = np.random.default_rng(seed)
    given = [[rng.normal(0, 1, n).astype(np.float32) for n in (777, 9000)] for _ in range(16)]
    cosim = RingCosim(RingConfig(**RING), nodes=16, quiet=True)
    pcap = folder / "capture.pcap"
    return cosim.all_reduce(given, link=BAD, timeout=3000, seed=seed, pcap=pcap, link_log=folder / "links")


def engines(seed, folder):
    """Hosts of two engines, which share a memory."""
    rng = np.random.default_rng(seed)
    given = [[rng.normal(0, 1, 3000).astype(np.float32)] for _ in range(8)]
    cosim = RingCosim(RingConfig(**RING), nodes=8, engines=2, quiet=True)
    return cosim.all_reduce(given, link=BAD, timeout=3000, seed=seed, pcap=folder / "capture.pcap")


def ring_train(seed, folder, *, stops=None):
    """Live hosts, which compute, post and compare."""
    training = DataParallel(network=Mlp((64, 24, 10)), nodes=8, batch=64, epochs=1, seed=seed)
    job = RingTraining(training=training, config=RingConfig(lanes=8, frame_words=16), stops=stops or {})
    data = Dataset(training, *load_digits(0))
    cosim = RingTrainingCosim(job.config, nodes=8, quiet=True)
    learners = functools.partial(Learning, job, data, State.initial(training))
    pcap = folder / "capture.pcap"
    return cosim.run(learners, training.network.counts, link=BAD, seed=seed, stops=job.stops, pcap=pcap)


def ring_dies(seed, folder):
    """A node's link is cut, and the hosts see it."""
    return ring_train(seed, folder, stops={1: 30e-6})


TREE = Groups(2, 2, Scheme.AGGREGATOR, Scheme.AGGREGATOR)  # seven nodes, three of which have no worker


def groups(seed, folder):
    """An exchange in groups, whose hosts a controller has begin each round."""
    rng = np.random.default_rng(seed)
    given = [rng.normal(0, 1e-2, 300).astype(np.float32) for _ in range(TREE.workers)]
    cosim = GroupsCosim(RING_PRESETS["tiny"], nodes=TREE.nodes, quiet=True)
    jobs = JobSettings(barrier=rng.choice([0, 2e-6]), timeout=1500)
    run = cosim.exchange(given, TREE.plan, jobs=jobs, link=BAD, seed=seed, pcap=folder / "capture.pcap")
    run.raw.hosts = None  # itself, which cannot be compared
    return run


def groups_train(seed, folder, *, stops=None):
    """Workers in groups, which train."""
    training = DataParallel(network=Mlp((64, 12, 10)), nodes=TREE.workers, batch=128, epochs=1, seed=seed)
    config = RING_PRESETS["tiny"]
    job = RingTraining(training=training, config=config, groups=TREE, barrier=1e-6, stops=stops or {})
    state = State.initial(training)
    data, pcap = Dataset(training, *load_digits(0)), folder / "capture.pcap"
    return run_rtl(job, data, state, link=BAD, pcap=pcap)


def group_dies(seed, folder):
    """An aggregator's link is cut."""
    return groups_train(seed, folder, stops={TREE.workers: 60e-6})


def rdma(seed, folder):
    """Nodes that write to the next one's memory."""
    rng, nodes, size = random.Random(seed), 16, 1 << 14
    pairs = [
        Pair.of((node, 0), ((node + 1) % nodes, 1), mtu=1024, window=16, retries=7) for node in range(nodes)
    ]
    region = Region(0, size, 7, frozenset([FIRST_QUEUE_PAIR + 1]))
    writes = [
        [(0, Write(tag, size, rng.randrange(size // 2), 7, rng.randrange(1, size // 2))) for tag in range(6)]
        for _ in range(nodes)
    ]
    return RdmaCosim(RdmaConfig(), nodes=nodes, quiet=True).run(
        memories=[rng.randbytes(2 * size) for _ in range(nodes)],
        pairs=pairs,
        regions=[[region]] * nodes,
        writes=writes,
        link=BAD,
        seed=seed,
        pcap=folder / "capture.pcap",
    )


def _param_server(seed, folder, *, settings, **changes):
    """Digits are learnt by five workers of three servers."""
    compute = Compute(per_sample=5e-8, jitter=0.5)
    job = TrainingJob(workers=5, servers=3, epochs=2, seed=seed, compute=compute, costs=DESIGN)
    job = replace(job, **changes)
    workload = build("lr", load(None, 0), decay=1e-4, seed=seed)
    learner = Training(workload, workers=5, batch=64, seed=seed, convergence=False)
    cosim = ParamServerCosim(workers=job.workers, servers=job.servers, width=128, quiet=True)
    pcap, links = folder / "capture.pcap", folder / "links"
    run = cosim.run(job, learner, mtu=256, pcap=pcap, link_log=links, **settings)
    run.raw.hosts = None  # itself, which cannot be compared
    return run


def wild(seed, folder):
    """Gradients are applied as they come; rows go to their workers, or to all, at once or behind a scan."""
    return _param_server(seed, folder, slots=2, **_pushes(seed), settings=LOSSY)


def wild_loses(seed, folder):
    """Queue pairs end, and a worker stops; the others go on."""
    settings = {"link": LinkConfig(drop=0.002), "retries": 0, "timeout": 1500}
    return _param_server(seed, folder, slots=2, **_pushes(seed), stops={2: 20e-6}, settings=settings)


def _pushes(seed):
    rng = random.Random(seed)
    return {"receivers": rng.choice(list(Receivers)), "push_after": rng.choice([None, PushAfter.SCAN])}


def sync(seed, folder):
    """All wait for all."""
    return _param_server(seed, folder, algorithm=Algorithm.SYNC, settings=LOSSY)


def sync_dies(seed, folder):
    """A worker's link is cut, and the others cannot go on."""
    stops = {3: 30e-6}
    return _param_server(seed, folder, algorithm=Algorithm.SYNC, stops=stops, settings=LOSSY)


def sync_loses(seed, folder):
    """A queue pair ends."""
    settings = {"link": LinkConfig(drop=0.01), "retries": 0, "timeout": 1500}
    return _param_server(seed, folder, algorithm=Algorithm.SYNC, settings=settings)


def _cluster(seed, folder, trial, **settings):
    """Hosts that do what a controller orders."""
    pcap, links = folder / "capture.pcap", folder / "links"
    return trial.run(seed=seed, pcap=pcap, link_log=links, **settings)


def cluster(seed, folder):
    """The least network on three devices."""
    return _cluster(seed, folder, THREE, link=BAD)


def digits(seed, folder):
    """A network with a residual join, whose branches go over the network."""
    trial = Trial("digits_cnn", "aaaaabbbbcccbccaaaaaa", frames=2)
    return _cluster(seed, folder, trial, link=BAD, timeout=500_000)


def cluster_dies(seed, folder):
    """The last device is cut off, and all fail."""
    return _cluster(seed, folder, THREE, cut=Cut(2, 6), link_timeout=500, link_retries=4)
