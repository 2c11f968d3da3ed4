"""Identity of a board, and its addresses."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from fanin.hdl.boards.board import Board
from fanin.hdl.emission import source_files
from fanin.job import worker_endpoint

BUILD_BITS = 32


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Kind of board, build, and the addresses that hold until the host sets others."""

    board: int
    build: int
    mac: int
    ip: int

    @classmethod
    def of(cls, board: Board, *, number: int, build: int) -> Identity:
        """Return the identity of board ``number`` of a cluster, with that worker's addresses."""
        endpoint = worker_endpoint(number)
        return cls(board=board.number, build=build, mac=endpoint.mac, ip=endpoint.ip)

    def as_json(self) -> dict[str, Any]:
        """Return the identity by field."""
        return asdict(self)


def build_number(*inputs: Any) -> int:
    """Return a 32-bit number that depends on fanin's sources and on ``inputs``."""
    digest = hashlib.sha256(repr(inputs).encode())
    for name, path in source_files():
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[: BUILD_BITS // 8], "big")
