"""Boards as a user builds them, and what their builds say."""

import json
from dataclasses import dataclass
from pathlib import Path

from fanin.boards.run.folder import BOARD_FILE, PROJECT
from fanin.cli.main import main
from fanin.hdl.boards.board import Board, find_board
from fanin.sim.boards.board import BoardConfig
from fanin.sim.boards.model import BoardModel
from fanin.sim.boards.setup import board_config, project_model
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import Endpoint
from tests.needs import require


@dataclass(frozen=True)
class Built:
    """The folder of ``fanin board build``; picklable."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / PROJECT

    @property
    def board(self) -> Board:
        return find_board(self._said["board"])

    @property
    def control(self) -> Endpoint:
        """Where its control answers."""
        return Endpoint(self._said["identity"]["mac"], self._said["identity"]["ip"], CONTROL_PORT)

    @property
    def _said(self) -> dict:
        return json.loads((self.folder / BOARD_FILE).read_text())

    def model(self, *, routed: bool) -> BoardModel:
        return project_model(self.project, routed=routed)

    def config(self, *, routed: bool = True, ppm: float = 0.0, phase_ps: int = 1234, **options) -> BoardConfig:
        return board_config(self.board, self.model(routed=routed), ppm=ppm, phase_ps=phase_ps, **options)


def build(arguments: str, folder: Path) -> Built:
    """``fanin board build`` with these arguments; skips where there is no nextpnr."""
    require("nextpnr")
    assert main(["board", "build", *arguments.split(), "-o", str(folder)]) == 0
    return Built(folder)
