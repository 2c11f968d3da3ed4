"""What a board says of itself, and its addresses."""

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
    """Which board it is, which build, and its addresses until the host gives it others."""

    board: int
    build: int
    mac: int
    ip: int

    @classmethod
    def of(cls, board: Board, *, number: int, build: int) -> Identity:
        """The identity of board ``number`` of a cluster: that worker's addresses."""
        own = worker_endpoint(number)
        return cls(board=board.number, build=build, mac=own.mac, ip=own.ip)

    def as_json(self) -> dict[str, Any]:
        """The identity, by field."""
        return asdict(self)


def build_number(*what: Any) -> int:
    """A number of 32 bits that is another for other sources of fanin or another of ``what``."""
    digest = hashlib.sha256(repr(what).encode())
    for name, path in source_files():
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return int.from_bytes(digest.digest()[: BUILD_BITS // 8], "big")
