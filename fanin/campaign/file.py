"""Campaign file: TOML that describes runs. The command's own parser checks each run."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import float_info
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import read_toml
from fanin.campaign.command import Command, Options
from fanin.campaign.draws import draw, products

TIMEOUT = 3600.0  # s; default limit of a run
MAX_RUNS = 100_000
_KEYS: dict[str, tuple[type, ...]] = {
    "command": (str,),
    "options": (dict,),
    "grid": (list,),
    "run": (list,),
    "random": (dict,),
    "seeds": (int, list),
    "timeout": (int, float),
    "keep": (bool,),
    "run_megabytes": (int, float),
    "figures": (list,),
    "log": (list,),
    "cluster": (dict,),
}
_NAMES = {
    str: "a text",
    dict: "a table",
    list: "a list",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}
_SEED = "seed"


@dataclass(frozen=True)
class Run:
    """One run of a campaign.

    - ``name``: name of its folder.
    - ``options``: its options by name.
    - ``words``: words of its command line after the command.
    """

    name: str
    options: Options
    words: tuple[str, ...]


@dataclass(frozen=True)
class Campaign:
    """Content of a campaign file. docs/reference/campaign.md describes the keys.

    - ``runs``: all runs, ordered by seed.
    - ``inputs``: paths that the runs read.
    - ``timeout``: limit of a run, in s.
    - ``keep``: False deletes a run's output folder after the run.
    - ``megabytes``: disk space of a run, in MB; None: not given.
    - ``figures``: names of the figures in the table; empty: all.
    - ``log``: names of options and figures with logarithmic axes.
    - ``cluster``: the table ``[cluster]``; empty: no batch system.
    """

    file: Path
    command: Command
    runs: tuple[Run, ...]
    inputs: tuple[Path, ...]
    timeout: float
    keep: bool
    megabytes: float | None
    figures: tuple[str, ...]
    log: tuple[str, ...]
    cluster: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Working directory of the runs: the file's folder, to which paths in the file are relative."""
        return self.file.resolve().parent


def read_campaign(file: Path, cli_parser: argparse.ArgumentParser) -> Campaign:
    """Read a campaign file and check each of its runs by ``cli_parser``, fanin's parser.

    Raises InputError of one line.
    """
    content = _load(file)
    command = Command(str(file), content["command"], cli_parser)
    runs, inputs = _runs(file, command, content)
    return Campaign(
        file=file,
        command=command,
        runs=runs,
        inputs=inputs,
        timeout=_positive(file, content, "timeout", TIMEOUT),
        keep=content.get("keep", True),
        megabytes=_positive(file, content, "run_megabytes", None),
        figures=_texts(file, content, "figures"),
        log=_texts(file, content, "log"),
        cluster=content.get("cluster", {}),
    )


def _load(file: Path) -> dict[str, Any]:
    """Read the file and check its keys and types. Raises InputError."""
    content = read_toml(file)
    for key, value in content.items():
        if key not in _KEYS:
            raise InputError(f"{file}: unknown key {key}; keys are {', '.join(_KEYS)}")
        try:
            repr(value)
        except ValueError:  # a long hexadecimal number, which Python does not write in decimal digits
            raise InputError(f"{file}: {key}: a number of very many digits; write a shorter one") from None
        if type(value) not in _KEYS[key]:
            names = " or ".join(_NAMES[kind] for kind in _KEYS[key])
            raise InputError(f"{file}: {key} must be {names}, not {value!r}")
    if "command" not in content:
        raise InputError(f"{file}: command is missing")
    for key in ("grid", "run"):
        if not all(isinstance(table, dict) for table in content.get(key, ())):
            raise InputError(f"{file}: {key} must be tables, [[{key}]]")
    return content


def _runs(file: Path, command: Command, content: Mapping[str, Any]) -> tuple[tuple[Run, ...], tuple[Path, ...]]:
    """Return the distinct runs, ordered by seed, and the paths that they read."""
    common: Options = content.get("options", {})
    command.check_names(common, "options")
    runs: dict[Hashable, Run] = {}
    inputs: dict[Path, None] = {}
    points = list(_points(file, command, content))
    if not points:
        raise InputError(f"{file}: has no runs: grid, run or random is missing or empty")
    for seed in _seeds(file, command, content):
        for location, point in points:
            for table, options in (("options", common), (location, point)):
                if seed and _SEED in options:
                    raise InputError(f"{file}: {table}.{_SEED}: seeds already gives every run one")
            point_options = point | seed
            if repeated := [key for key in common if key in point_options]:
                raise InputError(f"{file}: {location}.{repeated[0]} is also an option of all runs")
            words, paths = command.parse_run(common | point_options, location)
            name = command.run_name(common | point_options, point_options)
            runs.setdefault(command.identity(common | point_options), Run(name, common | point_options, words))
            inputs |= dict.fromkeys(paths)
            if len(runs) > MAX_RUNS:
                raise InputError(f"{file}: has more than {MAX_RUNS:,} runs")
    return tuple(runs.values()), tuple(inputs)


def _points(file: Path, command: Command, content: Mapping[str, Any]) -> Iterator[tuple[str, Options]]:
    """Yield the location in the file and the options of each point, without common options and seeds."""
    for number, table in enumerate(content.get("grid", ())):
        location = f"grid[{number}]"
        command.check_names(table, location)
        for point in products(table, f"{file}: {location}", maximum=MAX_RUNS):
            yield location, point
    for number, table in enumerate(content.get("run", ())):
        command.check_names(table, f"run[{number}]")
        yield f"run[{number}]", table
    if "random" in content:
        for point in draw(content["random"], f"{file}: random", maximum=MAX_RUNS):
            command.check_names(point, "random.options")
            yield "random.options", point


def _seeds(file: Path, command: Command, content: Mapping[str, Any]) -> list[Options]:
    """Return the seed option of each repetition; a single empty set of options without ``seeds``."""
    seeds = content.get("seeds")
    if seeds is None:
        return [{}]
    command.check_names({_SEED: 0}, "seeds")
    if isinstance(seeds, int):
        if not 1 <= seeds <= MAX_RUNS:
            raise InputError(f"{file}: seeds must be at least 1 and at most {MAX_RUNS:,}, not {seeds}")
        seeds = list(range(seeds))
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise InputError(f"{file}: seeds must be a number of seeds or a list of integers, not {seeds!r}")
    return [{_SEED: seed} for seed in dict.fromkeys(seeds)]


def _positive(file: Path, content: Mapping[str, Any], key: str, default: float | None) -> Any:
    """Return the value of ``key``, which must be a finite number above 0. Raises InputError."""
    number = content.get(key, default)
    if number is not None and not 0 < number <= float_info.max:
        raise InputError(f"{file}: {key} must be above 0 and finite, not {number!r}")
    return number


def _texts(file: Path, content: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the distinct texts of the list ``key``; empty without the key. Raises InputError."""
    texts = content.get(key, [])
    if not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"{file}: {key} must be a list of texts, not {texts!r}")
    return tuple(dict.fromkeys(texts))
