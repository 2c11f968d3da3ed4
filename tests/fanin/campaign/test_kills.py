"""Client, scheduler and workers of a campaign are killed at random: every run is in the table once."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fanin.campaign.file import read_campaign
from fanin.cli.main import build_parser
from tests.fanin.campaign.support import LIMIT, alone, finish, rows, start, write_file
from tests.support import new_seed

KILLS, RUNS = 10, 200


class Cluster:
    """A scheduler, two workers, and a client that carries a campaign out; each is restarted when it died."""

    def __init__(self, file, output, scratch):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.file, self.output, self.scratch = file, output, scratch
        self.environment = os.environ | {"TMPDIR": str(scratch), "DASK_TEMPORARY_DIRECTORY": str(scratch)}
        self.parts = {}

    def _dask(self, *words):
        command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, env=self.environment, cwd=self.scratch, **quiet)

    def _begin(self, part):
        address = f"tcp://127.0.0.1:{self.port}"
        if part == "client":
            return start(self.file, self.output, "--scheduler", address, env=self.environment)
        if part == "scheduler":
            return self._dask(
                "dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
            )
        return self._dask("dask_worker", address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "60")

    def tend(self):
        """Start what is not there; the client's exit status where it has ended well."""
        for part in ("scheduler", "worker 0", "worker 1", "client"):
            process = self.parts.get(part)
            if process is None or process.poll() is not None:
                if part == "client" and process is not None:
                    status, _, errors = finish(process)
                    if status == 0:
                        return True
                    errors = [line for line in errors if not line.startswith("fanin: warning: ")]
                    assert all(line.startswith("fanin: error: ") for line in errors), errors
                    assert len(errors) <= 1
                self.parts[part] = self._begin(part)
        return False

    def kill(self, part):
        """Of a worker the process that runs things, not the nanny that replaces it."""
        victim = self.parts[part].pid
        children = (
            Path(f"/proc/{victim}/task/{victim}/children").read_text().split() if "worker" in part else ()
        )
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(children[-1]) if children else victim, signal.SIGKILL)

    def close(self):
        for process in self.parts.values():
            process.terminate()
        for process in self.parts.values():
            process.communicate(timeout=LIMIT)


def _finished(output):
    folder = output / "runs"
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def _processes(folder):
    """Those whose environment or command line names a folder."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            if str(folder).encode() in found and int(place.name) != os.getpid():
                yield (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.slow
def test_every_run_is_in_the_table_once_whatever_is_killed(tmp_path, capsys):
    source = random.Random(new_seed())
    file, output, scratch = write_file(tmp_path, seeds=RUNS // 4), tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    cluster, at = Cluster(file, output, scratch), sorted(source.sample(range(RUNS), KILLS))
    deadline = time.monotonic() + 60 * LIMIT
    try:
        while not cluster.tend():
            assert time.monotonic() < deadline
            while at and len(_finished(output)) >= at[0]:
                at.pop(0)
                time.sleep(source.random())
                cluster.kill(source.choice(["client", "scheduler", "worker 0", "worker 1"]))
            time.sleep(0.2)
    finally:
        cluster.close()
    assert at == []
    campaign = read_campaign(file, build_parser())
    found = rows(output)
    assert list(found) == [run.name for run in campaign.runs]
    assert {row["status"] for row in found.values()} == {"done"}
    for name, printed in alone(campaign.runs, capsys).items():
        assert json.loads((output / "runs" / name / "result.json").read_text()) == printed
        assert float(found[name]["latency_ns.p99"]) == printed["latency_ns"]["p99"]
    # Nothing is left: no process, no lock, no folder.
    assert list(_processes(tmp_path)) == []
    assert {path.name for path in output.iterdir()} == {
        *(".files.json", "campaign.json", "report.html", "results.csv", "results.parquet", "runs")
    }
    assert len(list((output / "runs").iterdir())) == RUNS
    left = [path for path in scratch.iterdir() if path.name != "dask-scratch-space"]  # the cluster's own
    assert left == []


@pytest.mark.slow
def test_a_killed_client_of_a_local_cluster_takes_its_runs_with_it(tmp_path):
    file, output = write_file(tmp_path, seeds=1, operations=100_000), tmp_path / "out"
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # by which its processes are known
    client = start(file, output, "--workers", 2, env=environment)
    deadline = time.monotonic() + LIMIT
    while not any("p4 allreduce" in line for line in _processes(tmp_path)):
        assert client.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    client.kill()
    client.communicate(timeout=LIMIT)
    while list(_processes(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
