"""Command of a campaign: its options, and conversion of options to a command line."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.cli.parser import actions_of, is_repeatable, parts_of

Options = dict[str, Any]
#: Commands that end with a result, need no partner, and write only the output of ``-o``.
COMMANDS = (
    *("train", "predict", "ps train", "ring train", "ring run", "cluster run", "link check"),
    *("p4 check", "p4 allreduce", "plan", "codec stats", "codec verify", "reproduce"),
)
_BENCH = "bench "
#: Options that the campaign sets, or that name an output, which all runs would overwrite.
_OWN = ("-o", "-h", "--json", "--pcap", "--wave", "--model-out")
_READS = {"predict": ("data",)}  # arguments that name files, by command without provenance
_OUTPUT = "output"  # placeholder of an output in a command line that is only parsed
_SLUG = 60  # maximum number of characters of a run's name before the digest
_DIGITS = 10  # hexadecimal digits of the digest in a run's name


class Command:
    """Command of fanin that a campaign runs, with the options of its parser."""

    def __init__(self, place: str, name: str, whole: argparse.ArgumentParser):
        """Find the command. Raises InputError for a command that a campaign cannot run.

        - ``place``: the campaign's file, for errors.
        - ``name``: words of the command, without ``fanin``.
        - ``whole``: fanin's parser.
        """
        self.words = tuple(name.split())
        self.name = " ".join(self.words)
        self._place, self._whole = place, whole
        if self.name not in COMMANDS and not self.name.startswith(_BENCH):
            raise InputError(f"{place}: command must be one of {', '.join(COMMANDS)}, bench NAME, not {name!r}")
        parser = whole
        for word in self.words:
            parts = {part.name: part.parser for part in parts_of(parser)}
            if word not in parts:
                raise InputError(f"{place}: command: there is no fanin {self.name}")
            parser = parts[word]
        self._actions = {name: action for action in actions_of(parser) for name in _names(action)}
        self.has_output = any("-o" in action.option_strings for action in actions_of(parser))

    def check_names(self, options: Mapping[str, Any], place: str) -> None:
        """Raise InputError for an option that the command does not have, or that a campaign may not set."""
        for key in options:
            action = self._actions.get(key)
            if action is None:
                raise InputError(f"{self._place}: {place}.{key}: fanin {self.name} has no option --{key}")
            if set(action.option_strings) & set(_OWN):
                raise InputError(
                    f"{self._place}: {place}.{key}: names an output, to which all runs would write"
                )

    def line(self, options: Options, place: str) -> tuple[tuple[str, ...], list[Path]]:
        """Return a run's words after the command, and the paths that it reads. Raises InputError."""
        words = tuple(self._words(options, place))
        try:
            args = self._whole.parse_args(self.whole_line(words, output=_OUTPUT))
        except InputError as error:
            raise InputError(f"{self._place}: {place}: {error}") from None
        files = getattr(args, "files", None)
        named = (*(files.inputs if files else ()), *_READS.get(self.name, ()))
        values = [
            each
            for name, value in vars(args).items()
            for each in (value if isinstance(value, list) else [value])
            if name in named or isinstance(each, Path)
        ]
        return words, [Path(value) for value in values if value is not None and str(value) != _OUTPUT]

    def whole_line(self, words: Sequence[str], output: str) -> list[str]:
        """Return the command line with ``--json`` and, if the command has ``-o``, with ``output``."""
        return [*self.words, "--json", *(("-o", output) if self.has_output else ()), *words]

    def run_name(self, options: Options, own: Options) -> str:
        """Return a run's name: its ``own`` options in readable form, and a digest of all its options."""
        text = "-".join(f"{key}-{_written(value)}" for key, value in own.items())
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:_SLUG]
        value = json.dumps([self.name, options], sort_keys=True)
        return f"{slug}-{hashlib.sha256(value.encode()).hexdigest()[:_DIGITS]}"

    def identity(self, options: Options) -> Hashable:
        """Return a key that is equal for identical runs: options in any order, values as on a command line."""
        return frozenset((key, *map(_written, _several(value))) for key, value in options.items())

    def _words(self, options: Options, place: str) -> Iterator[str]:
        """Yield the words of the options, then the positional arguments in the order of the command."""
        arguments = []
        for key, value in options.items():
            action = self._actions[key]
            if not all(isinstance(each, str | int | float) for each in _several(value)):
                kinds = "a text, a number, a flag or a list of such"
                raise InputError(f"{self._place}: {place}.{key}: must be {kinds}, not {value!r}")
            if action.option_strings:
                yield from self._option(action, key, value, f"{place}.{key}")
            else:
                arguments.append((list(self._actions).index(key), _several(value)))
        words = [word for _, several in sorted(arguments) for word in map(_written, several)]
        if words:
            yield "--"
        yield from words

    def _option(self, action: argparse.Action, key: str, value: Any, place: str) -> Iterator[str]:
        if isinstance(value, bool):
            if not value and isinstance(action, argparse.BooleanOptionalAction):
                yield f"--no-{key}"
            elif action.nargs != 0:
                raise InputError(f"{self._place}: {place}: takes a value, not {str(value).lower()}")
            elif value:
                yield f"--{key}"
        elif action.nargs == 0:
            raise InputError(f"{self._place}: {place}: is a flag, true or false, not {value!r}")
        elif is_repeatable(action):
            for each in _several(value):
                yield f"--{key}={_written(each)}"
        elif isinstance(value, list):
            yield from (f"--{key}", *map(_written, value))
        else:
            yield f"--{key}={_written(value)}"


def _names(action: argparse.Action) -> Sequence[str]:
    """Return the names of an option in a campaign's file: each form without dashes."""
    return [option.lstrip("-") for option in action.option_strings] or [action.dest]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _written(value: Any) -> str:
    """Return a value as on a command line."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)
