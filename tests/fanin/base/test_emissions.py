"""Verilog is noted where somebody asks for it, whether it was emitted or kept."""

import hashlib

from fanin.base.cache import recorded_emissions
from fanin.hdl.arith.adder_tree import AdderTree
from fanin.hdl.emission import kept_verilog


def test_what_is_emitted_inside_is_noted_by_module(tmp_path, monkeypatch):
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))

    def emit(name):
        return kept_verilog(AdderTree(inputs=2, width=4), name=name)

    emit("before")
    for _ in range(2):  # the second time it is kept
        with recorded_emissions() as found:
            text = emit("tree")
        assert found == {"tree": hashlib.sha256(text.encode()).hexdigest()}
    emit("behind")
    assert [*found] == ["tree"]
