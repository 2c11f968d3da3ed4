"""docs/systems/sparse.md once more, slowly: entries from sets of chunks, and an interpreter of lists and words.

Shares nothing with ``fanin.glm.golden.lists``.
"""

from collections import Counter
from itertools import pairwise

import numpy as np

from fanin import fixed

WORDS, COPY, EMPTY, FINAL = range(4)


class StaleRead(Exception):
    """Forward reads a chunk before its final write."""


def expected_entries(codes, *, lanes, batch, decays=False):
    """``(chunk, allow, kind, last)`` of each entry of an epoch, for the dense codes of one engine."""
    if decays:
        return _decaying_entries(codes, lanes, batch)
    mini_batches = [
        [_chunks(codes[start : min(start + 8, first + batch)], lanes) for start in _micro(codes, first, batch)]
        for first in range(0, len(codes), batch)
    ]
    entries, previous = [], []
    for micro_batches, successor in pairwise([*mini_batches, []]):
        uses = {c: m for m, chunks in reversed(list(enumerate(successor))) for c in chunks}
        touched = set().union(*micro_batches)
        writes = sorted(touched, key=lambda c: (uses.get(c, len(successor)), c))
        allow = {c: len(previous) for c in touched - set(previous)}
        allow |= {c: len(previous) - 1 - previous.index(c) for c in touched & set(previous)}
        for m, chunks in enumerate(micro_batches):
            final = m == len(micro_batches) - 1
            names = writes if final else sorted(chunks, key=lambda c: (-allow[c], c))
            part = [(c, allow[c], WORDS if c in chunks else COPY) for c in names]
            part = part or [(0, len(previous), EMPTY)]
            entries += [(*entry, i == len(part) - 1) for i, entry in enumerate(part)]
        previous = writes
    return entries


