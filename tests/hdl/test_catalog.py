# amaranth: UnusedElaboratable=no
"""The catalogue of ``fanin verilog``: every entry can be emitted, and takes its parameters from text."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import Bfp
from fanin.glm.facts import PRESETS
from fanin.hdl import catalog
from fanin.hdl.package import package
from tests.support import slow

LARGE = (  # nodes, which are emitted for co-simulation, too, and what takes as long as they
    "agg-transport",
    "bfp-compressor",
    "cluster-node",
    "convolution",
    "dense",
    "depthwise-convolution",
    "glm-node",
    "glm-worker",
    "glm-worker-data-parallel",
    "glm-worker-sparse",
    "inceptionn-compressor",
    "inceptionn-decompressor",
    "inceptionn-nic",
    "loss-unit",
    "online-norm",
    "param-server",
    "rdma-nic",
    "ring-nic",
    "ring-node",
)


def test_signals_are_assigned_one_by_one():
    """Amaranth names a signal after the variable of a plain assignment only."""
    unnamed = []
    for path in Path(catalog.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                calls = [value for value in node.value.elts if isinstance(value, ast.Call)]
                if any(ast.unparse(call.func) in ("Signal", "Signal.like") for call in calls):
                    unnamed.append(f"{path.name}:{node.lineno}")
    assert unnamed == []


@pytest.mark.parametrize("name", [*(name for name in catalog.CATALOG if name not in LARGE), *slow(*LARGE)])
def test_every_entry_is_verilog_with_a_top_of_its_name(name):
    verilog = package.emit(name, preset="tiny", settings={})
    assert re.search(rf"^module {name.replace('-', '_')}\(", verilog, re.MULTILINE)
    assert "$signal" not in verilog, "a signal without a name"


@pytest.mark.parametrize(
    ("name", "settings", "cause"),
    [
        ("convolution", {"pic": "3"}, "conv cannot be built with"),
        ("convolution", {"padding": "-1"}, "padding must be at least 0, not -1"),
        ("convolution", {"kernel": "11"}, "a window of 11×11 does not fit 10×10"),
        ("dense", {"gradient": "2"}, "gradient must be 0 or 1, not 2"),
        ("online-norm", {"channels": "0"}, "channels must be an integer in 1…"),
        ("softmax-loss", {"lanes": "3"}, "soft_cross_loss cannot be built with"),
    ],
)
def test_sizes_that_no_layer_has_are_refused(name, settings, cause):
    with pytest.raises(InputError, match=re.escape(cause)):
        package.emit(name, preset="tiny", settings=settings)


EMIT_ALL = """
from fanin.hdl.catalog import CATALOG
from fanin.hdl.package.package import emit
print(*(emit(name, preset="tiny", settings={}) for name in CATALOG))
"""


@pytest.mark.slow
def test_the_text_is_the_same_in_every_run(tmp_path):
    texts = [
        subprocess.run(
            [sys.executable, "-c", EMIT_ALL],
            env=os.environ | {"PYTHONHASHSEED": seed, "FANIN_CACHE": str(tmp_path / seed)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_every_entry_says_what_it_is(name):
    assert catalog.CATALOG[name].summary.endswith(".")


def test_settings_replace_what_the_preset_says():
    node = catalog.CATALOG["glm-node"].build(PRESETS["tiny"], {"engines": "3", "encap": "udp", "slots": "0x10"})
    assert (node.config.engines, node.config.encap, node.config.slots) == (3, "udp", 16)
    assert node.config.lanes == PRESETS["tiny"].lanes


@pytest.mark.parametrize(("text", "value"), [("False", False), ("0", False), ("true", True), ("1", True)])
def test_a_flag_is_true_or_false(text, value):
    node = catalog.CATALOG["glm-node"].build(PRESETS["tiny"], {"l2": text})
    assert node.config.l2 is value
    with pytest.raises(InputError, match="l2: 'no' is not a valid value; an example is False"):
        catalog.CATALOG["glm-node"].build(PRESETS["tiny"], {"l2": "no"})


def test_a_sparse_node_of_one_engine_is_verilog():
    """A register of one place is no array."""
    verilog = package.emit("glm-node", preset="tiny", settings={"sparse": "1", "lanes": "2"})
    assert "lists_0__araddr" in verilog or "lists__0__araddr" in verilog


def test_a_ring_node_takes_the_parameters_of_its_codec():
    settings = {"codec": "bfp", "mantissa": "8", "exponent": "5", "offset": "8"}
    node = catalog.CATALOG["ring-node"].build(PRESETS["tiny"], settings)
    assert node.config.codec == Bfp(16, 8, 5, 8)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nothing", {}, "no component 'nothing'; there are glm-node"),
        ("adder-tree", {"nope": "1"}, "no parameter 'nope'; there are inputs, width, radix"),
        ("adder-tree", {"radix": "two"}, "radix: 'two' is not"),
        ("adder-tree", {"radix": "9"}, "radix must be from 2 to 4, not 9"),
        (
            "adder-tree",
            {"inputs": "1000000000000"},
            "inputs: 1000000000000 is too large: sizes are at most 1,048,576",
        ),
        ("connection", {"data_width": "1024"}, "data_width must be a power of two from 32 to 512, not 1024"),
        (
            "connection",
            {"data_width": "1048576"},
            "data_width must be a power of two from 32 to 512, not 1048576",
        ),
        ("bfp-compressor", {"exponent": "9"}, "exponent must be 1 to 8 bits, not 9"),
        ("mx-compressor", {"element": "e9m9"}, "element: 'e9m9' is not a valid value; an example is e4m3"),
        ("mx-compressor", {"rounding": "up"}, "rounding: 'up' is not a valid value"),
        ("half-compressor", {"codec": "bfp"}, "codec must be bf16 or fp16, not bfp"),
        ("ring-node", {"tensor": "mx"}, "tensor must be none, bf16 or fp16, rounded to nearest, not mx, e4m3"),
        ("ring-node", {"codec": "mx", "block": "8"}, "block must be one of 16, 32, 64, not 8"),
        ("ring-node", {"codec": "bfp", "exponent": "0"}, "exponent must be 1 to 8 bits, not 0"),
        (
            "cluster-node",
            {"network": "big"},
            "network must be tiny or residual or pools or streamed, not 'big'",
        ),
        ("glm-node", {"engines": "9"}, "engines must be an integer in 1…8, not 9"),
    ],
)
def test_bad_names_and_values_are_refused_with_what_would_do(name, settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        package.emit(name, preset="tiny", settings=settings)
