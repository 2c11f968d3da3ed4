"""Files that may be compressed, as scikit-learn's loader takes them: by the name's end."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

_OPENERS: dict[str, Callable[[Path, str], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def open_bytes(path: Path) -> IO[bytes]:
    """The file's content, unpacked."""
    opened: IO[bytes] = _OPENERS.get(path.suffix, open)(path, "rb")
    return opened


def kind_of(path: Path) -> str:
    """The end of the name that says what is in it: ``.csv`` of ``data.csv.gz``."""
    return (path.with_suffix("") if path.suffix in _OPENERS else path).suffix.lower()
