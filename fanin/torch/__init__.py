"""PyTorch: a process group and hooks that give a training the NICs' bits; a CNN's training in binary64.

``Options`` describes the hardware of the process group; ``time()`` returns the time that its collectives would
take on that hardware (docs/systems/torch-backend.md).
"""

import importlib
from typing import Any

BACKEND = "fanin"  #: name for ``init_process_group``

#: Names loaded on first use, because every ``import torch`` imports this package (``autoload``).
_LAZY = {
    "Options": "fanin.torch.options",
    "time": "fanin.torch.timing",
}
__all__ = ["BACKEND", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fanin.torch' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value
