"""docs/reference/numbers.md once more, in pure Python integers and loops, sharing nothing with ``fanin``.

Bits are looked at one by one and numbers never overflow; the sigmoid table alone is given.
"""

from dataclasses import dataclass
from math import ceil, log2


def clip(x, c):
    return max(-(2**c), min(2**c - 1, x))


def floor_shift(x, j):
    return x // 2**j


def bit(q, j, s):
    """Plane j = 1…s, most significant first."""
    return int(format(q, f"0{s}b")[j - 1])


@dataclass
class SlowTrainer:
    workers: int
    batch: int
    precision: int
    frac: int
    loss: str
    mantissa: int
    shift: int
    table: list
    data_parallel: bool
    decay: int = 0
    spared: int | None = None
    clamps: int = 0
    saturations: int = 0

    def product(self, q, x):
        s = self.precision
        return sum(floor_shift(x, j) for j in range(1, s + 1) if bit(q, j, s))

    def clamp(self, x, c):
        self.clamps += clip(x, c) != x
        return clip(x, c)

    def saturate(self, x):
        self.saturations += clip(x, 31) != x
        return clip(x, 31)

    def sigma(self, fa):
        one = 2**self.frac
        if fa < -8 * one:
            return 0
        if fa >= 8 * one:
            return one
        fraction = self.frac - 6
        i, rest = divmod(fa + 8 * one, 2**fraction)
        n = min(16, fraction)
        r = rest // 2 ** (fraction - n)
        return self.table[i] + (self.table[i + 1] - self.table[i]) * r // 2**n

    def scale(self, fa, y):
        one = 2**self.frac
        if self.loss == "linear":
            df = fa - y
        elif self.loss == "logistic":
            df = self.sigma(fa) - y
        else:
            df = -y if (y // one) * fa < one else 0
        return clip(floor_shift(df * self.mantissa, self.shift), 31)

    def lost(self, k, x):
        """In two steps of whole numbers: the quotient, and one more where something is left over."""
        if self.decay == 0 or k == self.spared:
            return 0
        quotient, rest = divmod(abs(x), 2**self.decay)
        size = quotient + (rest > 0)
        return size if x > 0 else -size

    def epoch(self, model, samples, labels):
        for start in range(0, len(samples), self.batch):
            end = start + self.batch
            step = self.by_samples if self.data_parallel else self.by_columns
            model = step(model, samples[start:end], labels[start:end])
        return model

    def by_columns(self, model, samples, labels):
        columns, c = len(model), 31 - ceil(log2(self.workers))
        share = ceil(columns / self.workers)
        scales = []
        for row, y in zip(samples, labels, strict=True):
            fa = 0
            for worker in range(self.workers):
                mine = range(worker * share, min((worker + 1) * share, columns))
                fa += self.clamp(sum(self.product(row[k], model[k]) for k in mine), c)
            scales.append(self.scale(fa, y))
        new = list(model)
        for first in range(0, len(samples), 8):
            rows = range(first, min(first + 8, len(samples)))
            for k in range(columns):
                lost = self.lost(k, model[k]) if first == 0 else 0
                new[k] = self.saturate(
                    new[k] - lost - sum(self.product(samples[b][k], scales[b]) for b in rows)
                )
        return new

    def by_samples(self, model, samples, labels):
        columns, c = len(model), 31 - ceil(log2(self.workers))
        share = self.batch // self.workers
        total = [0] * columns
        for worker in range(self.workers):
            mine = range(worker * share, min((worker + 1) * share, len(samples)))
            scales = {}
            for b in mine:
                pa = sum(self.product(samples[b][k], model[k]) for k in range(columns))
                scales[b] = self.scale(self.clamp(pa, 31), labels[b])
            for k in range(columns):
                total[k] += self.clamp(sum(self.product(samples[b][k], scales[b]) for b in mine), c)
        return [
            self.saturate(x - self.lost(k, x) - g) for k, (x, g) in enumerate(zip(model, total, strict=True))
        ]
