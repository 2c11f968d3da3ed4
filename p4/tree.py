"""A fabric's file, ``TREE.toml``: the switches of an aggregation tree, their members and links
(docs/systems/trees.md, "A fabric's file").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import Record, read_toml
from fanin.job import JOBS, SLOTS, Job, Member, Uplink
from fanin.link import TRUNK, LinkConfig
from fanin.p4.aggregation import MAX_JOBS, ProgramConfig
from fanin.p4.deployment import Deployment, Port, read_endpoint, read_port
from fanin.tree import MAX_LEVELS, Tree, TreeSwitch
from fanin.wire.aggregation import MAX_WORKERS
from fanin.wire.ethernet import UDP_PORT, Endpoint

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")  # also of a file


def load_tree(path: Path) -> Tree:
    """Read a fabric's file.

    Workers are numbered in the order in which the file reaches them from the root. Raises InputError that names
    the file, the switch and the cause.
    """
    record = Record(str(path), "", read_toml(path))
    job, base, slots = (record.integer(name, high=high) for name, high in _JOB.items())
    switches = record.record("switch")
    entries = {name: switches.record(name) for name in switches.value}
    for name in entries:
        if not _NAME.fullmatch(name):
            raise switches.error(f"{name!r} must be up to 32 letters, digits, _ and -")
    fabric = _Fabric(entries, {name: _switch_endpoint(entry) for name, entry in entries.items()})
    record.build(lambda: Job(job, base, slots, (Member(0, 1, Endpoint(2, 0)),)))
    tree = Tree(tuple(fabric.part(name, job, base, slots) for name in fabric.order(record)))
    _check_addresses(tree, record)
    record.finish()
    return tree


def _check_addresses(tree: Tree, record: Record) -> None:
    """Raise InputError for a MAC or an IP address that two have; the IP address 0.0.0.0 is none."""
    owners: dict[tuple[str, int], str] = {}
    for name, endpoint in tree.endpoints.items():
        for kind, address in (("mac", endpoint.mac), ("ip", endpoint.ip)):
            other = owners.setdefault((kind, address), name)
            if other != name and (address or kind == "mac"):
                raise record.error(f"{other} and {name} have the same {kind}")


_JOB = {"job": JOBS, "base": SLOTS, "slots": SLOTS + 1}  # fields of the whole tree, with their limits


def deployments(tree: Tree, jobs: int = 1, program: ProgramConfig | None = None) -> dict[str, Deployment]:
    """Return the deployment of each switch, by its name; its ports are those of the tree.

    - ``jobs``: number of jobs with all workers, whose ids and slots follow one another.
    - ``program``: program of all switches, if known.

    Raises ValueError for no job, for more jobs than a switch runs, and for ids and slots out of range.
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise ValueError(f"jobs must be in 1…{MAX_JOBS}, not {jobs!r}")
    first = tree.root.part
    trees = [
        tree.with_job(first.id + number, first.base + number * first.slots, first.slots)
        for number in range(jobs)
    ]
    return {
        each.name: Deployment(
            each.endpoint,
            tuple(map(Port, each.ports)),
            tuple(other.switches[index].part for other in trees),
            program,
        )
        for index, each in enumerate(tree.switches)
    }


def check_udp(tree: Tree, path: Path) -> None:
    """Raise InputError for a station that cannot have its packets in UDP over IPv4. ``path``: of the file."""
    given = f"--encap udp: --tree {path}"
    for name, endpoint in tree.endpoints.items():
        if not endpoint.ip:
            raise InputError(f"{given}: {name} has no ip")
        if endpoint.port != UDP_PORT:
            raise InputError(
                f"{given}: udp_port of {name} must be {UDP_PORT}, not {endpoint.port}: a worker sends and "
                "receives at the switch's port"
            )


def _switch_endpoint(entry: Record) -> Endpoint:
    endpoint = read_endpoint(entry)
    if endpoint.port != UDP_PORT:
        raise entry.error(f'"udp_port" must be {UDP_PORT}, where the program aggregates, not {endpoint.port}')
    return endpoint


