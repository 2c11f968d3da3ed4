"""Error feedback: the part of a gradient that a hook's compression loses is added to the next gradient.

Karimireddy et al., *Error Feedback Fixes SignSGD and other Gradient Compression Schemes*, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class ErrorFeedback:
    """State of a hook of ``fanin.torch.hooks``: the residual of each parameter of ``model`` on this rank.

    A residual belongs to a parameter, not to a bucket, because DistributedDataParallel changes its buckets
    after the first step. It is float32, in the units of the gradient, before the learning rate. Values that
    are not finite leave no residual. ``group``: process group of the hook; None for all ranks.
    """

    def __init__(self, model: torch.nn.Module, group: dist.ProcessGroup | None = None):
        module = model.module if isinstance(model, DistributedDataParallel) else model
        self.group = group
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        self._residuals: dict[str, torch.Tensor] = {}

    def corrected(self, bucket: dist.GradBucket) -> torch.Tensor:
        """Return the bucket's gradients plus their residuals, as a new float32 tensor of one dimension.

        Raises ValueError for a bucket of another model.
        """
        gradients = bucket.buffer().to(torch.float32, copy=True)
        for name, part in self._parts(bucket, gradients):
            if name in self._residuals:
                part += self._residuals[name].to(part.device)
        return gradients

    def keep(self, bucket: dist.GradBucket, residuals: torch.Tensor) -> None:
        """Store ``residuals``, the part of ``corrected(bucket)`` that was not sent."""
        for name, part in self._parts(bucket, residuals):
            self._residuals[name] = part.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def _parts(self, bucket: dist.GradBucket, flat: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Return the name of each parameter of a bucket, and its part of ``flat``."""
        parameters = bucket.parameters()
        if not all(parameter in self._names for parameter in parameters):
            raise ValueError("the state is the error feedback of another model")
        parts = flat.split([parameter.numel() for parameter in parameters])
        return [(self._names[parameter], part) for parameter, part in zip(parameters, parts, strict=True)]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of the residuals by parameter for a checkpoint; each rank has its own."""
        return {name: residual.clone() for name, residual in self._residuals.items()}

    def load_state_dict(self, residuals: Mapping[str, torch.Tensor]) -> None:
        """Restore residuals from ``state_dict``.

        Raises ValueError that names a parameter that the model does not have, or has in another size.
        """
        sizes = {name: parameter.numel() for parameter, name in self._names.items()}
        for name, residual in residuals.items():
            if name not in sizes:
                raise ValueError(f"{name} is not a parameter of the model")
            if residual.numel() != sizes[name]:
                raise ValueError(f"{name} has {sizes[name]:,} values, its residual {residual.numel():,}")
        self._residuals = {name: residual.clone().reshape(-1) for name, residual in residuals.items()}
