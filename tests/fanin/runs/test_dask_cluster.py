"""Dask clusters: signals that other packages take."""

import subprocess
import sys


def test_an_interrupt_still_interrupts_after_the_import_of_dask_jobqueue():
    """The package's own handler ends the process with status 0, whatever it was doing."""
    code = (
        "import signal\n"
        "from fanin.runs.dask_cluster import import_jobqueue\n"
        "import_jobqueue()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    assert done.returncode != 0
