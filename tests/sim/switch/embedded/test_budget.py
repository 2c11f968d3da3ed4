"""The time of one frame has an end, wherever a program repeats its code; other programs read no clock."""

import pytest

from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.emit import program_text
from fanin.sim.switch.embedded import Refused, budget, load, runtime
from fanin.sim.switch.embedded import tna as tna_model
from fanin.sim.switch.embedded import v1model as v1model_model

from .programs import PARTS, one, send, v1model
from .test_tna import ACTION as REGISTER
from .test_tna import FRAME, TO_3, tna

FUNCTION = PARTS["declarations"] + "bit<8> f(bit<8> x) { return x + 1; }"
ACTION = "action a() { hdr.h.a = 1; }"
TABLE = "table {0} {{ key = {{ hdr.h.a: exact; }} actions = {{ a; }} default_action = a(); }}"
BLOCK = PARTS["declarations"] + "control X(inout h_t h) { apply { h.a = 1; } }"
STATES = "state start {{ packet.extract(hdr.h); {0} }} state more {{ hdr.h.a = 2; {1} }}"
TO_START, TO_ACCEPT = (
    f"transition select(hdr.h.a) {{ 9: {end}; default: accept; }}" for end in ("start", "accept")
)

REPEATS = {
    "loop": {"apply": "for (bit<8> i = 0; i < 2; i = i + 1) {}"},
    "range": {"apply": "for (bit<8> i in 0 .. 1) {}"},
    "function": {"declarations": FUNCTION, "apply": "hdr.h.a = f(f(1));"},
    "action": {"locals": ACTION, "apply": "a(); a();"},
    "action of two tables": {
        "locals": ACTION + TABLE.format("t") + TABLE.format("u"),
        "apply": "t.apply(); u.apply();",
    },
    "table": {"locals": ACTION + TABLE.format("t"), "apply": "if (!t.apply().hit) { t.apply(); }"},
    "control": {"declarations": BLOCK, "locals": "X() x;", "apply": "x.apply(hdr.h); x.apply(hdr.h);"},
    "state": {"parser": STATES.format("transition more;", TO_START)},
    "long block": {"apply": "hdr.h.a = 1; " * 64},
}
ONCE = {
    "function": {"declarations": FUNCTION, "apply": "hdr.h.a = f(1);"},
    "table": {"locals": ACTION + TABLE.format("t"), "apply": "t.apply();"},
    "two controls": {
        "declarations": BLOCK,
        "locals": "X() x; X() y;",
        "apply": "x.apply(hdr.h); y.apply(hdr.h);",
    },
    "state": {"parser": STATES.format("transition more;", TO_ACCEPT)},
}


@pytest.fixture
def late(monkeypatch):
    """The time of each frame is over when generated code reads the clock."""
    monkeypatch.setitem(runtime.NAMES, "monotonic_ns", lambda: 1 << 80)


@pytest.mark.parametrize("name", REPEATS)
def test_a_frame_ends_where_code_is_repeated(late, name):
    with pytest.raises(Refused, match=r"test\.p4:\d+:\d+: one frame takes more than 20 s"):
        send(v1model(**REPEATS[name]).switch(), "01020304")


@pytest.mark.parametrize("name", ONCE)
def test_code_that_runs_once_reads_no_clock(late, name):
    one("01020304", **ONCE[name])


@pytest.mark.parametrize("target", list(Target))
def test_aggregation_reads_no_clock(target):
    assert "late()" not in load(program_text(ProgramConfig(target=target))).text


@pytest.mark.parametrize("apply", ["act.execute(0);", "act.execute(0); act.execute(0);"])
def test_an_action_of_a_register_counts_as_a_call(late, apply):
    locals_ = REGISTER.format(kind="bit<8>", initial="", body="result = value;")
    switch = tna(locals=locals_, apply=TO_3 + apply).switch()
    if apply.count("act") == 1:
        assert len(send(switch, FRAME)) == 1
        return
    with pytest.raises(Refused, match="one frame takes more than 20 s"):
        send(switch, FRAME)


@pytest.mark.parametrize("module", [tna_model, v1model_model])
def test_copies_end(monkeypatch, module):
    monkeypatch.setattr(module, "monotonic_ns", lambda: 1 << 80)
    program = tna(apply=TO_3) if module is tna_model else v1model()
    with pytest.raises(Refused, match="one frame takes more than 20 s"):
        send(program.switch(), FRAME)


WIDE = PARTS["declarations"] + "struct s_t { bit<8> x; bit<8> y; bit<8> z; }"


@pytest.mark.parametrize(
    ("locals_", "most"),
    [
        ("counter(4, CounterType.packets) k; register<bit<8>>(2) r;", 10),
        ("register<bit<8>>(4) q; register<s_t>(2) r;", 10),
        ("register<bit<8>>(4) q; register<bit<128>>(2) r;", 10),
        ("register<bit<8>>(2) q; register<bit<8>>(1 << 31) r;", (1 << 31) + 2),
    ],
)
def test_registers_and_counters_have_a_bound_together(monkeypatch, locals_, most):
    program = v1model(declarations=WIDE, locals=locals_)
    if most < 1 << 20:
        monkeypatch.setattr(budget.Budget, "values_left", most)
        program.switch()
    monkeypatch.setattr(budget.Budget, "values_left", min(most, 1 << 20) - 1)
    with pytest.raises(Refused, match=r"test\.p4:\d+:\d+: I\.r: registers and counters have more than "):
        program.switch()
