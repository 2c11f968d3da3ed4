"""Cluster of devices on which layers are placed: shipped parts, and files in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import read_toml
from fanin.cnn.layers.family import Family, RamKind, family, family_names
from fanin.cnn.layers.logic import device_luts

MAX_DEVICES = 64
MAX_NUMBER = 1 << 48  # limit of all counts
PRIORITIES = 8  # priorities of Ethernet's priority flow control (IEEE 802.1Qbb)
GIGA, MEGA, GIB = 10**9, 10**6, 1 << 30


@dataclass(frozen=True)
class Part:
    """Type of device: its resources. Rates are in bits per second, per direction."""

    family: Family
    dsp: int
    luts: int | None  #: None if not limited
    ram_bits: int | None  #: None if only blocks are counted
    ram_blocks: tuple[int, ...] | None  #: per kind of ``family.ram``; None if only bits are counted
    dram_bytes: int | None  #: None if not limited
    dram: int  #: rate of the DRAM; 0 without DRAM
    network: int  #: rate of the network port; 0 without one
    clock: int  #: frequency in Hz
    connections: int  #: P, the maximum number of connections; each has a priority of its own below P

    @cached_property
    def available_luts(self) -> int | None:
        """LUTs for layers and connections: all except the device's fixed logic; None if not limited."""
        return None if self.luts is None else max(self.luts - device_luts(self.family, 0), 0)


@dataclass(frozen=True)
class Device:
    """Device of a cluster: a part with a name."""

    name: str
    part: Part


@dataclass(frozen=True)
class Cluster:
    """Cluster of devices."""

    name: str
    devices: tuple[Device, ...]
    host: int = 0  #: index of the device to which the host is attached

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Distinct parts of the devices, in order of appearance."""
        return tuple(dict.fromkeys(device.part for device in self.devices))

    def first(self, count: int) -> Cluster:
        """Return a cluster of ``count`` devices: the host's, and the first of the others.

        Raises InputError unless ``count`` is from 1 to the number of devices.
        """
        if not 1 <= count <= len(self.devices):
            raise InputError(f"{self.name}: has {len(self.devices)} devices, not {count}")
        others = [i for i in range(len(self.devices)) if i != self.host][: count - 1]
        indices = sorted([self.host, *others])
        return Cluster(self.name, tuple(self.devices[i] for i in indices), indices.index(self.host))


@cache
def part_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of `parts.toml`, the shipped parts, by name."""
    return tomllib.loads(resources.files("fanin.planner").joinpath("parts.toml").read_text("utf-8"))


def load_cluster(name: str) -> Cluster:
    """Load a cluster. ``name``: PARTxN for N devices of a shipped part, or a TOML file.

    Raises InputError that names file, device and field.
    """
    try:
        return _load(name)
    except InputError as error:
        raise InputError(" ".join(str(error).splitlines())) from None


def _load(name: str) -> Cluster:
    match = re.fullmatch(r"(.+)x([0-9]+)", name)
    if match and match[1] in part_tables():
        count = int(match[2]) if len(match[2]) < 10 else 0
        if not 1 <= count <= MAX_DEVICES:
            raise InputError(f"{name}: a cluster has 1…{MAX_DEVICES} devices, not {match[2]}")
        part = _part(match[1], part_tables()[match[1]])
        return Cluster(name, tuple(Device(f"fpga{n}", part) for n in range(count)))
    path = Path(name)
    if path.suffix != ".toml":
        parts = ", ".join(f"{part}xN" for part in part_tables())
        raise InputError(f"{name}: must be a .toml file or one of {parts}")
    return _cluster(name, read_toml(path))


def _cluster(file: str, table: Mapping[str, Any]) -> Cluster:
    _check_fields(file, "", table, {"host", "device"})
    tables = table.get("device")
    if not isinstance(tables, list) or not tables or not all(isinstance(entry, dict) for entry in tables):
        raise InputError(f"{file}: no [[device]]")
    devices: list[Device] = []
    for number, entry in enumerate(tables):
        location = f"{file}: device {entry.get('name', number)}"
        count = _integer(location, "count", entry.get("count", 1), low=1)
        part = _part(location, entry)
        name = entry.get("name", f"fpga{len(devices)}" if count == 1 else "fpga")
        _check_name(location, "name", name)
        if len(devices) + count > MAX_DEVICES:
            raise InputError(f"{location}: count: a cluster has at most {MAX_DEVICES} devices")
        devices += [Device(name if count == 1 else f"{name}{len(devices) + k}", part) for k in range(count)]
    names = [device.name for device in devices]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{file}: name: two devices are called {name}")
    host = table.get("host", names[0])
    if host not in names:
        raise InputError(f"{file}: host: no device is called {host!r}")
    return Cluster(Path(file).stem, tuple(devices), names.index(host))


