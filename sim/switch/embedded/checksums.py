"""Checksums and hashes over (value, width)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal

from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined
from fanin.sim.switch.embedded.values import UNDEFINED

Data = tuple[int, int]


def as_bytes(data: Data) -> bytes:
    """Return ``data`` as bytes. Raises RunRefused if it is undefined or not whole bytes."""
    value, width = data
    if value is UNDEFINED:
        raise RunUndefined("a checksum or hash over an undefined value")
    if width % 8:
        raise RunRefused(f"a checksum or hash over {width} bits: not whole bytes")
    return value.to_bytes(width // 8, "big")


def ones_complement_sum(data: bytes) -> int:
    """Return the 16-bit ones' complement sum, folded; an odd byte is the upper half of a word."""
    if len(data) % 2:
        data += b"\0"
    total = sum(memoryview(data).cast("H")) if data else 0
    total = total % 0xFFFF or (0xFFFF if total else 0)
    return int.from_bytes(total.to_bytes(2, _NATIVE), "big")


_NATIVE: Literal["little", "big"] = "little" if memoryview(b"\1\0").cast("H")[0] == 1 else "big"


def csum16(data: bytes) -> int:
    """Return the Internet checksum."""
    return ones_complement_sum(data) ^ 0xFFFF


def _crc16(data: bytes) -> int:
    """Return the CRC-16/ARC."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def _xor16(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total = 0
    for index in range(0, len(data), 2):
        total ^= int.from_bytes(data[index : index + 2], "big")
    return total


def _identity(data: bytes) -> int:
    if len(data) > 8:
        raise RunRefused("the identity hash over more than 64 bits")
    return int.from_bytes(data, "big")


HASHES: dict[str, Callable[[bytes], int]] = {
    "crc16": _crc16,
    "crc32": zlib.crc32,
    "csum16": csum16,
    "xor16": _xor16,
    "identity": _identity,
}


def selector_hash(algorithm: str, data: Data) -> int:
    """Return the selector's 32-bit hash of ``data``, which is padded with zero bits to whole bytes."""
    value, width = data
    return digest_of(algorithm, (value << -width % 8, width + -width % 8)) & 0xFFFFFFFF


def digest_of(algorithm: str, data: Data) -> int:
    """Return the hash of ``data``. Raises RunRefused for an unknown algorithm."""
    if algorithm not in HASHES:
        raise RunRefused(f"the hash {algorithm}")
    return HASHES[algorithm](as_bytes(data))
