"""What the readers of files share. A file may be compressed, which its name says, as for scikit-learn."""

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


def number_in(text: str) -> float | None:
    """The number that a field is, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None