def _link(entry: Record) -> dict[str, Any]:
    """Return the settings of a switch's link to its parent that the file has. Raises InputError."""
    if "link" not in entry.value:
        return {}
    record = entry.record("link")
    settings: dict[str, Any] = {name: float(record.number(name)) for name in TRUNK if name in record.value}
    record.build(lambda: LinkConfig(**settings))
    return settings


class _Fabric:
    """Switches of a file: ``entries`` and ``endpoints`` by name."""

    def __init__(self, entries: Mapping[str, Record], endpoints: Mapping[str, Endpoint]):
        self._entries, self._endpoints = entries, endpoints
        self._members = {name: entry.records("members") for name, entry in entries.items()}
        self._parents: dict[str, tuple[str, int]] = {}  # by switch: its parent, and its bit there
        self._workers = count()
        for name, members in self._members.items():
            self._read_members(name, members)

    def order(self, record: Record) -> list[str]:
        """Return the switches below the root in the order of the file, the root first."""
        roots = [name for name in self._entries if name not in self._parents]
        if len(roots) != 1:
            found = (
                f"{', '.join(roots)} are nobody's members" if roots else "each is another's member, in a loop"
            )
            raise record.error(f"a tree must have one root: {found}")
        order = list(self._below(roots[0], 1))
        reached = set(order)
        if loop := [name for name in self._entries if name not in reached]:
            raise record.error(f"a tree must have no loop: {', '.join(loop)} cannot be reached from {roots[0]}")
        return order

    def part(self, name: str, job: int, base: int, slots: int) -> TreeSwitch:
        """Return a switch with its part of the job."""
        entry, uplink = self._entries[name], None
        if name in self._parents:
            parent, bit = self._parents[name]
            uplink = Uplink(read_port(entry, "uplink"), 1 << bit, self._endpoints[parent])
        elif given := entry.value.keys() & {"uplink", "link"}:
            raise entry.error(f'"{max(given)}" leads to a parent, and the root has none')
        members, names = [], list[int | str]()
        for place, member in enumerate(self._members[name]):
            below = member.text("switch") if "switch" in member.value else None
            endpoint = self._endpoints[below] if below else read_endpoint(member)
            members.append(Member(read_port(member), 1 << self._bit(member, place), endpoint))
            names.append(below or next(self._workers))
        ports = [*(member.port for member in members), *([uplink.port] if uplink else [])]
        if twice := [port for port in ports if ports.count(port) > 1]:
            raise entry.error(f"port {twice[0]} is used twice")
        part = entry.build(lambda: Job(job, base, slots, tuple(members), uplink))
        return TreeSwitch(name, self._endpoints[name], part, tuple(names), _link(entry))

    def _read_members(self, name: str, members: list[Record]) -> None:
        """Note the parents of the switches among the members."""
        entry = self._entries[name]
        if not 1 <= len(members) <= MAX_WORKERS:
            raise entry.error(f"must have 1 to {MAX_WORKERS} members, not {len(members)}")
        bits = [self._bit(member, place) for place, member in enumerate(members)]
        if twice := [bit for bit in bits if bits.count(bit) > 1]:
            raise entry.error(f"bit {twice[0]} is used twice")
        for member, bit in zip(members, bits, strict=True):
            if "switch" not in member.value:
                continue
            below = member.text("switch")
            if below not in self._entries:
                raise member.error(f"there is no switch {below!r}")
            if below in self._parents:
                raise member.error(f"switch {below!r} is also a member of {self._parents[below][0]!r}")
            self._parents[below] = (name, bit)

    def _bit(self, member: Record, place: int) -> int:
        return member.integer("bit", high=MAX_WORKERS) if "bit" in member.value else place

    def _below(self, name: str, level: int) -> Iterator[str]:
        if level > MAX_LEVELS:
            raise self._entries[name].error(f"is at level {level}; a tree has at most {MAX_LEVELS}")
        yield name
        for member in self._members[name]:
            if "switch" in member.value:
                yield from self._below(member.text("switch"), level + 1)
