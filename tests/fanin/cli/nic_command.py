"""``fanin nic run`` in network namespaces: what its tests have in common."""

import re
import subprocess
import sys
from contextlib import contextmanager
from itertools import islice

FANIN = (sys.executable, "-m", "fanin")
LIMIT = 60
#: Lines before the node is ready, where no earlier build is kept.
BUILDING = re.compile(r"(building the|another process builds the) simulator|simulator built in")


@contextmanager
def running(lab, namespace, *command, lines=1):
    """A command that serves, once it says so; ended at the latest here."""
    process = lab.start(
        namespace, [*FANIN, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output = (line for line in iter(process.stderr.readline, None) if not BUILDING.match(line))
        said = list(islice(output, lines))
        assert all("error" not in line for line in said), said
        yield process
    finally:
        process.kill()
        process.communicate()
