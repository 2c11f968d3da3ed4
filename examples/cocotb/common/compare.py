"""Where two results differ first."""

from __future__ import annotations

import cocotb

#: How to repeat a run; read here, since within a test cocotb keeps that test's own seed there.
REPEATS = f"COCOTB_RANDOM_SEED={cocotb.RANDOM_SEED} repeats this run"


def check_equal(name: str, expected: bytes, got: bytes, *, word_bytes: int = 4) -> None:
    """Raise AssertionError that names the first word in which ``got`` differs from ``expected``.

    Words are little-endian numbers of ``word_bytes`` bytes, which is how a stream of that width shows them in
    a waveform.
    """
    if got == expected:
        return
    for at in range(0, max(len(expected), len(got)), word_bytes):
        want, found = expected[at : at + word_bytes], got[at : at + word_bytes]
        if want != found:
            raise AssertionError(
                f"{name}, word {at // word_bytes}: expected {_shown(want)}, got {_shown(found)}; {REPEATS}"
            )


def _shown(word: bytes) -> str:
    return f"0x{word[::-1].hex()}" if word else "nothing"
