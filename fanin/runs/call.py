"""Call of a run: command line, output form and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Call:
    """A call of a command, or of the equivalent Python function.

    - ``argv``: words of the command line, from the command on.
    - ``as_json``: True prints ``run.json`` at the end, False a summary.
    - ``ranks``: number of processes that share the simulation; None: this process only.
    - ``mpi``: True if mpirun or srun has started the ranks.
    """

    argv: tuple[str, ...]
    as_json: bool = False
    ranks: int | None = None
    mpi: bool = False

    @classmethod
    def of(cls, args: Any) -> Self:
        """Return the call of a parsed command line."""
        return cls(tuple(args.argv), args.json, getattr(args, "ranks", None), getattr(args, "mpi", False))
