"""The members that all layers share have the bits that their users rely on."""

from fanin.hdl.layers.interface import LayerControl, Mode


def test_a_job_has_all_its_fields():
    control = LayerControl.const({"mode": Mode.LOAD, "start": 1, "frames": 5, "momentum": 0x3F80_0000})
    assert control.as_bits() == 0b110 | 5 << 3 | 0x3F80_0000 << 2 + 1 + 24 + 24 + 32 + 32
