"""Files that may be compressed, as scikit-learn's loader takes them: by the name's end."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import IO

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open}


def open_bytes(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    """The file's content, unpacked."""
    return _OPENERS.get(path.suffix, open)(path, "rb")


def kind_of(path: Path) -> str:
    """The end of the name that says what is in it: ``.csv`` of ``data.csv.gz``."""
    return (path.with_suffix("") if path.suffix in _OPENERS else path).suffix.lower()
