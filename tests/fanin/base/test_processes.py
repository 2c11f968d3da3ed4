"""A command's matrix products are the same on any number of cores."""

import os
import subprocess
import sys

import numpy as np
from threadpoolctl import threadpool_info

from fanin.base.processes import one_blas_thread

ASK = "import os; print(os.environ['OPENBLAS_NUM_THREADS'])"


def _threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_libraries_and_processes_have_one_thread_within(monkeypatch):
    np.ones(4) @ np.ones(4)  # the library is loaded
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = _threads()
    with one_blas_thread():
        assert _threads() == {1}
        done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
    assert _threads() == before
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in os.environ


def test_the_first_of_two_callers_that_ends_lifts_nothing(monkeypatch):
    np.ones(4) @ np.ones(4)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    before = _threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (_threads(), os.environ["OPENBLAS_NUM_THREADS"]) == ({1}, "1")
    second.__exit__(None, None, None)
    assert (_threads(), os.environ["OPENBLAS_NUM_THREADS"]) == (before, "3")


def test_commands_run_so(monkeypatch):
    monkeypatch.setattr("fanin.cli.main.run_on_ranks", lambda args: len(_threads() - {1}))
    from fanin.cli.main import main

    assert main(["doctor"]) == 0
