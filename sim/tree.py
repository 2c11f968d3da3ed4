"""Trees of switches in the network simulation (docs/systems/trees.md)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fanin.link import LinkConfig
from fanin.sim.network import Link, Network, Reception
from fanin.sim.switch.base import Delivery, Switch
from fanin.tree import Tree
from fanin.wire.ethernet import Endpoint

Capture = Callable[[bytes, int], None]


class SwitchTree:
    """Programs of a tree's switches, each with its part of the job installed.

    - ``tree``: switches with their members.
    - ``switches``: the programs, in the order of ``tree.switches``.
    """

    def __init__(self, tree: Tree, make: Callable[[int, Endpoint], Switch]):
        self.tree = tree
        self.switches = [make(1 + max(each.ports), each.endpoint) for each in tree.switches]
        for switch, each in zip(self.switches, tree.switches, strict=True):
            switch.add_job(each.part)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each switch and of its part of the job, by the switch's name."""
        return {
            each.name: switch.counters().as_dict() | switch.job_counters(each.part.id).as_dict()
            for each, switch in zip(self.tree.switches, self.switches, strict=True)
        }


class TreeNetwork(Network):
    """A tree of switches with a link for each worker and each switch below the root.

    A port of the network is a worker. The links between switches have seeds of their own, and the properties of
    the workers' links where the tree has none of theirs.

    - ``captures``: per switch, called as ``capture`` of :class:`Network`; empty: no captures.
    - ``cuts``: time in ps from which both directions of a link drop every frame, by worker, or by name of a
      switch for its link to its parent.
    """

    def __init__(
        self,
        *,
        tree: SwitchTree,
        link: LinkConfig,
        captures: Sequence[Capture] = (),
        seed: int = 0,
        cuts: Mapping[int | str, int] | None = None,
        **settings: Any,
    ):
        workers = len(tree.tree.workers)
        self._cuts = dict(cuts or {})
        of_workers = {name: self._cuts[name] for name in self._cuts if isinstance(name, int)}
        super().__init__(
            switch=tree.switches[0], ports=workers, link=link, seed=seed, cuts=of_workers, **settings
        )
        self._programs, self._switches = tree.switches, tree.tree.switches
        self._captures = list(captures)
        numbers = {each.name: number for number, each in enumerate(self._switches)}
        #: By entry: the switch and its port. Entries are the workers, then both ends of the links of switches.
        self._entries: list[tuple[int, int]] = [(0, 0)] * workers
        self._exits: dict[tuple[int, int], int] = {}  # by switch and port: the entry at the other end
        self._sources: dict[int, int] = {}  # by entry: the switch that sends to it
        self._trunks: dict[int, Link] = {}  # by entry: the link that leads to it
        self._trunk_names: dict[int, str] = {}
        for switch, each in enumerate(self._switches):
            for member, name in zip(each.part.members, each.members, strict=True):
                if isinstance(name, int):
                    self._entries[name], self._exits[switch, member.port] = (switch, member.port), name
                    self._sources[name] = switch
                else:
                    self._connect(switch, member.port, numbers[name], name, seed)

    def _connect(self, parent: int, port: int, child: int, name: str, seed: int) -> None:
        """Add both directions of the link between two switches."""
        uplink = self._switches[child].part.uplink
        assert uplink is not None
        ends = (("up", (child, uplink.port), (parent, port)), ("down", (parent, port), (child, uplink.port)))
        for direction, source, target in ends:
            entry = len(self._entries)
            self._entries.append(target)
            self._exits[source], self._sources[entry] = entry, source[0]
            link = self._switches[child].trunk(self.up[0].config)
            self._trunks[entry] = Link(link, f"{seed} {direction} {name}")
            self._trunks[entry].cut_at = self._cuts.get(name)
            self._trunk_names[entry] = f"{name} {direction}"

    def _inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        switch, switch_port = self._entries[port]
        self._record(frame, time, switch)
        if port < len(self.first_arrival) and self.first_arrival[port] is None:
            self.first_arrival[port] = time
        answers = self._programs[switch].inject(switch_port, frame, time)
        # A flooded frame also leaves at ports without a link.
        linked = (delivery for delivery in answers if (switch, delivery[0]) in self._exits)
        return [(self._exits[switch, out], answer, at) for out, answer, at in linked]

    def _send_down(self, port: int, frame: bytes, time: int) -> list[Reception]:
        """Send a frame to a worker, or to the switch at an entry."""
        self._record(frame, time, self._sources[port])
        if port < len(self.down):
            return [Reception(port, arrival) for arrival in self.down[port].send(frame, time)]
        for arrival in self._trunks[port].send(frame, time):
            if not arrival.error:
                heapq.heappush(self._arriving, (arrival.time, next(self._order), port, arrival.frame))
        return []

    def trunk_statistics(self) -> dict[str, dict[str, int]]:
        """Return the counters of each direction of the links between switches, such as ``switch-0 up``."""
        return {name: asdict(self._trunks[entry].statistics) for entry, name in self._trunk_names.items()}
