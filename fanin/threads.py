"""How many threads the libraries of NumPy and SciPy compute with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within it matrix products take one thread, here and in processes that are started.

    With more they are summed in another order, so that a seed's bits would depend on the number of cores.
    """
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))  # of what is loaded, or started, from here on
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
