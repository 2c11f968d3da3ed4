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
from fanin.base.processes import end_with
from fanin.base.records import open_record
from fanin.base.scratch import write_file
from fanin.base.tools import python_module
from fanin.evaluation.reproduce.row import Measurement, Point

FOLDER = "measured"  # folder in the output directory
LIMIT = 4 * 3600.0  # s; limit of a command
_ERROR, _WARNING = "fanin: error: ", "fanin: warning: "
_TO_END = 30.0  # s from SIGTERM to SIGKILL
_ANSWERED = (0, 1)  # exit statuses with figures: success, and a figure over its benchmark's limit


@dataclass(frozen=True)
class Measured:
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


class Measuring:
    """Measurements in a folder, with reuse of earlier ones in this folder or others.

    Methods raise InputError for an earlier measurement by another version of fanin, or with other data.

    - ``output``: output directory.
    - ``data``: files of data sets, by name.
    - ``others``: output directories of other runs with earlier measurements.
    """

    def __init__(self, output: Path, data: Mapping[str, Path], others: Sequence[Path] = ()):
        self._folder, self._data = output / FOLDER, data
        self._others = [other / FOLDER for other in others]

    def earlier(
        self, measurement: Measurement, enough: Callable[[Measured], bool] = lambda found: True
    ) -> Measured | None:
        """Return an earlier measurement, and keep a copy in this folder; None if none is present and usable.

        - ``enough``: check whether the measurement is complete.
        """
        for folder in (self._folder, *self._others):
            found = self._in(folder / self._path(measurement).name, measurement)
            if found and enough(found):
                if folder is not self._folder:
                    self._keep(measurement, found)
                return found
        return None

    def check(self, measurement: Measurement) -> None:
        """Raise InputError if :meth:`earlier` would, without writing anything."""
        for folder in (self._folder, *self._others):
            self._in(folder / self._path(measurement).name, measurement)

    def _in(self, path: Path, measurement: Measurement) -> Measured | None:
        if not path.exists():
            return None
        record = open_record(path)
        found = record.built(lambda: _measured(record.value))
        if found.fanin != __version__:
            raise InputError(
                f"{path}: measured by fanin {found.fanin}, this is {__version__}; choose another -o"
            )
        if found.command != self.text(measurement):
            raise InputError(f"{path}: of {found.command!r}, not {self.text(measurement)!r}; choose another -o")
        return None if found.error else found

    def measure(self, measurement: Measurement) -> Measured:
        """Run the command and keep its output. A failure is in ``error`` of the result."""
        began, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        printed, error, warnings = self._run(measurement)
        seconds = time.monotonic() - began
        figures, points = dict(_flat(printed)), dict(_points(printed))
        found = Measured(__version__, self.text(measurement), date, seconds, figures, error, warnings, points)
        self._keep(measurement, found)
        return found

    def _keep(self, measurement: Measurement, found: Measured) -> None:
        write_file(self._path(measurement), json.dumps(asdict(found), indent=2) + "\n")

    def text(self, measurement: Measurement) -> str:
        """Return the command line as a user types it."""
        return " ".join(("fanin", *self._arguments(measurement)))

    def _arguments(self, measurement: Measurement) -> list[str]:
        named = [
            part.format(self._data[name])
            for name, parts in measurement.data.items()
            if name in self._data
            for part in parts
        ]
        return [*measurement.command, *named]

    def _run(self, measurement: Measurement) -> tuple[dict[str, Any], str, list[str]]:
        """Return the printed object, or else the cause of a failure, and the warnings."""
        command = python_module("fanin", *self._arguments(measurement), "--json")
        if measurement.folder:
            command += ["-o", str(self._folder / measurement.name)]
        self._folder.mkdir(parents=True, exist_ok=True)
        with _process(command) as process:
            try:
                out, errors = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return {}, f"took more than {LIMIT / 3600:g} h", []
        try:
            printed = json.loads(out)
        except ValueError:
            printed = {}
        warnings = _said(errors, _WARNING)
        answered = _ANSWERED if measurement.command[0] == "bench" else (0,)  # 1 of others: a failed check
        if process.returncode not in answered or not printed:
            said = _said(errors, _ERROR) or [f"exit status {process.returncode}"]
            return {}, said[-1], warnings
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
        preexec_fn=partial(end_with, os.getpid()),  # safe: the process has a single thread
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _said(errors: str, kind: str) -> list[str]:
    return [line.removeprefix(kind) for line in errors.splitlines() if line.startswith(kind)]


def _measured(value: dict[str, Any]) -> Measured:
    try:
        places = {name: Point(**place) for name, place in value.get("points", {}).items()}
        return Measured(**(value | {"points": places}))
    except TypeError as error:
        raise ValueError(f"is no measurement: {error}") from None


def _flat(document: dict[str, Any], place: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a benchmark by identifier, of other commands by dotted path."""
    if not place and "benchmark" in document:
        printed = ((each["id"], each["value"]) for each in document["figures"] if each["id"])
        yield from ((name, float(value)) for name, value in printed if value is not None)  # null: not finite
        return
    for name, value in document.items():
        if isinstance(value, list):
            value = {str(number): each for number, each in enumerate(value)}
        if isinstance(value, dict):
            yield from _flat(value, f"{place}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{place}{name}", float(value)


def _points(document: dict[str, Any]) -> Iterator[tuple[str, Point]]:
    """Yield the positions of a benchmark's figures that are points of a curve."""
    for each in document["figures"] if "benchmark" in document else ():
        if each["id"] and each["x"] is not None and each["value"] is not None:
            yield each["id"], Point(each["curve"] or "", float(each["x"]))
