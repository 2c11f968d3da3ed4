"""Every Component says what it is, and what it says is so."""

import importlib
import inspect
import pkgutil
import re

import pytest
from amaranth import Fragment, signed
from amaranth.hdl import Value
from amaranth.lib import wiring

import fanin.hdl
from fanin.boards.sdram import SDRAM_8M
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.raster import Raster
from fanin.cnn.layers.schedule import Schedule
from fanin.cnn.memory import Frames, StoreConfig
from fanin.cnn.parts import PlacedNetwork
from fanin.codec.facts import Bf16, Bfp
from fanin.codec.formats import BINARY16, Element
from fanin.glm.facts import PRESETS
from fanin.hdl.boards.identity import Identity
from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.codec.bfp.format import BfpFormat
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.glm.node_registers import node_registers
from fanin.hdl.layers.network_port import EndShape
from fanin.hdl.stream.packet import packet_layout
from fanin.rdma.facts import PRESETS as RDMA_PRESETS
from fanin.ring.facts import PRESETS as RING_PRESETS
from fanin.wire.ethernet import Encap
from fanin.wire.ring import RING_LINK
from tests.fanin.cnn.layers.small import small_layer
from tests.support import slow

# The host's side of a network on two devices: with ends of connections.
PART = PlacedNetwork(EXAMPLES["tiny"], tuple("aaaabbaaaa")).parts[0]

SECTIONS = ("Members", "Parameters", "Latency", "Source")

# A value for every parameter name that has no default, or whose default takes long to elaborate.
SMALL = {
    "address_width": 16,
    "backward": False,
    "banks": 2,
    "base": 64,
    "beats": 4,
    "burst": 8,
    "capacity": 64,
    "clock_hz": 1_000_000,
    "completions": 4,
    "config": PRESETS["tiny"],
    "connections": 3,
    "consumers": 3,
    "count": 4,
    "data_width": 64,
    "depth": 264,
    "drain": 5,
    "early_reads": True,
    "element": Element.E4M3,
    "encap": Encap.L2,
    "ends": (EndShape(2, 6, 3), EndShape(3, 6, 3)),
    "engines": 2,
    "fifo_depth": 16,
    "fill": 0,
    "form": RING_LINK,
    "frac": 24,
    "frame": 48,
    "frame_beats": 4,
    "group_frames": 4,
    "groups": 2,
    "i": 2,
    "input_width": 8,
    "identity": Identity(board=1, build=2, mac=3, ip=4),
    "inputs": 4,
    "interval": 5,
    "kinds": 2,
    "l2": True,
    "lanes": 4,
    "layout": BINARY16,
    "limit": 16,
    "gradient_values": 2,
    "gradient_skews": PART.gradient_skews,
    "label_bytes": 8,
    "latency": 3,
    "layer": None,
    "lease_cycles": 100,
    "mac_width": 64,
    "mantissa": 7,
    "max_bytes": 34,
    "max_frame": 128,
    "max_items": 16,
    "max_mini_batch": 16,
    "micro_batches": 3,
    "memories": ((64, 32), (128, 8)),
    "network": PART.network,
    "o": 5,
    "operand": signed(8),
    "operands": 2,
    "output_width": 16,
    "parallelism": Parallelism(),
    "parameters": 8,
    "port": AXI4LiteSignature(address_width=16),
    "positions": 3,
    "raster": Raster(height=2, width=4, groups=2, lanes=20, columns=2, positions=2, steps=2),
    "reads": (0, 0),
    "receive": True,
    "sections": (3, 2),
    "regions": ((0x1000, 12), (0x2000, 8)),
    "registers": node_registers(PRESETS["tiny"]),
    "rings": PART.rings,
    "rounds": 3,
    "row": 20,
    "rows": 3,
    "schedule": Schedule(
        Conv(inputs=(Shape(2, 2, 2),), gradient=True, kernel=(1, 1), stride=(2, 2), output_channels=2),
        Parallelism(),
    ),
    "results": 1,
    "returning": 3,
    "sample_bytes": 32,
    "sample_ports": 2,
    "scales_pass": True,
    "sdram": SDRAM_8M,
    "shape": 8,
    "skews": PART.skews,
    "size": 64,
    "slots": 4,
    "source": 2,
    "tag": 3,
    "tail": 2,
    "target": 5,
    "tensor": Bf16(),
    "timing": SDRAM_8M.timing(50e6),
    "trees": (((0, 0), (1, 1)),),
    "trains": True,
    "transfers": 3,
    "values": 8,
    "vanilla": True,
    "wait": True,
    "waiting": 3,
    "width": 256,
    "widths": (1, 3, 4),
    "word_address_width": 8,
    "word_bits": 16,
    "word_bytes": 8,
    "words": 10,
    "writes": 0,
}
FRAME = Shape(2, 3, 2)
# Where a name is not enough: by the parameter's type.
SMALL_OF_TYPE = {
    "Dense": Dense(inputs=(FRAME,), gradient=True, output_channels=2),
    "Conv": Conv(inputs=(FRAME,), gradient=True, kernel=(1, 1), stride=(2, 2), output_channels=2),
    "GlmConfig | None": None,
    "RingConfig": RING_PRESETS["tiny"],
    "Sdram | None": None,
    "RdmaConfig": RDMA_PRESETS["tiny"],
    "StoreConfig": StoreConfig(readers=(Frames(6, 2),), writers=(Frames(6, 2),), sections=(3, 2)),
    "Words": Words(256, BfpFormat(Bfp(exponent=5))),
    "data.StructLayout": packet_layout(32),
    **{
        f"{name}.{kind.__name__}": small_layer(kind, FRAME)
        for name, kind in layer_kinds().items()
        if kind.component and not issubclass(kind, Conv)
    },
}


