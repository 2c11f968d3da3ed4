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
    """Return the class of each kind of layer by the kind's name, sorted by name."""
    for module in pkgutil.iter_modules(layers.__path__, f"{layers.__name__}."):
        importlib.import_module(module.name)
    classes = {cls.kind: cls for cls in _subclasses(Layer) if "kind" in vars(cls)}
    return dict(sorted(classes.items()))


def _subclasses(cls: type[Layer]) -> Iterator[type[Layer]]:
    """Yield all direct and indirect subclasses from this folder."""
    for subclass in cls.__subclasses__():
        if subclass.__module__.startswith(f"{layers.__name__}."):
            yield subclass
        yield from _subclasses(subclass)
