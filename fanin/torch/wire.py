"""Exchange of arrays between the ranks of a group, by a gloo group separate from the script's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

Array = npt.NDArray[Any]


class Wire:
    """Arrays between the ranks of a group. All ranks must make the same calls.

    Each call raises RuntimeError as gloo does, at the latest after ``timeout``.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta):
        self.rank, self.size = rank, size
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    def all_gather(self, own: Array) -> list[Array]:
        """Return the arrays of all ranks, by rank; all have the same length and type."""
        given = torch.from_numpy(np.ascontiguousarray(own))
        taken = [torch.empty_like(given) for _ in range(self.size)]
        self._gloo.allgather([taken], [given]).wait()
        return [array.numpy() for array in taken]

    def exchange(self, gives: list[Array]) -> list[Array]:
        """Send ``gives[n]`` to rank n; return the arrays received, by rank. All have the same length and
        type.
        """
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in gives]
        taken = [torch.empty_like(tensor) for tensor in tensors]
        taken[self.rank] = tensors[self.rank]
        others = [rank for rank in range(self.size) if rank != self.rank]
        works = [self._gloo.recv([taken[rank]], rank, 0) for rank in others]
        works += [self._gloo.send([tensors[rank]], rank, 0) for rank in others]
        for work in works:
            work.wait()
        return [array.numpy() for array in taken]

    def gather(self, own: Array) -> list[Array] | None:
        """Return the arrays of all ranks on rank 0, as ``all_gather`` does; None on the others."""
        given = torch.from_numpy(np.ascontiguousarray(own))
        if self.rank:
            self._gloo.send([given], 0, 0).wait()
            return None
        taken = [given, *(torch.empty_like(given) for _ in range(self.size - 1))]
        for work in [self._gloo.recv([array], rank, 0) for rank, array in enumerate(taken) if rank]:
            work.wait()
        return [array.numpy() for array in taken]

    def scatter(self, gives: list[Array] | None, like: Array) -> Array:
        """Return the array that rank 0 sends to this rank, with length and type of ``like``; others give
        None.
        """
        if gives is None:
            taken = torch.empty(like.shape, dtype=torch.from_numpy(like[:0]).dtype)
            self._gloo.recv([taken], 0, 0).wait()
            return taken.numpy()
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in gives]
        for work in [self._gloo.send([array], rank, 0) for rank, array in enumerate(tensors) if rank]:
            work.wait()
        return gives[0]

    def abort(self) -> None:
        """Abort transfers in flight; waiting calls raise."""
        self._gloo.abort()
