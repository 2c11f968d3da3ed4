"""Results that the same command reproduces: their SHA-256s, and the first difference between two files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fanin.base.plain import MAX_FILE_BYTES, open_regular, read_regular
from fanin.base.records import parse_json
from fanin.runs.manifest import MANIFEST_FILE, read_manifest
from fanin.runs.output import PROVENANCE_FILE, Kind
from fanin.runs.provenance.inputs import file_digest

_ABSENT = object()
_MAX_VALUE_CHARACTERS = 40
_PART_BYTES = 1 << 20  # of a file that is compared byte by byte


def results_of(folder: Path, kind: Kind, outside: Mapping[str, Path] | None = None) -> dict[str, str]:
    """Return the SHA-256 of each result by its name. JSON is hashed without the fields ``kind.ignored``.

    - ``outside``: paths of results outside the folder, by name.
    """
    files = {str(file.relative_to(folder)): file for file in _files(folder, kind)}
    files |= {name: path for name, path in (outside or {}).items() if path.is_file()}
    return {name: result_digest(path, kind.ignored) for name, path in files.items()}


def result_digest(path: Path, ignored: Sequence[str]) -> str:
    """Return the SHA-256 of a file.

    JSON of at most ``MAX_FILE_BYTES`` is hashed by value, sorted by name, without the fields ``ignored``.
    """
    if not _is_short_json(path):
        return file_digest(path)
    return hashlib.sha256(json.dumps(_values(path, ignored), sort_keys=True).encode()).hexdigest()


def difference(original: Path, rerun: Path, ignored: Sequence[str]) -> str:
    """Return the first difference between two files of a result, in words; empty if they are the same.

    Raises ValueError for a file whose content does not match its suffix, or is too large when unpacked.
    """
    if _is_short_json(original) and _is_short_json(rerun):
        return _first_value(_values(original, ignored), _values(rerun, ignored))
    if original.suffix in (".npz", ".npy"):
        return _first_array(original, rerun)
    return _first_byte(original, rerun)


def _is_short_json(path: Path) -> bool:
    """Whether a file's values are compared; a longer file's bytes are, in parts."""
    return path.suffix == ".json" and path.stat().st_size <= MAX_FILE_BYTES


def _files(folder: Path, kind: Kind) -> Iterator[Path]:
    manifest = read_manifest(folder)  # None in a new folder, which holds only fanin's files
    for pattern in kind.results:
        for path in sorted(folder.glob(pattern)):
            is_ours = manifest is None or path.relative_to(folder).as_posix() in manifest.files
            if path.is_file() and is_ours and path.name not in (PROVENANCE_FILE, MANIFEST_FILE):
                yield path


def _values(path: Path, ignored: Sequence[str]) -> Any:
    """Return the content of a JSON file without the fields ``ignored``."""
    content = parse_json(read_regular(path))
    for field in ignored:
        *outer, last = field.split(".")
        parent = content
        for name in outer:
            parent = parent.get(name) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent.pop(last, None)
    return content


def _first_value(before: Any, after: Any, place: str = "") -> str:
    """Describe the first place at which two JSON values differ; empty if they are equal."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = {f"{place}.{name}" if place else name: name for name in {**before, **after}}
        pairs = [(path, before.get(name, _ABSENT), after.get(name, _ABSENT)) for path, name in names.items()]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{place}[{n}]", *pair) for n, pair in enumerate(zip(before, after, strict=True))]
    elif before == after and type(before) is type(after):
        return ""
    else:
        return f"{place} was {_value_text(before)}, is {_value_text(after)}"
    return next((text for path, was, now in pairs if (text := _first_value(was, now, path))), "")


def _value_text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


def _first_array(before: Path, after: Path) -> str:
    import numpy as np

    from fanin.base.archive import read_archive, read_array

    def arrays(path: Path) -> dict[str, Any]:
        return {"": read_array(path)} if path.suffix == ".npy" else read_archive(path)

    original_arrays, rerun_arrays = arrays(before), arrays(after)
    for name in {**original_arrays, **rerun_arrays}:
        prefix = f"{name}: " if name else ""
        if name not in original_arrays or name not in rerun_arrays:
            return f"{prefix}{'is missing' if name in original_arrays else 'was absent'}"
        original_array, rerun_array = original_arrays[name], rerun_arrays[name]
        if (original_array.shape, original_array.dtype) != (rerun_array.shape, rerun_array.dtype):
            kinds = [f"{array.dtype} of shape {array.shape}" for array in (original_array, rerun_array)]
            return f"{prefix}was {kinds[0]}, is {kinds[1]}"
        words = [
            np.frombuffer(array.tobytes(), f"V{array.itemsize}") for array in (original_array, rerun_array)
        ]
        if len(different := np.flatnonzero(words[0] != words[1])):
            index = ", ".join(str(n) for n in np.unravel_index(different[0], original_array.shape))
            return (
                f"{prefix}{len(different):,} of {original_array.size:,} values differ, the first is [{index}]"
            )
    return "the arrays are the same, their archives are not" if _first_byte(before, after) else ""


def _first_byte(before: Path, after: Path) -> str:
    """Describe the first byte at which two files differ; empty if they are equal."""
    position = 0
    with open_regular(before) as original, open_regular(after) as rerun:
        while (was := original.read(_PART_BYTES)) == (now := rerun.read(_PART_BYTES)):
            if not was:
                return ""
            position += len(was)
    pairs = enumerate(zip(was, now, strict=False))
    first = position + next((n for n, (byte, other) in pairs if byte != other), min(len(was), len(now)))
    was_size, now_size = before.stat().st_size, after.stat().st_size
    sizes = f"; {was_size:,} bytes then, {now_size:,} now" if was_size != now_size else ""
    return f"byte {first:,} is the first that differs{sizes}"
