"""``fanin.ring_train``: a network trained over NICs that add gradients up in a ring."""

from __future__ import annotations

from fanin.api.commands import Folder, PathLike, Repeatable, carried_out
from fanin.cli.output import RING_RUN


class RingRun(Folder):
    """A training, and the folder that ``fanin ring train`` writes."""

    mark = RING_RUN.mark


def ring_train(
    data: PathLike | None = None,
    *,
    layers: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    momentum: float | None = None,
    decay: float | None = None,
    seed: int | None = None,
    system: str | None = None,
    nodes: int | None = None,
    exchange: str | None = None,
    groups: str | None = None,
    above: str | None = None,
    lanes: int | None = None,
    codec: str | None = None,
    bound: str | None = None,
    mode: str | None = None,
    group: int | None = None,
    block: int | None = None,
    mantissa: int | None = None,
    exponent: int | None = None,
    offset: int | None = None,
    all_reduce: str | None = None,
    on: str | None = None,
    overlap: str | None = None,
    outstanding: int | None = None,
    flops: float | None = None,
    memory_bandwidth: float | None = None,
    pcie: float | None = None,
    gbps: float | None = None,
    drop: float | None = None,
    duplicate: float | None = None,
    reorder: float | None = None,
    corrupt: float | None = None,
    stop: Repeatable | None = None,
    pcap: PathLike | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
    output: PathLike | None = None,
) -> RingRun:
    """Train a network on nodes whose NICs add gradients up (AI Smart NIC), or with INCEPTIONN's hosts and NICs.

    Arguments are the options of ``fanin ring train``; without ``output`` its folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed where a step is not bit-exact.

    Source: AI Smart NIC; INCEPTIONN; docs/systems/ring-training.md.
    """
    return carried_out(RingRun, ("ring", "train"), locals())
