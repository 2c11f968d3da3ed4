"""How the ranks of a group hand arrays to one another: gloo, beside the one that carries the script's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

Array = npt.NDArray[Any]


class Wire:
    """Arrays between the ranks of a group. All ranks call alike.

    Each call raises RuntimeError as gloo does, and does so after ``timeout`` at the latest.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta):
        self.rank, self.size = rank, size
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    def all_gather(self, own: Array) -> list[Array]:
        """The arrays of all ranks, by rank; all are as long as one's own, and of its type."""
        given = torch.from_numpy(np.ascontiguousarray(own))
        taken = [torch.empty_like(given) for _ in range(self.size)]
        self._gloo.allgather([taken], [given]).wait()
        return [array.numpy() for array in taken]

    def exchange(self, gives: list[Array]) -> list[Array]:
        """Give rank n ``gives[n]``; what each rank has given, by rank. All are alike in length and type."""
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
        """At rank 0, the arrays of all ranks, as ``all_gather``; None at the others."""
        given = torch.from_numpy(np.ascontiguousarray(own))
        if self.rank:
            self._gloo.send([given], 0, 0).wait()
            return None
        taken = [given, *(torch.empty_like(given) for _ in range(self.size - 1))]
        for work in [self._gloo.recv([array], rank, 0) for rank, array in enumerate(taken) if rank]:
            work.wait()
        return [array.numpy() for array in taken]

    def scatter(self, gives: list[Array] | None, like: Array) -> Array:
        """What rank 0 gives to this one, of the length and type of ``like``; the others give None."""
        if gives is None:
            taken = torch.empty(like.shape, dtype=torch.from_numpy(like[:0]).dtype)
            self._gloo.recv([taken], 0, 0).wait()
            return taken.numpy()
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in gives]
        for work in [self._gloo.send([array], rank, 0) for rank, array in enumerate(tensors) if rank]:
            work.wait()
        return gives[0]

    def abort(self) -> None:
        """End what is under way; what waits raises."""
        self._gloo.abort()
