"""Reader of ``results.parquet``, a campaign's table, which another user may have made.

Parquet can hold far more than its bytes: pages are compressed, each row repeats a text of a dictionary, and an
encoding by differences repeats prefixes. Arrow has no bound for these, so the pages' headers are read first.
Some damage ends Arrow's whole process, so a child process reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
from pyarrow import compute, parquet

from fanin.base.archive import max_unpacked_bytes
from fanin.base.child import ChildDied, in_child
from fanin.base.errors import InputError
from fanin.base.records import Record, parse_json

PARQUET_FILE = "results.parquet"
ROLES = b"fanin"  #: key in the Parquet file's metadata of the names of options and figures
MAX_CELLS = 10_000_000  #: maximum number of values in a table
_TYPES = (pyarrow.bool_(), pyarrow.int64(), pyarrow.float64(), pyarrow.string())

# Numbers of fields of Parquet's PageHeader in parquet.thrift.
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3  # size of a page's content, in bytes
_ENCODINGS = {5: 2, 7: 2, 8: 4}  # by page type (data, dictionary, data 2): the field of its encoding
_BOUNDED_ENCODINGS = (0, 2, 3, 8)  # PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY: values have their full length
_DAMAGED = "a page's header is damaged"

Fields = dict[int, Any]


def read_table(folder: Path) -> pyarrow.Table:
    """Return the table of a campaign's folder. Raises InputError."""
    path = folder / PARQUET_FILE
    if not path.is_file():
        raise InputError(f"{folder}: holds no {PARQUET_FILE} of fanin campaign")
    try:
        table = pyarrow.ipc.open_stream(in_child(lambda: _stream(path))).read_all()
        roles = parse_json((table.schema.metadata or {}).get(ROLES, b"{}"))
    except ChildDied:
        raise InputError(f"{path}: cannot be read: no Parquet that Arrow reads") from None
    except ValueError as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    _check_roles(path, roles, table.schema.names)
    return table


def _stream(path: Path) -> bytes:
    """Return a table as a stream of Arrow. Raises exceptions of many kinds; damage may end the process."""
    metadata = parquet.read_metadata(path)
    schema = metadata.schema.to_arrow_schema()
    for column in schema:
        if column.type not in _TYPES:
            raise ValueError(f"column {column.name!r} is {column.type}, which no campaign writes")
    _check_chunks(path, metadata)
    texts = [column.name for column in schema if column.type == pyarrow.string()]
    table = parquet.read_table(path, read_dictionary=texts, use_threads=False)  # the parent's threads are gone
    if _text_bytes(table) > max_unpacked_bytes(path):
        raise ValueError(f"has more than {max_unpacked_bytes(path):,} bytes of texts")
    stream = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(stream, schema) as writer:
        writer.write_table(table.cast(schema))
    return stream.getvalue().to_pybytes()


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


def _check_chunks(path: Path, metadata: parquet.FileMetaData) -> None:
    """Raise ValueError for more than ``MAX_CELLS`` values or :func:`max_unpacked_bytes` bytes of pages."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    if (cells := sum(chunk.num_values for chunk in chunks)) > MAX_CELLS:
        raise ValueError(f"has {cells:,} values; at most {MAX_CELLS:,} are read")
    if sum(chunk.total_compressed_size for chunk in chunks) > path.stat().st_size:
        raise ValueError("its columns overlap")
    unpacked = 0
    for chunk in chunks:
        for header in _page_headers(path, chunk):
            inner = [(header[kind], field) for kind, field in _ENCODINGS.items() if kind in header]
            if not all(
                isinstance(fields, dict) and fields.get(field) in _BOUNDED_ENCODINGS for fields, field in inner
            ):
                raise ValueError(f"column {chunk.path_in_schema!r} has an encoding that no campaign writes")
            unpacked += header[_UNPACKED_SIZE]
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
    offset = 0
    while offset < len(data):
        header, offset = _thrift_struct(data, offset)
        sizes = (header.get(_UNPACKED_SIZE), header.get(_PACKED_SIZE))
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(_DAMAGED)
        yield header
        offset += header[_PACKED_SIZE]


def _thrift_struct(data: bytes, offset: int) -> tuple[Fields, int]:
    """Return the fields of a struct of Thrift's compact protocol, by number, and the offset after it.

    Raises ValueError and IndexError. Text fields, which are statistics, are skipped.
    """
    fields: Fields = {}
    number = 0
    while header := data[offset]:
        offset, delta, kind = offset + 1, header >> 4, header & 15
        if delta:
            number += delta
        else:
            number, offset = _integer(data, offset)
        if kind in (1, 2):  # true, false
            continue
        if kind in (4, 5, 6):
            fields[number], offset = _integer(data, offset)
        elif kind == 8:  # a text
            length, offset = _varint(data, offset)
            offset += length
        elif kind == 12:
            fields[number], offset = _thrift_struct(data, offset)
        else:
            raise ValueError(_DAMAGED)
    return fields, offset + 1


def _integer(data: bytes, offset: int) -> tuple[int, int]:
    number, offset = _varint(data, offset)
    return number >> 1 ^ -(number & 1), offset


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        number |= (data[offset] & 127) << shift
        offset += 1
        if data[offset - 1] < 128:
            return number, offset
    raise ValueError(_DAMAGED)
