"""Folder of a board's build, which ``fanin board build`` writes and the other parts read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.base.records import Record
from fanin.runs.output import Kind, open_kind

BOARD_FILE, REPORT_FILE, BITSTREAM_FILE, PROJECT = "board.json", "report.json", "top.bit", "project"
BOARDS_SUFFIX = ".toml"  #: suffix of a boards file, which names builds; fanin rerun detects the file by it
GLM, SHELL = NODES = ("glm", "shell")  # values of --node
SEED, NUMBER = 1, 0  # defaults; the options themselves default to None, as not every board takes them
BLOCK, SDRAM = MEMORY = ("block", "sdram")  # memory of a build's samples and labels
BOARD_BUILD = Kind(
    "build",
    BOARD_FILE,
    "board",
    (REPORT_FILE, BITSTREAM_FILE, PROJECT),
    results=(BOARD_FILE, REPORT_FILE, BITSTREAM_FILE, f"{PROJECT}/*.v", f"{PROJECT}/*.il"),
    ignored=("fanin", "seconds", "tools"),
)


@dataclass(frozen=True)
class BoardBuild:
    """Existing build of a board: its folder and its ``board.json``."""

    folder: Path
    record: Record

    @property
    def project(self) -> Path:
        """Folder of the tools' input and output files."""
        return self.folder / PROJECT

    @property
    def memory(self) -> str:
        """Memory of the build, one of ``MEMORY``; block RAM if ``board.json`` has no such field."""
        return self.record.text("memory") if "memory" in self.record.value else BLOCK

    @property
    def l2(self) -> bool:
        """Whether the node has weight decay; False if ``board.json`` has no such field."""
        return bool(self.record.value.get("l2", False))

    @property
    def sparse(self) -> bool:
        """Whether the node is sparse; False if ``board.json`` has no such field."""
        return bool(self.record.value.get("sparse", False))


def open_build(folder: Path) -> BoardBuild:
    """Open the build in a folder. Raises InputError if the folder holds none."""
    return BoardBuild(folder, open_kind(folder, BOARD_BUILD, "fanin board build"))
