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
_BENCH_PREFIX = "bench "
#: Options that the campaign sets, or that name an output, which all runs would overwrite.
_RESERVED_OPTIONS = ("-o", "-h", "--json", "--pcap", "--wave", "--model-out")
_INPUT_ARGUMENTS = {"predict": ("data",)}  # arguments that name files, by command without provenance
_OUTPUT_PLACEHOLDER = "output"  # placeholder of an output in a command line that is only parsed
_SLUG_LENGTH = 60  # maximum number of characters in a run's name, without the digest
_DIGEST_DIGITS = 10  # hexadecimal digits of the digest in a run's name


class Command:
    """Command of fanin that a campaign runs, with the options of its parser."""

    def __init__(self, file: str, name: str, cli_parser: argparse.ArgumentParser):
        """Find the command. Raises InputError for a command that a campaign cannot run.

        - ``file``: the campaign's file, for errors.
        - ``name``: words of the command, without ``fanin``.
        - ``cli_parser``: fanin's parser.
        """
        self.words = tuple(name.split())
        self.name = " ".join(self.words)
        self._file, self._cli_parser = file, cli_parser
        if self.name not in COMMANDS and not self.name.startswith(_BENCH_PREFIX):
            raise InputError(f"{file}: command must be one of {', '.join(COMMANDS)}, bench NAME, not {name!r}")
        parser = cli_parser
        for word in self.words:
            parts = {part.name: part.parser for part in parts_of(parser)}
            if word not in parts:
                raise InputError(f"{file}: command: there is no fanin {self.name}")
            parser = parts[word]
        self._actions = {name: action for action in actions_of(parser) for name in _names(action)}
        self.has_output = any("-o" in action.option_strings for action in actions_of(parser))

    def check_names(self, options: Mapping[str, Any], location: str) -> None:
        """Raise InputError for an option that the command does not have, or that a campaign may not set."""
        for key in options:
            action = self._actions.get(key)
            if action is None:
                raise InputError(f"{self._file}: {location}.{key}: fanin {self.name} has no option --{key}")
            if set(action.option_strings) & set(_RESERVED_OPTIONS):
                raise InputError(
                    f"{self._file}: {location}.{key}: names an output, to which all runs would write"
                )

    def parse_run(self, options: Options, location: str) -> tuple[tuple[str, ...], list[Path]]:
        """Check a run by fanin's parser; return its words after the command, and the paths that it reads.

        ``location``: location of the options in the campaign's file, for errors. Raises InputError.
        """
        words = tuple(self._words(options, location))
        try:
            args = self._cli_parser.parse_args(self.command_line(words, output=_OUTPUT_PLACEHOLDER))
        except InputError as error:
            raise InputError(f"{self._file}: {location}: {error}") from None
        files = getattr(args, "files", None)
        input_names = (*(files.inputs if files else ()), *_INPUT_ARGUMENTS.get(self.name, ()))
        paths = [
            path
            for name, value in vars(args).items()
            for path in (value if isinstance(value, list) else [value])
            if name in input_names or isinstance(path, Path)
        ]
        return words, [
            Path(value) for value in paths if value is not None and str(value) != _OUTPUT_PLACEHOLDER
        ]

    def command_line(self, words: Sequence[str], output: str) -> list[str]:
        """Return the command line with ``--json`` and, if the command has ``-o``, with ``output``."""
        return [*self.words, "--json", *(("-o", output) if self.has_output else ()), *words]

    def run_name(self, options: Options, point_options: Options) -> str:
        """Return a run's name: its ``point_options`` in readable form, and a digest of all its options."""
        text = "-".join(f"{key}-{_as_text(value)}" for key, value in point_options.items())
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:_SLUG_LENGTH]
        value = json.dumps([self.name, options], sort_keys=True)
        return f"{slug}-{hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_DIGITS]}"

    def identity(self, options: Options) -> Hashable:
        """Return a key that identical runs share: options in any order, values as on a command line."""
        return frozenset((key, *map(_as_text, _as_list(value))) for key, value in options.items())

    def _words(self, options: Options, location: str) -> Iterator[str]:
        """Yield the words of the options, then the positional arguments in the order of the command."""
        arguments = []
        for key, value in options.items():
            action = self._actions[key]
            if not all(isinstance(member, str | int | float) for member in _as_list(value)):
                kinds = "a text, a number, a flag or a list of such"
                raise InputError(f"{self._file}: {location}.{key}: must be {kinds}, not {value!r}")
            if action.option_strings:
                yield from self._option(action, key, value, f"{location}.{key}")
            else:
                arguments.append((list(self._actions).index(key), _as_list(value)))
        words = [word for _, values in sorted(arguments) for word in map(_as_text, values)]
        if words:
            yield "--"
        yield from words

    def _option(self, action: argparse.Action, key: str, value: Any, location: str) -> Iterator[str]:
        """Yield the words of an option. Raises InputError for a flag with a value, and for a missing value."""
        if isinstance(value, bool):
            if not value and isinstance(action, argparse.BooleanOptionalAction):
                yield f"--no-{key}"
            elif action.nargs != 0:
                raise InputError(f"{self._file}: {location}: takes a value, not {str(value).lower()}")
            elif value:
                yield f"--{key}"
        elif action.nargs == 0:
            raise InputError(f"{self._file}: {location}: is a flag, true or false, not {value!r}")
        elif is_repeatable(action):
            for member in _as_list(value):
                yield f"--{key}={_as_text(member)}"
        elif isinstance(value, list):
            yield from (f"--{key}", *map(_as_text, value))
        else:
            yield f"--{key}={_as_text(value)}"


def _names(action: argparse.Action) -> Sequence[str]:
    """Return the names of an option in a campaign's file: each form without dashes."""
    return [option.lstrip("-") for option in action.option_strings] or [action.dest]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_text(value: Any) -> str:
    """Return a value as on a command line."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)
