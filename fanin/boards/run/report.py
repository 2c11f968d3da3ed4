"""Text report of place and route."""

from __future__ import annotations

from typing import Any

from fanin.runs.output import table


def report_text(placed: Any) -> str:
    """Return the report as text: clocks, used resources, components and worst paths."""
    clocks = [["clock", "asked", "reached", "slack"]]
    for clock in placed.clocks:
        asked, reached = (f"{mhz:.1f} MHz" for mhz in (clock.required_mhz, clock.achieved_mhz))
        clocks.append(
            [clock.domain, asked, reached, f"{clock.slack_ns:.2f} ns{'' if clock.is_met else ' MISSED'}"]
        )
    used = [["", "used", "of", ""]]
    for name, (count, there) in placed.used.items():
        used.append([name, f"{count:,}", f"{there:,}", f"{100 * count / there:.0f} %"])
    titles = list(placed.used)
    parts = [["Component", *titles]]
    for name, counts in placed.components.items():
        parts.append([name, *(f"{counts.get(title, 0):,}" for title in titles)])
    worst = "\n".join(f"  {path}" for path in placed.paths)
    return "\n\n".join(
        [
            table(clocks, right=range(1, 4)),
            table(used, right=range(1, 4)),
            table(parts, right=range(1, 1 + len(titles))),
            f"worst paths\n{worst}",
        ]
    )
