"""Process of a simulator: its failures without a result, in words."""

from types import SimpleNamespace

import pytest

from fanin.sim.cosim import process
from fanin.sim.cosim.process import SimulationFailed


@pytest.mark.parametrize(
    ("free", "text"), [(0, "/run: no space is left on its disk"), (1, "status 3; its last")]
)
def test_a_simulator_without_a_result_names_a_full_disk(tmp_path, monkeypatch, free, text):
    """Its own last lines are a traceback: it could not write them all, either."""
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(process.tempfile, "tempdir", str(tmp_path / "run"))
    monkeypatch.setattr(process.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))

    def ended(directory, folder, report, channels):
        (folder / "log").write_text("Traceback\n")
        return 3

    monkeypatch.setattr(process, "_execute", ended)
    with pytest.raises(SimulationFailed) as error:
        process.execute(tmp_path, SimpleNamespace(phases=()))
    assert text in str(error.value)
