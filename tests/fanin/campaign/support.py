"""Campaigns of the shortest runs there are, started as a user does."""

import csv
import json
import subprocess
import sys

from fanin.cli.main import main

COMMAND = "p4 allreduce"
LIMIT = 600  # seconds; a busy machine


def write_file(folder, *, seeds, operations=3, drop=(0.0, 0.1)):
    """A campaign of two workers or three; a command line always has the same figures."""
    file = folder / "campaign.toml"
    file.write_text(
        f'command = "{COMMAND}"\nseeds = {seeds}\ntimeout = 300\n'
        f'[options]\nswitch = "reference"\noperations = {operations}\n'
        f"[[grid]]\nworkers = [2, 3]\ndrop = {list(drop)}\n"
    )
    return file


def start(file, output, *options, **more):
    """``fanin campaign``, started; its output is to be read."""
    command = [sys.executable, "-m", "fanin", "campaign", str(file), "-o", str(output), *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def finish(process):
    """Its exit status, output and errors; the line about the dashboard apart."""
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, [line for line in err.splitlines() if not line.startswith("dashboard: ")]


def rows(output):
    """The table, by the names of runs; each is there once."""
    with (output / "results.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len({row["run"] for row in found}) == len(found)
    return {row["run"]: row for row in found}


def alone(runs, capsys):
    """What a loop over the same command lines prints, by the names of runs."""
    found = {}
    capsys.readouterr()
    for run in runs:
        assert main([*COMMAND.split(), "--json", *run.words]) == 0
        found[run.name] = json.loads(capsys.readouterr().out)
    return found
