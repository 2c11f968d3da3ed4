"""Measurement of a simulated codec's rate, which rows of two papers use."""

from __future__ import annotations

from fanin.evaluation.reproduce.row import Measurement
from fanin.evaluation.reproduce.value import inverse

COMPRESSOR, DECOMPRESSOR = range(2)  #: order of ``checks`` in the output of ``fanin codec verify``


def codec_rate(codec: str, part: int, *options: str) -> Measurement:
    """Return the measurement of the groups that the RTL of a codec takes per cycle, on random values.

    - ``codec``: codec of ``fanin codec verify``.
    - ``part``: ``COMPRESSOR`` or ``DECOMPRESSOR``.
    - ``options``: more options of the command, such as the codec's mode.
    """
    command = ("codec", "verify", "--codec", codec, *options, "--rtl", "--values", "100000")
    return Measurement(command, inverse(f"checks.{part}.cycles_per_group"), id_prefix="codec_verify")
