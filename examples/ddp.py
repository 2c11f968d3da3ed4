"""An ordinary training with DistributedDataParallel: scikit-learn's digits, a network of two layers.

    torchrun --nproc-per-node 4 examples/ddp.py
    FANIN_BACKEND=rtl torchrun --nproc-per-node 4 examples/ddp.py

Of fanin it knows the backend's name alone. ``--backend gloo`` trains the same without NICs.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description="Train a classifier of digits on torchrun's ranks.")
parser.add_argument("--backend", default="fanin", help="of init_process_group (default: fanin)")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step (default: 32)")
parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of all parameters")
parser.add_argument("--save", metavar="FILE", help="keep the trained parameters, as torch.save does")
arguments = parser.parse_args()

torch.set_num_threads(1)  # a rank is a core
dist.init_process_group(arguments.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()

pixels, digits = load_digits(return_X_y=True)
dtype = getattr(torch, arguments.dtype)
images = torch.tensor(pixels / 16, dtype=dtype)[rank::ranks]  # a share of the samples
labels = torch.tensor(digits)[rank::ranks]

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(dtype)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(1, arguments.steps + 1):
    chosen = torch.arange(step * arguments.batch, (step + 1) * arguments.batch) % len(images)
    loss = cross_entropy(model(images[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().float()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step:3}: loss {mean.item() / ranks:.4f}", flush=True)

if arguments.save and rank == 0:
    torch.save(network.state_dict(), arguments.save)
dist.destroy_process_group()
