"""Ranks that do not agree, or one of which is stopped or killed: what each of three says in the end.

python -m tests.fanin.torch.unlike_ranks CASE PORT
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch._dynamo  # which DistributedDataParallel loads: once for all ranks
import torch.distributed as dist
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

from tests.fanin.torch.ranks import loss, network

RANKS, TIMEOUT = 3, 4
SIGNALS = {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL}
UNLIKE = {  # at rank 1
    "options": "golden,codec=bfp",
    "collective": "golden,collective=switch",
    "unknown option": "golden,codecs=bfp",
}


def _life(case, rank, port):
    os.environ["FANIN_BACKEND"] = UNLIKE.get(case, "golden") if rank == 1 else "golden"
    dist.init_process_group(
        "gloo" if (case, rank) == ("backend", 1) else "fanin",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=RANKS + ((case, rank) == ("world", 2)),
        timeout=timedelta(seconds=TIMEOUT),
    )
    model = network(7)
    if rank == 1 and case == "type":
        model = model.double()
    if rank == 1 and case == "layers":
        model.append(torch.nn.Linear(5, 5))
    if rank == 1 and case == "width":
        model = torch.nn.Sequential(torch.nn.Linear(20, 31), torch.nn.Linear(31, 5))
    model = DistributedDataParallel(model)
    for step in range(3):
        if step == 1 and case in (f"{name} {rank}" for name in SIGNALS):
            os.kill(os.getpid(), SIGNALS[case.split()[0]])
        loss(model, rank).backward()


def main(rank, case, port):
    """A rank's life, and its last words."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    begun = time.monotonic()
    try:
        _life(case, rank, port)
        said = "done"
    except Exception as error:
        said = str(error)
    line = json.dumps({"rank": rank, "said": said, "seconds": time.monotonic() - begun})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())  # at once: other ranks write, too


if __name__ == "__main__":  # forked, so that PyTorch is loaded but once
    case, port = sys.argv[1:]
    context = start_processes(main, args=(case, port), nprocs=RANKS, join=False, start_method="fork")
    stopped = int(case.split()[1]) if case.startswith(("stopped", "killed")) else None
    for rank, process in enumerate(context.processes):
        if rank != stopped:
            process.join(60)
    for process in context.processes:
        process.kill()
