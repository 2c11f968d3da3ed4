"""P4Runtime's data: values of P4 types there and back."""

import pytest
from finsy.proto import p4d, rpc_code

from fanin.sim.switch.embedded import types
from fanin.sim.switch.service.data import as_bytes, decode, encode, number_in
from fanin.sim.switch.service.faults import Fault

ERRORS = ["NoError", "NoMatch"]
SIGNED, BYTE = types.Bits(8, signed=True), types.Bits(8)
SIDE = types.Enum("Side", {"left": 0, "right": 1}, None)
CODE = types.Enum("Code", {"low": 3}, types.Bits(12))
PAIR = types.Record("struct", "Pair", {"one": SIGNED, "other": types.New("Name", BYTE)}, None)
NESTED = types.Record("struct", "Nested", {"pair": PAIR, "code": CODE}, None)


@pytest.mark.parametrize(
    ("value", "kind", "data"),
    [
        (0, BYTE, p4d.P4Data(bitstring=b"\0")),
        (255, BYTE, p4d.P4Data(bitstring=b"\xff")),
        (-128, SIGNED, p4d.P4Data(bitstring=b"\x80")),
        (127, SIGNED, p4d.P4Data(bitstring=b"\x7f")),
        (-129, types.Bits(16, signed=True), p4d.P4Data(bitstring=b"\xff\x7f")),
        (True, types.BOOL, p4d.P4Data(bool=True)),
        (3, CODE, p4d.P4Data(enum_value=b"\3")),
        ((-1, 7), PAIR, None),
        (((5, 0), 4095), NESTED, None),
        (1, SIDE, p4d.P4Data(enum="right")),
        (1, types.ERROR, p4d.P4Data(error="NoMatch")),
        (
            (2, True),
            types.Tuple((BYTE, types.BOOL)),
            p4d.P4Data(tuple=p4d.P4StructLike(members=[p4d.P4Data(bitstring=b"\2"), p4d.P4Data(bool=True)])),
        ),
    ],
)
def test_there_and_back(value, kind, data):
    found = encode(value, kind, ERRORS)
    assert data in (None, found)
    assert decode(found, kind, ERRORS) == value


@pytest.mark.parametrize(
    ("data", "kind", "code"),
    [
        (p4d.P4Data(bitstring=b""), BYTE, rpc_code.OUT_OF_RANGE),
        (p4d.P4Data(bitstring=b"\1\0"), BYTE, rpc_code.OUT_OF_RANGE),
        (p4d.P4Data(bitstring=b"\0\x80"), SIGNED, rpc_code.OUT_OF_RANGE),
        (p4d.P4Data(bool=True), BYTE, rpc_code.INVALID_ARGUMENT),
        (p4d.P4Data(), types.BOOL, rpc_code.INVALID_ARGUMENT),
        (p4d.P4Data(struct=p4d.P4StructLike()), PAIR, rpc_code.INVALID_ARGUMENT),
        (p4d.P4Data(tuple=p4d.P4StructLike()), types.Tuple((BYTE,)), rpc_code.INVALID_ARGUMENT),
        (p4d.P4Data(bool=True), types.ERROR, rpc_code.INVALID_ARGUMENT),
        (p4d.P4Data(error="Nothing"), types.ERROR, rpc_code.INVALID_ARGUMENT),
    ],
)
def test_what_does_not_fit(data, kind, code):
    with pytest.raises(Fault) as caught:
        decode(data, kind, ERRORS)
    assert caught.value.code == code


def test_numbers_take_no_more_bytes_than_they_need_and_may_come_in_more():
    assert [as_bytes(n, 32) for n in (0, 255, 256)] == [b"\0", b"\xff", b"\1\0"]
    assert number_in(b"\0\0\1\xff", 9, "port") == 511
    with pytest.raises(Fault, match="port: 512 does not fit in 9 bits"):
        number_in(b"\2\0", 9, "port")
