"""Parts that the fuzzers of all listening surfaces share: mutations, manners of speaking, bounds, lengths.

A fuzzer sends damaged forms of valid messages, and asserts after each that the answer is a legal one and came
in time. At its end it asserts that memory has not grown, and that a valid exchange works as before.
docs/reference/tests.md lists the fuzzers.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import new_seed

MINUTE = 60.0
DEPTHS = (10, 100, 900, 1000, 10_000)  # of nested JSON; Python's own limit is 1,000
#: Numbers at the ends of fields, beyond them, and beyond what Python writes in decimal.
NUMBERS = (0, 1, -1, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**32, 2**63, 2**64, 10**30, 10**4200)
TEXTS = ("", " ", "\0", "\n", "\x1b[31m", "%s", "é", "\ud800", "x" * 3000, "1" * 5000, "127.0.0.1", "::1%\x07")


@dataclass(frozen=True)
class Length:
    """Length of a fuzzer's run: so many rounds, or rounds until so many seconds have passed."""

    rounds: int | None = None
    seconds: float = MINUTE

    def each(self) -> Iterator[int]:
        """Number each round."""
        end, number = time.monotonic() + self.seconds, 0
        while number < self.rounds if self.rounds is not None else time.monotonic() < end:
            yield number
            number += 1


def lengths(rounds: int) -> Any:
    """Parametrize ``length``: ``rounds`` rounds in the quick lane, a minute in the slow one."""
    minute = pytest.param(Length(), marks=pytest.mark.slow, id="minute")
    return pytest.mark.parametrize("length", [pytest.param(Length(rounds), id="short"), minute])


def new_random() -> random.Random:
    """A generator whose seed is printed; FANIN_SEED repeats a run."""
    return random.Random(new_seed())


