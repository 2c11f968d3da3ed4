"""NumPy archives of others: whatever is wrong with one, a line says so."""

import io
import struct
import warnings
import zipfile

import numpy as np
import pytest

from fanin.base import archive as archives
from fanin.base.archive import member_names, read_archive, read_array

ENCRYPTED, METHOD, PACKED_SIZE = 6, 8, 18  # places in a member's header; in the directory 2 later


def member(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def archive(path, packed=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", packed) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def changed(path, place, value):
    """The same byte of every member's headers is another one."""
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\3\4", place), (b"PK\1\2", place + 2)):
        begin = -1
        while (begin := content.find(mark, begin + 1)) >= 0:
            content[begin + at] = value
    path.write_bytes(content)


def refusal(path):
    with pytest.raises(ValueError, match="archive") as found:
        read_archive(path)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_its_arrays_are_read_or_those_that_are_asked_for(tmp_path):
    path = archive(tmp_path / "a.npz", x=member(np.arange(3)), y=member(np.ones(2)), z=b"no array")
    assert {name: list(values) for name, values in read_archive(path, ("x", "w")).items()} == {"x": [0, 1, 2]}
    assert refusal(path) == "no NumPy archive of numbers: z is no array"


@pytest.mark.parametrize(
    ("place", "value", "cause"),
    [
        (ENCRYPTED, 1, "File 'x.npy' is encrypted, password required for extraction"),
        (METHOD, 99, "x is packed in another way than numpy.savez_compressed packs"),
    ],
)
def test_one_that_is_packed_in_another_way_is_refused(tmp_path, place, value, cause):
    path = archive(tmp_path / "a.npz", x=member(np.arange(3)))
    changed(path, place, value)
    assert refusal(path) == f"no NumPy archive of numbers: {cause}"


@pytest.mark.parametrize("packed", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_a_packing_without_bounded_steps_is_refused(tmp_path, packed):
    path = archive(tmp_path / "a.npz", packed, x=member(np.arange(3)))
    packs = "x is packed in another way than numpy.savez_compressed packs"
    assert refusal(path) == f"no NumPy archive of numbers: {packs}"


@pytest.mark.parametrize("other", ["x.npy", "x"])
def test_a_name_that_occurs_twice_is_refused(tmp_path, other):
    path = archive(tmp_path / "a.npz", x=member(np.arange(3)))
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "a") as file:
        file.writestr(other, member(np.arange(2)))
    assert refusal(path) == "no NumPy archive of numbers: two arrays are called 'x'"


def test_members_that_overlap_are_refused(tmp_path):
    """Each says that its packed bytes reach over the others'."""
    path = archive(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=member(np.arange(3)), y=member(np.arange(3)))
    changed(path, PACKED_SIZE + 1, 1)
    assert refusal(path) == "no NumPy archive of numbers: its arrays overlap"


def test_a_member_is_unpacked_in_steps(tmp_path, monkeypatch):
    """Neither a header of megabytes nor one that is no array's is unpacked at once."""
    steps = []
    read = zipfile.ZipExtFile._read1
    monkeypatch.setattr(zipfile.ZipExtFile, "_read1", lambda file, n: steps.append(n) or read(file, n))
    long = b"\x93NUMPY\2\0" + struct.pack("<I", 5 << 20) + b" " * (5 << 20)
    assert "EOF: reading array header" in refusal(archive(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=long))
    assert refusal(archive(tmp_path / "b.npz", zipfile.ZIP_DEFLATED, x=bytes(5 << 20))).endswith(
        "x is no array"
    )
    packed = archive(tmp_path / "c.npz", zipfile.ZIP_DEFLATED, x=member(np.zeros(5 << 20, np.uint8)))
    assert read_archive(packed)["x"].size == 5 << 20
    assert max(steps) <= 1 << 18


@pytest.mark.parametrize(
    ("shape", "kind", "said"),
    [
        (f"({1 << 44}, 4)", "<f4", "x.npy: has no (17592186044416, 4) elements of float32"),
        (f"({1 << 40}, 0)", "<f4", "x.npy: has no (1099511627776, 0) elements of float32"),
        (f"({1 << 40},)", "<U0", "x.npy: has no (1099511627776,) elements of <U0"),
        ("(" * 100, "<f4", "no NumPy archive of numbers: "),
    ],
)
def test_a_shape_that_no_memory_has_room_for_is_refused(tmp_path, shape, kind, said):
    fields = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    header = b"\x93NUMPY\1\0" + struct.pack("<H", len(fields)) + fields
    assert said in refusal(archive(tmp_path / "a.npz", x=header))
    (tmp_path / "x.npy").write_bytes(header)
    with pytest.raises(ValueError, match=r"^no NumPy array of numbers: ") as found:
        read_array(tmp_path / "x.npy")
    assert said.removeprefix("no NumPy archive of numbers: ") in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"PK\3\4", member(np.array([None], object)), b"\x80\4K\1."]
)
def test_a_file_that_is_no_array_is_refused(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"^no NumPy array of numbers: [^\n]+$"):
        read_array(tmp_path / "x.npy")


def test_an_array_is_read_as_it_was_written(tmp_path):
    for values in (np.arange(6.0).reshape(2, 3).T, np.array(["a", "bc"]), np.zeros((0, 5)), np.float32(3)):
        np.save(tmp_path / "x.npy", values)
        found = read_array(tmp_path / "x.npy")
        assert found.dtype == values.dtype
        assert np.array_equal(found, values)


def test_a_message_names_the_first_arrays_of_an_archive(tmp_path):
    path = archive(tmp_path / "a.npz", **{f"a{number}": member(np.arange(2)) for number in range(12)})
    assert member_names(path) == "a0, a1, a2, a3, a4, a5, a6, a7, and 4 more"
    assert member_names(archive(tmp_path / "b.npz")) == "nothing"


def test_arrays_without_elements_are_read(tmp_path):
    assert read_archive(archive(tmp_path / "a.npz", x=member(np.zeros((0, 30)))))["x"].shape == (0, 30)


def test_damage_is_found(tmp_path):
    path = archive(
        tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=member(np.random.default_rng(0).normal(size=300))
    )
    content = bytearray(path.read_bytes())
    for at in range(50, 1500, 50):
        content[at] ^= 0xFF
    path.write_bytes(content)
    assert refusal(path).startswith("no NumPy archive of numbers: ")
    path.write_bytes(content[:1000])
    assert refusal(path) == "no NumPy archive, or one that was cut off"


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """100,128 bytes of each member; zeros pack to a hundredth of that and less."""
    members = {"x": member(np.zeros(100_000, np.uint8)), "y": member(np.zeros(100_000, np.uint8))}
    path = archive(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, **members)
    assert len(read_archive(path)) == 2
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 200_255)
    size = path.stat().st_size
    assert size < 2002
    wanted = f"unpacks from {size:,} to more than 200,255 bytes; unpack it if that is right"
    with monkeypatch.context() as patched:
        patched.setattr(zipfile.ZipFile, "open", None)  # nothing is unpacked
        with pytest.raises(ValueError, match=wanted):
            read_archive(path)
    assert list(read_archive(path, {"x"})) == ["x"]
    monkeypatch.setattr(archives, "MAX_GROWTH", 200_256 // size + 1)
    assert len(read_archive(path)) == 2
