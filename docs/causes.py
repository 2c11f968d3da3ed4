"""docs/reference/causes.md: causes of failures that nodes report, with what helps."""

from __future__ import annotations

from collections.abc import Callable

from fanin.host.causes import CAUSES

HEAD = """# Causes of failures

Generated from `fanin/host/causes.py` by `docs/generate.py`. Nodes report these causes in their registers.
Drivers, commands, `run.json` and `fanin doctor` name them in these words.
"""


def causes_page(markdown: Callable[[list[list[str]]], str]) -> str:
    """The page. ``markdown``: makes a table."""
    parts = [HEAD]
    for causes in CAUSES.values():
        rows = [["cause", "what happened", "what helps"]]
        rows += [[member.name, each.fault, each.remedy] for member, each in causes.members.items() if each]
        parts.append(f"\n## {causes.title[0].upper()}{causes.title[1:]}\n\n{markdown(rows)}\n")
    return "".join(parts)
