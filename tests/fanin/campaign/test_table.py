"""Tables of others: what a few bytes of Parquet would take gigabytes for is refused before it is read."""

import contextlib
import json
import os
import signal

import pyarrow
import pytest
from pyarrow import parquet

from fanin.base import archive
from fanin.base.errors import InputError
from fanin.campaign import table
from fanin.campaign.table import read_table

ROWS = 3000
ROLES = {"options": ["o"], "figures": ["f"]}


def test_damage_that_ends_arrows_process(write, monkeypatch):
    """Arrow calls abort for wrong histograms of sizes, for instance."""
    folder = write(["a"] * ROWS)
    monkeypatch.setattr(parquet, "read_metadata", lambda path: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(InputError, match=r"results\.parquet: cannot be read: no Parquet that Arrow reads"):
        read_table(folder)


@pytest.fixture
def write(tmp_path):
    """Writes a table of the option ``o`` and the figure ``f``."""

    def write(o, f=(1.0,) * ROWS, *, roles=ROLES, **more):
        content = pyarrow.table({"o": o, "f": list(f)})
        content = content.replace_schema_metadata({b"fanin": json.dumps(roles).encode()})
        parquet.write_table(content, tmp_path / "results.parquet", **more)
        return tmp_path

    return write


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"compression": "zstd"},
        {"data_page_version": "2.0"},
        {"use_dictionary": False},
        {"row_group_size": 7},
    ],
    ids=str,
)
def test_a_table_is_read_as_it_was_written(write, more):
    texts = [None if number % 5 == 0 else f"text {number % 50}" for number in range(ROWS)]
    found = read_table(write(texts, range(ROWS), **more))
    assert found.schema.types == [pyarrow.string(), pyarrow.int64()]
    assert found.to_pydict() == {"o": texts, "f": list(range(ROWS))}


@pytest.mark.parametrize(
    ("values", "more", "cause"),
    [
        ([["a"] * 9] * ROWS, {}, "column 'o' is list<element: string>, which no campaign writes"),
        (pyarrow.array(["a"] * ROWS).dictionary_encode(), {}, "column 'o' is dictionary<values=string"),
        ([b"a"] * ROWS, {}, "column 'o' is binary, which no campaign writes"),
        (["x" * 100] * ROWS, {}, "has more than 200,000 bytes of texts"),
        (["x" * 100] * ROWS, {"use_dictionary": False}, "unpacks to more than 200,000 bytes"),
        (
            [f"{'x' * 100}{number}" for number in range(ROWS)],
            {"use_dictionary": False, "column_encoding": {"o": "DELTA_BYTE_ARRAY", "f": "PLAIN"}},
            "column 'o' has an encoding that no campaign writes",
        ),
    ],
    ids=["list", "dictionary", "binary", "repeated text", "page", "prefixes"],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_table_of_other_values_or_too_many_bytes_is_refused(write, monkeypatch, values, more, cause, version):
    folder = write(values, compression="zstd", data_page_version=version, **more)
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 200_000)
    monkeypatch.setattr(archive, "MAX_GROWTH", 1)
    with pytest.raises(InputError, match=f"^{folder}/results.parquet: cannot be read: {cause}"):
        read_table(folder)


@pytest.mark.parametrize(
    "roles", [{}, [], {"options": ["o"], "figures": ["g"]}, {"options": 1, "figures": ["f"]}]
)
def test_a_table_whose_roles_are_no_columns_is_refused(write, roles):
    with pytest.raises(InputError, match="is no table of fanin campaign"):
        read_table(write(["a"], [1.0], roles=roles))


def test_columns_that_overlap_are_refused(write):
    path = write(["a"], [1.0]) / "results.parquet"
    about = parquet.read_metadata(path)
    path.write_bytes(bytes(9))  # fewer than the columns say that they have
    with pytest.raises(ValueError, match="its columns overlap"):
        table._check_chunks(path, about)


def test_damaged_pages_are_an_input_error(write):
    path = write([f"text {number}" for number in range(ROWS)]) / "results.parquet"
    content = path.read_bytes()
    for at in range(4, 100, 5):  # each takes a process
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with contextlib.suppress(InputError):  # no other error
            read_table(path.parent)
