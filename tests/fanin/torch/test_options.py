"""What ``FANIN_BACKEND`` may say."""

import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.torch import Options
from fanin.torch.options import VARIABLE


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("golden", Options()),
        ("rtl", Options(run="rtl")),
        ("gbps=25", Options(gbps=25)),
        ("rtl, preset=prototype, gbps=40", Options(run="rtl", preset="prototype", gbps=40)),
        ("codec=bfp,mantissa=5,block=8", Options(codec=Bfp(8, 5))),
        ("rtl,bound=2^-6,codec=inceptionn", Options(run="rtl", codec=Inceptionn(6, group=16))),
        (
            "codec=inceptionn,mode=published,preset=tiny",
            Options(preset="tiny", codec=Inceptionn(mode=Mode.PUBLISHED)),
        ),
        (
            "codec=mx,element=e2m1,block=16,rounding=stochastic",
            Options(codec=Mx(Element.E2M1, 16, Rounding.STOCHASTIC)),
        ),
        ("codec=fp16", Options(codec=Fp16())),
        ("golden,codec=none", Options()),
        ("rtl,collective=switch", Options(run="rtl", collective="switch")),
        ("report=time.txt", Options(report="time.txt")),
    ],
)
def test_what_is_understood(monkeypatch, text, options):
    monkeypatch.setenv(VARIABLE, text)
    assert Options.of(None) == options


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("verilog", "run must be one of golden, rtl, not 'verilog'"),
        ("golden,rtl", "'rtl' is not an option"),
        ("rtl,speed=3", "'speed=3' is not an option"),
        ("rtl,group=8", "'group=8' is not an option"),
        ("rtl,codec=", "'codec=' is not an option"),
        ("gbps=10,gbps=25", "gbps is given twice"),
        ("gbps=fast", "could not convert string to float"),
        ("gbps=-1", "gbps must be at least"),
        ("gbps=nan", "gbps must be at least"),
        ("preset=huge", "preset must be one of tiny, prototype, u280, not 'huge'"),
        ("collective=tree", "collective must be one of ring, switch, not 'tree'"),
        ("collective=switch,codec=bfp", "codec must be none with a switch, not bfp"),
        (
            "collective=switch,preset=tiny",
            "preset must not be given with a switch, not 'tiny': it is for ring nodes",
        ),
        ("codec=zip", "codec must be one of none, inceptionn, bfp, mx, bf16, fp16, not 'zip'"),
        ("codec=bfp,bound=2^-6", "bound is a parameter of inceptionn, not of bfp"),
        ("mantissa=6", "mantissa is a parameter of bfp, not of none"),
        ("codec=bfp,mantissa=99", "mantissa must be 3 to 15 bits, not 99"),
        ("codec=bfp,mantissa=x", "mantissa must be a whole number, not 'x'"),
        ("codec=inceptionn,bound=6", "bound must be a power of two as 2^-10, not '6'"),
        ("codec=mx,element=e9", "element must be one of e4m3, e5m2, e3m2, e2m3, e2m1, int8, not 'e9'"),
        ("codec=bf16,block=16", "block is a parameter of bfp and mx, not of bf16"),
        ("codec=inceptionn,mode=odd", "mode must be one of published, strict, not 'odd'"),
    ],
)
def test_what_is_refused(monkeypatch, text, cause):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InputError) as refused:
        Options.of(None)
    assert str(refused.value).startswith(f"FANIN_BACKEND={text}: {cause}")
    assert "\n" not in str(refused.value)


def test_options_of_another_kind_are_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "verilog")
    assert Options.of(Options(gbps=10)).gbps == 10
    with pytest.raises(InputError, match=r"pg_options must be fanin\.torch\.Options, not dict"):
        Options.of({})
