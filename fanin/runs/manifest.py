"""Manifest ``.files.json`` of a folder: list of the files that fanin has written. fanin deletes no others."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from fanin.base.interrupts import deferred_interrupts
from fanin.base.plain import folder_below, mode_of
from fanin.base.records import read_object
from fanin.base.scratch import write_file

MANIFEST_FILE = ".files.json"
_MAX_DEPTH, _MAX_NAME_BYTES = 16, 255  # of a path in the manifest
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)  # absent, behind a link, or a folder


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

    def with_files(self, names: Iterable[str]) -> Manifest:
        """Return the manifest with these files added."""
        return Manifest(self.mark, (*self.files, *sorted(set(names) - set(self.files))))


def read_manifest(folder: Path | int) -> Manifest | None:
    """Return the manifest of a folder, given by path or descriptor; None if the folder has none.

    A manifest that names a file outside the folder counts as none.
    """
    if isinstance(folder, int):
        value = read_object(MANIFEST_FILE, folder=folder)
    else:
        value = read_object(folder / MANIFEST_FILE)
    match value:
        case {"mark": str(mark), "files": list(files)} if all(map(is_inside, files)):
            return Manifest(mark, tuple(files))
    return None


def list_files(folder: Path, names: Iterable[str]) -> None:
    """Add files of ``folder`` to its manifest, before they are written. Raises InputError.

    A class folder of a run uses the manifest of the run's folder. Without a manifest, nothing is written.
    """
    for root in (folder, *folder.parents[1:2]):
        if manifest := read_manifest(root):
            added = manifest.with_files((folder / name).relative_to(root).as_posix() for name in names)
            if added != manifest:
                added.write(root)
            return


def replace_files(folder: Path | int, source: Path, mark: str) -> None:
    """Delete the files in ``folder``'s manifest, then move all of ``source`` into ``folder``. Raises OSError.

    ``source`` must be complete before the call. A link in the place of a file or folder of ``source`` is
    replaced; the link's target stays, also if the link appears during the call. If a folder is in the place of
    a file, or a file in the place of a folder, the function raises before it deletes anything. An interrupt
    waits until all files are moved.

    - ``folder``: path or descriptor.
    """
    paths = [file.relative_to(source).as_posix() for file in source.rglob("*") if not file.is_dir()]
    files = sorted(name for name in paths if name != MANIFEST_FILE)
    check_places(folder, files)
    with deferred_interrupts(), folder_below(folder) as root:
        if earlier := read_manifest(root):
            _delete_listed(root, earlier)
        Manifest(mark, tuple(files)).write(source)
        for name in (MANIFEST_FILE, *sorted(files, key=lambda name: name == mark)):
            *parents, file_name = PurePosixPath(name).parts
            with folder_below(root, *parents, create=True) as parent:
                os.replace(source / name, file_name, dst_dir_fd=parent)
        for subfolder in filter(Path.is_dir, source.rglob("*")):  # also the empty ones
            make_folder(root, subfolder.relative_to(source).as_posix())


def make_folder(folder: Path | int, name: str) -> None:
    """Create a folder below ``folder``. Links in its place and on the way to it are replaced. Raises OSError.

    - ``folder``: path or descriptor.
    """
    with folder_below(folder, *PurePosixPath(name).parts, create=True):
        pass


def delete_files(folder: Path) -> bool:
    """Delete the files in a folder's manifest, the mark first, and then the folder if it is empty.

    Return whether there is a manifest; without one, nothing is deleted. Raises OSError, also for a link.
    """
    with folder_below(folder.parent, folder.name) as root:
        manifest = read_manifest(root)
        if manifest is None:
            return False
        _delete_listed(root, manifest)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(MANIFEST_FILE, dir_fd=root)
    with contextlib.suppress(OSError):  # holds files of others
        folder.rmdir()
    return True


def check_places(folder: Path | int, names: Iterable[str]) -> None:
    """Raise OSError if a folder is in the place of one of the files, or a file in the place of its folder."""
    for name in names:
        if stat.S_ISDIR(_mode(folder, name)):
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
        for parent in _folders(name):
            mode = _mode(folder, parent)
            if mode and not stat.S_ISLNK(mode) and not stat.S_ISDIR(mode):
                raise NotADirectoryError(errno.ENOTDIR, f"{parent} is a file")


def _mode(folder: Path | int, name: str) -> int:
    return mode_of(name, folder) if isinstance(folder, int) else mode_of(folder / name)


def _delete_listed(folder: int, manifest: Manifest) -> None:
    """Delete the files of a manifest, the mark first, and then their empty folders."""
    for name in sorted(manifest.files, key=lambda name: name != manifest.mark):
        *parents, file_name = PurePosixPath(name).parts
        try:
            with folder_below(folder, *parents) as parent_folder:
                os.unlink(file_name, dir_fd=parent_folder)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
    empty = {parent for name in manifest.files for parent in _folders(name)}
    for parent in sorted(empty, key=lambda path: path.count("/"), reverse=True):
        *parents, file_name = PurePosixPath(parent).parts
        with contextlib.suppress(OSError), folder_below(folder, *parents) as parent_folder:
            os.rmdir(file_name, dir_fd=parent_folder)  # OSError: holds other files, is absent or a link


def is_inside(name: object) -> bool:
    """Whether ``name`` is a normalised path to a file below a folder, within the limits of depth and length."""
    if not isinstance(name, str):
        return False
    path = PurePosixPath(name)
    if not path.name or path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name:
        return False
    try:
        return len(path.parts) <= _MAX_DEPTH and all(
            len(part.encode()) <= _MAX_NAME_BYTES for part in path.parts
        )
    except UnicodeEncodeError:
        return False


def _folders(name: str) -> list[str]:
    """Return the folders on the way to a file, topmost first."""
    return [parent.as_posix() for parent in reversed(PurePosixPath(name).parents) if parent.name]
