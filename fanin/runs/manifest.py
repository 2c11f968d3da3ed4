"""``.files.json``: the files of a folder that fanin has written. fanin deletes no other file of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from fanin.base.records import read_object
from fanin.base.scratch import write_file

MANIFEST_FILE = ".files.json"
_DEPTH, _LONGEST = 16, 255  # folders of a name, bytes of each


@dataclass(frozen=True)
class Manifest:
    """Content of ``.files.json``.

    - ``mark``: name of the file that describes the folder. fanin writes it last and deletes it first.
    - ``files``: paths, relative to the folder, of all files that fanin has written or is about to write.
    """

    mark: str
    files: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the manifest of a folder."""
        write_file(folder / MANIFEST_FILE, json.dumps(asdict(self), indent=1) + "\n")

    def added(self, names: Iterable[str]) -> Manifest:
        """Return the manifest with these files added."""
        return Manifest(self.mark, (*self.files, *sorted(set(names) - set(self.files))))


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if the folder has none.

    A manifest that names a file outside the folder counts as none.
    """
    match read_object(folder / MANIFEST_FILE):
        case {"mark": str(mark), "files": list(files)} if all(map(_is_inside, files)):
            return Manifest(mark, tuple(files))
    return None


def list_files(folder: Path, names: Iterable[str]) -> None:
    """Add files of ``folder`` to its manifest, before they are written. Raises InputError.

    A class folder of a run uses the manifest of the run's folder. Without a manifest, nothing is written.
    """
    for top in (folder, *folder.parents[1:2]):
        if manifest := read_manifest(top):
            added = manifest.added((folder / name).relative_to(top).as_posix() for name in names)
            if added != manifest:
                added.write(top)
            return


def replace_files(folder: Path, source: Path, mark: str) -> None:
    """Delete the files in ``folder``'s manifest, then move all of ``source`` into ``folder``. Raises OSError.

    ``source`` must be complete before the call. A link in the place of a file or folder of ``source`` is
    replaced; the link's target stays. If a folder is in the place of a file, or a file in the place of a
    folder, the function raises before it deletes anything.
    """
    files = [file.relative_to(source).as_posix() for file in source.rglob("*") if not file.is_dir()]
    check_places(folder, files)
    if before := read_manifest(folder):
        _delete_listed(folder, before)
    Manifest(mark, tuple(sorted(files))).write(folder)
    for name in sorted(files, key=lambda name: name == mark):
        _make_folders(folder, PurePosixPath(name).parent)
        os.replace(source / name, folder / name)
    for empty in (each for each in source.rglob("*") if each.is_dir()):
        _make_folders(folder, PurePosixPath(empty.relative_to(source)))


def delete_files(folder: Path) -> bool:
    """Delete the files in a folder's manifest, the mark first, and then the folder if it is empty.

    Return whether there is a manifest; without one, nothing is deleted. Raises OSError.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    _delete_listed(folder, manifest)
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # holds files of others
        folder.rmdir()
    return True


def check_places(folder: Path, names: Iterable[str]) -> None:
    """Raise OSError if a folder is in the place of one of the files, or a file in the place of its folder."""
    for name in names:
        place = folder / name
        if place.is_dir() and not place.is_symlink():
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
        for each in _folders(folder, PurePosixPath(name).parent):
            if os.path.lexists(each) and not each.is_symlink() and not each.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{each.relative_to(folder)} is a file")


def _delete_listed(folder: Path, manifest: Manifest) -> None:
    """Delete the files of a manifest, the mark first, and then their empty folders."""
    for name in sorted(manifest.files, key=lambda name: name != manifest.mark):
        place = folder / name
        linked = any(each.is_symlink() for each in _folders(folder, PurePosixPath(name).parent))
        if not linked and (place.is_symlink() or not place.is_dir()):
            place.unlink(missing_ok=True)
    parents = {parent for name in manifest.files for parent in PurePosixPath(name).parents if parent.name}
    for parent in sorted(parents, key=lambda each: len(each.parts), reverse=True):
        with contextlib.suppress(OSError):  # holds other files, is absent or a link
            (folder / parent).rmdir()


def _is_inside(name: object) -> bool:
    """Whether ``name`` is a normalised path to a file below a folder, within the limits of depth and length."""
    if not isinstance(name, str):
        return False
    path = PurePosixPath(name)
    if not path.name or path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name:
        return False
    try:
        return len(path.parts) <= _DEPTH and all(len(part.encode()) <= _LONGEST for part in path.parts)
    except UnicodeEncodeError:
        return False


def _folders(folder: Path, parent: PurePosixPath) -> Iterator[Path]:
    """Yield the folders below ``folder`` down to ``folder / parent``, topmost first."""
    for place in reversed([parent, *parent.parents]):
        if place.name:
            yield folder / place


def _make_folders(folder: Path, parent: PurePosixPath) -> None:
    for place in _folders(folder, parent):
        if place.is_symlink():
            place.unlink()
        place.mkdir(exist_ok=True)
