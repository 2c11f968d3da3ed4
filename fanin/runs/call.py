"""How a run is asked for, whatever its options are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Call:
    """A call of a command, or of a Python function that does the same.

    ``argv`` : words of the command line, from the command on
    ``as_json`` : ``run.json`` is printed at the end, in place of a summary
    ``ranks`` : processes over which the simulation is spread; None: this one
    ``mpi`` : those are the processes that mpirun or srun has started
    """

    argv: tuple[str, ...]
    as_json: bool = False
    ranks: int | None = None
    mpi: bool = False

    @classmethod
    def of(cls, args: Any) -> Self:
        """Return the call of a parsed command line."""
        return cls(tuple(args.argv), args.json, getattr(args, "ranks", None), getattr(args, "mpi", False))
