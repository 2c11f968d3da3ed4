"""The memory port of a device (docs/systems/cluster.md, "Store")."""

from __future__ import annotations

from fanin.layers.family import WORD_BITS

BEAT_BITS = 512  # of the memory port
BEAT_WORDS = BEAT_BITS // WORD_BITS
BURST = 16  # beats at most; bursts end at multiples of it
