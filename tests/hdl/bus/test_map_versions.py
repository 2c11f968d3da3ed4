# amaranth: UnusedElaboratable=no
"""Versions of register maps: a map that changes has a new version.

``python -m tests.hdl.bus.test_map_versions`` writes ``map_versions.json`` anew after a change.
"""

import hashlib
import json
from pathlib import Path

from fanin.glm.facts import PRESETS
from fanin.hdl.catalog import CATALOG

RECORD = Path(__file__).with_name("map_versions.json")


def described(name):
    """Version of a node's map, and a digest of places, widths and access of all fields."""
    entry = CATALOG[name]
    registers = entry.registers(entry.build(PRESETS["demo"], {}))
    places = [
        (offset, str(register.access), index, word, [(f.name, shift, f.bits) for f, shift in register.shifts()])
        for offset, register, index, word in registers.words()
    ]
    digest = hashlib.sha256(json.dumps(places).encode()).hexdigest()[:16]
    return {"version": registers["version"].reset, "digest": digest}


def maps():
    return {name: described(name) for name, entry in CATALOG.items() if entry.registers}


def test_a_map_that_changed_has_a_new_version():
    record, now = json.loads(RECORD.read_text()), maps()
    assert now.keys() == record.keys()
    unchanged = [name for name in now if now[name]["version"] == record[name]["version"]]
    changed = [name for name in unchanged if now[name]["digest"] != record[name]["digest"]]
    assert changed == [], "raise the version of these maps"
    assert now == record, f"write {RECORD.name} anew"


if __name__ == "__main__":
    RECORD.write_text(json.dumps(maps(), indent=2) + "\n")
