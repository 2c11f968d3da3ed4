"""Runs a routed netlist and its source beside each other on the same stimulus, and compares every change."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fanin.sim.boards.board import BoardConfig, Boards


def changes(path: Path, outputs: int) -> np.ndarray:
    """A trace as rows of time and outputs."""
    return np.fromfile(path, dtype=np.uint64).reshape(-1, 1 + outputs)


def traces(configs: list[BoardConfig], folder: Path, stimulus, until: int) -> list[np.ndarray]:
    """What the outputs of each board do when ``stimulus(boards)`` has been ordered for it, the only one."""
    found = []
    for number, config in enumerate(configs):
        path = folder / f"trace{number}"
        with Boards([config], optimise="-Og") as boards:
            boards.trace(0, path)
            stimulus(boards)
            boards.run(until)
        found.append(changes(path, len(config.model.outputs)))
    return found


def assert_equal(outputs: Sequence[str], found: list[np.ndarray]) -> None:
    """Both traces of ``outputs`` are the same; else the first output that differs is named."""
    first, second = found
    assert len(first) > 1
    both = min(len(first), len(second))
    for row in np.flatnonzero((first[:both] != second[:both]).any(axis=1))[:1]:
        differing = np.flatnonzero(first[row] != second[row])
        names = ["time", *outputs]
        told = [f"{names[i]}: {first[row][i]:x} is not {second[row][i]:x}" for i in differing]
        raise AssertionError(f"at {first[row][0]} fs: {told}")
    assert len(first) == len(second)


def random_pins(widths: dict[str, int], period: int, cycles: int, seed: int, rare: Iterable[str] = ()):
    """Stimulus: each port gets a random value every ``period`` ps; those in ``rare`` are seldom not 0."""
    draw = random.Random(seed)
    table = []
    for cycle in range(cycles):
        for name, width in widths.items():
            value = draw.getrandbits(width)
            if name in rare and draw.random() < 0.95:
                value = 0
            table.append((name, value, cycle * period))

    def stimulus(boards: Boards) -> None:
        for name, value, time in table:
            boards.set_pin(0, name, value, time=time)

    return stimulus
