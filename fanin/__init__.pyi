# Written by docs/generate.py; functions of runs from the tables of their options.
from fanin.api.aggregate import aggregate as aggregate
from fanin.api.cluster import ClusterBuild as ClusterBuild
from fanin.api.cluster import ClusterRun as ClusterRun
from fanin.api.codec import compress as compress
from fanin.api.codec import decompress as decompress
from fanin.api.commands import PathLike, Repeatable
from fanin.api.emit import components as components
from fanin.api.emit import emit as emit
from fanin.api.emit import emit_p4 as emit_p4
from fanin.api.param_server import ps_train as ps_train
from fanin.api.plan import Planned as Planned
from fanin.api.plan import Sweep as Sweep
from fanin.api.ring import ring_train as ring_train
from fanin.api.train import TrainRun as TrainRun
from fanin.errors import CheckFailed as CheckFailed
from fanin.errors import InputError as InputError

__version__: str
LOADED: float

def cluster(
    build: PathLike | None = None,
    data: PathLike = "digits",
    *,
    epochs: int = 15,
    batch: int = 32,
    lr: float = 0.1,
    momentum: float = 0.9,
    schedule: str = "cosine",
    seed: int = 0,
    init: PathLike | None = None,
    on: str = "rtl",
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    corrupt: float = 0.0,
    network_seed: int | None = None,
    cut: str | None = None,
    pcap: bool = False,
    checkpoint: int | None = None,
    output: PathLike | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
) -> ClusterRun: ...
def cluster_build(
    plan: PathLike,
    *,
    output: PathLike | None = None,
    verilog: bool = False,
    arith: str = "c",
    link: str | None = None,
    encap: str | None = None,
) -> ClusterBuild: ...
def plan(
    model: PathLike,
    cluster: PathLike,
    *,
    output: PathLike | None = None,
    mp: str = "1",
    devices: str | None = None,
    batch: int = 256,
    time_limit: float | None = None,
    gap: float = 0.5,
    workers: int = 2,
    seed: int = 0,
) -> Planned | Sweep: ...
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
