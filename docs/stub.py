"""fanin/__init__.pyi: types of what ``import fanin`` gives; of runs, from the tables of their options."""

from __future__ import annotations

import fanin
from fanin.api.signature import stub
from fanin.cli.ring.options import RingOptions
from fanin.cli.train.options import GlmOptions
from fanin.runs.option import Options

#: Functions of runs: the table of their options, and the result.
RUNS: dict[str, tuple[type[Options], str]] = {
    "ring_train": (RingOptions, "RingRun"),
    "train": (GlmOptions, "TrainRun"),
}


def stub_text() -> str:
    """The file."""
    given = {RUNS[name][1] if name in RUNS else name: module for name, module in fanin._LAZY.items()}
    given |= dict.fromkeys(("CheckFailed", "InputError"), "fanin.errors")
    lines = [
        "# Written by docs/generate.py; functions of runs from the tables of their options.",
        *sorted(
            [
                "from fanin.api.commands import PathLike, Repeatable",
                *(f"from {module} import {name} as {name}" for name, module in given.items()),
            ]
        ),
        "",
        "__version__: str",
        "LOADED: float",
        "",
        *(stub(name, table, result) for name, (table, result) in RUNS.items()),
    ]
    return "\n".join(lines) + "\n"
