"""What differs first between two results, and which fields of JSON are none."""

import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from fanin.base import archive
from fanin.base.plain import MAX_FILE_BYTES
from fanin.runs.output import Kind
from fanin.runs.provenance.results import difference, result_digest, results_of

KIND = Kind(
    "run", "run.json", "loss", (), results=("run.json", "states/*.npz"), ignored=("fanin", "build.fanin")
)


def _json(folder, name, value):
    path = folder / name
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"a": 1, "b": [1, {"c": 2}]}, {"b": [1, {"c": 2}], "a": 1}, ""),
        ({"a": [1, {"c": 2}]}, {"a": [1, {"c": 3}]}, "a[1].c was 2, is 3"),
        ({"a": {"b": 1}}, {"a": {}}, "a.b was 1, is absent"),
        ({"a": [1]}, {"a": [1, 2]}, "a was a list of 1, is a list of 2"),
        ({"a": 1}, {"a": True}, "a was 1, is true"),
        ({"a": 1, "fanin": "1", "build": {"fanin": "1"}}, {"a": 1, "fanin": "2", "build": {}}, ""),
        ({"a": 0.1}, {"a": 0.1 + 2**-56}, f"a was 0.1, is {0.1 + 2**-56}"),
    ],
)
def test_json_is_compared_field_by_field(tmp_path, before, after, said):
    files = [_json(tmp_path, f"{n}.json", value) for n, value in enumerate((before, after))]
    assert difference(*files, KIND.ignored) == said
    assert len({result_digest(file, KIND.ignored) for file in files}) == (2 if said else 1)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.5, 4.5]], "x: 2 of 4 values differ, the first is [1, 0]"),
        ([0.0, 1.0], [-0.0, 1.0], "x: 1 of 2 values differ, the first is [0]"),
        ([0.0], [0.0, 1.0], "x: was float64 of shape (1,), is float64 of shape (2,)"),
        ([np.nan], [np.nan], ""),
    ],
)
def test_arrays_are_compared_bit_by_bit(tmp_path, before, after, said):
    files = [tmp_path / "before.npz", tmp_path / "after.npz"]
    for file, values in zip(files, (before, after), strict=True):
        np.savez(file, same=np.arange(3), x=np.array(values))
    assert difference(*files, ()) == said


def test_files_of_others_are_read_within_bounds(tmp_path, monkeypatch):
    """A run's folder may come from anybody, its digests too."""
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 1 << 16)
    np.save(tmp_path / "now.npy", np.arange(3))
    np.savez(tmp_path / "now.npz", x=np.arange(3))
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (17592186044416,), }\n"
    bomb = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    (tmp_path / "was.npy").write_bytes(bomb)
    with zipfile.ZipFile(tmp_path / "was.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", bytes(4 << 20))
    for suffix, said in (
        (".npy", "was.npy: has no .* elements of float32"),
        (".npz", "unpacks from .* to more than"),
    ):
        with pytest.raises(ValueError, match=said):
            difference(tmp_path / f"was{suffix}", tmp_path / f"now{suffix}", ())
    (tmp_path / "was.json").write_text("[" * 2000 + "]" * 2000)
    with pytest.raises(ValueError, match=r"recursion|nested"):
        difference(tmp_path / "was.json", _json(tmp_path, "now.json", 1), ())


def test_large_json_and_other_files_are_compared_in_parts(tmp_path):
    """A sparse file takes no room on the disk, but all of its size in memory."""
    tracemalloc.start()
    try:
        for suffix in (".json", ".pcap"):
            files = [tmp_path / f"{n}{suffix}" for n in range(2)]
            for file in files:
                file.touch()
                os.truncate(file, MAX_FILE_BYTES + 1)
            assert len({result_digest(file, ()) for file in files}) == 1
            assert difference(*files, ()) == ""
            with files[1].open("r+b") as file:
                file.seek(MAX_FILE_BYTES)
                file.write(b"x")
            assert difference(*files, ()) == f"byte {MAX_FILE_BYTES:,} is the first that differs"
            os.truncate(files[1], 5)
            said = f"byte 5 is the first that differs; {MAX_FILE_BYTES + 1:,} bytes then, 5 now"
            assert difference(*files, ()) == said
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_array_that_is_missing_is_named(tmp_path):
    np.savez(tmp_path / "before.npz", x=1, y=2)
    np.savez(tmp_path / "after.npz", x=1)
    assert difference(tmp_path / "before.npz", tmp_path / "after.npz", ()) == "y: is missing"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"frames", b"frames", ""),
        (b"frames", b"frXmes", "byte 2 is the first that differs"),
        (b"frames", b"frames!", "byte 6 is the first that differs; 6 bytes then, 7 now"),
    ],
)
def test_other_files_are_compared_byte_by_byte(tmp_path, before, after, said):
    files = [tmp_path / "before.pcap", tmp_path / "after.pcap"]
    for file, content in zip(files, (before, after), strict=True):
        file.write_bytes(content)
    assert difference(*files, ()) == said


def test_results_are_those_of_the_kind_and_what_was_written_elsewhere(tmp_path):
    folder = tmp_path / "run"
    (folder / "states").mkdir(parents=True)
    for name in ("run.json", "states/a.npz", "states/notes.txt", "report.html"):
        (folder / name).write_text("{}")
    (tmp_path / "frames").write_text("frames")
    elsewhere = {"frames.pcap": tmp_path / "frames", "none.pcap": tmp_path / "none"}
    assert [*results_of(folder, KIND, elsewhere)] == ["run.json", "states/a.npz", "frames.pcap"]
