"""The page of a cluster's file, from the planner's tables of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fanin.cnn.layers.family import family, family_names
from fanin.planner.cluster import FILE_FIELDS, MAX_DEVICES, RAM_FIELDS, FileField, part_tables

CLUSTER_FILE = """# The file of a cluster

Generated from `planner/cluster.py` by `docs/generate.py`: fields of the TOML file that `fanin plan` takes as
CLUSTER ([example](../systems/nada.md#model-and-cluster)). The top level has `host`, the name of the device at
the host (default: the first), and tables `[[device]]` for 1 to {most} devices. A named `part` also gives
required fields:

{fields}

Tables of `ram`:

{ram}

Kinds of blocks: {kinds}. A family that is missing needs its costs in
`fanin/cnn/layers/costs.toml`.

## Shipped parts

{parts}
"""


def cluster_file_page(markdown: Callable[[list[list[str]]], str]) -> str:
    """Return docs/reference/cluster-file.md; ``markdown`` makes a table of rows, the first one its head."""

    def table(fields: Mapping[str, FileField]) -> str:
        rows = [["field", "unit", "default", "meaning"]]
        rows += [[f"`{n}`", f.unit, f.default or "**required**", f.meaning] for n, f in fields.items()]
        return markdown(rows)

    kinds = [f"{name}: {', '.join(f'`{kind.name}`' for kind in family(name).ram)}" for name in family_names()]
    shown = [name for name in FILE_FIELDS if any(name in part for part in part_tables().values())]
    rows = [["part", *(f"`{name}`" for name in shown)]]
    for name, part in part_tables().items():
        rows.append([f"`{name}`", *(_value(part.get(field, "–")) for field in shown)])
    return CLUSTER_FILE.format(
        most=MAX_DEVICES,
        fields=table(FILE_FIELDS),
        ram=table(RAM_FIELDS),
        kinds="; ".join(kinds),
        parts=markdown(rows),
    )


def _value(value: Any) -> str:
    """Return a value of a shipped part: blocks of memory by kind, numbers with separators."""
    if isinstance(value, list):
        return ", ".join(f"{entry['blocks']:,} {entry['kind']}" for entry in value)
    return f"{value:,}" if isinstance(value, int) else str(value)
