"""What the ranks of tests/fanin/torch/test_process_group.py do, each a process of its own."""

import os
import signal
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch._dynamo  # which DistributedDataParallel loads: once for all ranks
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

import fanin.torch
from fanin.codec.facts import Bfp, Inceptionn
from fanin.torch import Options
from fanin.torch.feedback import ErrorFeedback
from fanin.torch.hooks import nics
from tests.fanin.torch.ranks import gradients, loss, network, parameters

RANKS = 3
OPTIONS = {
    "none": Options(),
    "tiny": Options(preset="tiny"),
    "bfp": Options(codec=Bfp()),
    "inceptionn": Options(preset="prototype", codec=Inceptionn(6)),
    "switch": Options(collective="switch"),
    "emitted": Options(run="rtl", collective="switch"),
}
COUNTS = [1, 7, 500, 4100]
LENGTHS = dict.fromkeys(OPTIONS, COUNTS) | {"emitted": [1, 2100]}  # of which the second takes slots twice
SPECIAL = np.array([-0.0, 1e-42, np.nan, np.inf, 3.5, -1e-45], np.float32)
#: What ranks call that do not agree, each in a group of its own: by rank, a type and a length.
DISAGREE = {
    "length": [("float32", 5), ("float32", 5), ("float32", 6)],
    "type": [("float32", 5), ("float64", 5)],
}


def vectors(name, count):
    """What the ranks give; a switch makes NaN of all if one value is not finite, so that only some have one."""
    given = gradients(RANKS, count, count)
    return np.nan_to_num(given) if count > 500 and OPTIONS[name].collective == "switch" else given


def sums(name, rank, results):
    """Sums of every length, and DistributedDataParallel's gradients with what each rank has given."""
    for count in LENGTHS[name]:
        own = torch.from_numpy(vectors(name, count)[rank])
        mean, works = own.clone(), [dist.all_reduce(own, async_op=True)]
        works.append(dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=True))
        results[f"pending/{name}/{count}"] = not all(work.is_completed() for work in works)
        for work in works:
            work.wait()
        results[f"sum/{name}/{count}"], results[f"mean/{name}/{count}"] = own.numpy(), mean.numpy()
    alone = network(7)
    loss(alone, rank).backward()
    results[f"own/{name}"] = parameters(alone)
    model = DistributedDataParallel(network(7))
    loss(model, rank).backward()
    results[f"ddp/{name}"] = parameters(model.module)


def hooks(rank, results):
    """A step of DDP with the group's own codec and error feedback, then PowerSGD, whose callbacks wait."""
    model = DistributedDataParallel(network(7))
    model.register_comm_hook(ErrorFeedback(model), nics())
    loss(model, rank).backward()
    results["hooked"] = parameters(model.module)
    model = DistributedDataParallel(network(7))
    model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
    for _ in range(4):
        model.zero_grad()
        loss(model, rank).backward()
    results["power"] = parameters(model.module)


def report(results):
    """What ``time()`` says so far, of the whole job's group, and of one that gloo carries."""
    said = fanin.torch.time()
    results["report"] = str(said)
    results["rows"] = [f"{row.name} {row.values} {row.calls}" for row in said.rows]
    results["predicted"] = [[row.predicted[rate] for rate in (10.0, 25.0, 100.0)] for row in said.rows]
    results["other"] = [said.gloo_calls, said.gloo_seconds, said.other_seconds, said.seconds]
    try:
        fanin.torch.time(dist.new_group(range(RANKS), backend="gloo"))
    except ValueError as error:
        results["refused"] = str(error)


NATIVE = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def native(name, rank, results):
    """Sums and means of values of 16 bits, a part of one, and how many collectives gloo carries for them."""
    before = fanin.torch.time().gloo_calls
    for kind, dtype in NATIVE.items():
        own = torch.from_numpy(vectors(name, 500)[rank]).to(dtype)
        mean, part, across = own.clone(), torch.zeros(2, dtype=dtype), own[:6].clone().reshape(3, 2).t()
        dist.reduce_scatter(part, list(own[:6].chunk(RANKS)))
        dist.all_reduce(own)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        dist.all_reduce(across)
        found = {"sum": own, "mean": mean, "part": part, "across": across}
        for what, tensor in found.items():
            assert tensor.dtype == dtype
            results[f"native {what}/{name}/{kind}"] = tensor.float().numpy()
    results[f"native gloo/{name}"] = fanin.torch.time().gloo_calls - before
    model = DistributedDataParallel(network(7).bfloat16())
    model.register_comm_hook(None, nics())
    model(torch.full((16, 20), 0.25 + rank, dtype=torch.bfloat16)).square().mean().backward()
    gradients = [p.grad for p in model.module.parameters()]
    assert {gradient.dtype for gradient in gradients} == {torch.bfloat16}
    results[f"native ddp/{name}"] = torch.cat([each.reshape(-1) for each in gradients]).float().numpy()


