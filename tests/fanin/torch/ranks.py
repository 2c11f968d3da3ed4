"""What the ranks of tests/fanin/torch/test_hooks.py do, each a process of its own."""

import os
import sys
from datetime import timedelta

import numpy as np
import torch
import torch._dynamo  # which DistributedDataParallel loads: once for all ranks
import torch.distributed as dist
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

from fanin.codec.facts import Mode
from fanin.codec.formats import Element, Rounding
from fanin.ring.facts import RingConfig
from fanin.torch.feedback import ErrorFeedback
from fanin.torch.hooks import bf16, bfp, fp16, inceptionn, mx, ring, top_k

RANKS = 4
SMALL = RingConfig(lanes=8, frame_words=2, slice_frames=2, buffer_frames=4)
HOOKS = {
    "none": ring(),
    "none, small": ring(SMALL),
    "strict": inceptionn(),
    "published": inceptionn(6, Mode.PUBLISHED, config=SMALL),
    "bfp": bfp(),
    "bfp, 8 and 5": bfp(8, 5, config=SMALL),
    "bfp, 4 bits of exponent": bfp(8, 7, 4, 10, config=SMALL),
    "mx": mx(Element.E2M1, 16, config=SMALL),
    "mx, stochastic": mx(rounding=Rounding.STOCHASTIC),
    "bf16": bf16(),
    "fp16, stochastic": fp16(Rounding.STOCHASTIC, config=SMALL),
    "bfp, 15 bits": bfp(8, 15, config=SMALL),  # more than bfloat16 and float16 have
    "half": ring(SMALL, hop=lambda values: values / np.float32(2)),
}
SETS = [(2, 1), (2, 33), (2, 1000), (3, 7), (3, 500), (3, 1537), (4, 2), (4, 64), (4, 4096), (4, 4100)]


def gradients(ranks, count, seed):
    """What the ranks of a group contribute: magnitudes as of a network's layers, and special values."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((ranks, count)) * np.exp2(rng.uniform(-16, 1, count))
    own[0, : count // 50] = np.nan
    own[1, : count // 20] = 1e-42
    return own.astype(np.float32)


SHARE, STEPS = 0.3, 4


class Bucket:
    """As much of a GradBucket as a hook sees."""

    def __init__(self, values, parameters=()):
        self._values, self._parameters = values, list(parameters)

    def buffer(self):
        return self._values

    def parameters(self):
        return self._parameters


def parameters(model):
    """All gradients of a model, one after the other."""
    return np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])


def network(seed):
    """A small network, the same for a seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))


def loss(model, rank):
    """Of a rank's own samples."""
    torch.manual_seed(100 + rank)
    return model(torch.randn(16, 20)).square().mean()


def _recording(hook):
    """A hook that appends what it is given to its state, a list."""

    def record(state, bucket):
        state.append(bucket.buffer().numpy().copy())
        return hook(None, bucket)

    return record


NATIVE = {"bfloat16": torch.bfloat16, "float16": torch.float16}
NATIVE_HOOKS = {name: HOOKS[name] for name in ("none", "mx", "bfp, 15 bits")}


def native(rank, results):
    """Gradients of 16 bits, with and without error feedback."""
    model = torch.nn.Linear(199, 2)
    for name, dtype in NATIVE.items():
        for hook_name, hook in NATIVE_HOOKS.items():
            own = torch.from_numpy(gradients(RANKS, 400, 70)[rank]).to(dtype)
            found = hook(None, Bucket(own)).wait()
            assert found.dtype == dtype
            results[f"native {name}/{hook_name}"] = found.float().numpy()
            state = ErrorFeedback(model)
            for step in range(STEPS):
                own = torch.from_numpy(gradients(RANKS, 400, step)[rank]).to(dtype)
                found = hook(state, Bucket(own, model.parameters())).wait()
                results[f"fed {name}/{hook_name}/{step}"] = found.float().numpy()


def main(rank, folder):
    """A rank's life: all sets and hooks, then a step of DDP; results go to a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    groups = {size: dist.new_group(range(size)) for size in range(1, RANKS + 1)}
    results = {}
    for number, (size, count) in enumerate(SETS):
        if rank < size:
            own = torch.from_numpy(gradients(size, count, number)[rank])
            for name, hook in HOOKS.items():
                results[f"{name}/{number}"] = hook(groups[size], Bucket(own)).wait().numpy()
            results[f"top/{number}"] = top_k(SHARE)(groups[size], Bucket(own)).wait().numpy()
    model = torch.nn.Linear(199, 2)
    fed = {"codec": inceptionn(6), "stochastic": mx(Element.E2M3, rounding=Rounding.STOCHASTIC)}
    for name, hook in (fed | {"top": top_k(SHARE)}).items():
        state = ErrorFeedback(model)
        for step in range(STEPS):
            own = torch.from_numpy(gradients(RANKS, 400, step)[rank])
            results[f"fed {name}/{step}"] = hook(state, Bucket(own, model.parameters())).wait().numpy()
    native(rank, results)
    if rank == 0:
        results["alone"] = HOOKS["strict"](groups[1], Bucket(torch.tensor([0.3]))).wait().numpy()
    spread = torch.from_numpy(gradients(RANKS, 64, 50)[rank].repeat(2))[::2]
    results["not contiguous"] = HOOKS["none, small"](None, Bucket(spread)).wait().numpy()
    for name in ("none", "strict", "bfp"):
        buckets = []
        model = DistributedDataParallel(network(7))
        model.register_comm_hook(buckets, _recording(HOOKS[name]))
        loss(model, rank).backward()
        results[f"own/{name}"] = np.concatenate(buckets)
        results[f"ddp/{name}"] = parameters(model.module)
    np.savez(f"{folder}/{rank}.npz", **results)
    dist.destroy_process_group()


if __name__ == "__main__":  # forked, so that PyTorch is loaded but once
    start_processes(main, args=(sys.argv[1],), nprocs=RANKS, start_method="fork")
