"""Options of ``fanin plan``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.limits import is_number
from fanin.runs.option import FileUse, Group, RunOptions, Trait, option

FACTORS = (1, 2, 4, 8)  # degrees of model parallelism
SECONDS, SWEEP_SECONDS = 100.0, 12.0  # time limit of one search: alone, and in a sweep
SEARCH = Trait("a search")

_PLACE = Group("")  # options that the help lists without a title


class Saves(StrEnum):
    """Traffic between layers and DRAM."""

    LEAST = "least"  #: a ReLU saves a bit of each output; parameters in DRAM are read once for several frames
    PUBLISHED = "published"  #: each layer saves its words, and reads its parameters for each frame, as in NADA


@dataclass(frozen=True, kw_only=True)
class PlanOptions(RunOptions):
    """Options of ``fanin plan`` and ``fanin.plan``."""

    model: str | None = option(
        _PLACE,
        None,
        "example_cnn, mobilenet_v2, mobilenet_v2_32, listing1, digits_cnn, an .onnx file, or a .py file, "
        "a program that runs with your rights",
        "MODEL",
        positional=True,
        file_use=FileUse.INPUT,
    )
    cluster: str | None = option(
        _PLACE,
        None,
        "arria10xN, u280xN, ecp5-85xN or a .toml file",
        "CLUSTER",
        positional=True,
        file_use=FileUse.INPUT,
    )
    output: Path | None = option(
        _PLACE, None, "output folder", "DIR", short="-o", file_use=FileUse.OUTPUT, trait=SEARCH
    )
    check: Path | None = option(
        _PLACE, None, "verify the plan or plans in DIR, and stop", "DIR", file_use=FileUse.INPUT
    )
    mp: str = option(_PLACE, "1", "model parallelism: limiting groups in K parts", "K,…", trait=SEARCH)
    devices: str | None = option(
        _PLACE, None, "make a plan for each of these numbers of devices", "A..B", trait=SEARCH
    )
    batch: int = option(_PLACE, 256, "frames from update to update", "N", low=1, high=10**6, trait=SEARCH)
    time_limit: float | None = option(
        _PLACE,
        None,
        "time limit of one search",
        "S",
        unit="seconds",
        default_text=f"{SECONDS:g}; in a sweep {SWEEP_SECONDS:g}",
        low=0.1,
        high=1e6,
        trait=SEARCH,
    )
    gap: float = option(
        _PLACE,
        0.5,
        "end the search when no plan is better by more than this; 0: search for a proof",
        "%",
        low=0.0,
        high=100.0,
        trait=SEARCH,
    )
    save: Saves = option(
        _PLACE,
        Saves.LEAST,
        "traffic with DRAM: least: ReLUs save bits, dense layers read for several frames; published: as NADA's",
        "WORDS",
        trait=SEARCH,
    )
    workers: int = option(_PLACE, 2, "searches in parallel", "N", low=1, high=64, trait=SEARCH)
    seed: int = option(_PLACE, 0, "seed of the search", "N", low=0, high=10**6, trait=SEARCH)


def factors(text: str) -> list[int]:
    """Return the degrees of model parallelism of ``--mp``, ascending. Raises InputError."""
    parts = text.split(",")
    if not all(is_number(part) and int(part) in FACTORS for part in parts):
        raise InputError(
            f"--mp must be some of {', '.join(map(str, FACTORS))}, with commas between, not {text!r}"
        )
    return sorted({int(part) for part in parts})


def device_counts(text: str | None) -> list[int] | None:
    """Return the numbers of devices of ``--devices``, ascending; None without the option. Raises InputError."""
    if text is None:
        return None
    counts: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,3})(?:\.\.(\d{1,3}))?", part)
        if not match or not 1 <= int(match[1]) <= int(match[2] or match[1]):
            raise InputError(f"--devices must be a range as 3..9, or numbers, not {text!r}")
        counts.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(counts)
