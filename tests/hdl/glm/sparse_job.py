"""A run of one sparse engine: the list and words of a job's features, packed entry by entry."""

import random
from dataclasses import dataclass

import numpy as np

from fanin.glm.facts import EntryKind
from fanin.hdl.glm.sparse_engine import SparseEngine
from tests.hdl.glm.engine_job import Job, random_job

FIELDS = ("chunk", "allow", "kind", "last")


@dataclass
class SparseJob(Job):
    """A job whose lists name the chunks in a random order, as far as the hazards allow."""

    order: int = 0  # seed of the order of entries

    def streams(self):
        entries, words = self.lists()
        return {"samples": words * self.epochs, "entries": entries * self.epochs}

    def engine(self, depth, fifo_depth):
        size = {"lanes": self.lanes, "banks": self.banks, "depth": depth, "fifo_depth": fifo_depth}
        return SparseEngine(**size, l2=self.decay is not None)

    def grid(self):
        return self.features.reshape(self.micro_batches, self.banks, self.chunks, self.lanes)

    def mini_batches(self):
        """Ranges of micro-batches."""
        count = self.micro_batches
        return [range(n, min(n + self.mini_batch, count)) for n in range(0, count, self.mini_batch)]

    def lists(self):
        """Entries and words of an epoch."""
        own, entries, words, finals = random.Random(self.order), [], [], None
        for micros in self.mini_batches():
            before, uses = finals, {micro: self.used(micro) for micro in micros}
            touched = set().union(*uses.values())
            every = set() if self.decay is None else set(range(self.chunks))
            if len(micros) == 1:
                touched |= every
            for micro in micros:
                chunks = uses[micro] | (touched if micro == micros[-1] else set())
                chunks |= every if micro == micros[0] else set()
                named = own.sample(sorted(chunks), len(chunks))
                if micro == micros[-1]:
                    finals = Finals(every - touched, named)
                for place, chunk in enumerate(named or [None]):
                    kind = EntryKind.EMPTY if chunk is None else EntryKind.COPY
                    if chunk in uses[micro]:
                        kind = EntryKind.WORDS
                        words += self.planes_of(micro, chunk)
                    elif chunk in every - touched:
                        kind = EntryKind.FINAL
                    last = place == max(len(named) - 1, 0)
                    entries.append(
                        {
                            "chunk": chunk or 0,
                            "allow": before.allowed(chunk) if before else 0,
                            "kind": int(kind),
                            "last": int(last),
                        }
                    )
        return entries, words

    def used(self, micro):
        """Chunks of a micro-batch with data."""
        return {int(c) for c in np.flatnonzero(self.grid()[micro].any(axis=(0, 2)))}

    def planes_of(self, micro, chunk):
        block = self.grid()[micro][:, chunk]
        planes = [block >> (self.planes - j) & 1 for j in range(1, self.planes + 1)]
        return [sum(int(bit) << n for n, bit in enumerate(plane.flat)) for plane in planes]


@dataclass
class Finals:
    """Chunks that a mini-batch writes: in its first micro-batch, in any order, and in its last, in order."""

    early: set
    late: list

    def allowed(self, chunk):
        """Final writes that may be missing when the next mini-batch reads a chunk."""
        if chunk in self.late:
            return len(self.late) - 1 - self.late.index(chunk)
        return len(self.late) if chunk in self.early else len(self.early) + len(self.late)


def sparse_job(rng, *, fill=0.4, **options):
    """A random job in which a chunk of a micro-batch has data with probability ``fill``."""
    job = random_job(rng, **options)
    kept = np.random.default_rng(rng.getrandbits(32)).random((job.micro_batches, 1, job.chunks, 1)) < fill
    shape = (job.micro_batches, job.banks, job.chunks, job.lanes)
    job.features = (job.features.reshape(shape) * kept).reshape(job.features.shape)
    return SparseJob(**vars(job), order=rng.getrandbits(32))
