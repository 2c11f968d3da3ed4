"""Build the trainers of ``fanin train`` from its options."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from fanin.base.errors import InputError
from fanin.fixed import LOSSES
from fanin.glm.facts import PRESETS, GlmConfig, SparseChoice
from fanin.glm.run.boards import read_boards
from fanin.glm.run.options import MEMORY, PORTS, GlmOptions
from fanin.glm.run.state import SAME_IN_BOTH
from fanin.glm.run.trees import tree_of_options
from fanin.hbm import MEMORIES, Hbm
from fanin.link import FAULTS, HOST, LinkConfig, check_delay
from fanin.runs.call import Call
from fanin.runs.option import Trait
from fanin.runs.pairs import number_of, parse_named_stops
from fanin.runs.ranks import refuse_ranks
from fanin.runs.shared_options import LINKS
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm.boards import Boards
from fanin.sim.glm.data import Dataset
from fanin.sim.glm.result import GlmTraining, check_timeout
from fanin.sim.glm.train import Trainer, trainers
from fanin.sim.network import BOARDS_TIMEOUT_NS, LONGEST_TIMEOUT_NS, PORTS_TIMEOUT_NS, NetworkConfig
from fanin.sim.nic.pace import MAX_SLOWDOWN
from fanin.tree import Tree
from fanin.wire.aggregation import Encap

_OWN_NETWORK = "does not apply with --on: boards have their own network"


def trainers_of(
    options: GlmOptions,
    call: Call,
    wave: Waveform | None,
    *,
    check: Callable[[GlmTraining], None] | None = None,
    loaded: Callable[[GlmTraining, Dataset], None] | None = None,
) -> list[Trainer]:
    """Return the trainers: of simulated nodes, or of the boards of ``--on``. Raises InputError.

    ``check`` is called with the training before the data is loaded. ``loaded`` is called before a simulator is
    built, with the training, its default learning rate resolved, and the data.
    """
    for name in ("on", "ports"):
        if getattr(options, name) is not None:
            refuse_ranks(call, f"--{name}")
    resolved, boards = _on_boards(options) if options.on else (_at_interfaces(options), None)
    if check:
        check(resolved)
    return trainers(resolved, boards=boards, wave=wave, loaded=loaded)


def lacking(options: GlmOptions) -> Mapping[Trait, str]:
    """Return the traits that such a run lacks, each with the reason for users."""
    if options.on is not None:
        memories = "does not apply with --on: boards have their own memories"
        return {LINKS: _OWN_NETWORK, MEMORY: memories, PORTS: _OWN_NETWORK}
    return {PORTS: "needs --ports"} if options.ports is None else {}


def _on_boards(options: GlmOptions) -> tuple[GlmTraining, Boards]:
    """Return the training on boards, and the boards. Raises InputError."""
    if options.ports is not None:
        raise InputError(f"--ports: {_OWN_NETWORK}")
    options.refuse(lacking(options))
    assert options.on is not None
    cluster = read_boards(options.on)
    if options.sparse is (SparseChoice.OFF if cluster.sparse else SparseChoice.ON):
        built = "with" if cluster.sparse else "without"
        raise InputError(f"--sparse {options.sparse}: {options.on}: the boards were built {built} --sparse")
    clocks = [address.core_mhz for address in cluster.addresses]
    options = dataclasses.replace(
        options,
        workers=len(cluster.addresses),
        preset=cluster.preset,
        engines=None,
        encap=Encap.UDP,
        clock_mhz=min(clocks),
    )
    resolved = glm_training(
        options, l2_nodes=cluster.l2, sparse_nodes=cluster.sparse, longest_timeout_ns=BOARDS_TIMEOUT_NS
    )
    check_timeout(resolved.network.ceiling_ns, max(clocks))
    return resolved, Boards(resolved.node, cluster.addresses)


def _at_interfaces(options: GlmOptions) -> GlmTraining:
    """Return the training on simulated nodes, on simulated links or at ``--ports``.

    Raises InputError.
    """
    tree = tree_of_options(options)
    if tree:
        slots = tree.root.part.slots
        options = dataclasses.replace(
            options,
            workers=len(tree.workers),
            slots=slots if options.worker is None else slots // 2,  # the others are for the workers' agreement
        )
    if options.ports is None:
        options.refuse(lacking(options))
        return glm_training(options, tree=tree)
    if options.racks is not None:
        raise InputError("--racks needs simulated switches; with --ports, --tree describes others")
    from fanin.sim.nic.outside import check_interfaces

    ports = tuple(options.ports.split(","))
    local_workers = _workers_here(options, len(ports))
    if not local_workers and tree and len(ports) != options.workers:
        raise InputError(f"--ports {options.ports}: --tree {options.tree} has {options.workers} workers")
    check_interfaces(ports)
    if not 1 <= options.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {options.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    if not local_workers:
        options = dataclasses.replace(options, workers=len(ports))
    return glm_training(
        options, ports=ports, here=local_workers, tree=tree, longest_timeout_ns=PORTS_TIMEOUT_NS
    )


def _workers_here(options: GlmOptions, ports: int) -> tuple[int, ...]:
    """Return the workers whose nodes are here, from ``--worker``; empty for all. Raises InputError."""
    text, workers = options.worker, options.workers
    if text is None:
        return ()
    try:
        local_workers = tuple(map(int, text.split(",")))
    except ValueError as error:
        raise InputError(f"--worker {text}: must be numbers, from 0 on") from error
    if len(local_workers) != ports:
        raise InputError(f"--worker {text}: --ports {ports} needs one worker per port")
    if len(set(local_workers)) < len(local_workers) or not all(
        0 <= worker < workers for worker in local_workers
    ):
        raise InputError(f"--worker {text}: must be different ones of 0 to {workers - 1} (--workers)")
    return local_workers


def glm_training(
    options: GlmOptions,
    *,
    l2_nodes: bool | None = None,
    sparse_nodes: bool = False,
    ports: tuple[str, ...] = (),
    here: tuple[int, ...] = (),
    tree: Tree | None = None,
    longest_timeout_ns: float = LONGEST_TIMEOUT_NS,
) -> GlmTraining:
    """Return the training that the options describe. Raises InputError.

    - ``l2_nodes``: whether the nodes' weights can decay; by default they can if ``--l2`` is not 0.
    - ``sparse_nodes``: whether the nodes are sparse ones, whatever the samples.
    - ``ports``: Linux interfaces of the nodes.
    - ``here``: the worker at each of these interfaces.
    - ``tree``: tree of switches; None: one switch.
    - ``longest_timeout_ns``: ceiling of timeouts that follow the round trips.
    """
    try:
        return GlmTraining(
            node=_node(options, l2=options.l2 != 0 if l2_nodes is None else l2_nodes, sparse=sparse_nodes),
            network=_network(options, ports, here, tree, longest_timeout_ns),
            loss=LOSSES[options.loss],
            data=options.data or "",
            hbm=_hbm(options),
            **{name: getattr(options, name) for name in SAME_IN_BOTH},
        )
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _node(options: GlmOptions, *, l2: bool, sparse: bool) -> GlmConfig:
    preset = PRESETS[options.preset]
    node = dataclasses.replace(
        preset,
        engines=preset.engines if options.engines is None else options.engines,
        slots=preset.slots if options.slots is None else options.slots,
        frac=options.frac,
        encap=options.encap,
        protocol=options.protocol,
        mode=options.mode,
        gradient_values=options.gradient_values,
        l2=l2,
        sparse=sparse,
        vanilla=options.vanilla and options.on is None,  # boards are already built
        ping=bool(options.ports) and options.encap == Encap.UDP,  # other hosts may ping the nodes
    )
    # Fewer slots than the preset's are a register of the job, not another node.
    return dataclasses.replace(node, slots=max(node.slots, preset.slots))


def _hbm(options: GlmOptions) -> Hbm | None:
    """Return the memory of samples and labels; None for constant latency. Raises InputError."""
    hbm = MEMORIES[options.memory]
    if options.ports_per_channel is None:
        return hbm
    if hbm is None:
        raise InputError(f"--ports-per-channel: --memory {options.memory} has no channels")
    return dataclasses.replace(hbm, ports_per_channel=options.ports_per_channel)


def _network(
    options: GlmOptions,
    ports: tuple[str, ...],
    here: tuple[int, ...],
    tree: Tree | None,
    longest_timeout_ns: float,
) -> NetworkConfig:
    if not 0 < options.gbps < math.inf:
        raise InputError(f"gbps must be positive and finite, not {options.gbps:g}")
    check_delay("link_ns", options.link_ns)
    link = LinkConfig(
        delay_ns=options.link_ns,
        gbps=options.gbps,
        **{name: getattr(options, name) for name in (*FAULTS, *HOST)},
    )
    return NetworkConfig(
        link=link,
        switch_ns=options.switch_ns,
        timeout_ns=options.timeout_ns,
        longest_timeout_ns=longest_timeout_ns,
        retries=options.retries,
        slots=options.slots,
        seed=options.seed,
        switch=options.switch,
        ports=ports,
        here=here,
        slowdown=options.slowdown,
        stops=_stops(options, tree),
        tree=tree,
    )


def _stops(options: GlmOptions, tree: Tree | None) -> tuple[tuple[int | str, float], ...]:
    """Return the workers and links of switches that stop, and their times in seconds. Raises InputError."""
    if not options.stop:
        return ()
    if options.ports is not None:
        raise InputError("--stop cuts simulated links; it cannot be given with --ports")
    switches = [switch.name for switch in tree.switches[1:]] if tree else []

    def identify(entry: str, name: str) -> int | str:
        if name in switches:
            return name
        return number_of("--stop", entry, name, options.workers, others=switches)

    return tuple(parse_named_stops(",".join(options.stop), identify, "worker or switch").items())