class Mutator:
    """Makes damaged messages from valid ones. ``longest``: bytes of the longest message."""

    def __init__(self, rng: random.Random, samples: Sequence[bytes], *, longest: int = 1 << 16):
        self.rng, self.samples, self.longest = rng, list(samples), longest
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            self._flipped, self._flipped, self._overwritten, self._cut, self._removed, self._inserted,
            self._repeated, self._spliced, self._counted, self._counted, self._enlarged,
        )  # fmt: skip

    def message(self) -> bytes:
        """A sample with one to four kinds of damage; now and then the sample as it is, or noise."""
        kind = self.rng.random()
        if kind < 0.03:
            return self.rng.randbytes(self.rng.randrange(200))
        data = self.rng.choice(self.samples)
        if kind < 0.08:
            return data
        return self.damaged(data)

    def damaged(self, data: bytes) -> bytes:
        """A message with one to four kinds of damage."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3, 4))):
            data = self.rng.choice(self._ways)(data)
        return data[: self.longest]

    def _at(self, data: bytes) -> int:
        return self.rng.randrange(len(data) + 1)

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.rng.choice((1, 1, 2, 8)) if data else 0):
            changed[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def _overwritten(self, data: bytes) -> bytes:
        at, size = self._at(data), self.rng.randint(1, 8)
        filled = self.rng.choice((b"\0" * size, b"\xff" * size, b"\x80" * size, self.rng.randbytes(size)))
        return data[:at] + filled + data[at + size :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._at(data)]

    def _removed(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + data[at + self.rng.randint(1, 16) :]

    def _inserted(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self.rng.randbytes(self.rng.randint(1, 16)) + data[at:]

    def _repeated(self, data: bytes) -> bytes:
        first, last = sorted((self._at(data), self._at(data)))
        return data[:first] + data[first:last] * self.rng.choice((2, 3, 20)) + data[last:]

    def _spliced(self, data: bytes) -> bytes:
        other = self.rng.choice(self.samples)
        return data[: self._at(data)] + other[self._at(other) :]

    def _counted(self, data: bytes) -> bytes:
        """A length or a count changed: one, two, four or eight bytes, in either order."""
        size = self.rng.choice((1, 2, 2, 4, 8))
        if len(data) < size:
            return data
        at = self.rng.randrange(len(data) - size + 1)
        order: Any = self.rng.choice(("big", "little"))
        before = int.from_bytes(data[at : at + size], order)
        number = self.rng.choice((before + 1, before - 1, 2 * before, *NUMBERS[:12])) % (1 << 8 * size)
        return data[:at] + number.to_bytes(size, order) + data[at + size :]

    def _enlarged(self, data: bytes) -> bytes:
        at, size = self._at(data), self.rng.choice((100, 1500, 5000, self.longest))
        return data[:at] + (data[at : at + 16] or b"x") * (size // 16) + data[at:]


class JsonMutator:
    """Makes damaged JSON from valid values: structure first, then now and then bytes, too."""

    def __init__(self, rng: random.Random, samples: Sequence[Any], *, longest: int = 1 << 16):
        self.rng, self.samples = rng, list(samples)
        self._bytes = Mutator(rng, [json.dumps(sample).encode() for sample in samples], longest=longest)

    def message(self) -> bytes:
        """A sample's text with damage to structure or bytes; damage to bytes alone brings newlines."""
        if self.rng.random() < 0.3:
            return self._bytes.message()
        value = json.loads(json.dumps(self.rng.choice(self.samples)))
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))):
            value = self.changed(value)
        text = json.dumps(value, ensure_ascii=self.rng.random() < 0.8)
        return self._nested(text).encode(errors="surrogatepass")[: self._bytes.longest]

    def changed(self, value: Any) -> Any:
        """The value with a part of it replaced, removed, doubled, or named otherwise."""
        rng = self.rng
        if not value or not isinstance(value, (dict, list)) or rng.random() < 0.15:
            return self.strange()
        if isinstance(value, list):
            at = rng.randrange(len(value))
            return [*value[:at], self.changed(value[at]), *value[at + rng.choice((0, 1, 1, 1)) :]]
        name = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {key: part for key, part in value.items() if key != name}
            case 1:
                return value | {rng.choice((*TEXTS[:8], name + "x", "id")): self.strange()}
            case _:
                return value | {name: self.changed(value[name])}

    def strange(self) -> Any:
        """A value of any type and size."""
        rng = self.rng
        simple = [None, True, False, 0.5, 1e308, float("nan"), float("inf"), [], {}, [[]], {"": {}}]
        any_ = [*simple, rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(TEXTS)]
        return rng.choice([*any_, rng.getrandbits(32), [rng.choice(NUMBERS)] * rng.choice((1, 2, 500))])

    def _nested(self, text: str) -> str:
        """The text with one of its parts nested deeply, now and then."""
        rng = self.rng
        if rng.random() < 0.9 or ": " not in text:
            return text
        # Depths about the limit are those where reading succeeds and writing may not.
        depth = rng.choice((*DEPTHS, *(rng.randint(850, 1000) for _ in range(6))))
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        head, _, tail = text.rpartition(": ")
        inner = tail.removesuffix("}") or "0"
        return f"{head}: {opening * depth}{inner}{closing * depth}}}"


def speak(connection: socket.socket, data: bytes, rng: random.Random, *, pause: float = 0.001) -> None:
    """Send a message whole, in pieces, slowly, and end as any peer may: open, half closed or reset.

    A peer that has hung up is no error.
    """
    with contextlib.suppress(OSError):
        match rng.randrange(4):
            case 0:
                cuts = sorted(rng.randrange(len(data) + 1) for _ in range(3))
                for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
                    connection.sendall(data[first:last])
            case 1:
                for at in range(min(len(data), 20)):
                    connection.sendall(data[at : at + 1])
                    time.sleep(pause)
                connection.sendall(data[20:])
            case _:
                connection.sendall(data)
        match rng.randrange(4):
            case 0:
                connection.shutdown(socket.SHUT_WR)
            case 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()


class Memory:
    """The memory of a process, this one by default, from now on."""

    def __init__(self, pid: int | None = None):
        self._folder = Path("/proc") / str(os.getpid() if pid is None else pid)
        (self._folder / "clear_refs").write_text("5")  # the peak begins anew
        self._before = self._read("VmRSS")

    @property
    def growth(self) -> int:
        """kB by which its peak exceeds the beginning."""
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


@contextlib.contextmanager
def within(seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Assert that the block takes less, by the wall clock or another one such as ``time.thread_time``."""
    began = clock()
    yield
    took = clock() - began
    assert took < seconds, f"took {took:.3g} s"


def is_one_line(text: object) -> bool:
    """Whether a message for users is one line of printable length."""
    return isinstance(text, str) and bool(text) and "\n" not in text
