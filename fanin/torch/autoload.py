"""Registration of the backend's name: PyTorch calls ``register`` at the end of each ``import torch``."""

from __future__ import annotations

from typing import Any

from fanin.torch import BACKEND


def register() -> None:
    """Register the backend; its modules are loaded when a group is made.

    Does nothing in a PyTorch without ``torch.distributed``, or if the backend is registered already.
    """
    import torch.distributed as dist

    if dist.is_available() and BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])


def _create(opts: Any, options: Any) -> Any:
    from fanin.torch.options import Options
    from fanin.torch.process_group import FaninGroup

    return FaninGroup(opts, Options.of(options))
