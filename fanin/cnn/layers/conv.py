"""Two-dimensional convolution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import (
    Parallelism,
    Storage,
    ceil_div,
    divisors,
)
from fanin.cnn.layers.schedule import Schedule
from fanin.cnn.layers.window import Pair, Window, pixel_fits


@dataclass(frozen=True, kw_only=True)
class Conv(Window):
    """Two-dimensional convolution without bias, in ``groups``: pic × poc × ph multipliers each way."""

    kind: ClassVar[str] = "conv"
    depthwise: ClassVar[bool] = False  #: whether every output channel sees one input channel
    output_channels: int
    groups: int = 1

    def check(self) -> None:
        """Raise ValueError where groups do not divide the channels, too."""
        super().check()
        if self.input.c % self.groups or self.output_channels % self.groups:
            channels = f"{self.input.c} input and {self.output_channels} output channels"
            raise ValueError(f"{self.groups} groups do not divide {channels}")

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.output_channels

    @cached_property
    def group(self) -> Pair:
        """Input and output channels of one group."""
        return self.input.c // self.groups, self.output_channels // self.groups

    @property
    def parameters(self) -> int:
        """Weights."""
        return self.kernel[0] * self.kernel[1] * self.group[0] * self.output_channels

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The chip: a weight is needed again for every position."""
        return (Storage.CHIP,)

    @property
    def saved(self) -> int:
        """The input, for the weights' gradient."""
        return self.input.words

    def save_lanes(self, p: Parallelism) -> int:
        """As the input comes."""
        return p.pi

    def schedule(self, p: Parallelism) -> Schedule:
        """When it multiplies what."""
        return schedule_of(self, p)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Those of the schedule."""
        return self.schedule(p).lags

    def compute_cycles(self, p: Parallelism) -> int:
        """A step for every (ic/g/pic)·g·(oc/g/poc)·oh·(ow/ph)·kh·kw, and what rounds wait for the adders."""
        return self.schedule(p).cycles

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every (pic, poc, ph), with streams as ``with_streams`` has them."""
        for pic, poc, ph in product(divisors(self.group[0]), divisors(self.group[1]), divisors(self.output.w)):
            yield self.with_streams(Parallelism(pic=pic, poc=poc, ph=ph))

    def with_streams(self, p: Parallelism) -> Parallelism:
        """``p`` with the narrowest streams that slow its multipliers down as little as any do."""
        ends = tuple(zip((self.input.words, self.output.words), self.stream_widths(p), strict=True))
        cycles = max(self.compute_cycles(p), *(ceil_div(words, widths[-1]) for words, widths in ends))
        pi, po = (next(n for n in widths if words <= n * cycles) for words, widths in ends)
        return Parallelism(pic=p.pic, poc=p.poc, ph=p.ph, pi=pi, po=po)

    def stream_widths(self, p: Parallelism) -> tuple[list[int], list[int]]:
        """What pi and po may be, ascending: divisors of the channels that the memories take in a cycle."""
        ends = zip((self.input.c, self.output.c), self.channel_lanes(p), strict=True)
        inputs, outputs = ([n for n in divisors(c) if pixel_fits(n, lanes, p.ph)] for c, lanes in ends)
        return inputs, outputs

    def channel_lanes(self, p: Parallelism) -> Pair:
        """Input and output channels of a step."""
        return p.pic, p.poc

    def logic_part(self, storage: Storage) -> str:
        """One component for all kinds."""
        return "convolution" if storage is Storage.CHIP else "streamed dense"

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """Ways; the words of a block's step that they move, each turned by as many levels as ph asks for."""
        ways = 2 + self.gradient
        words = ways * sum(self.channel_lanes(p)) * p.ph
        return {
            "way": ways,
            "weight": self.parameter_width(p),
            "word": words,
            "level": words * (p.ph - 1).bit_length(),
            "stream": ways * (p.pi + p.po),
            "column": ways * p.ph,
        }

    def lanes(self, p: Parallelism) -> int:
        """Multipliers of one way."""
        return p.pic * p.poc * p.ph

    def parameter_width(self, p: Parallelism) -> int:
        """Weights of a cycle: columns share them."""
        return p.pic * p.poc

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows of maps, sums and results, of each way."""
        schedule = self.schedule(p)
        return tuple(found for way in schedule.ways for found in schedule.memories(way))


@lru_cache(maxsize=1 << 16)
def schedule_of(layer: Conv, p: Parallelism) -> Schedule:
    """Schedule of a convolution. Layers are asked for it again and again."""
    return Schedule(layer, p)
