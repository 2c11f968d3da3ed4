"""fanin/__init__.pyi: types of what ``import fanin`` gives; of runs, from the tables of their options."""

from __future__ import annotations

import inspect

import fanin
from fanin.api.signature import stub


def stub_text() -> str:
    """The file."""
    functions = {name: getattr(fanin, name) for name in fanin._LAZY}
    runs = {name: function for name, function in functions.items() if hasattr(function, "__signature__")}
    given = {name: module for name, module in fanin._LAZY.items() if name not in runs}
    for name, function in runs.items():
        results = inspect.signature(function).return_annotation
        given |= dict.fromkeys(results.split(" | "), fanin._LAZY[name])
    given |= dict.fromkeys(("CheckFailed", "InputError"), "fanin.base.errors")
    lines = [
        "# Written by docs/generate.py; functions of runs from the tables of their options.",
        *sorted(
            [
                "from fanin.api.folder import PathLike, Repeatable",
                "from fanin.api.samples import Samples",
                *(f"from {module} import {name} as {name}" for name, module in given.items()),
            ]
        ),
        "",
        "__version__: str",
        "LOADED: float",
        "",
        *(stub(function) for function in runs.values()),
    ]
    return "\n".join(lines) + "\n"
