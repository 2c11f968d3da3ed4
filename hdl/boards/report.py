"""Report of nextpnr's place and route for an ECP5: clocks, worst paths, resources used, also by Component."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import parse_json
from fanin.hdl.boards.build import ROUTED, TIMING
from fanin.hdl.boards.clocks import TX_MHZ

#: Resources to count, by nextpnr's name for a cell of an ECP5.
RESOURCES = {
    "TRELLIS_COMB": "LUT4",
    "TRELLIS_FF": "flip-flops",
    "DP16KD": "block RAMs",
    "MULT18X18D": "multipliers",
}
DEPTH = 3  # names of a Component's path in a table
#: Suffix that yosys adds to a signal's name for each cell: ``mac.rx_store.place_TRELLIS_FF_Q_2`` is signal
#: ``place`` of ``mac.rx_store``.
_CELL_SUFFIX = re.compile(r"_(?:TRELLIS|LUT4|PFUMX|L6MUX|CCU2C|DP16KD|MULT|DPR16|\$).*$|\$.*$")


@dataclass(frozen=True)
class Clock:
    """Clock domain with its required and its achieved frequency."""

    domain: str
    required_mhz: float
    achieved_mhz: float

    @property
    def is_met(self) -> bool:
        """True if the required frequency is achieved."""
        return self.achieved_mhz >= self.required_mhz

    @property
    def slack_ns(self) -> float:
        """Slack of a period in ns; negative if the required frequency is missed."""
        return 1000 / self.required_mhz - 1000 / self.achieved_mhz


@dataclass(frozen=True)
class TimingPath:
    """Worst path of a clock: the registers at its ends, named as Components do, and its delays in ns."""

    domain: str
    start: str
    end: str
    logic_ns: float
    routing_ns: float
    levels: int

    def __str__(self) -> str:
        total = self.logic_ns + self.routing_ns
        return (
            f"{self.start} -> {self.end} ({self.domain}): {total:.1f} ns, "
            f"{self.logic_ns:.1f} in {self.levels} cells and {self.routing_ns:.1f} on wires"
        )


@dataclass(frozen=True)
class PlacementReport:
    """Report of place and route: clocks, worst paths and resources."""

    clocks: tuple[Clock, ...]
    paths: tuple[TimingPath, ...]
    used: Mapping[str, tuple[int, int]]  #: resources used and available
    components: Mapping[str, Mapping[str, int]]  #: resources used, by Component

    def as_json(self) -> dict[str, Any]:
        """Return the report for report.json."""
        return {
            "clocks": {
                clock.domain: {
                    "asked_mhz": clock.required_mhz,
                    "reached_mhz": round(clock.achieved_mhz, 2),
                    "slack_ns": round(clock.slack_ns, 3),
                }
                for clock in self.clocks
            },
            "used": {name: {"used": used, "of": available} for name, (used, available) in self.used.items()},
            "components": self.components,
            "paths": [str(path) for path in self.paths],
        }


def domain_of(net: str) -> str:
    """Return the clock domain of a clock's net, from the net's name in nextpnr, which contains Amaranth's name.

    The domain ``rx`` has the net ``….rx_clk``, or ``rx_reset.async_ff_clk`` at its reset's synchroniser.
    """
    *path, name = net.split()[-1].removeprefix("$glbnet$").split(".")
    if name == "async_ff_clk" and path:
        return path[-1].removesuffix("_reset")
    return "sync" if name == "clk" else name.removesuffix("_clk")


def component_of(cell: str) -> str:
    """Return the part of a cell's name before yosys's suffix: the Component's path, and the signal in it."""
    return _CELL_SUFFIX.sub("", cell.replace("\\", ""))


def read_report(folder: Path, core_mhz: float) -> PlacementReport:
    """Read nextpnr's report of a build with a core clock of ``core_mhz``. Raises InputError if it is missing.

    Each clock is compared with its frequency on the board, not with nextpnr's constraint, which may be missing.
    A clock without a known name is compared with the fastest of these frequencies.
    """
    try:
        timing = parse_json((folder / TIMING).read_text())
        modules = parse_json((folder / ROUTED).read_text())["modules"]
        return _placement_report(timing, modules, {"rx": float(TX_MHZ), "tx": float(TX_MHZ), "sync": core_mhz})
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; fanin board build writes it") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{folder}: nextpnr's report cannot be read ({error})") from None


def _placement_report(
    timing: dict[str, Any], modules: dict[str, Any], required_mhz: Mapping[str, float]
) -> PlacementReport:
    """Return the report from nextpnr's JSON: ``timing``, and the routed ``modules``, of which there is one."""
    fastest = max(required_mhz.values())
    clocks = tuple(
        Clock(domain, required_mhz.get(domain, fastest), figures["achieved"])
        for name, figures in timing["fmax"].items()
        if (domain := domain_of(name))
    )
    (top,) = modules.values()
    return PlacementReport(
        clocks=clocks,
        paths=tuple(_paths(timing["critical_paths"])),
        used={
            title: (timing["utilization"][name]["used"], timing["utilization"][name]["available"])
            for name, title in RESOURCES.items()
        },
        components=_by_component(top["cells"]),
    )


def _paths(paths: list[dict[str, Any]]) -> list[TimingPath]:
    """Return the worst path within each domain; paths between two domains have no requirement."""
    worst_paths = []
    for path in paths:
        if path["from"] != path["to"]:
            continue
        parts = path["path"]
        routing = sum(part["delay"] for part in parts if part["type"] == "routing")
        logic = sum(part["delay"] for part in parts if part["type"] != "routing")
        worst_paths.append(
            TimingPath(
                domain=domain_of(path["from"]),
                start=component_of(parts[0]["from"]["cell"]),
                end=component_of(parts[-1]["to"]["cell"]),
                logic_ns=logic,
                routing_ns=routing,
                levels=sum(part["type"] == "logic" for part in parts),
            )
        )
    return worst_paths


def _by_component(cells: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the number of cells of each resource, by the first ``DEPTH`` names of their Component's path."""
    cells_by_path: dict[str, Counter[str]] = defaultdict(Counter)
    for name, cell in cells.items():
        title = RESOURCES.get(cell["type"])
        if title:
            *path, _ = component_of(name).split(".")
            cells_by_path[".".join(path[:DEPTH]) or "top"][title] += 1
    return {name: dict(counts) for name, counts in sorted(cells_by_path.items())}
