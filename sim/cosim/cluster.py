"""Simulated nodes at one switch: memories are filled, host programs carried out, and memories read back.

The co-simulation of every system uses a :class:`Cluster` with its own nodes, memory contents and hosts.
:class:`Reads` decodes the words that host programs read.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.hbm import Hbm
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.job import worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.cosim.build import check_build
from fanin.sim.cosim.clock import period_of, port_rate
from fanin.sim.cosim.live import Board, LiveHosts
from fanin.sim.cosim.process import python_library
from fanin.sim.cosim.run import (
    MEMORY_LATENCY,
    QUIET_CYCLES,
    Phase,
    Progress,
    RunRequest,
    RunResult,
    Words,
    write_memory,
)
from fanin.sim.cosim.simulator import Group, SimulationFailed, Simulator
from fanin.sim.cosim.watch import Watch
from fanin.sim.cosim.waves import Waveform
from fanin.sim.network import SWITCH_NS
from fanin.sim.switch.base import Job, Switch
from fanin.sim.switch.forward import Forwarder
from fanin.sim.tree import SwitchTree

_WATCHDOG = 100_000  # cycles without progress that end a run, in addition to the nodes' longest wait
_NEVER = (1 << 64) - 1
_ALL_EVENTS = (1 << 64) - 1


class Settings(TypedDict, total=False):
    """Arguments of :meth:`Cluster.run` that a system passes on unchanged from its caller."""

    link: LinkConfig | None
    switch_ns: float
    pcap: Path | None
    link_log: Path | None
    progress: Callable[[Progress], None] | None


class Cluster:
    """Nodes at the ports of one switch, built once; each ``run`` starts from reset.

    - ``groups``: function that makes the nodes, called after the checks. Nodes are numbered through all groups;
      node n has the addresses ``worker_endpoint(n)``.
    - ``nodes_per_memory``: number of consecutive nodes that share their memories.
    - ``clock_mhz``: clock frequency.
    - ``wave``: waveform to write; its window selects cycles and nodes.
    - ``quiet``: print nothing while building.

    Raises InputError for a missing tool, a clock out of range and a wave of absent nodes, and errors of
    Simulator.
    """

    def __init__(
        self,
        groups: Callable[[], Sequence[Group]],
        *,
        nodes_per_memory: int = 1,
        clock_mhz: float = CLOCK_MHZ,
        wave: Waveform | None = None,
        quiet: bool = False,
    ):
        self.period_ps = period_of(clock_mhz)
        check_build()
        python_library()
        node_groups, self._wave, self._nodes_per_memory = groups(), wave, nodes_per_memory
        # Checked before the simulator is built:
        wave_nodes = wave.window.selected_nodes(sum(group.count for group in node_groups)) if wave else ()
        self.simulator = Simulator(
            node_groups, nodes_per_host=nodes_per_memory, waves=wave is not None, quiet=quiet
        )
        if wave:
            wave.nodes = [self.simulator.wave_node(node) for node in wave_nodes]

    def run(
        self,
        memories: Iterable[Iterable[npt.NDArray | Path]],
        phases: list[Phase],
        *,
        longest_wait: int,
        switch: Callable[[], Switch | SwitchTree] | None = None,
        jobs: Sequence[Job] = (),
        paced: bool = True,
        memory_gbps: float | None = None,
        hosts: Callable[[Board], LiveHosts] | None = None,
        independent_hosts: bool = False,
        watch: Callable[[int], Watch] = Watch,
        quiet_cycles: int = QUIET_CYCLES,
        endless: bool = False,
        memory_latency: int = MEMORY_LATENCY,
        memory_repeats: int = 1,
        hbm: Hbm | None = None,
        events: int = 0,
        link: LinkConfig | None = None,
        switch_ns: float = SWITCH_NS,
        seed: int = 0,
        pcap: Path | None = None,
        link_log: Path | None = None,
        cuts: tuple[tuple[int | str, int], ...] = (),
        progress: Callable[[Progress], None] | None = None,
        keep: Callable[[RunResult], None] | None = None,
    ) -> RunResult:
        """Carry out the phases, then let ``hosts`` drive; the result includes memories and events.

        - ``memories``: per node, the contents of its memory ports. A single content is shared by all ports of
          the node, and nodes that share memories are given once. A path is a file used as the memory itself,
          which other processes may also have mapped; the result has its content at the end. Nodes after the
          last one given have empty memories.
        - ``phases``: host programs that run before ``hosts``.
        - ``longest_wait``: cycles that a healthy node may wait; a run without progress for longer ends.
        - ``switch``: function that makes the switch; without it frames are only forwarded.
        - ``paced``: MACs keep to the links' rate; otherwise they transfer a beat per cycle.
        - ``memory_gbps``: rate limit of each memory port and direction, like PCIe's; None: a beat per cycle.
        - ``independent_hosts``: the hosts of one rank need no hosts of other ranks.
        - ``watch``: observer of the frames, made for the number of nodes; its result is ``RunResult.watched``.
        - ``endless``: only ``hosts`` end the run, and a run without progress continues.
        - ``memory_repeats``: how many times ports see their memory's bytes in a row. A small content can then
          replace a large memory where only time matters.
        - ``hbm``: model of the memories' banks and refreshes; nodes must not write such memories.
        - ``events``: greatest number of entries in the event trace.
        - ``progress``: called during the run.
        - ``keep``: called after each ``kept`` phase.

        The other arguments are those of RunRequest. Raises SimulationFailed if the run fails.
        """
        link, ports = link or LinkConfig(), self.simulator.ports
        macs = [worker_endpoint(node).mac for node in range(len(ports))]
        width = max(node_ports.mac_width for node_ports in ports)
        widest = max((bus.data_bits for node_ports in ports for bus in node_ports.memories), default=0)
        with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
            folder = Path(temporary)
            files = _write(folder, memories, len(ports), self._nodes_per_memory)
            request = RunRequest(
                nodes=len(ports),
                period_ps=self.period_ps,
                memories=[
                    paths * len(node_ports.memories) if len(paths) == 1 else paths
                    for paths, node_ports in zip(files, ports, strict=True)
                ],
                phases=phases,
                switch=switch or functools.partial(Forwarder.of, macs),
                jobs=list(jobs),
                link=link,
                switch_ns=switch_ns,
                seed=seed,
                cuts=cuts,
                mac_bytes_per_cycle=port_rate(link.gbps, self.period_ps, width) if paced else 0.0,
                memory_bytes_per_cycle=port_rate(memory_gbps, self.period_ps, widest) if memory_gbps else 0.0,
                watchdog=_NEVER if endless else _WATCHDOG + longest_wait,
                hosts=hosts,
                independent_hosts=independent_hosts,
                watch=watch,
                quiet_cycles=quiet_cycles,
                endless=endless,
                memory_latency=memory_latency,
                memory_repeats=memory_repeats,
                hbm=hbm,
                event_mask=_ALL_EVENTS,
                event_limit=events,
                trace=folder / "events" if events else None,
                pcap=pcap,
                link_log=link_log,
            )
            result = self._run(request, progress, keep)
            writes = [any(port.writes for port in node_ports.memories) for node_ports in ports]
            contents = functools.cache(lambda path: np.fromfile(path, np.uint8))
            result.memories = [
                [contents(path) for path in paths] if is_written else []
                for paths, is_written in zip(files, writes, strict=True)
            ]
        return result

    def _run(
        self,
        request: RunRequest,
        progress: Callable[[Progress], None] | None,
        keep: Callable[[RunResult], None] | None,
    ) -> RunResult:
        """Run the request, and record the part of the waveform that falls into this run."""
        if (wave := self._wave) is None:
            return self.simulator.run(request, progress=progress, keep=keep)
        window = wave.next_window()
        result: RunResult | None = None
        try:
            request = replace(request, wave=(window, wave.path) if window else None)
            result = self.simulator.run(request, progress=progress, keep=keep)
            return result
        except SimulationFailed as failure:
            result = failure.result
            raise
        finally:
            if result:
                wave.count_run(result.cycles, result.recorded)


def _write(
    folder: Path, memories: Iterable[Iterable[npt.NDArray | Path]], nodes: int, nodes_per_memory: int
) -> list[list[Path]]:
    """Write a file per memory, per node. Contents are taken one by one, so generators can save memory."""
    files: list[list[Path]] = []
    for host, contents in enumerate(memories):
        paths: list[Path] = []
        for number, content in enumerate(contents):
            if isinstance(content, Path):
                paths.append(content.absolute())
                continue
            paths.append(folder / f"memory{host}_{number}")
            write_memory(paths[-1], content)
        files += [paths] * nodes_per_memory
    empty = folder / "empty"
    empty.touch()
    return files + [[empty]] * (nodes - len(files))


class Reads:
    """Words that a host program has read, taken in the order of the batches that read them."""

    def __init__(self, words: Words):
        self._words: list[int] = words.tolist()

    def take(self, batch: Batch) -> list[Value]:
        """Return the values of the next batch's reads. Raises ValueError if the program stopped earlier."""
        count = sum(operation.data is None for operation in batch.operations)
        words, self._words = self._words[:count], self._words[count:]
        return batch.results(words)

    def remaining(self) -> list[int]:
        """Return the words that no batch has taken."""
        return self._words


def check_identities(driver: BaseDriver, reads: Iterable[Words]) -> None:
    """Raise ValueError unless programs that begin with ``driver.identify()`` have found the driver's node."""
    for words in reads:
        driver.check_identity(Reads(words).take(driver.identify()))
