"""``fanin bench serve`` where BMv2 is not installed; tests/sim/switch/test_bmv2.py measures it."""

from fanin.cli.bench import serve


def test_without_bmv2_it_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(serve.beside()) == []
    assert "BMv2 is not measured: p4c-bm2-ss is missing: install p4c" in capsys.readouterr().err
