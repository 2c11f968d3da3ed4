"""Registers of BMv2 through its Thrift server, since BMv2's P4Runtime neither reads nor writes them.

It makes three calls of BMv2's service ``standard`` in Thrift's binary protocol, multiplexed, without generated
code.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from fanin.base.errors import ToolFailed

_STOP, _I32, _I64, _STRING, _STRUCT = 0, 8, 10, 11, 12
_CALL, _REPLY = 1, 2
_VERSION = 0x8001_0000
_CONTEXT = 0
_CALL_TIMEOUT = 10.0  # seconds per call
_NUMBERS = {_I32: struct.Struct(">i"), _I64: struct.Struct(">q")}
_FIELD = struct.Struct(">bh")
_MAX_ANSWER, _MAX_DEPTH = 1 << 16, 8  # bytes of an answer, structs in structs; BMv2's have 100 and 1
_CODES = {1: "no such register", 2: "no such index", 3: "error"}  # RegisterOperationErrorCode


def connect_thrift(address: tuple[str, int]) -> socket.socket:
    """Return a connection to BMv2's Thrift server. Raises ToolFailed if there is none."""
    try:
        return socket.create_connection(address, _CALL_TIMEOUT)
    except OSError as error:
        raise ToolFailed(
            f"{address[0]}:{address[1]}: no Thrift server answers; BMv2's registers are reached through it "
            "alone, so simple_switch_grpc must have been built with Thrift"
        ) from error


class Registers:
    """Registers of the switch at the other end of ``connection``. A failed call raises ToolFailed."""

    def __init__(self, connection: socket.socket):
        self._socket, self._remaining = connection, 0  # bytes that an answer may still have
        connection.settimeout(_CALL_TIMEOUT)

    def read(self, name: str, index: int) -> int:
        """Return an entry, unsigned."""
        arguments = (_I32, _CONTEXT), (_STRING, name), (_I32, index)
        value = self._call("bm_register_read", *arguments)
        return int(value) & (1 << 64) - 1

    def write_range(self, name: str, start: int, end: int, value: int) -> None:
        """Set the entries [start, end) to ``value``."""
        arguments = (_I32, _CONTEXT), (_STRING, name), (_I32, start), (_I32, end), (_I64, value)
        self._call("bm_register_write_range", *arguments)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _call(self, method: str, *arguments: tuple[int, Any]) -> Any:
        fields = b"".join(
            _FIELD.pack(kind, number) + _encode(kind, value)
            for number, (kind, value) in enumerate(arguments, 1)
        )
        header = struct.pack(">I", _VERSION | _CALL) + _encode(_STRING, f"standard:{method}") + bytes(4)
        try:
            self._socket.sendall(header + fields + bytes([_STOP]))
            self._remaining = _MAX_ANSWER
            return self._reply(method)
        except OSError as error:
            raise ToolFailed(f"BMv2's Thrift server: {method}: {error.strerror or error}") from error

    def _reply(self, method: str) -> Any:
        version = self._number(">I")
        self._value(_STRING)
        self._number(">i")
        result = self._value(_STRUCT)
        if version != _VERSION | _REPLY:
            raise ToolFailed(f"BMv2's Thrift server refused {method}: {result.get(1, version)}")
        if failure := result.get(1):  # InvalidRegisterOperation
            raise ToolFailed(f"BMv2 refused {method}: {_CODES.get(failure.get(1), failure)}")
        return result.get(0)

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return _NUMBERS[kind].unpack(self._bytes(_NUMBERS[kind].size))[0]
        if kind == _STRING:
            return self._bytes(self._number(">i")).decode(errors="replace")
        if kind == _STRUCT and depth < _MAX_DEPTH:
            fields = {}
            while (field := self._number(">b")) != _STOP:
                number = self._number(">h")
                fields[number] = self._value(field, depth + 1)
            return fields
        raise ToolFailed(f"BMv2's Thrift server sent a value of the unexpected type {kind}")

    def _number(self, layout: str) -> int:
        return int(struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0])

    def _bytes(self, count: int) -> bytes:
        if not 0 <= count <= self._remaining:
            raise ToolFailed(f"BMv2's Thrift server sent an answer of more than {_MAX_ANSWER:,} bytes")
        self._remaining -= count
        data = bytearray()
        while len(data) < count:
            received = self._socket.recv(count - len(data))
            if not received:
                raise ConnectionResetError("the connection was closed")
            data += received
        return bytes(data)


def _encode(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        data = value.encode()
        return struct.pack(">i", len(data)) + data
    return _NUMBERS[kind].pack(value)
