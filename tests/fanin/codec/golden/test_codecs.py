"""A codec is added at the places that docs/ARCHITECTURE.md lists: here is one, and what forgets it says so."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import CONFIGS, Codec, Inceptionn
from fanin.codec.golden import codecs, scalar
from fanin.codec.golden.file import Header
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce


@dataclass(frozen=True)
class Bfloat16:
    """The upper half of every value."""

    kind: ClassVar[str] = "bfloat16"

    def pack(self):
        return bytes(2)

    @classmethod
    def unpack(cls, parameters):
        return cls()

    def stream_limits(self, count):
        return 2 * count, 2 * count

    def check_frame(self, *, lanes, frame_values):
        pass

    def max_word_bytes(self, lanes):
        return 2 * lanes


class Bfloat16Model:
    """Its golden model."""

    @staticmethod
    def encode(values, config):
        return (values.view(np.uint32) >> 16).astype("<u2").tobytes()

    @staticmethod
    def decode(stream, count, config):
        return (np.frombuffer(stream, "<u2").astype(np.uint32) << 16).view(np.float32)[:count]

    @staticmethod
    def roundtrip(values, config):
        return Bfloat16Model.decode(Bfloat16Model.encode(values, config), len(values), config)


VALUES = np.linspace(-1, 1, 64, dtype=np.float32)


def test_a_codec_is_added_by_its_parameters_and_its_model(monkeypatch):
    monkeypatch.setitem(codecs.MODELS, Bfloat16.kind, Bfloat16Model)
    own = Bfloat16()
    stream = codecs.encode(VALUES, own)
    assert len(stream) == own.stream_limits(64)[1]
    assert (codecs.decode(stream, 64, own) == codecs.roundtrip(VALUES, own)).all()
    ring = RingConfig(lanes=8, frame_words=4, slice_frames=2, buffer_frames=4, replay_frames=4, codec=own)
    assert (ring.frame_beats, ring.codec_kind) == (2, "bfloat16")
    total = all_reduce([VALUES, VALUES], ring)
    assert (total == codecs.roundtrip(codecs.roundtrip(VALUES, own) + VALUES, own)).all()


@pytest.mark.parametrize(
    ("place", "missing"),
    [
        (lambda own: codecs.encode(VALUES, own), "golden model"),
        (lambda own: codecs.roundtrip(VALUES, own), "golden model"),
        (lambda own: scalar.encode([0], own), "scalar reading"),
        (lambda own: scalar.roundtrip([0], own), "scalar reading"),
        (lambda own: make_compressor(own, 512), "compressor"),
        (lambda own: make_decompressor(own, 512), "decompressor"),
    ],
)
def test_where_a_codec_was_forgotten_it_is_named_not_taken_for_another(place, missing):
    with pytest.raises((ValueError, InputError), match=f"codec bfloat16 has no {missing}"):
        place(Bfloat16())


def test_every_codec_has_parameters_a_golden_model_and_a_number_on_the_wire():
    assert set(CONFIGS) == set(codecs.MODELS) == set(Codec) - {Codec.NONE}
    for config in CONFIGS.values():
        assert config.unpack(config().pack()) == config()
        assert Header.unpack(Header(config(), 5).pack()).config == config()
    assert Inceptionn.unpack(replace(Inceptionn(), group=16).pack()).group == 16
