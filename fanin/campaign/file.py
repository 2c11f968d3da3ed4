"""Campaign file: TOML that describes runs. The command's own parser checks each run."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import read_toml
from fanin.campaign.command import Command, Options
from fanin.campaign.draws import draw, products

TIMEOUT = 3600.0  # s; default limit of a run
MOST_RUNS = 100_000
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


def read_campaign(file: Path, whole: argparse.ArgumentParser) -> Campaign:
    """Read a file, and parse each of its runs by ``whole``, fanin's parser. Raises InputError of one line."""
    value = _load(file)
    command = Command(str(file), value["command"], whole)
    runs, inputs = _runs(file, command, value)
    return Campaign(
        file=file,
        command=command,
        runs=runs,
        inputs=inputs,
        timeout=_positive(file, value, "timeout", TIMEOUT),
        keep=value.get("keep", True),
        megabytes=_positive(file, value, "run_megabytes", None),
        figures=_texts(file, value, "figures"),
        log=_texts(file, value, "log"),
        cluster=value.get("cluster", {}),
    )


def _load(file: Path) -> dict[str, Any]:
    """Read the file and check its keys and types. Raises InputError."""
    try:
        value = read_toml(file)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    for key, found in value.items():
        if key not in _KEYS:
            raise InputError(f"{file}: unknown key {key}; keys are {', '.join(_KEYS)}")
        if type(found) not in _KEYS[key]:
            names = " or ".join(_NAMES[kind] for kind in _KEYS[key])
            raise InputError(f"{file}: {key} must be {names}, not {found!r}")
    if "command" not in value:
        raise InputError(f"{file}: command is missing")
    for key in ("grid", "run"):
        if not all(isinstance(table, dict) for table in value.get(key, ())):
            raise InputError(f"{file}: {key} must be tables, [[{key}]]")
    return value


def _runs(file: Path, command: Command, value: Mapping[str, Any]) -> tuple[tuple[Run, ...], tuple[Path, ...]]:
    """Return all runs without duplicates, and the paths that they read."""
    common: Options = value.get("options", {})
    command.check_names(common, "options")
    found: dict[Hashable, Run] = {}
    inputs: dict[Path, None] = {}
    points = list(_points(file, command, value))
    if not points:
        raise InputError(f"{file}: has no runs: grid, run or random is missing or empty")
    for seed in _seeds(file, command, value):
        for place, point in points:
            for table, options in (("options", common), (place, point)):
                if seed and _SEED in options:
                    raise InputError(f"{file}: {table}.{_SEED}: seeds already gives every run one")
            own = point | seed
            if twice := [key for key in common if key in own]:
                raise InputError(f"{file}: {place}.{twice[0]} is also an option of all runs")
            words, reads = command.line(common | own, place)
            name = command.run_name(common | own, own)
            found.setdefault(command.identity(common | own), Run(name, common | own, words))
            inputs |= dict.fromkeys(reads)
            if len(found) > MOST_RUNS:
                raise InputError(f"{file}: has more than {MOST_RUNS:,} runs")
    return tuple(found.values()), tuple(inputs)


def _points(file: Path, command: Command, value: Mapping[str, Any]) -> Iterator[tuple[str, Options]]:
    """Yield the place in the file and the own options of each point, without common options and seeds."""
    for number, table in enumerate(value.get("grid", ())):
        place = f"grid[{number}]"
        command.check_names(table, place)
        for point in products(table, f"{file}: {place}", most=MOST_RUNS):
            yield place, point
    for number, table in enumerate(value.get("run", ())):
        command.check_names(table, f"run[{number}]")
        yield f"run[{number}]", table
    if "random" in value:
        for point in draw(value["random"], f"{file}: random"):
            command.check_names(point, "random.options")
            yield "random.options", point


def _seeds(file: Path, command: Command, value: Mapping[str, Any]) -> list[Options]:
    """Return the seed option of each repetition; one empty set of options without seeds."""
    seeds = value.get("seeds")
    if seeds is None:
        return [{}]
    command.check_names({_SEED: 0}, "seeds")
    if isinstance(seeds, int):
        if not 1 <= seeds <= MOST_RUNS:
            raise InputError(f"{file}: seeds must be at least 1 and at most {MOST_RUNS:,}, not {seeds}")
        seeds = list(range(seeds))
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise InputError(f"{file}: seeds must be a number of seeds or a list of integers, not {seeds!r}")
    return [{_SEED: seed} for seed in dict.fromkeys(seeds)]


def _positive(file: Path, value: Mapping[str, Any], key: str, default: float | None) -> Any:
    number = value.get(key, default)
    if number is not None and not 0 < number < float("inf"):
        raise InputError(f"{file}: {key} must be above 0, not {number!r}")
    return number


def _texts(file: Path, value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = value.get(key, [])
    if not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"{file}: {key} must be a list of texts, not {texts!r}")
    return tuple(dict.fromkeys(texts))
