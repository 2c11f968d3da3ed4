"""fanin: generate and co-simulate the hardware and switch program of a distributed-training system.

The functions of this module are described in docs/reference/python.md. ``__init__.pyi`` has their types.
"""

import importlib
import time
from typing import Any

from fanin.base.errors import CheckFailed, InputError

__version__ = "0.1.0"
#: Time at which this process began to load fanin; newer sources may differ from the code that runs.
LOADED = time.time()

#: Names loaded on first use, and their modules: NumPy and Amaranth take seconds.
_LAZY = {
    "aggregate": "fanin.api.aggregate",
    "cluster": "fanin.api.cluster",
    "cluster_build": "fanin.api.cluster",
    "components": "fanin.api.emit",
    "compress": "fanin.api.codec",
    "decompress": "fanin.api.codec",
    "emit": "fanin.api.emit",
    "emit_p4": "fanin.api.emit",
    "plan": "fanin.api.plan",
    "ps_train": "fanin.api.param_server",
    "ring_train": "fanin.api.ring",
    "train": "fanin.api.train",
}
__all__ = ["CheckFailed", "InputError", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fanin' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