def _components():
    found = {}
    for module in pkgutil.walk_packages(fanin.hdl.__path__, "fanin.hdl."):
        for _, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(value, wiring.Component) and value.__module__ == module.name:
                name = value.__qualname__
                if name in found:  # of another system
                    name = f"{module.name.split('.')[-2]}.{name}"
                found[name] = value
    return found


COMPONENTS = _components()
# These take seconds to elaborate, most as the parts of one another.
LARGE = ("Backward", "ClusterNode", "GlmWorker", "GroupCutter", "InceptionnReceiver", "RingNic", "RingNode")
every_component = pytest.mark.parametrize("name", sorted(COMPONENTS))


def _small(name):
    """An instance that is quick to elaborate."""
    values = {}
    for parameter in _constructor_parameters(COMPONENTS[name]):
        kind = getattr(parameter.annotation, "__name__", parameter.annotation)
        if parameter.name in SMALL:
            values[parameter.name] = SMALL_OF_TYPE.get(kind, SMALL[parameter.name])
    component = COMPONENTS[name](**values)
    component._MustUse__used = True  # most tests look at its signature alone
    return component


def _own_members(component):
    """The members that the component itself names, and not a register map that it was given."""
    registers = component.registers.registers if hasattr(component, "registers") else ()
    return set(component.signature.members) - {field.name for register in registers for field in register.parts}


def _constructor_parameters(component):
    return [p for p in inspect.signature(component.__init__).parameters.values() if p.name != "self"]


def _section(component, heading):
    doc = inspect.cleandoc(component.__doc__ or "")
    found = re.search(
        rf"^{heading}\n-{{{len(heading)}}}\n(.*?)(?=^\w+\n-+\n|\Z)", doc, re.MULTILINE | re.DOTALL
    )
    return found[1] if found else None


def _driven(fragment):
    """Every signal that a fragment or one of its submodules assigns."""
    for statements in fragment.statements.values():
        yield from statements._lhs_signals()
    for subfragment, *_ in fragment.subfragments:
        yield from _driven(subfragment)


def test_the_walk_finds_components():
    assert len(COMPONENTS) > 15


@every_component
def test_docstring_has_every_section(name):
    missing = [heading for heading in SECTIONS if not (_section(COMPONENTS[name], heading) or "").strip()]
    assert not missing


@every_component
def test_every_member_is_documented(name):
    members = _section(COMPONENTS[name], "Members")
    assert [m for m in _own_members(_small(name)) if f"``{m}``" not in members] == []


@every_component
def test_every_documented_member_exists(name):
    """A port that was renamed or removed leaves its description behind."""
    headings = re.findall(r"^(``\w+``(?:, ``\w+``)*) :", _section(COMPONENTS[name], "Members"), re.MULTILINE)
    named = {member for heading in headings for member in re.findall(r"``(\w+)``", heading)}
    assert named - set(_small(name).signature.members) == set()


@every_component
def test_every_parameter_is_keyword_only_and_documented(name):
    parameters = _constructor_parameters(COMPONENTS[name])
    section = _section(COMPONENTS[name], "Parameters")
    assert [p.name for p in parameters if p.kind != p.KEYWORD_ONLY] == []
    assert [p.name for p in parameters if f"``{p.name}``" not in section] == []


@pytest.mark.parametrize("name", [*sorted(COMPONENTS.keys() - LARGE), *slow(*LARGE)])
def test_no_input_is_driven_from_inside(name):
    component = _small(name)
    inputs = {
        id(signal): ".".join(map(str, path))
        for path, member, value in component.signature.flatten(component)
        if member.flow == wiring.In
        for signal in Value.cast(value)._rhs_signals()
    }
    driven = {id(signal) for signal in _driven(Fragment.get(component, None))}
    assert [path for signal, path in inputs.items() if signal in driven] == []