def others(rank, results):
    """Every other collective, of float32 and of another type, contiguous and not."""
    own = torch.from_numpy(gradients(RANKS, 6, 60)[rank])
    parts = [torch.zeros(2) for _ in range(2)]
    dist.reduce_scatter(parts[0], list(own.chunk(RANKS)))
    dist.reduce_scatter_tensor(parts[1], own)
    results["scattered"] = torch.stack(parts).numpy()
    special = torch.from_numpy(SPECIAL) if rank == 1 else torch.ones(len(SPECIAL))
    gathered = [torch.zeros(len(SPECIAL)) for _ in range(RANKS)]
    dist.all_gather(gathered, special)
    together = torch.zeros(RANKS * len(SPECIAL))
    dist.all_gather_into_tensor(together, special)
    results["gathered"] = torch.stack([torch.cat(gathered), together]).numpy()
    dist.broadcast(special, 1)
    results["broadcast"] = special.numpy()
    across = torch.full((4, 2), 1.0 + rank).t()
    dist.all_reduce(across)
    whole, largest = torch.arange(5) + rank, torch.arange(5.0) + rank
    dist.all_reduce(whole)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    results |= {"across": across.numpy(), "whole": whole.numpy(), "largest": largest.numpy()}
    dist.barrier()
    said = [None] * RANKS
    dist.all_gather_object(said, {"rank": rank})
    results["objects"] = [each["rank"] for each in said]
    pair = dist.new_group([0, 2])
    if rank != 1:
        alike = torch.full((3,), 1.0 + rank)
        dist.all_reduce(alike, group=pair)
        results["pair"] = alike.numpy()


def message(call, error=dist.DistBackendError):
    """What a call that must fail says."""
    try:
        call()
    except error as found:
        return str(found)
    return "nothing"


def unfit(rank, results):
    """Tensors that do not fit one another, uneven parts, which do, and parts that differ by rank."""
    own, group = torch.ones(2), dist.new_group(range(RANKS))
    calls = {
        "reduce_scatter_tensor long": lambda: dist.reduce_scatter_tensor(own, torch.ones(8)),
        "reduce_scatter_tensor short": lambda: dist.reduce_scatter_tensor(own, torch.ones(5)),
        "reduce_scatter output": lambda: dist.reduce_scatter(torch.ones(1), [own] * RANKS),
        "reduce_scatter inputs": lambda: dist.reduce_scatter(own, [own] * 2),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.ones(5), own),
        "all_gather output": lambda: dist.all_gather([own, own, torch.ones(3)], own),
        "all_gather outputs": lambda: dist.all_gather([own] * 2, own),
        "broadcast": lambda: dist.broadcast(own, 7),
    }
    for name, call in calls.items():
        results[f"unfit/{name}"] = message(call, (ValueError, RuntimeError))
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((n,), 1.0 + n) for n in (1, 2, 3)])
    results["uneven"] = uneven.numpy()
    sizes = (1, 2, 3) if rank else (1, 3, 2)
    parts = [torch.ones(n) for n in sizes]
    results["parts"] = message(lambda: dist.reduce_scatter(torch.ones(sizes[rank]), parts, group=group))


def destroyed(results):
    """A collective on a group that has been destroyed; its own method, for PyTorch's own finds no group."""
    group = dist.new_group(range(RANKS), backend="fanin")
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(group)
    results["destroyed"] = message(lambda: group.allreduce([torch.ones(1)]).wait())


def failures(rank, results):
    """Ranks that call unlike, then one that is stopped, and one that is killed."""
    for name, calls in DISAGREE.items():
        group = dist.new_group(range(len(calls)))
        if rank < len(calls):
            kind, count = calls[rank]
            tensor = torch.ones(count, dtype=getattr(torch, kind))
            results[name] = message(lambda t=tensor, g=group: dist.all_reduce(t, group=g))
            results[f"{name} again"] = message(lambda g=group: dist.barrier(g))
    group = dist.new_group(range(RANKS), timeout=timedelta(seconds=1))
    if rank == 1:
        time.sleep(4)  # until the others have given up
    results["late"] = message(lambda: dist.barrier(group))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    results["killed"] = message(lambda: dist.all_reduce(torch.ones(9)))
    results["seconds"] = time.monotonic() - begun


def main(rank, folder):
    """A rank's life; results go to a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    results = {}
    for name, options in OPTIONS.items():
        dist.init_process_group(
            "fanin",
            init_method=f"file://{folder}/{name}",
            rank=rank,
            world_size=RANKS,
            timeout=timedelta(seconds=60),
            pg_options=options,
        )
        sums(name, rank, results)
        if name == "bfp":
            hooks(rank, results)
            native(name, rank, results)
        if name == "none":
            report(results)
            others(rank, results)
            native(name, rank, results)
            unfit(rank, results)
            destroyed(results)
        if name != list(OPTIONS)[-1]:
            dist.destroy_process_group()
    np.savez(f"{folder}/{rank}.npz", **results)
    failures(rank, failed := {})
    np.savez(f"{folder}/{rank}-failed.npz", **failed)


if __name__ == "__main__":  # forked, so that PyTorch is loaded but once
    context = start_processes(main, args=(sys.argv[1],), nprocs=RANKS, join=False, start_method="fork")
    for process in context.processes:
        process.join(100)
        process.kill()
    print([process.exitcode for process in context.processes])
