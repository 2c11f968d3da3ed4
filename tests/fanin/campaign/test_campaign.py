"""``fanin campaign`` with one worker: the table, the page, what is skipped, and what is refused."""

import json
import os
import shutil
import signal
import socket
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pyarrow
import pytest
from distributed import Client
from distributed.security import Security
from pyarrow import parquet

from fanin.base.errors import InputError, ToolFailed
from fanin.campaign import supervisor, worker
from fanin.campaign.file import read_campaign
from fanin.campaign.folder import Folder
from fanin.campaign.results import _spreadsheet_cells
from fanin.campaign.supervisor import Task
from fanin.cli.main import build_parser, main
from fanin.runs.dask_cluster import connected_client
from fanin.runs.provenance.environment import sources_digest
from tests.fanin.campaign.support import alone, finish, rows, start, write_file
from tests.fanin.cli.json_page import documented
from tests.fanin.report.drawn import figures

WRONG = "[[run]]\nworkers = 40"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A campaign of two good runs and one of bad input: its file, its folder, and how it ended."""
    folder = tmp_path_factory.mktemp("campaign")
    file = write_file(folder, seeds=1, drop=[0.1])
    file.write_text(file.read_text() + WRONG)
    process = start(file, folder / "out", "--workers", 1, "--json", env=os.environ | {"TMPDIR": str(folder)})
    return file, folder / "out", finish(process)


@pytest.fixture
def copied(done, tmp_path):
    """The same in a folder of one's own."""
    file, output, _ = done
    return Path(shutil.copy(file, tmp_path)), shutil.copytree(output, tmp_path / "out")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out: (out / ".files.json").unlink(), "holds no .files.json"),
        (lambda out: _unlist(out, "report.html"), "report.html: is no file of fanin's; move it"),
        (lambda out: (out / "runs").rename(out / "r") and (out / "runs").symlink_to("r"), "runs: is a link"),
    ],
)
def test_what_no_list_names_is_not_replaced(copied, capsys, spoil, message):
    file, output = copied
    spoil(output)
    before = (output / "report.html").read_bytes()
    assert main(["campaign", str(file), "-o", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert (output / "report.html").read_bytes() == before


def _unlist(output, name):
    listed = json.loads((output / ".files.json").read_text())
    listed["files"].remove(name)
    (output / ".files.json").write_text(json.dumps(listed))


def test_runs_that_fail_are_recorded_and_do_not_stop_the_rest(done):
    _, output, (status, out, errors) = done
    assert (status, len(errors)) == (1, 1)
    assert "of 3 runs 1 failed, 0 not carried out; results.csv says which" in errors[0]
    found = documented("campaign run", out)
    assert (found["done"], found["failed"], found["missing"]) == (2, 1, 0)
    failed = [row["error"] for row in rows(output).values() if row["status"] == "failed"]
    assert failed == ["workers must be in 1…32, not 40: a packet's bitmap has 32 bits"]


def test_figures_are_those_of_the_command_alone(done, capsys):
    file, output, _ = done
    found = rows(output)
    campaign = read_campaign(file, build_parser())
    for name, printed in alone(campaign.runs[:2], capsys).items():
        row = found[name]
        assert (float(row["latency_ns.mean"]), int(row["packets"])) == (
            printed["latency_ns"]["mean"],
            printed["packets"],
        )
        assert int(row["switch.results"]) == printed["switch"]["results"]
        assert int(row["operations"]) == 3
        assert "figure.operations" not in row  # it says what the option says
        assert json.loads((output / "runs" / name / "result.json").read_text()) == printed


def test_a_figure_that_differs_from_the_option_of_its_name_is_kept():
    from fanin.campaign.results import _repeated

    rows = [{"a": 1, "figure.a": 1, "b": 2, "figure.b": 2}, {"a": 1}, {"a": 3, "figure.a": 3, "figure.b": 2}]
    assert _repeated(rows, ["a", "b"]) == {"figure.a"}


def test_both_tables_are_the_same(done):
    _, output, _ = done
    table = parquet.read_table(output / "results.parquet").to_pylist()
    assert [row["run"] for row in table] == list(rows(output))
    assert {(type(row["drop"]), type(row["workers"])) for row in table[:2]} == {(float, int)}


def test_no_cell_and_no_column_of_the_table_is_a_formula():
    table = pyarrow.table({"=1": ["x;=2", None], "n": [-1, 2]})
    assert _spreadsheet_cells(table).to_pydict() == {"'=1": ["x;'=2", None], "n": [-1, 2]}


def test_nothing_but_the_results_is_left(done):
    _, output, _ = done
    names = {".files.json", "campaign.json", "report.html", "results.csv", "results.parquet", "runs"}
    assert {path.name for path in output.iterdir()} == names
    assert {path.name for path in output.parent.iterdir()} == {"campaign.toml", "out"}
    assert all(not path.name.startswith(".") for path in (output / "runs").iterdir())


def test_a_link_in_the_place_of_a_run_is_not_followed(copied, tmp_path):
    file, output = copied
    folder = Folder(output, read_campaign(file, build_parser()))
    failed = next(each.run for each in folder.finished() if each.failed)
    place, other = folder.run_folder(failed), tmp_path / "other"
    place.rename(other)
    place.symlink_to(other)
    before = sorted(other.iterdir())
    with pytest.raises(InputError, match="is a link; remove it to carry out its run"):
        folder.begin([failed])
    assert sorted(other.iterdir()) == before


def test_a_link_that_takes_the_place_of_a_run_meanwhile_is_not_followed(tmp_path, capsys):
    place, scratch, other = tmp_path / "run", tmp_path / "scratch", tmp_path / "other"
    scratch.mkdir()
    (scratch / "run.json").write_text("{}")
    other.mkdir()
    (other / "thesis").touch()
    (other / ".files.json").write_text('{"mark": "run.json", "files": ["thesis"]}')
    place.symlink_to(other)
    assert supervisor._publish(scratch, place) == 1
    assert capsys.readouterr().err == f"{place}: is a link; remove it to carry out its run\n"
    assert {path.name for path in other.iterdir()} == {"thesis", ".files.json"}


def test_a_link_in_the_place_of_dasks_files_is_not_followed(tmp_path, monkeypatch):
    """The keys of a batch system's jobs would lie behind it."""
    output, other = tmp_path / "out", tmp_path / "other"
    for folder in (output, other):
        folder.mkdir()
    (output / ".fanin-dask").symlink_to(other)

    def connect(args, file, batch, scratch):
        (scratch / "keys").touch()
        raise InputError("no cluster")

    monkeypatch.setattr("fanin.campaign.execute.connected_client", connect)
    assert main(["campaign", str(write_file(tmp_path, seeds=1)), "-o", str(output)]) == 2
    assert list(other.iterdir()) == []
    assert not (output / ".fanin-dask").exists()


def test_a_run_that_is_repeated_keeps_the_users_files(copied):
    file, output = copied
    folder = Folder(output, read_campaign(file, build_parser()))
    failed = next(each.run for each in folder.finished() if each.failed)
    place = folder.run_folder(failed)
    listed = json.loads((place / ".files.json").read_text())
    assert listed["mark"] == "run.json"
    assert sorted(listed["files"]) == ["log.txt", "run.json"]
    (place / "notes.txt").write_text("mine")
    assert failed in folder.missing(failed=True)
    folder.begin([failed])
    assert [each.name for each in place.iterdir()] == ["notes.txt"]
    assert failed in folder.missing(failed=False)
    (place / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"has no list of fanin's files, \.files\.json; delete the folder"):
        folder.begin([failed])
    assert sorted(each.name for each in place.iterdir()) == ["notes.txt", "run.json"]


def _scratch(folder, word):
    (folder / "output/inner").mkdir(parents=True)
    for name in ("log.txt", "run.json", "output/inner/a.txt"):
        (folder / name).write_text(word)
    return folder


def test_a_runs_files_are_put_beside_the_users_and_never_into_a_whole_run(tmp_path, capsys):
    place = tmp_path / "run"
    (place / "output").mkdir(parents=True)
    (place / "output/mine.txt").write_text("mine")
    assert supervisor._publish(_scratch(tmp_path / "one", "first"), place) == 0
    assert supervisor._publish(_scratch(tmp_path / "two", "second"), place) == 0
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    assert found.keys() == {".files.json", "log.txt", "run.json", "output/inner/a.txt", "output/mine.txt"}
    assert found.pop("output/mine.txt").read_text() == "mine"
    assert "output/mine.txt" not in json.loads(found.pop(".files.json").read_text())["files"]
    assert {path.read_text() for path in found.values()} == {"first"}
    (tmp_path / "other/log.txt").mkdir(parents=True)
    assert supervisor._publish(_scratch(tmp_path / "three", "third"), tmp_path / "other") == 1
    assert capsys.readouterr().err.endswith("other: cannot take the run's files: log.txt is a folder\n")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["log.txt"]


def test_the_page_draws_what_varies(done):
    _, output, _ = done
    page = (output / "report.html").read_text()
    assert "2 done, 1 failed, 0 missing" in page
    assert {"latency_ns.mean", "packets"} <= set(figures(page))


def test_what_is_finished_is_skipped(copied, capsys):
    file, output = copied
    before = {path: path.stat().st_mtime_ns for path in (output / "runs").rglob("*")}
    assert main(["campaign", str(file), "-o", str(output)]) == 1
    assert "1 failed" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in (output / "runs").rglob("*")} == before


def test_another_campaign_and_another_fanin_are_refused(copied, capsys):
    file, output = copied
    text, mark = file.read_text(), output / "campaign.json"
    file.write_text(text.replace("workers = [2, 3]", "workers = [2]"))
    assert "out: is another campaign's: workers-3-drop-0.1-seed-0-" in _refused(file, output, capsys)
    file.write_text(text)
    value = json.loads(mark.read_text())
    mark.write_text(json.dumps(value | {"fanin": value["fanin"] | {"sources_sha256": "other"}}))
    assert "its runs are of another fanin; choose another -o" in _refused(file, output, capsys)
    mark.unlink()
    assert "out: holds no campaign.json of fanin campaign" in _refused(file, output, capsys)


def _refused(file, output, capsys, *options):
    assert main(["campaign", str(file), "-o", str(output), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_a_run_of_sources_that_were_edited_meanwhile_is_not_kept(tmp_path, monkeypatch):
    task = Task(
        place=str(tmp_path / "run"),
        argv=("--version",),
        output=None,
        folder=str(tmp_path),
        limit=60,
        keep=True,
        sources=sources_digest(),
    )
    with pytest.raises(InputError, match="is not the client"):
        worker.carry_out(replace(task, sources="others"))
    monkeypatch.setattr(worker, "_sources", lambda: "before")  # as the worker found them at its start
    with pytest.raises(ToolFailed, match=r"run: fanin's sources have changed since the campaign began$"):
        worker.carry_out(replace(task, sources="before"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(worker, "_sources", lambda: task.sources)
    worker.carry_out(task)
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "done"


def test_a_scheduler_that_does_not_answer_is_said_in_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fanin.runs.dask_cluster._ANSWER_SECONDS", 1.0)
    file = write_file(tmp_path, seeds=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # which takes a connection, and says nothing
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        err = _refused(file, tmp_path / "out", capsys, "--scheduler", address)
    assert f"--scheduler {address}: does not answer" in err
    assert time.monotonic() - began < 60
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_file_may_grow_and_failed_runs_are_repeated_on_request(copied):
    file, output = copied
    file.write_text(file.read_text().replace("seeds = 1", "seeds = 2"))
    (failed,) = (output / "runs").glob("workers-40-*")
    before = (failed / "run.json").stat().st_mtime_ns
    (failed / "notes.txt").write_text("mine")
    status, _, errors = finish(start(file, output, "--workers", 1, "--retry-failed"))
    assert (status, len(errors)) == (1, 1)
    assert (failed / "notes.txt").read_text() == "mine"
    assert (failed / "run.json").stat().st_mtime_ns > before
    assert [row["status"] for row in rows(output).values()].count("done") == 4


@pytest.mark.slow
def test_a_run_has_a_limit(tmp_path):
    file = write_file(tmp_path, seeds=1, operations=1_000_000)
    file.write_text(file.read_text().replace("timeout = 300", "timeout = 4").replace("[2, 3]", "2"))
    status, _, _ = finish(start(file, tmp_path / "out", "--workers", 2))
    assert status == 1
    assert {row["error"] for row in rows(tmp_path / "out").values()} == {"did not end in 4 s"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_campaign_that_is_told_to_end_leaves_what_is_finished(tmp_path, how):
    file, output = write_file(tmp_path, seeds=50), tmp_path / "out"
    process = start(file, output, "--workers", 1, start_new_session=True)
    while not (output / "runs").is_dir() or not list((output / "runs").glob("[!.]*")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(how)
    status, _, errors = finish(process)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert len(errors) <= 1
    assert {path.name for path in output.iterdir()} == {
        *(".files.json", "campaign.json", "report.html", "results.csv", "results.parquet", "runs")
    }
    statuses = [row["status"] for row in rows(output).values()]
    assert statuses.count("done") == len(list((output / "runs").iterdir())) >= 1


#: As Slurm's, it is done with the script when it ends: dask-jobqueue then deletes it.
SBATCH = """#!/bin/sh
script=$(cat "$1")
setsid sh -c "$script" > /dev/null 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = '#!/bin/sh\nkill -- "-$1"\n'


@pytest.mark.slow
def test_a_batch_system_gives_the_workers(tmp_path):
    """Slurm's two commands, as far as dask-jobqueue uses them: a job is a session of its own."""
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    file = write_file(tmp_path, seeds=1)
    batch = f'kind = "slurm"\njobs = 2\ncores = 1\nmemory = "1GB"\nlocal_directory = "{tmp_path / "dask"}"\n'
    file.write_text(file.read_text() + "[cluster]\n" + batch)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    status, out, errors = finish(start(file, tmp_path / "out", env=environment))
    assert (status, errors) == (0, [])
    assert out.endswith("out: 4 done, 0 failed, 0 missing\n")


def test_a_batch_system_that_is_not_there(tmp_path, capsys):
    file = write_file(tmp_path, seeds=1)
    file.write_text(file.read_text() + '[cluster]\nkind = "oar"\njobs = 1\n')
    assert "cluster.kind: oarsub of oar is not on this machine" in _refused(file, tmp_path / "out", capsys)


def test_a_batch_system_that_takes_no_job_is_quoted_at_once(tmp_path):
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin/sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: Invalid account' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    file = write_file(tmp_path, seeds=1)
    batch = '[cluster]\nkind = "slurm"\njobs = 1\ncores = 1\nmemory = "1GB"\n'
    file.write_text(file.read_text() + batch)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    status, _, errors = finish(start(file, tmp_path / "out", "--patience", 600, env=environment))
    again = "finished runs are kept; the same command carries out the missing ones"
    assert status != 0
    assert errors == [f"fanin: error: sbatch takes no job: sbatch: error: Invalid account; {again}"]


def test_nobody_else_has_code_carried_out_by_the_local_cluster(tmp_path):
    """Neither without keys, as any local user could, nor with keys of one's own."""
    file = write_file(tmp_path, seeds=1)
    with connected_client(Namespace(scheduler=None, workers=1), file, {}, tmp_path / "dask") as (client, _):
        address = client.scheduler.address
        assert client.submit(pow, 2, 5).result(timeout=30) == 32
        for stranger in (
            {"address": address.replace("tls://", "tcp://")},
            {"address": address, "security": Security.temporary()},
        ):
            with pytest.raises((OSError, TypeError)):
                Client(**stranger, timeout=2)


def _http_ports(info):
    return [
        info["services"]["dashboard"],
        *(each["services"]["dashboard"] for each in info["workers"].values()),
    ]


def test_the_local_cluster_has_no_pages(tmp_path):
    """Dask's pages would show paths and runs to every user of the machine, under any name of the host."""
    file = write_file(tmp_path, seeds=1)
    with connected_client(Namespace(scheduler=None, workers=1), file, {}, tmp_path / "dask") as (client, _):
        client.wait_for_workers(1)
        ports = _http_ports(client.scheduler_info())
        assert len(ports) == 2
        for port in ports:
            for page in (
                "/",
                "/status",
                "/info/main/workers.html",
                "/metrics",
                "/health",
                "/json/identity.json",
            ):
                with pytest.raises(HTTPError, match="404"):
                    urlopen(f"http://127.0.0.1:{port}{page}", timeout=10)


def test_workers_take_no_modules_from_the_working_directory(tmp_path, monkeypatch):
    """Dask starts them with ``python -c``, which puts the working directory first."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with connected_client(Namespace(scheduler=None, workers=1), Path("c.toml"), {}, tmp_path) as (client, _):
        assert client.submit(lambda: sys.flags.safe_path).result(100)
    assert "PYTHONSAFEPATH" not in os.environ
