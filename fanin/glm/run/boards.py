"""Reader of the file that ``fanin train --on`` names: boards, their addresses, their flashed builds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.records import Record, read_toml
from fanin.boards.facts import MEMORIES
from fanin.boards.memory import memory_of
from fanin.boards.run.folder import BOARDS_SUFFIX, SDRAM, open_build
from fanin.glm.facts import PRESETS
from fanin.hdl.boards.board import find_board
from fanin.sim.glm.boards import BoardAddress


@dataclass(frozen=True)
class BoardCluster:
    """Boards of a run, in order of workers, and their equal nodes.

    - ``preset``: sizes of the nodes.
    - ``l2``: whether their weights can decay.
    - ``sparse``: whether they take sparse samples.
    """

    preset: str
    l2: bool
    sparse: bool
    addresses: tuple[BoardAddress, ...]


def read_boards(path: Path) -> BoardCluster:
    """Read the file: a table ``board`` per worker with ``host`` and ``build``, the folder of its build.

    Relative folders start at the file's own folder. Raises InputError that names file and place.
    """
    if path.suffix != BOARDS_SUFFIX:
        raise InputError(f"{path}: is no {BOARDS_SUFFIX} file")
    record = Record(str(path), "", read_toml(path))
    boards = [_board(board, path.parent) for board in record.records("board")]
    record.finish()
    if not boards:
        raise InputError(f"{path}: names no board")
    addresses, presets, decays, sparse = zip(*boards, strict=True)
    hosts = [address.host for address in addresses]
    if duplicates := sorted({host for host in hosts if hosts.count(host) > 1}):
        raise InputError(f"{path}: two boards have the address {duplicates[0]}")
    if len(set(presets)) > 1:
        raise InputError(
            f"{path}: all boards must have nodes of one preset, not {', '.join(sorted(set(presets)))}"
        )
    if len(set(decays)) > 1:
        raise InputError(f"{path}: either all boards or none must be built with --l2")
    if len(set(sparse)) > 1:
        raise InputError(f"{path}: either all boards or none must be built with --sparse")
    return BoardCluster(presets[0], decays[0], sparse[0], addresses)


def _board(record: Record, folder: Path) -> tuple[BoardAddress, str, bool, bool]:
    host = record.text("host")
    build = open_build(folder / record.text("build"))
    preset = build.record.optional_text("preset")
    if preset is None:
        raise record.error(f"{build.folder} is a shell without a node")
    if preset not in MEMORIES:
        raise record.error(f"{build.folder} has the node {preset}, which is not controlled by UDP")
    sdram = find_board(build.record.text("board")).sdram if build.memory == SDRAM else None
    identity = build.record.record("identity")
    address = BoardAddress(
        host=host,
        board=identity.integer("board"),
        build=identity.integer("build"),
        core_mhz=float(build.record.number("core_mhz")),
        memory=memory_of(replace(PRESETS[preset], sparse=build.sparse), sdram),
    )
    return address, preset, build.l2, build.sparse
