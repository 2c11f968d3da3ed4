"""Comparison of two results."""

from __future__ import annotations

import cocotb

#: How to repeat a run; read here, since within a test cocotb keeps that test's own seed there.
REPEATS = f"COCOTB_RANDOM_SEED={cocotb.RANDOM_SEED} repeats this run"


def check_equal(name: str, expected: bytes, got: bytes, *, word_bytes: int = 4) -> None:
    """Raise AssertionError that names the first byte in which ``got`` differs from ``expected``, and its word.

    Words are little-endian numbers of ``word_bytes`` bytes, which is how a stream of that width shows them in
    a waveform.
    """
    if got == expected:
        return
    pairs = enumerate(zip(expected, got, strict=False))
    byte = next((at for at, (a, b) in pairs if a != b), min(len(expected), len(got)))
    number = byte // word_bytes
    word = slice(number * word_bytes, (number + 1) * word_bytes)
    want, found = _shown(expected[word]), _shown(got[word])
    raise AssertionError(f"{name}, word {number}, byte {byte}: expected {want}, got {found}; {REPEATS}")


def _shown(word: bytes) -> str:
    return f"0x{word[::-1].hex()}" if word else "nothing"
