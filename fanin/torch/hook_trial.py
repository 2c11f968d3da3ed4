"""Trainings of one network with each hook in turn, by ranks on this machine (``fanin bench hooks``).

Each training has its own process group ``fanin``, which carries the hook's data and predicts its time on NICs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.multiprocessing import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from fanin.base.errors import ToolFailed
from fanin.base.tools import safe_path
from fanin.codec.facts import Bf16, Bfp, CodecConfig, Inceptionn, Mx
from fanin.codec.formats import Element
from fanin.sim.codec.tasks import cnn
from fanin.sim.codec.trainers import Training
from fanin.sim.learning.convolutional import FlatNetwork
from fanin.torch import BACKEND, timing
from fanin.torch.feedback import ErrorFeedback
from fanin.torch.hooks import Hook, nics, top_k
from fanin.torch.options import Options
from fanin.torch.timing import RATES, CommunicationTime

RANKS = 4
WARMUP_STEPS = 10  #: steps before the measurement of bytes and time, and before PowerSGD compresses
_TIMEOUT = timedelta(minutes=2)  # of a collective

Register = Callable[[DistributedDataParallel, dist.ProcessGroup], None]


@dataclass(frozen=True)
class HookSetup:
    """A communication hook, and the hardware of its process group.

    - ``register``: registers the hook on a model, for a process group.
    - ``options``: hardware of the process group.
    """

    register: Register
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training.

    - ``accuracy``: share of the held-out samples that are classified correctly.
    - ``wire_bytes``: bytes that a rank's NIC sends per step.
    - ``seconds``: predicted time of all collectives per step, by the link's Gb/s.
    """

    accuracy: float
    wire_bytes: float
    seconds: Mapping[float, float]


def _hook(hook: Hook, *, feedback: bool = False) -> Register:
    def register(model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        model.register_comm_hook(ErrorFeedback(model, group) if feedback else group, hook)

    return register


def _power_sgd(rank: int) -> Register:
    def register(model: DistributedDataParallel, group: dist.ProcessGroup) -> None:
        state = PowerSGDState(group, matrix_approximation_rank=rank, start_powerSGD_iter=WARMUP_STEPS)
        model.register_comm_hook(state, powerSGD_hook)

    return register


FEEDBACK = ", error feedback"  #: end of the name of a setup with error feedback


def _label(name: str, feedback: bool) -> str:
    return name + FEEDBACK if feedback else name


_CODECS: dict[str, CodecConfig] = {
    "BFP, 7 bits": Bfp(),
    "BFP, 3 bits": Bfp(mantissa=3),
    "INCEPTIONN 2^-10": Inceptionn(10),
    "INCEPTIONN 2^-6": Inceptionn(6),
    "MX e4m3": Mx(),
    "MX e2m1": Mx(Element.E2M1),
    "bf16": Bf16(),
}
_SHARES = {"top 1 %": 0.01, "top 0.1 %": 0.001}
HOOK_SETUPS: dict[str, HookSetup] = {
    "none": HookSetup(_hook(nics())),
    "fp16": HookSetup(_hook(fp16_compress_hook)),
    **{
        _label(name, feedback): HookSetup(_hook(nics(), feedback=feedback), Options(codec=codec))
        for name, codec in _CODECS.items()
        for feedback in (False, True)
    },
    **{
        _label(name, feedback): HookSetup(_hook(top_k(share), feedback=feedback))
        for name, share in _SHARES.items()
        for feedback in (False, True)
    },
    **{f"PowerSGD, rank {rank}": HookSetup(_power_sgd(rank)) for rank in (1, 2)},
}


def training(seed: int, epochs: int) -> Training:
    """Return the training of the convolutional network on scikit-learn's digits."""
    return replace(cnn(), workers=RANKS, seed=seed, epochs=epochs)


def trials(
    names: Sequence[str], seeds: int, epochs: int, on_training: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, list[TrainingResult]]]:
    """Train with each of these ``HOOK_SETUPS``, with seeds 0 to ``seeds`` - 1; call ``on_training`` after each.

    Yields a setup's name, and its results by seed. Raises ToolFailed if a rank fails.
    """
    parent, child = get_context("spawn").Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder, parent:
        arguments = (folder, child, list(names), seeds, epochs)
        with safe_path():
            context = start_processes(
                _rank, args=arguments, nprocs=RANKS, join=False, daemon=True, start_method="spawn"
            )
        child.close()
        try:
            for name in names:
                results = []
                for _ in range(seeds):
                    results.append(_receive(parent, context))
                    on_training()
                yield name, results
        finally:
            for process in context.processes:
                process.kill()
                process.join()


