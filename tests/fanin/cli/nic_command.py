"""``fanin nic run`` in network namespaces: what its tests have in common."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from fanin.host.lab import may_have_namespace

needs_root = pytest.mark.skipif(not may_have_namespace(), reason="network namespaces need root")
FANIN = (sys.executable, "-m", "fanin")
LIMIT = 60


@contextmanager
def running(lab, namespace, *command, lines=1):
    """A command that serves, once it says so; ended at the latest here."""
    process = lab.start(
        namespace, [*FANIN, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = [process.stderr.readline() for _ in range(lines)]
        assert all("error" not in line for line in said), said
        yield process
    finally:
        process.kill()
        process.communicate()
