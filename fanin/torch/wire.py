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

    def all_gather(self, array: Array) -> list[Array]:
        """Return the arrays of all ranks, by rank; all have the same length and type."""
        sent = torch.from_numpy(np.ascontiguousarray(array))
        received = [torch.empty_like(sent) for _ in range(self.size)]
        self._gloo.allgather([received], [sent]).wait()
        return [tensor.numpy() for tensor in received]

    def exchange(self, arrays: list[Array]) -> list[Array]:
        """Send ``arrays[n]`` to rank n; return the received arrays, by rank.

        All have the same length and type.
        """
        sent = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        received = [torch.empty_like(tensor) for tensor in sent]
        received[self.rank] = sent[self.rank]
        other_ranks = [rank for rank in range(self.size) if rank != self.rank]
        transfers = [self._gloo.recv([received[rank]], rank, 0) for rank in other_ranks]
        transfers += [self._gloo.send([sent[rank]], rank, 0) for rank in other_ranks]
        for transfer in transfers:
            transfer.wait()
        return [tensor.numpy() for tensor in received]

    def gather(self, array: Array) -> list[Array] | None:
        """Return the arrays of all ranks on rank 0, as ``all_gather`` does; None on the others."""
        sent = torch.from_numpy(np.ascontiguousarray(array))
        if self.rank:
            self._gloo.send([sent], 0, 0).wait()
            return None
        received = [sent, *(torch.empty_like(sent) for _ in range(self.size - 1))]
        for transfer in [self._gloo.recv([tensor], rank, 0) for rank, tensor in enumerate(received) if rank]:
            transfer.wait()
        return [tensor.numpy() for tensor in received]

    def scatter(self, arrays: list[Array] | None, template: Array) -> Array:
        """Return the array that rank 0 sends to this rank.

        - ``arrays``: on rank 0, the array for each rank; None on the other ranks.
        - ``template``: array with shape and type of the result.
        """
        if arrays is None:
            received = torch.empty(template.shape, dtype=torch.from_numpy(template[:0]).dtype)
            self._gloo.recv([received], 0, 0).wait()
            return received.numpy()
        sent = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        for transfer in [self._gloo.send([tensor], rank, 0) for rank, tensor in enumerate(sent) if rank]:
            transfer.wait()
        return arrays[0]

    def abort(self) -> None:
        """Abort transfers in flight; waiting calls raise."""
        self._gloo.abort()