def _receive(results: Connection, context: ProcessContext) -> TrainingResult:
    """Return the next result. Raises ToolFailed if the first rank has ended."""
    try:
        result: TrainingResult = results.recv()  # ends: collectives have a timeout, and a failing rank ends
        return result
    except EOFError as error:
        cause = "a rank of the training has ended"
        deadline = monotonic() + _TIMEOUT.total_seconds()
        try:
            while monotonic() < deadline and not context.join(1):
                pass
        except (ProcessExitedException, ProcessRaisedException) as failure:
            cause = f"a rank of the training has failed: {str(failure).strip().splitlines()[-1]}"
        raise ToolFailed(cause) from error


def _rank(rank: int, folder: str, results: Connection, names: Sequence[str], seeds: int, epochs: int) -> None:
    """Run a rank; rank 0 sends the results of all trainings."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=RANKS, timeout=_TIMEOUT)
    if rank:
        results.close()
    for name in names:
        for seed in range(seeds):
            result = _train(rank, HOOK_SETUPS[name], training(seed, epochs))
            if rank == 0:
                results.send(result)
    dist.destroy_process_group()


def _train(rank: int, setup: HookSetup, training: Training) -> TrainingResult:
    """Run this rank's part of a training, and return its result. Only the result of rank 0 is used.

    Raises ValueError if the training has no step after the first ``WARMUP_STEPS``, which are not measured.
    """
    group = dist.new_group(range(RANKS), timeout=_TIMEOUT, backend=BACKEND, pg_options=setup.options)
    network, descent = training.network, training.descent
    assert isinstance(network, FlatNetwork)
    model = DistributedDataParallel(network.module(training.seed), process_group=group)
    setup.register(model, group)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=descent.rate, momentum=descent.momentum, weight_decay=descent.decay
    )
    step, warmup_time = -1, timing.time(group)
    for step, batches in enumerate(training.batches()):
        if step == WARMUP_STEPS:
            warmup_time = timing.time(group)
        batch = batches.samples[rank]
        optimizer.param_groups[0]["lr"] = descent.rate_at(batches.done)
        optimizer.zero_grad()
        cross_entropy(model(network.inputs(batch)), torch.from_numpy(batch.digits)).backward()
        optimizer.step()
    steps = step + 1
    if steps <= WARMUP_STEPS:
        raise ValueError(f"epochs must be enough for more than {WARMUP_STEPS} steps, not {steps} steps")
    size, seconds = _per_step(warmup_time, timing.time(group), steps - WARMUP_STEPS)
    dist.destroy_process_group(group)
    _, held_out = training.data(training.seed)
    with torch.no_grad():
        predictions = model.module(network.inputs(held_out)).argmax(dim=1).numpy()
    return TrainingResult(float((predictions == held_out.digits).mean()), size, seconds)


def _per_step(start: CommunicationTime, end: CommunicationTime, steps: int) -> tuple[float, dict[float, float]]:
    """Return bytes that a rank's NIC sends per step, and predicted seconds per step by the link's Gb/s.

    ``start``, ``end``: communication of the group up to two moments that are ``steps`` steps apart.
    """
    size = (end.total.wire_bytes - start.total.wire_bytes) / steps
    seconds = {
        rate: (end.total.predicted.get(rate, 0.0) - start.total.predicted.get(rate, 0.0)) / steps
        for rate in RATES
    }
    return size, seconds
