"""INCEPTIONN's digit classifier under DistributedDataParallel, with the ring NIC's arithmetic and codecs.

    pip install 'fanin[torch]'
    python examples/digits_ddp.py [--epochs 3]

Four gloo ranks on this machine train five fully connected layers, 500 wide, on scikit-learn's digits, with the
hyperparameters of the paper's table I, once per codec. Printed are how much smaller the codec made what the
ring carried, and the accuracy on digits that nobody trained on. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing import spawn
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.nn.init import kaiming_normal_, zeros_
from torch.nn.parallel import DistributedDataParallel

from fanin.codec.facts import Bf16, Bfp, Inceptionn, Mode, Mx
from fanin.codec.formats import Element
from fanin.ring.facts import RingConfig
from fanin.sim.codec.wire import AnyCodec, Traffic, Truncation
from fanin.sim.learning.mlp import CLASSES, HIDDEN, PIXELS, Descent, load_digits
from fanin.torch import hooks as torch_hooks

RANKS, BATCH, SEED = 4, 25, 0
RING = RingConfig()
CODECS: dict[str, AnyCodec] = {
    "none": None,
    **{f"truncation, {dropped} LSBs": Truncation(dropped) for dropped in (16, 22, 24)},
    **{
        f"INCEPTIONN {mode.name.lower()}, 2^-{bound}": Inceptionn(bound, mode, RING.lanes)
        for mode in (Mode.PUBLISHED, Mode.STRICT)
        for bound in (10, 6)
    },
    "BFP, 16 × 7": Bfp(),
    "MX e4m3": Mx(),
    "MX e2m1": Mx(Element.E2M1),
    "bf16": Bf16(),
}


def network() -> Sequential:
    """Return a network of five fully connected layers, with equal weights on all ranks."""
    torch.manual_seed(SEED)
    widths = [PIXELS, *[HIDDEN] * 4, CLASSES]
    layers: list[Module] = []
    for inputs, outputs in pairwise(widths):
        linear = Linear(inputs, outputs)
        kaiming_normal_(linear.weight, nonlinearity="relu")
        zeros_(linear.bias)
        layers += [linear, ReLU()]
    return Sequential(*layers[:-1])


def counted(codec: AnyCodec, traffic: Traffic) -> Callable[[np.ndarray], np.ndarray]:
    """Return the round trip of a hop that counts traffic: a partial sum once, the total to all other ranks."""
    calls = 0

    def hop(values: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return traffic.send("ring", values, codec, times=1 if calls % RANKS else RANKS - 1)

    return hop


def train(rank: int, codec: AnyCodec, epochs: int) -> tuple[float, float]:
    """Train once. Return compression ratio and accuracy; collective, with equal results on all ranks."""
    samples, test = load_digits(SEED)
    rng = np.random.default_rng(SEED)
    shard = np.array_split(rng.permutation(len(samples)), RANKS)[rank]
    model, descent, traffic = DistributedDataParallel(network()), Descent(), Traffic()
    model.register_comm_hook(None, torch_hooks.ring(RING, hop=counted(codec, traffic)))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=descent.rate, momentum=descent.momentum, weight_decay=descent.decay
    )
    batches = len(samples) // RANKS // BATCH
    for step in range(epochs * batches):
        if step % batches == 0:
            shard = np.random.default_rng(step + rank).permutation(shard)
        chosen = samples[shard[step % batches * BATCH :][:BATCH]]
        optimizer.param_groups[0]["lr"] = descent.rate_at(step / (epochs * batches))
        optimizer.zero_grad()
        cross_entropy(model(torch.from_numpy(chosen.images)), torch.from_numpy(chosen.digits)).backward()
        optimizer.step()
    with torch.no_grad():
        guesses = model.module(torch.from_numpy(test.images)).argmax(dim=1).numpy()
    return traffic.total.ratio, float((guesses == test.digits).mean())


def main(rank: int, folder: str, epochs: int) -> None:
    """Run one rank: train once with every codec."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{folder}/ranks", rank=rank, world_size=RANKS, timeout=timedelta(minutes=2)
    )
    if rank == 0:
        print(f"{'codec on the links':<30}{'ratio':>8}{'accuracy':>10}")
    for name, codec in CODECS.items():
        ratio, accuracy = train(rank, codec, epochs)
        if rank == 0:
            print(f"{name:<30}{ratio:>7.2f}×{accuracy:>10.1%}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=3)
    with tempfile.TemporaryDirectory() as folder:
        spawn(main, args=(folder, parser.parse_args().epochs), nprocs=RANKS)