@dataclass(frozen=True)
class FileField:
    """Field of a table ``device`` of a cluster's file, as docs/reference/cluster-file.md lists it."""

    unit: str
    meaning: str
    default: str | None = None  #: value of a missing field in words; None: ``part`` or the table must give it


FILE_FIELDS: Mapping[str, FileField] = {
    "name": FileField("text", "name; with `count`, the device's index in the cluster follows", "`fpga`, index"),
    "count": FileField("devices", "number of equal devices", "1"),
    "part": FileField("text", "shipped part, which gives each field that the table omits", "none"),
    "family": FileField("text", f"costs of operators and memories: {', '.join(family_names())}"),
    "dsp": FileField("DSP blocks", "blocks for operators; on ECP5 multipliers of 18 bits"),
    "luts": FileField("LUTs", "fixed logic of the device is subtracted", "no limit"),
    "ram": FileField("list of tables", "memory in blocks; this, `ram_bits` or both are required", "no limit"),
    "ram_bits": FileField("bits", "memory in bits", "no limit"),
    "dram_gib": FileField("GiB", "size of the DRAM", "no limit"),
    "dram_gbps": FileField("Gb/s, each way", "rate of the DRAM; 0 without DRAM"),
    "network_gbps": FileField("Gb/s, each way", "rate of the network port; 0 without one"),
    "clock_mhz": FileField("MHz", "clock of the layers, equal on all devices of a build"),
    "connections": FileField("connections", f"cut edges that may end at the device: 0…{PRIORITIES}"),
}
RAM_FIELDS: Mapping[str, FileField] = {
    "blocks": FileField("blocks", "number of blocks"),
    "kind": FileField("text", "a kind of the family, or a name of your own", "`ram`, index"),
    "shapes": FileField("pairs", "each depth and width of a block, `[[512, 36], …]`", "those of the kind"),
    "from_bits": FileField("bits", "least memory that uses the kind; 0 for one kind", "the kind's; 0"),
}
_REQUIRED_FIELDS = tuple(name for name, field in FILE_FIELDS.items() if field.default is None)


def _part(location: str, entry: Mapping[str, Any]) -> Part:
    """Return the part of a table. A shipped ``part``, if named, supplies missing fields."""
    base: Mapping[str, Any] = {}
    if "part" in entry:
        if entry["part"] not in list(part_tables()):
            raise InputError(f"{location}: part: no {entry['part']!r}; parts are {', '.join(part_tables())}")
        base = part_tables()[entry["part"]]
    if {"ram", "ram_bits"} & set(entry):  # replaces both fields of the shipped part
        base = {key: value for key, value in base.items() if key not in ("ram", "ram_bits")}
    _check_fields(location, "", entry, set(FILE_FIELDS))
    table = {**base, **entry}
    for field in _REQUIRED_FIELDS:
        if field not in table:
            raise InputError(f"{location}: {field} is missing")
    if not {"ram", "ram_bits"} & set(table):
        raise InputError(f"{location}: ram_bits is missing (or ram, in blocks)")
    if table["family"] not in family_names():
        raise InputError(
            f"{location}: family: no {table['family']!r}; families are {', '.join(family_names())}"
        )
    part_family, blocks = _ram(location, family(table["family"]), table.get("ram"))
    connections = _integer(location, "connections", table["connections"])
    if connections > PRIORITIES:
        raise InputError(f"{location}: connections: Ethernet has {PRIORITIES} priorities, not {connections}")
    return Part(
        family=part_family,
        dsp=_integer(location, "dsp", table["dsp"]),
        luts=_integer(location, "luts", table["luts"]) if "luts" in table else None,
        ram_bits=_integer(location, "ram_bits", table["ram_bits"]) if "ram_bits" in table else None,
        ram_blocks=blocks,
        dram_bytes=_scaled(location, "dram_gib", table["dram_gib"], GIB) if "dram_gib" in table else None,
        dram=_scaled(location, "dram_gbps", table["dram_gbps"], GIGA),
        network=_scaled(location, "network_gbps", table["network_gbps"], GIGA),
        clock=_scaled(location, "clock_mhz", table["clock_mhz"], MEGA, low=1),
        connections=connections,
    )


