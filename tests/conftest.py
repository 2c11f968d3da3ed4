"""Settings that all tests share."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A deadline measures the machine, not the code. In CI every run draws the same examples.
settings.register_profile("fanin", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fanin")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collecting garbage: a million objects, all of which stay to the end."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result