def _decaying_entries(codes, lanes, batch):
    """Entries where each mini-batch changes all chunks: those that it does not use in its first micro-batch."""
    every = range(-(-codes.shape[1] // lanes))
    entries, early, late = [], [], []
    for first in range(0, len(codes), batch):
        micro = list(_micro(codes, first, batch))
        uses = [_chunks(codes[m : min(m + 8, first + batch)], lanes) for m in micro]
        total = len(early) + len(late)
        allow = {c: total - 1 - (early + late).index(c) if c in late else len(late) for c in every}
        if not early + late:
            allow = dict.fromkeys(every, 0)
        touched = every if len(uses) == 1 else sorted(set().union(*uses))
        for m, chunks in enumerate(uses):
            names = dict.fromkeys(chunks, WORDS)
            if m == len(uses) - 1:
                order = list(touched)
                names |= {c: COPY for c in touched if c not in chunks}
            elif m == 0:
                names |= {c: COPY if c in touched else FINAL for c in every if c not in chunks}
                order = sorted(names, key=lambda c: (-allow[c], c))
            else:
                order = sorted(names, key=lambda c: (-allow[c], c))
            part = [(c, allow[c], names[c]) for c in order] or [(0, total, EMPTY)]
            entries += [(*entry, i == len(part) - 1) for i, entry in enumerate(part)]
        early, late = [c for c in every if c not in touched], list(touched)
    return entries


def _micro(codes, first, batch):
    return range(first, min(first + batch, len(codes)), 8)


def _chunks(codes, lanes):
    return {int(k) // lanes for k in np.flatnonzero(codes.any(axis=0))}


class SlowEngine:
    """Engine of a sparse node. Forward is as early as the list allows; backward does an entry a step."""

    def __init__(self, entries, words, *, chunks, lanes, precision, micro_batches, decay=0, spared=None):
        self.decay, self.spared = decay, spared  # weights lose 2^-decay; (chunk, lane) of one that does not
        self.full, self.precision = micro_batches, precision
        self.epoch = list(self._parse(entries.tolist(), words, lanes))
        self.architectural = np.zeros((chunks, lanes), dtype=np.int64)
        self.accumulating = self.architectural.copy()
        self.turn = self.entry = 0  # of forward
        self.pa = np.zeros(8, dtype=np.int64)
        self.pas = []
        self.own, self.missing = [], Counter()  # final writes of this mini-batch, of earlier ones
        self.back_turn = self.back_entry = 0
        self.models = []

    def _parse(self, entries, words, lanes):
        used, micro_batch = 0, []
        for entry in entries:
            chunk, allow, kind, last = entry & 0xFFFF, entry >> 16 & 0x1FFF, entry >> 29 & 3, entry >> 31
            count = self.precision if kind == WORDS else 0
            bits = np.unpackbits(words[used : used + count], axis=1, bitorder="little")
            micro_batch.append((chunk, allow, kind, bits.reshape(count, 8, lanes).astype(np.int64)))
            used += count
            if last:
                yield micro_batch
                micro_batch = []
        assert not micro_batch
        assert used == len(words)

    def _of(self, turn):
        """Entries of a micro-batch, and whether it is the last of its mini-batch."""
        number = turn % len(self.epoch)
        return self.epoch[number], number == len(self.epoch) - 1 or number % self.full == self.full - 1

    def forward(self):
        """Take an entry; return whether the list allows it."""
        micro_batch, final = self._of(self.turn)
        chunk, allow, kind, planes = micro_batch[self.entry]
        if self.missing.total() > allow:
            return False
        if kind == WORDS:
            if self.missing[chunk] > 0:
                raise StaleRead(f"chunk {chunk} in micro-batch {self.turn}")
            for j, plane in enumerate(planes, 1):
                self.pa += plane @ (self.architectural[chunk] >> j)
        if (final and kind != EMPTY) or kind == FINAL:
            self.own.append(chunk)
        self.entry += 1
        if self.entry == len(micro_batch):
            self._end_micro_batch(final)
        return True

    def _end_micro_batch(self, final):
        self.pas.append(self.pa)
        self.turn, self.entry, self.pa = self.turn + 1, 0, np.zeros_like(self.pa)
        if final:
            self.missing.update(self.own)
            self.own = []

    def backward(self, scale):
        """Replay an entry with its micro-batch's scales."""
        micro_batch, final = self._of(self.back_turn)
        chunk, _, kind, planes = micro_batch[self.back_entry]
        gradient = np.zeros_like(self.accumulating[chunk])
        if kind == WORDS:
            gradient = sum((scale >> j) @ plane for j, plane in enumerate(planes, 1))
        if self.decay and self.back_turn % len(self.epoch) % self.full == 0:
            assert kind != EMPTY
            loss = [self._loss(weight) for weight in self.accumulating[chunk].tolist()]
            if self.spared is not None and self.spared[0] == chunk:
                loss[self.spared[1]] = 0
            gradient = gradient + loss
        if kind != EMPTY:
            self.accumulating[chunk] = fixed.saturate32(self.accumulating[chunk] - gradient)
        if (final and kind != EMPTY) or kind == FINAL:
            self.architectural[chunk] = self.accumulating[chunk]
            self.missing[chunk] -= 1
        self.back_entry += 1
        if self.back_entry == len(micro_batch):
            self.back_turn, self.back_entry = self.back_turn + 1, 0
            if self.back_turn % len(self.epoch) == 0:
                assert np.array_equal(self.architectural, self.accumulating)
                self.models.append(self.architectural.copy())

    def _loss(self, weight):
        """2^-decay of a weight, rounded away from zero."""
        magnitude = -(-abs(weight) // (1 << self.decay))
        return magnitude if weight > 0 else -magnitude


def interpret(engines, labels, *, loss, rate, frac, epochs):
    """Train ``[worker][engine]`` engines; return the models, [epoch][worker][engine, chunk, lane].

    ``labels``: int32[samples]. One entry of one engine goes backward only when no engine can go forward.
    """
    every = [engine for worker in engines for engine in worker]
    turns = len(every[0].epoch)
    assert {len(engine.epoch) for engine in every} == {turns}
    padded = np.zeros(8 * turns, dtype=np.int64)
    padded[: len(labels)] = labels
    labels, clamp = padded.reshape(turns, 8), fixed.clamp_bits(len(engines))
    scales = {}

    def scale(turn):
        if turn not in scales:
            pas = [sum(engine.pas[turn] for engine in worker) for worker in engines]
            fa = sum(fixed.clamp(pa, clamp) for pa in pas)
            scales[turn] = fixed.scale(fixed.df(fa, labels[turn % turns], loss, frac), *rate)
        return scales[turn]

    while any(engine.back_turn < epochs * turns for engine in every):
        for engine in every:
            while engine.turn < epochs * turns and engine.forward():
                pass
        complete = min(engine.turn for engine in every)
        ready = [engine for engine in every if engine.back_turn < complete]
        assert ready, "no engine can proceed"
        slowest = min(ready, key=lambda engine: engine.back_turn)
        slowest.backward(scale(slowest.back_turn))
    return [[np.stack([e.models[epoch] for e in worker]) for worker in engines] for epoch in range(epochs)]
