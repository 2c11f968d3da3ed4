"""Groups in ``fanin bench ring``: every shape has its figures; a wrong bit or byte misses a limit."""

import numpy as np
import pytest

from fanin.evaluation.bench import ring_groups
from fanin.ring.facts import PRESETS


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(ring_groups, "SIZES", PRESETS["tiny"])
    monkeypatch.setattr(ring_groups, "CODECS", {"no codec": None})
    monkeypatch.setattr(ring_groups, "COUNT", 2000)
    monkeypatch.setattr(ring_groups, "MAX_DEVIATION", 25)  # slices are shorter than a hop
    for name in ("GROUPS", "MEMBERS"):
        monkeypatch.setattr(ring_groups, name, 2)


@pytest.mark.slow
@pytest.mark.verilator
def test_every_shape_is_measured(tiny):
    rows = {row.name: row for row in ring_groups.measure()}
    assert len(rows) == 5 * len(ring_groups.plans())
    name = "2 × 2 workers, no codec, (b) rings below an aggregator: "
    assert rows[name + "values wrong"].value == rows[name + "bytes off NumPy's"].value == 0
    assert rows[name + "time in jobs"].note.startswith("6 rounds; with barriers")
    assert "above, up" in rows[name + "DATA frames"].note
    assert all(row.ok for row in rows.values()), [str(row) for row in rows.values() if not row.ok]


@pytest.mark.verilator
def test_a_golden_model_with_other_bits_and_bytes_is_a_missed_limit(tiny, monkeypatch):
    name = "(a) aggregators below an aggregator"
    plan = ring_groups.plans()[name]
    monkeypatch.setattr(ring_groups, "plans", lambda: {name: plan})
    monkeypatch.setattr(ring_groups.golden, "exchange", lambda vectors, *_: np.zeros_like(vectors[0]))
    monkeypatch.setattr(ring_groups.golden, "data_bytes", lambda *_: [0] * len(plan.rounds))
    missed = [row.name.rpartition(": ")[2] for row in ring_groups.measure() if not row.ok]
    assert missed == ["bytes off NumPy's", "values wrong"]
