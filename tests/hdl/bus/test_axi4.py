"""AXI4 ports have the widths of the standard, and refuse parameters beyond it."""

import pytest

from fanin.hdl.bus.axi4 import AXI4ReadSignature, AXI4WriteSignature

SIGNATURES = pytest.mark.parametrize("signature", [AXI4ReadSignature, AXI4WriteSignature])


@SIGNATURES
@pytest.mark.parametrize(
    ("name", "least", "most"), [("data_width", 8, 1024), ("address_width", 1, 64), ("id_width", 0, 32)]
)
def test_parameters_have_their_limits(signature, name, least, most):
    widths = {"data_width": 64, "address_width": 40}
    for good in least, most:
        signature(**widths | {name: good})
    for bad in (least - 1, most + 1) if least else (most + 1,):
        with pytest.raises(ValueError, match=f"^{name} must be .* {least} to {most}, not {bad}$"):
            signature(**widths | {name: bad})


@SIGNATURES
def test_the_address_channel_is_as_arm_has_it(signature):
    port = signature(data_width=64, address_width=40).create()
    prefix = "ar" if signature is AXI4ReadSignature else "aw"
    widths = {"id": 1, "addr": 40, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4}
    seen = {
        name: len(getattr(port, prefix + name).as_value())
        if name == "burst"
        else len(getattr(port, prefix + name))
        for name in widths
    }
    assert seen == widths
