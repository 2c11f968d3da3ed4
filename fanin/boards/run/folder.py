"""The folder of a board's build: what ``fanin board build`` writes and the other parts read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.base.records import Record
from fanin.runs.output import Kind, open_kind

BOARD_FILE, REPORT_FILE, BITSTREAM_FILE, PROJECT = "board.json", "report.json", "top.bit", "project"
BOARDS_SUFFIX = ".toml"  #: of a file that names builds; fanin rerun reads it by that
GLM, SHELL = NODES = ("glm", "shell")  # what can be asked for
SEED, NUMBER = 1, 0  # unless they are said; the options are None then, as not every board takes them
BLOCK, SDRAM = MEMORY = ("block", "sdram")  # where a build's samples and labels lie
BOARD_BUILD = Kind(
    "build",
    BOARD_FILE,
    "board",
    (REPORT_FILE, BITSTREAM_FILE, PROJECT),
    results=(BOARD_FILE, REPORT_FILE, BITSTREAM_FILE, f"{PROJECT}/*.v", f"{PROJECT}/*.il"),
    apart=("fanin", "seconds", "tools"),
)


@dataclass(frozen=True)
class BoardBuild:
    """A build that is there."""

    folder: Path
    record: Record

    @property
    def project(self) -> Path:
        """What the tools were given and what they made."""
        return self.folder / PROJECT

    @property
    def memory(self) -> str:
        """Of ``MEMORY``; a build that does not say has block RAM."""
        return self.record.text("memory") if "memory" in self.record.value else BLOCK

    @property
    def l2(self) -> bool:
        """Whether its node's weights can decay; those of a build that does not say cannot."""
        return bool(self.record.value.get("l2", False))


def open_build(folder: Path) -> BoardBuild:
    """The build of a folder. Raises InputError where there is none."""
    return BoardBuild(folder, open_kind(folder, BOARD_BUILD, "fanin board build"))
