"""Reader of ``results.parquet``, a campaign's table, which another user may have made.

Parquet can hold far more than its bytes: pages are compressed, a text of a dictionary counts once a row, and an
encoding by differences repeats prefixes. Arrow has no bound for these, so the pages' headers are read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import compute, parquet

from fanin.base.archive import max_unpacked_bytes
from fanin.base.errors import InputError
from fanin.base.records import Record, parse_json

PARQUET_FILE = "results.parquet"
ROLES = b"fanin"  #: key in the Parquet file's metadata of the names of options and figures
MAX_CELLS = 10_000_000  #: maximum number of values in a table
_TYPES = (pyarrow.bool_(), pyarrow.int64(), pyarrow.float64(), pyarrow.string())

# Fields of Parquet's PageHeader, by the numbers of parquet.thrift.
_UNPACKED, _PACKED = 2, 3  # of a page's content, in bytes
_ENCODINGS = {5: 2, 7: 2, 8: 4}  # by page type (data, dictionary, data 2): the field of its encoding
_WHOLE = (0, 2, 3, 8)  # PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY: values have their full length
_DAMAGED = "a page's header is damaged"

Fields = dict[int, Any]


def read_table(folder: Path) -> pyarrow.Table:
    """Return the table of a campaign's folder. Raises InputError."""
    path = folder / PARQUET_FILE
    if not path.is_file():
        raise InputError(f"{folder}: holds no {PARQUET_FILE} of fanin campaign")
    try:
        about = parquet.read_metadata(path)
        schema = about.schema.to_arrow_schema()
        for column in schema:
            if column.type not in _TYPES:
                raise ValueError(f"column {column.name!r} is {column.type}, which no campaign writes")
        _check_chunks(path, about)
        texts = [column.name for column in schema if column.type == pyarrow.string()]
        table = parquet.read_table(path, read_dictionary=texts)
        if _text_bytes(table) > max_unpacked_bytes(path):
            raise ValueError(f"has more than {max_unpacked_bytes(path):,} bytes of texts")
        roles = parse_json((schema.metadata or {}).get(ROLES, b"{}"))
    except (OSError, ValueError, IndexError, RecursionError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    _check_roles(path, roles, schema.names)
    return table.cast(schema)


def _check_roles(path: Path, roles: object, columns: list[str]) -> None:
    try:
        record = Record(str(path), "", roles)
        if {*record.texts("options"), *record.texts("figures")} <= set(columns):
            return
    except InputError:
        pass
    raise InputError(f"{path}: is no table of fanin campaign")


def _text_bytes(table: pyarrow.Table) -> int:
    """Return the bytes of all texts, with each repetition of a dictionary's text counted."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks if pyarrow.types.is_dictionary(column.type) else ():
            lengths = compute.binary_length(chunk.dictionary).cast(pyarrow.int64())
            total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


def _check_chunks(path: Path, about: parquet.FileMetaData) -> None:
    """Raise ValueError for more than ``MAX_CELLS`` values, or more bytes than :func:`max_unpacked_bytes`."""
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    if (cells := sum(chunk.num_values for chunk in chunks)) > MAX_CELLS:
        raise ValueError(f"has {cells:,} values; at most {MAX_CELLS:,} are read")
    if sum(chunk.total_compressed_size for chunk in chunks) > path.stat().st_size:
        raise ValueError("its columns overlap")
    unpacked = 0
    for chunk in chunks:
        for header in _page_headers(path, chunk):
            inner = [(header[kind], field) for kind, field in _ENCODINGS.items() if kind in header]
            if not all(isinstance(fields, dict) and fields.get(field) in _WHOLE for fields, field in inner):
                raise ValueError(f"column {chunk.path_in_schema!r} has an encoding that no campaign writes")
            unpacked += header[_UNPACKED]
    if unpacked > max_unpacked_bytes(path):
        raise ValueError(f"unpacks to more than {max_unpacked_bytes(path):,} bytes")


def _page_headers(path: Path, chunk: parquet.ColumnChunkMetaData) -> Iterator[Fields]:
    """Yield the header of each page of a column's chunk, as Arrow finds them."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(chunk.total_compressed_size)
    at = 0
    while at < len(data):
        header, at = _thrift_struct(data, at)
        sizes = (header.get(_UNPACKED), header.get(_PACKED))
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(_DAMAGED)
        yield header
        at += header[_PACKED]


def _thrift_struct(data: bytes, at: int) -> tuple[Fields, int]:
    """Return the fields of a struct of Thrift's compact protocol, by number, and the place after it.

    Raises ValueError and IndexError. Text fields, which are statistics, are skipped.
    """
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at, step, kind = at + 1, head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if kind in (1, 2):  # true, false
            continue
        if kind in (4, 5, 6):
            fields[number], at = _integer(data, at)
        elif kind == 8:  # a text
            length, at = _varint(data, at)
            at += length
        elif kind == 12:
            fields[number], at = _thrift_struct(data, at)
        else:
            raise ValueError(_DAMAGED)
    return fields, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    found, at = _varint(data, at)
    return found >> 1 ^ -(found & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 64, 7):
        found |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return found, at
    raise ValueError(_DAMAGED)