def _ram(location: str, part_family: Family, entries: object) -> tuple[Family, tuple[int, ...] | None]:
    """Return the family with this device's kinds of block, and the number of blocks per kind."""
    if entries is None:
        return part_family, None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{location}: ram must be a list of tables with blocks, and kind or shapes")
    kinds: list[RamKind] = []
    counts = []
    for entry in entries:
        _check_fields(location, "ram: ", entry, set(RAM_FIELDS))
        if "blocks" not in entry:
            raise InputError(f"{location}: ram: blocks is missing")
        counts.append(_integer(location, "ram: blocks", entry["blocks"]))
        kinds.append(_ram_kind(location, part_family, entry, len(kinds)))
    order = sorted(range(len(kinds)), key=lambda i: kinds[i].from_bits)
    if kinds[order[0]].from_bits:
        raise InputError(f"{location}: ram: one kind must take memories of any size (from_bits = 0)")
    for field in ("name", "from_bits"):
        values = [getattr(kind, field) for kind in kinds]
        if duplicates := [value for value in values if values.count(value) > 1]:
            label = "kind" if field == "name" else field
            raise InputError(f"{location}: ram: two entries have {label} = {duplicates[0]!r}")
    return replace(part_family, ram=tuple(kinds[i] for i in order)), tuple(counts[i] for i in order)


def _ram_kind(location: str, part_family: Family, entry: Mapping[str, Any], number: int) -> RamKind:
    """Return a kind of the family, or another kind with the given ``shapes``."""
    name = entry.get("kind", f"ram{number}")
    _check_name(location, "ram: kind", name)
    kinds = {kind.name: kind for kind in part_family.ram}
    if name not in kinds and "shapes" not in entry:
        raise InputError(f"{location}: ram: kind must be one of {', '.join(kinds)} (or give shapes)")
    kind = kinds.get(name, RamKind(name, 0, ()))
    from_bits = _integer(location, "ram: from_bits", entry.get("from_bits", kind.from_bits))
    if "shapes" not in entry:
        return replace(kind, from_bits=from_bits)
    shapes = entry["shapes"]
    if not isinstance(shapes, list) or not shapes:
        raise InputError(f"{location}: ram: shapes must be a list of [depth, width]")
    for shape in shapes:
        if not isinstance(shape, list) or len(shape) != 2:
            raise InputError(f"{location}: ram: a shape is [depth, width], not {shape!r}")
        _integer(location, "ram: depth", shape[0], low=1)
        _integer(location, "ram: width", shape[1], low=1)
    return RamKind(name, from_bits, tuple((depth, width) for depth, width in shapes))


def _check_name(location: str, field: str, name: object) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,64}", name):
        raise InputError(f"{location}: {field} must be up to 64 letters, digits, _ . or -, not {name!r}")


def _check_fields(location: str, prefix: str, table: Mapping[str, Any], fields: set[str]) -> None:
    for field in table:
        if field not in fields:
            raise InputError(
                f"{location}: {prefix}there is no field {field} (fields: {', '.join(sorted(fields))})"
            )


def _integer(location: str, field: str, value: object, *, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < MAX_NUMBER:
        raise InputError(
            f"{location}: {field} must be an integer in {low}…{MAX_NUMBER - 1}, not {_number_text(value)}"
        )
    return value


def _number_text(value: object) -> str:
    huge = isinstance(value, int) and abs(value) >= 1 << 64  # Python refuses to print huge integers in decimal
    return f"{value:#x}" if huge else repr(value)


def _scaled(location: str, field: str, value: object, scale: int, *, low: int = 0) -> int:
    """Return a field's number times ``scale``, rounded. Raises InputError for an invalid number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low / scale <= value < 1e6:
        bound = "above 0" if low else "of at least 0"
        raise InputError(
            f"{location}: {field} must be a number {bound} and below 1000000, not {_number_text(value)}"
        )
    return round(Fraction(str(value)) * scale)
