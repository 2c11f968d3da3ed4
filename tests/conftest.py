"""Settings that all tests share."""

import atexit
import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests import needs

pytest_plugins = ["tests.lanes"]

# A shell starts background jobs with SIGINT ignored, and commands under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline measures the machine, not the code. In CI every run draws the same examples.
settings.register_profile("fanin", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fanin")
# Hypothesis would also draw constants of all loaded modules: to parse them takes each process seconds, and
# a test's examples would depend on the tests before it.
providers.is_local_module_file = lambda path: False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collecting garbage: a million objects, all of which stay to the end."""
    gc.disable()
    result = yield
    gc.freeze()
    atexit.register(gc.unfreeze)  # else pyslang names each of its objects that it cannot free
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker ``needs`` names what this machine lacks."""
    needs.require(*(name for marker in item.iter_markers("needs") for name in marker.args))
