"""Compilation of the program for its target by p4c, if installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from fanin.base.errors import ToolFailed
from fanin.base.interrupts import deferred_interrupts
from fanin.base.scratch import as_input_error, delete, delete_leftovers, scratch_prefix
from fanin.p4.aggregation import ProgramConfig, Target

LIMIT = 600  # seconds; Tofino's backend takes a few
COMPILERS = {Target.V1MODEL: "p4c-bm2-ss", Target.TNA: "p4c-barefoot"}


def find_compiler(target: Target) -> str | None:
    """Return the path of p4c's backend for the target, or None if it is not installed."""
    return shutil.which(COMPILERS[target])


def compile_program(config: ProgramConfig, directory: Path) -> list[Path]:
    """Compile ``directory/aggregation.p4``; return the outputs, or an empty list if p4c is not installed.

    Outputs are the configuration and P4Info for BMv2, and the folder of the compiler's output for Tofino. They
    replace earlier ones once the compiler has ended. Raises ToolFailed with the compiler's first error, and
    InputError if the outputs cannot be written.
    """
    compiler = find_compiler(config.target)
    if compiler is None:
        return []
    source = directory / "aggregation.p4"
    delete_leftovers(directory)
    with (
        as_input_error(directory),
        tempfile.TemporaryDirectory(dir=directory, prefix=scratch_prefix()) as scratch,
    ):
        match config.target:
            case Target.V1MODEL:
                outputs = [Path(scratch) / "aggregation.json", Path(scratch) / "aggregation.p4info.txtpb"]
                options = ["-o", str(outputs[0]), "--p4runtime-files", str(outputs[1])]
            case Target.TNA:
                outputs = [Path(scratch) / "tofino"]
                options = ["--target", "tofino", "--arch", "tna", "--disable-parse-min-depth-limit"]
                options += ["-o", str(outputs[0])]
        _run([compiler, "--std", "p4-16", *options, str(source)], source)
        with deferred_interrupts():
            for output in outputs:
                delete(directory / output.name)
                output.rename(directory / output.name)
    return [directory / output.name for output in outputs]


def _run(command: list[str], source: Path) -> None:
    """Run the compiler. Raises ToolFailed with its first error."""
    compiler = command[0]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{compiler} did not finish in {LIMIT} s") from error
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines()
        first_error = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
        raise ToolFailed(f"{compiler} rejected {source}: {first_error}")
