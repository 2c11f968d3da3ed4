"""Measurements: run each command once, as a process, and keep its JSON, so that a stopped run can resume."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.base.errors import InputError
from fanin.base.processes import die_with_parent
from fanin.base.records import open_record
from fanin.base.scratch import write_file
from fanin.base.tools import python_module
from fanin.evaluation.reproduce.row import Measurement, Point

FOLDER = "measured"  # folder of the commands' outputs in the output directory
LIMIT_SECONDS = 4 * 3600.0  # maximum duration of a command
_ERROR, _WARNING = "fanin: error: ", "fanin: warning: "
_GRACE_SECONDS = 30.0  # from SIGTERM to SIGKILL
_BENCH_STATUSES = (0, 1)  # exit statuses of benchmarks with figures; 1: a figure is over its limit


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command.

    - ``fanin``: version of fanin.
    - ``command``: command line as text.
    - ``date``: start of the command, UTC, ISO 8601.
    - ``seconds``: duration in s.
    - ``figures``: figures of a benchmark by identifier, of other commands by path in the printed object.
    - ``error``: cause of a failure; empty: success.
    - ``warnings``: warnings that the command printed.
    - ``points``: positions of figures that are points of a curve.
    """

    fanin: str
    command: str
    date: str
    seconds: float
    figures: dict[str, float]
    error: str = ""
    warnings: Sequence[str] = ()
    points: dict[str, Point] = field(default_factory=dict)


class MeasurementStore:
    """Outputs of commands in a folder, with reuse of earlier ones from this folder and others.

    Methods raise InputError for an earlier output of another version of fanin, or with other data.

    - ``output``: output directory.
    - ``data``: files of data sets, by name.
    - ``other_outputs``: output directories of other runs with earlier measurements.
    """

    def __init__(self, output: Path, data: Mapping[str, Path], other_outputs: Sequence[Path] = ()):
        self._folder, self._data = output / FOLDER, data
        self._other_folders = [other / FOLDER for other in other_outputs]

    def find_earlier(
        self, measurement: Measurement, is_complete: Callable[[CommandOutput], bool] = lambda output: True
    ) -> CommandOutput | None:
        """Return an earlier output of a command, and keep a copy in this folder; None if none is usable.

        - ``is_complete``: returns whether an output has all needed figures.
        """
        for folder in (self._folder, *self._other_folders):
            output = self._load(folder / self._path(measurement).name, measurement)
            if output and is_complete(output):
                if folder is not self._folder:
                    self._save(measurement, output)
                return output
        return None

    def check(self, measurement: Measurement) -> None:
        """Raise InputError if :meth:`find_earlier` would, without writing anything."""
        for folder in (self._folder, *self._other_folders):
            self._load(folder / self._path(measurement).name, measurement)

    def _load(self, path: Path, measurement: Measurement) -> CommandOutput | None:
        """Return the output in a file; None if the file is missing or the command failed. Raises InputError."""
        if not path.exists():
            return None
        record = open_record(path)
        output = record.build(lambda: _parse_output(record.value))
        if output.fanin != __version__:
            raise InputError(
                f"{path}: measured by fanin {output.fanin}, this is {__version__}; choose another -o"
            )
        if output.command != self.command_text(measurement):
            raise InputError(
                f"{path}: of {output.command!r}, not {self.command_text(measurement)!r}; choose another -o"
            )
        return None if output.error else output

    def measure(self, measurement: Measurement) -> CommandOutput:
        """Run the command and keep its output. A failure is in ``error`` of the result."""
        start, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        printed, error, warnings = self._run(measurement)
        seconds = time.monotonic() - start
        figures, points = dict(_flat(printed)), dict(_points(printed))
        output = CommandOutput(
            __version__, self.command_text(measurement), date, seconds, figures, error, warnings, points
        )
        self._save(measurement, output)
        return output

    def _save(self, measurement: Measurement, output: CommandOutput) -> None:
        write_file(self._path(measurement), json.dumps(asdict(output), indent=2) + "\n")

    def command_text(self, measurement: Measurement) -> str:
        """Return the command line as a user types it."""
        return " ".join(("fanin", *self._arguments(measurement)))

    def _arguments(self, measurement: Measurement) -> list[str]:
        data_arguments = [
            part.format(self._data[name])
            for name, parts in measurement.data.items()
            if name in self._data
            for part in parts
        ]
        return [*measurement.command, *data_arguments]

    def _run(self, measurement: Measurement) -> tuple[dict[str, Any], str, list[str]]:
        """Return the printed object, or else the cause of a failure, and the warnings."""
        command = python_module("fanin", *self._arguments(measurement), "--json")
        if measurement.folder:
            command += ["-o", str(self._folder / measurement.name)]
        self._folder.mkdir(parents=True, exist_ok=True)
        with _process(command) as process:
            try:
                stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                return {}, f"took more than {LIMIT_SECONDS / 3600:g} h", []
        try:
            printed = json.loads(stdout)
        except ValueError:
            printed = {}
        warnings = _messages(stderr, _WARNING)
        accepted = _BENCH_STATUSES if measurement.command[0] == "bench" else (0,)  # 1 of others: a failed check
        if process.returncode not in accepted or not printed:
            messages = _messages(stderr, _ERROR) or [f"exit status {process.returncode}"]
            return {}, messages[-1], warnings
        return printed, "", warnings

    def _path(self, measurement: Measurement) -> Path:
        return self._folder / f"{measurement.name}.json"


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command, which ends its children and itself if the body ends early, or this process dies."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(die_with_parent, os.getpid()),  # safe: the process has a single thread
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _messages(errors: str, prefix: str) -> list[str]:
    return [line.removeprefix(prefix) for line in errors.splitlines() if line.startswith(prefix)]


def _parse_output(value: dict[str, Any]) -> CommandOutput:
    """Return the output in a JSON object that ``asdict`` made. Raises ValueError."""
    try:
        points = {name: Point(**point) for name, point in value.get("points", {}).items()}
        return CommandOutput(**(value | {"points": points}))
    except TypeError as error:
        raise ValueError(f"is no measurement: {error}") from None


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a benchmark by identifier, of other commands by dotted path."""
    if not prefix and "benchmark" in document:
        printed = ((figure["id"], figure["value"]) for figure in document["figures"] if figure["id"])
        yield from ((name, float(value)) for name, value in printed if value is not None)  # null: not finite
        return
    for name, value in document.items():
        if isinstance(value, list):
            value = {str(number): member for number, member in enumerate(value)}
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def _points(document: dict[str, Any]) -> Iterator[tuple[str, Point]]:
    """Yield the positions of a benchmark's figures that are points of a curve."""
    for figure in document["figures"] if "benchmark" in document else ():
        if figure["id"] and figure["x"] is not None and figure["value"] is not None:
            yield figure["id"], Point(figure["curve"] or "", float(figure["x"]))
