"""Files written beside the program: a dissector, PTF tests, and Tofino's control script."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fanin.p4.aggregation import ProgramConfig, controls, state_registers
from fanin.p4.control import Exact, TableEntry, Ternary
from fanin.p4.deployment import FECS, SPEEDS, Deployment
from fanin.p4.installation import (
    Installation,
    job_installation,
    station_installation,
    switch_installation,
)
from fanin.p4.printer import environment
from fanin.wire import aggregation as wire
from fanin.wire import ethernet
from fanin.wire.aggregation import Encap, Kind
from fanin.wire.fields import Field, byte_length

_HEADERS = {
    "ethernet": ethernet.ETHERNET,
    "ipv4": ethernet.IPV4,
    "udp": ethernet.UDP,
    "aggregation": wire.AGGREGATION,
}


def _render(template: str, config: ProgramConfig, **names: Any) -> str:
    return (
        environment()
        .get_template(template)
        .render(
            config=config,
            udp=config.encap is Encap.UDP,
            ethertype=f"{wire.ETHERTYPE_AGGREGATION:#06x}",
            **names,
        )
    )


def proto_fields(header: Sequence[Field], *, hexadecimal: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return a header's fields for the dissector's template; Wireshark reads at least 8 bits, under a mask.

    - ``hexadecimal``: names of the fields that are displayed in hexadecimal.
    - ``names`` in a result: the template's Lua table with the texts of the field's values, or ``nil``.
    """
    fields, bit = [], 0
    for field in header:
        width = max(8, field.bits)
        mask = ((1 << field.bits) - 1) << (width - field.bits - bit % 8) if field.bits < 8 else None
        fields.append(
            {
                "name": field.name,
                "width": width,
                "base": "HEX" if field.name in hexadecimal else "DEC",
                "names": "kinds" if field.name == "kind" else "nil",
                "mask": f"{mask:#x}" if mask else "nil",
                "offset": bit // 8,
            }
        )
        bit += field.bits
    return fields


def dissector(config: ProgramConfig) -> str:
    """Return a Wireshark dissector in Lua for raw Ethernet and UDP."""
    fields = proto_fields(wire.AGGREGATION, hexadecimal=("bitmap",))
    return _render(
        "dissector.lua.j2",
        config,
        fields=fields,
        at={field["name"]: field["offset"] for field in fields},
        kinds=list(Kind),
        header=byte_length(wire.AGGREGATION),
        version=wire.VERSION,
        udp_port=ethernet.UDP_PORT,
    )


def ptf_tests(config: ProgramConfig) -> str:
    """Return tests for p4lang's packet test framework; they read the ``job.json`` of their parent folder."""
    size = wire.header_length(config.encap) + wire.payload_length(config.values)
    return _render(
        "ptf.py.j2",
        config,
        layouts={name: tuple((f.name, f.bits) for f in fields) for name, fields in _HEADERS.items()},
        kinds=list(Kind),
        version=wire.VERSION,
        ipv4=f"{ethernet.ETHERTYPE_IPV4:#06x}",
        ip_protocol=ethernet.IP_PROTOCOL_UDP,
        malformed_kinds=tuple(kind for kind in range(16) if kind not in (*config.kinds, *config.answers)),
        cut=size - 1,
    )


def installations(config: ProgramConfig, deployment: Deployment) -> list[Installation]:
    """Return all installations of a fresh switch; jobs take places in their order."""
    stations = {(s.endpoint.mac, s.port) for job in deployment.jobs for s in job.stations}
    return [
        switch_installation(config, [port.number for port in deployment.ports]),
        *(job_installation(config, job, n, deployment.switch) for n, job in enumerate(deployment.jobs)),
        *(station_installation(mac, port) for mac, port in sorted(stations)),
    ]


def bfruntime_script(config: ProgramConfig, deployment: Deployment) -> str:
    """Return a script for Tofino's ``bfshell`` that installs ports, groups and entries."""
    all_installations = installations(config, deployment)
    entries = list(itertools.chain.from_iterable(i.entries for i in all_installations))
    max_priority = max(entry.priority for entry in entries)
    groups = [group for installation in all_installations for group in installation.groups]
    return _render(
        "bfrt.py.j2",
        config,
        speeds=SPEEDS,
        fecs=FECS,
        ports=[(port.number, port.speed, port.fec) for port in deployment.ports],
        groups=[(g.id, [(r.port, r.id, r.exclusion) for r in g.replicas]) for g in groups],
        registers=list(state_registers(config)),
        entries=[_bfruntime_entry(config, entry, max_priority) for entry in entries],
    )


def _bfruntime_entry(
    config: ProgramConfig, entry: TableEntry, max_priority: int
) -> tuple[str, str, dict, dict]:
    """Convert an entry for BFRuntime: the smallest priority number wins, and each ternary key has a mask."""
    table = next(
        table
        for control in controls(config)
        for table in control.tables
        if f"{control.name}.{table.name}" == entry.table
    )
    keys: dict[str, int] = {}
    for key in table.keys:
        match = entry.match.get(key.name, Ternary(0, 0))
        assert isinstance(match, Exact | Ternary)  # the only kinds of keys in the program
        keys[key.name] = match.value
        if isinstance(match, Ternary):
            keys[f"{key.name}_mask"] = match.mask
    if entry.priority:
        keys["MATCH_PRIORITY"] = max_priority - entry.priority
    return entry.table, entry.action.rpartition(".")[2], keys, dict(entry.parameters)
