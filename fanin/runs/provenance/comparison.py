"""Comparison of a run and its rerun: results, inputs, options and environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.runs.provenance.document import Provenance
from fanin.runs.provenance.results import difference, result_digest

_DIGITS = 12  # shown characters of a long value


@dataclass(frozen=True)
class Verdict:
    """Comparison of one result.

    - ``name``: name of the file in the folder.
    - ``was``: SHA-256 of the run's result.
    - ``now``: SHA-256 of the rerun's result; None if it is absent.
    - ``difference``: first difference, in words; None if the bits are the same or the files cannot be compared.
    """

    name: str
    was: str
    now: str | None
    difference: str | None

    @property
    def same(self) -> bool:
        """Whether the bits are the same."""
        return self.was == self.now

    def __str__(self) -> str:
        if self.same:
            return "the same bits"
        if self.now is None:
            return "IS ABSENT"
        return f"DIFFERS: {self.difference}" if self.difference else "DIFFERS"


@dataclass(frozen=True)
class Change:
    """A changed input, option or other fact. ``what``: its place in provenance.json, or the input file."""

    what: str
    was: Any
    now: Any

    def __str__(self) -> str:
        was, now = map(_shown, (self.was, self.now))
        return f"{self.what}: {was} then, {now} now"


def verdicts(before: Provenance, after: Provenance) -> list[Verdict]:
    """Compare each result of a run with the result of its rerun."""

    def verdict(name: str, was: str) -> Verdict:
        path = after.folder / name
        now = result_digest(path, before.apart) if path.is_file() else after.results.get(name)
        told = None if was == now else _told(before.folder / name, path, was, before.apart)
        return Verdict(name, was, now, told)

    return [verdict(name, was) for name, was in before.results.items()]


def _told(before: Path, after: Path, was: str, apart: tuple[str, ...]) -> str | None:
    """Describe the first difference, or a change of the file after the run; None if a file is absent."""
    if not before.is_file() or not after.is_file():
        return None
    try:
        if result_digest(before, apart) != was:
            return f"{before} was changed after the run"
    except ValueError:  # no JSON
        return f"{before} was changed after the run"
    try:
        return difference(before, after, apart)
    except ValueError as error:  # no valid content despite a matching digest
        return f"{before}: {error}"


def changes(before: Provenance, after: Provenance, apart: tuple[str, ...]) -> list[Change]:
    """Return the changed facts that affect results, without the options ``apart``."""
    was, now = (dict(_facts(each, apart)) for each in (before, after))
    return [
        Change(what, was.get(what), now.get(what)) for what in {**was, **now} if was.get(what) != now.get(what)
    ]


def _facts(provenance: Provenance, apart: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for each in provenance.inputs:
        for name, digest in each.files.items():
            yield str(Path(each.option, name)), digest
    for part in ("options", "fanin", "versions", "machine", "verilog"):
        for name, value in provenance.value[part].items():
            if part != "options" or name not in apart:
                yield f"{part}.{name}", value


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = str(value)
    return f"{text[:_DIGITS]}…" if len(text) > 3 * _DIGITS else text
