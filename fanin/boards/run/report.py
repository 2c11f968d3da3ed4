"""Text report of place and route."""

from __future__ import annotations

from typing import Any

from fanin.runs.output import table


def report_text(placement: Any) -> str:
    """Return the report as text: clocks, used resources, components and worst paths."""
    clocks = [["clock", "asked", "reached", "slack"]]
    for clock in placement.clocks:
        requested, achieved = (f"{mhz:.1f} MHz" for mhz in (clock.required_mhz, clock.achieved_mhz))
        clocks.append(
            [clock.domain, requested, achieved, f"{clock.slack_ns:.2f} ns{'' if clock.is_met else ' MISSED'}"]
        )
    used = [["", "used", "of", ""]]
    for name, (count, available) in placement.used.items():
        used.append([name, f"{count:,}", f"{available:,}", f"{100 * count / available:.0f} %"])
    titles = list(placement.used)
    parts = [["Component", *titles]]
    for name, counts in placement.components.items():
        parts.append([name, *(f"{counts.get(title, 0):,}" for title in titles)])
    worst = "\n".join(f"  {path}" for path in placement.paths)
    return "\n\n".join(
        [
            table(clocks, right=range(1, 4)),
            table(used, right=range(1, 4)),
            table(parts, right=range(1, 1 + len(titles))),
            f"worst paths\n{worst}",
        ]
    )
