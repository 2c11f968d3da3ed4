"""Registry of all kinds of layer: each class of this folder that defines ``kind``. New files need no entry."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

from fanin.cnn import layers
from fanin.cnn.layers.layer import Layer


@cache
def layer_kinds() -> Mapping[str, type[Layer]]:
    """Return the class of each kind by name, in the order of names."""
    for module in pkgutil.iter_modules(layers.__path__, f"{layers.__name__}."):
        importlib.import_module(module.name)
    found = {cls.kind: cls for cls in _below(Layer) if "kind" in vars(cls)}
    return dict(sorted(found.items()))


def _below(cls: type[Layer]) -> Iterator[type[Layer]]:
    """Yield all direct and indirect subclasses from this folder."""
    for found in cls.__subclasses__():
        if found.__module__.startswith(f"{layers.__name__}."):
            yield found
        yield from _below(found)
