# Written by docs/generate.py; functions of runs from the tables of their options.
from fanin.api.aggregate import aggregate as aggregate
from fanin.api.cluster import cluster as cluster
from fanin.api.cluster import cluster_build as cluster_build
from fanin.api.codec import compress as compress
from fanin.api.codec import decompress as decompress
from fanin.api.commands import PathLike, Repeatable
from fanin.api.emit import components as components
from fanin.api.emit import emit as emit
from fanin.api.emit import emit_p4 as emit_p4
from fanin.api.param_server import ps_train as ps_train
from fanin.api.plan import plan as plan
from fanin.api.ring import RingRun as RingRun
from fanin.api.train import TrainRun as TrainRun
from fanin.errors import CheckFailed as CheckFailed
from fanin.errors import InputError as InputError

__version__: str
LOADED: float

def ring_train(
    data: PathLike = "digits",
    *,
    layers: PathLike | None = None,
    epochs: int = 10,
    batch: int = 32,
    lr: float = 0.1,
    momentum: float = 0.9,
    decay: float = 0.0,
    seed: int = 0,
    system: str = "smart-nic",
    nodes: int = 4,
    exchange: str = "ring",
    groups: str | None = None,
    above: str | None = None,
    lanes: int = 8,
    codec: str = "none",
    all_reduce: str = "nic",
    on: str | None = None,
    overlap: str = "backward",
    outstanding: int = 1,
    flops: float = 2080000000000.0,
    memory_bandwidth: float = 105000000000.0,
    pcie: float = 51000000000.0,
    gbps: float | None = None,
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    corrupt: float = 0.0,
    stop: Repeatable | None = None,
    pcap: PathLike | None = None,
    resume: PathLike | None = None,
    output: PathLike | None = None,
    bound: str | None = None,
    mode: str | None = None,
    group: int | None = None,
    block: int | None = None,
    mantissa: int | None = None,
    exponent: int | None = None,
    offset: int | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
) -> RingRun: ...
def train(
    data: PathLike | None = None,
    *,
    target: str | None = None,
    loss: str = "logistic",
    epochs: int = 40,
    batch: int = 32,
    lr: float | None = None,
    l2: float = 0.0,
    bias: bool = True,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    mode: str = "model-parallel",
    vanilla: bool = False,
    gradient_values: int = 8,
    workers: int = 4,
    engines: int | None = None,
    preset: str = "demo",
    precision: int = 4,
    frac: int = 24,
    clock_mhz: float = 250.0,
    memory: str = "constant",
    ports_per_channel: int | None = None,
    on: PathLike | None = None,
    ports: str | None = None,
    worker: str | None = None,
    slowdown: float = 1000.0,
    switch: str = "embedded",
    protocol: str = "p4sgd",
    encap: str = "l2",
    slots: int | None = None,
    timeout_ns: float | None = None,
    retries: int = 1000,
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    corrupt: float = 0.0,
    link_ns: float = 100.0,
    switch_ns: float = 400.0,
    gbps: float = 100.0,
    host_ns: float = 0.0,
    host_jitter_ns: float = 0.0,
    frame_bytes: int = 60,
    stop: Repeatable | None = None,
    checkpoint: int | None = None,
    resume: PathLike | None = None,
    restart: int | None = None,
    output: PathLike | None = None,
    pcap: PathLike | None = None,
    model_out: PathLike | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
) -> TrainRun: ...
