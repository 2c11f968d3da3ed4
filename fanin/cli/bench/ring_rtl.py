"""The ring on its RTL: cycles beside the time model, how busy the links are, exact with loss; logic depth."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fanin.cli.bench.area import depth_figures, map_parts
from fanin.cli.bench.result import Result, number
from fanin.codec import Bfp, Inceptionn
from fanin.golden.ring import all_reduce
from fanin.hdl.arith.fp32 import FP32Adder
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.hdl.ring.node import RingNode
from fanin.ring import RingConfig
from fanin.sim.network import LinkConfig
from fanin.sim.ring.cosim import RingCosim, RingRun
from fanin.sim.ring.time import RingTime

NODES = (3, 4, 5, 6)
COUNT = 1 << 18  # values: 1 MiB
LOSS = 0.01
MAX_DEVIATION = 3.0  # % of the model's cycles
MIN_BUSY = 98.0  # % of the time, where the link binds
LINK = LinkConfig()
TIMEOUT = 4000  # cycles: some hops there and back
CODECS = {"no codec": None, "BFP": Bfp(), "INCEPTIONN": Inceptionn(group=16)}

Float32 = npt.NDArray[np.float32]


def measure() -> Iterator[Result]:
    """Yield the figures; a simulation of six nodes is built for each codec, a minute or two each."""
    rng = np.random.default_rng(5)
    gradients = [rng.normal(0, 1e-2, COUNT).astype(np.float32) for _ in range(max(NODES))]
    for name, codec in CODECS.items():
        config = RingConfig(codec=codec)
        yield from _depth(name, config)
        cosim = RingCosim(config, nodes=max(NODES))
        for nodes in NODES:
            yield from _case(f"{name}, {nodes} nodes, 1 MiB", cosim, gradients[:nodes])


def _case(name: str, cosim: RingCosim, gradients: list[Float32]) -> Iterator[Result]:
    expected = all_reduce.all_reduce(gradients, cosim.config)
    run = _run(cosim, gradients, LINK)
    model = RingTime.of(gradients, cosim.config, link=LINK)
    note = f"the model: {number(round(model.total))}; bound by the {model.binds}"
    yield Result(f"{name}: cycles", run.cycles, "cycles", note=note)
    yield Result(f"{name}: off the model", 100 * abs(run.cycles / model.total - 1), "%", MAX_DEVIATION)
    busy = 100 * min(run.transmit_busy(node) for node in range(len(gradients)))
    limit = MIN_BUSY if model.binds == "link" else None
    yield Result(f"{name}: Tx link busy", busy, "% of time", limit, at_least=True, note="the idlest node's")
    yield Result(
        f"{name}: values wrong", wrong_values(run, expected), "values", 0, note="all nodes' against NumPy"
    )
    lossy = _run(cosim, gradients, LinkConfig(drop=LOSS))
    note = f"{lossy.cycles / run.cycles:.2f} times the cycles"
    yield Result(f"{name}, 1 % loss: values wrong", wrong_values(lossy, expected), "values", 0, note=note)


def _run(cosim: RingCosim, gradients: list[Float32], link: LinkConfig) -> RingRun:
    return cosim.all_reduce([[gradient] for gradient in gradients], link=link, timeout=TIMEOUT)


def wrong_values(run: RingRun, expected: Float32) -> int:
    """Values that differ in any bit; all of them for a node that has failed, or has written elsewhere."""
    if run.failed or not run.intact:
        return expected.size
    return sum(int((own.view(np.uint32) != expected.view(np.uint32)).sum()) for (own,) in run.sums)


def _depth(name: str, config: RingConfig) -> Iterator[Result]:
    """Of a node around its adders and its codec, which have their own figures (`fanin bench codec`)."""
    parts = [FP32Adder()]
    if config.codec is not None:
        parts += [make(config.codec, config.width) for make in (make_compressor, make_decompressor)]
    area = map_parts(RingNode(config=config), parts, "", count_parts=False)
    yield from depth_figures(f"node, {name}", area)
