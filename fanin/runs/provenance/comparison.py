"""Comparison of a run and its rerun: results, inputs, options and environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.runs.provenance.document import Provenance
from fanin.runs.provenance.results import difference, result_digest

_SHORT_CHARACTERS = 12  # characters that are printed of a long value
_LONG_CHARACTERS = 36  # longer values are cut


@dataclass(frozen=True)
class ResultComparison:
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
    def is_same(self) -> bool:
        """Whether the bits are the same."""
        return self.was == self.now

    def __str__(self) -> str:
        if self.is_same:
            return "the same bits"
        if self.now is None:
            return "IS ABSENT"
        return f"DIFFERS: {self.difference}" if self.difference else "DIFFERS"


@dataclass(frozen=True)
class Change:
    """A changed input, option or other fact.

    - ``what``: place of the fact in ``provenance.json``, or path of the input file.
    - ``was``, ``now``: its value in the run and in the rerun; None: absent.
    """

    what: str
    was: Any
    now: Any

    def __str__(self) -> str:
        was, now = map(_short_text, (self.was, self.now))
        if was == now:  # the values differ only in a part that the short texts omit
            was, now = map(_full_text, (self.was, self.now))
        return f"{self.what}: {was} then, {now} now"


def compare_results(original: Provenance, rerun: Provenance) -> list[ResultComparison]:
    """Compare each result of a run with the result of its rerun."""

    def comparison(name: str, was: str) -> ResultComparison:
        path = rerun.folder / name
        # A result outside the folder has no file here, only the digest that the rerun recorded.
        now = result_digest(path, original.ignored) if path.is_file() else rerun.results.get(name)
        text = None if was == now else _first_difference(original.folder / name, path, was, original.ignored)
        return ResultComparison(name, was, now, text)

    return [comparison(name, was) for name, was in original.results.items()]


def _first_difference(original: Path, rerun: Path, digest: str, ignored: tuple[str, ...]) -> str | None:
    """Describe the first difference, or a change of the file after the run; None if a file is absent."""
    if not original.is_file() or not rerun.is_file():
        return None
    try:
        if result_digest(original, ignored) != digest:
            return f"{original} was changed after the run"
    except ValueError:  # no JSON
        return f"{original} was changed after the run"
    try:
        return difference(original, rerun, ignored)
    except ValueError as error:  # no valid content despite a matching digest
        return f"{original}: {error}"


def changes(original: Provenance, rerun: Provenance, skipped_options: tuple[str, ...]) -> list[Change]:
    """Return the facts that differ and may affect results, without the options ``skipped_options``."""
    was, now = (dict(_facts(run, skipped_options)) for run in (original, rerun))
    return [
        Change(fact, was.get(fact), now.get(fact)) for fact in {**was, **now} if was.get(fact) != now.get(fact)
    ]


def _facts(provenance: Provenance, skipped_options: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for input in provenance.inputs:
        for name, digest in input.files.items():
            yield str(Path(input.option, name)), digest
    for part in ("options", "fanin", "versions", "machine", "verilog"):
        for name, value in provenance.value[part].items():
            if part != "options" or name not in skipped_options:
                yield f"{part}.{name}", value


def _full_text(value: Any) -> str:
    return "none" if value is None else str(value)


def _short_text(value: Any) -> str:
    """Return a value's text; a long text, such as a digest, is cut."""
    text = _full_text(value)
    return f"{text[:_SHORT_CHARACTERS]}…" if len(text) > _LONG_CHARACTERS else text
