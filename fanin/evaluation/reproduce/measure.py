"""Carries out a row's commands: each once, as a process, its JSON kept, so that a stopped run goes on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
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
from fanin.evaluation.reproduce.row import Measurement, Point

FOLDER = "measured"  # of the output directory
LIMIT = 4 * 3600.0  # seconds of a command
_ERROR, _WARNING = "fanin: error: ", "fanin: warning: "
_TO_END = 30.0  # seconds from SIGTERM to SIGKILL
_ANSWERED = (0, 1)  # exit status with figures: done, and one that misses its benchmark's limit


@dataclass(frozen=True)
class Measured:
    """What a command printed, and when; no figures, and why, where it failed; ``warnings`` that it gave.

    ``figures``: a benchmark's by identifier, others by the path in the printed object. ``points``: places of
    those that are points of a curve.
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
    """Carries measurements out in a folder, and has those of earlier runs, in it or in others.

    Raises InputError for one that another version, or with other data, has measured in.
    """

    def __init__(self, output: Path, data: Mapping[str, Path], others: Sequence[Path] = ()):
        self._folder, self._data = output / FOLDER, data
        self._others = [other / FOLDER for other in others]

    def earlier(
        self, measurement: Measurement, enough: Callable[[Measured], bool] = lambda found: True
    ) -> Measured | None:
        """What an earlier run has measured, if it is ``enough``; None where there is nothing, or it failed.

        It is kept in this folder.
        """
        for folder in (self._folder, *self._others):
            found = self._in(folder / self._path(measurement).name, measurement)
            if found and enough(found):
                if folder is not self._folder:
                    self._keep(measurement, found)
                return found
        return None

    def check(self, measurement: Measurement) -> None:
        """Raise InputError where :meth:`earlier` would; nothing is written."""
        for folder in (self._folder, *self._others):
            self._in(folder / self._path(measurement).name, measurement)

    def _in(self, path: Path, measurement: Measurement) -> Measured | None:
        if not path.exists():
            return None
        record = open_record(path)
        found = record.built(lambda: _measured(record.value))
        if found.fanin != __version__:
            raise InputError(f"{path}: measured by fanin {found.fanin}, this is {__version__}: another -o")
        if found.command != self.text(measurement):
            raise InputError(f"{path}: is of {found.command!r}, not of {self.text(measurement)!r}: another -o")
        return None if found.error else found

    def measure(self, measurement: Measurement) -> Measured:
        """Run the command, and keep what it printed; an error is in what it returns."""
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
        """The command as a reader types it."""
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
        """The printed object, why there is none, and warnings."""
        command = [sys.executable, "-m", "fanin", *self._arguments(measurement), "--json"]
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
        answered = _ANSWERED if measurement.command[0] == "bench" else (0,)  # 1 of others: a check has failed
        if process.returncode not in answered or not printed:
            said = _said(errors, _ERROR) or [f"exit status {process.returncode}"]
            return {}, said[-1], warnings
        return printed, "", warnings

    def _path(self, measurement: Measurement) -> Path:
        return self._folder / f"{measurement.name}.json"


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """The running command; whatever ends the body early, or this process, has it end what it has started."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(end_with, os.getpid()),  # there is one thread
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
    """Numbers of a benchmark by identifier, of other commands by the path of fields, joined by dots."""
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
    """Places of a benchmark's figures that are points of a curve."""
    for each in document["figures"] if "benchmark" in document else ():
        if each["id"] and each["x"] is not None and each["value"] is not None:
            yield each["id"], Point(each["curve"] or "", float(each["x"]))
