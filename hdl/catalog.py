# amaranth: UnusedElaboratable=no
"""Catalogue of components for ``fanin verilog``: names, and parameters for each preset."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from amaranth.lib import wiring

from fanin.base.errors import InputError
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Network
from fanin.cnn.memory import MemoryMap
from fanin.codec.facts import CONFIGS, MAX_FRAME, Bfp, Codec, CodecConfig, Inceptionn, Mx
from fanin.codec.formats import Element, Rounding
from fanin.fixed import VALUE_BITS
from fanin.glm.facts import PRESETS, GlmConfig
from fanin.hdl.aggregation.receive import FrameReceiver
from fanin.hdl.aggregation.transmit import FrameTransmitter
from fanin.hdl.aggregation.transport import AggTransport
from fanin.hdl.arith.adder_tree import AdderTree
from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.bus.svd import cmsis_svd
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from fanin.hdl.codec.half import HalfCompressor, HalfDecompressor
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor
from fanin.hdl.codec.mx import MxCompressor, MxDecompressor
from fanin.hdl.codec.nic.nic import InceptionnNic
from fanin.hdl.codec.nic.registers import nic_registers
from fanin.hdl.emission import kept_verilog
from fanin.hdl.glm.data_parallel import DataParallelWorker
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.loss import LossUnit
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.glm.node_registers import node_registers
from fanin.hdl.glm.reducer import ActivationReducer
from fanin.hdl.glm.sparse_engine import SparseEngine
from fanin.hdl.glm.sparse_worker import SparseWorker
from fanin.hdl.glm.worker import GlmWorker
from fanin.hdl.keywords import KEYWORDS
from fanin.hdl.layers import by_size
from fanin.hdl.layers.connection import Connection
from fanin.hdl.layers.convolution import Convolution
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.online_norm import OnlineNorm
from fanin.hdl.layers.softmax_loss import SoftmaxLoss
from fanin.hdl.layers.store import Store
from fanin.hdl.net.mac_hub import MacHub
from fanin.hdl.param_server.node import ParamServerNode
from fanin.hdl.param_server.registers import param_server_registers
from fanin.hdl.rdma.node import RdmaNode
from fanin.hdl.rdma.registers import rdma_registers
from fanin.hdl.ring.nic import MAX_FRAME as MAX_HOST_FRAME
from fanin.hdl.ring.nic import RingNic
from fanin.hdl.ring.node import RingNode
from fanin.rdma.facts import PRESETS as RDMA_PRESETS
from fanin.rdma.facts import RdmaConfig
from fanin.ring.facts import PRESETS as RING_PRESETS
from fanin.ring.facts import RingConfig
from fanin.wire.ethernet import Encap

Parameters = dict[str, Any]
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
MAX_SIZE = 1 << 20  #: maximum integer parameter; Amaranth makes an object for each element of an array
_CARDS = {"tiny": "tiny", "demo": "u280", "u280": "u280"}  # presets of rings and NICs by preset of GLM nodes
#: Writers of a register map by file format. Arguments: the map, a name, and a one-line summary of its
#: component.
REGISTER_FORMATS: dict[str, Callable[[RegisterMap, str, str], str]] = {
    "c": lambda registers, name, summary: registers.c_header(f"FANIN_{name.upper()}"),
    "verilog": lambda registers, name, summary: registers.verilog_header(name.upper()),
    "svd": lambda registers, name, summary: cmsis_svd(registers, name=name, description=summary),
    "json": lambda registers, name, summary: json.dumps({"name": name, **registers.as_dict()}, indent=2) + "\n",
}


@dataclass(frozen=True)
class Entry:
    """Component of the catalogue: its parameters for a node's configuration, and a function that makes it."""

    component: type[wiring.Component]
    parameters: Callable[[GlmConfig], Parameters]
    make: Callable[..., wiring.Component]
    #: returns the register map of a made component, if any
    registers: Callable[[Any], RegisterMap] | None = None

    @property
    def summary(self) -> str:
        """Return the first line of the component's docstring."""
        return (self.component.__doc__ or "").strip().splitlines()[0].replace("``", "")

    def build(self, config: GlmConfig, settings: Mapping[str, str]) -> wiring.Component:
        """Return an instance of the component; ``settings`` replace parameters. Raises InputError."""
        try:
            parameters = self.parameters(config)
        except InputError as error:
            name = next(name for name, entry in CATALOG.items() if entry is self)
            raise InputError(f"{name} {error}") from error
        try:
            return self.make(**(parameters | _parsed(settings, parameters)))
        except ValueError as error:
            raise InputError(str(error)) from error


def _parsed(settings: Mapping[str, str], parameters: Parameters) -> Parameters:
    """Return the values of ``settings``, parsed as the types of the same parameters."""
    parsed: Parameters = {}
    for name, text in settings.items():
        if name not in parameters:
            raise InputError(f"no parameter {name!r}; there are {', '.join(parameters)}")
        kind = type(parameters[name])
        try:
            value = _parsed_as(kind, text)
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{name}: {text[:40]!r} is not a valid value; an example is {parameters[name]}"
            ) from error
        if kind is int and abs(value) > MAX_SIZE:
            raise InputError(f"{name}: {text[:40]} is too large: sizes are at most {MAX_SIZE:,}")
        parsed[name] = value
    return parsed


def _parsed_as(kind: Any, text: str) -> Any:
    """Return a value of a parameter's type; a member of an integer enumeration by its name or its number."""
    if kind is bool:
        return _FLAGS[text.lower()]
    if issubclass(kind, IntEnum):
        return kind(int(text)) if text.isdigit() else kind[text.upper()]
    return int(text, 0) if kind is int else kind(text)


def _from_config(component: type[wiring.Component], *names: str, **others: str) -> Entry:
    """Return an entry with parameters of the configuration, with the same or, for ``others``, another name."""
    sources = {name: name for name in names} | others

    def parameters(config: GlmConfig) -> Parameters:
        return {name: getattr(config, source) for name, source in sources.items()}

    return Entry(component, parameters, component)


def _node(**fields: Any) -> GlmNode:
    return GlmNode(config=GlmConfig(**fields))


def _own_preset(presets: Mapping[str, Any], config: GlmConfig) -> Parameters:
    """Return parameters of the system's preset for tests or for a card.

    Raises InputError for a board without one.
    """
    if config.name not in _CARDS:
        raise InputError(f"has no sizes for {config.name}; --preset may be {', '.join(_CARDS)}")
    return dict(vars(presets[_CARDS[config.name]]))


def _ring_parameters(config: GlmConfig) -> Parameters:
    formats = vars(Bfp()) | {"block": 0, "element": Mx().element}  # a block of 0 is the codec's default
    return _own_preset(RING_PRESETS, config) | {"codec": Codec.NONE, "tensor": Codec.NONE} | formats


def _ring_config(*, codec: Codec, tensor: Codec, element: Element, **parameters: int) -> RingConfig:
    bfp = {name: parameters.pop(name) for name in vars(Bfp())}
    block: dict[str, Any] = {"block": bfp["block"]} if bfp["block"] else {}
    chosen: CodecConfig | None = None
    match codec:
        case Codec.INCEPTIONN:
            chosen = Inceptionn(group=parameters["lanes"])
        case Codec.BFP:
            chosen = Bfp(**{name: value for name, value in bfp.items() if name != "block"}, **block)
        case Codec.MX:
            chosen = Mx(element=element, **block)
        case Codec.BF16 | Codec.FP16:
            chosen = CONFIGS[codec]()
    values: Any = None if tensor is Codec.NONE else CONFIGS[tensor]()
    return RingConfig(**parameters, codec=chosen, tensor=values)


def _ring_node(**settings: Any) -> RingNode:
    return RingNode(config=_ring_config(**settings))


def _ring_nic(*, max_frame: int, **settings: Any) -> RingNic:
    return RingNic(config=_ring_config(**settings), max_frame=max_frame)


def _rdma_parameters(config: GlmConfig) -> Parameters:
    return _own_preset(RDMA_PRESETS, config)


def _rdma_node(**sizes: Any) -> RdmaNode:
    return RdmaNode(config=RdmaConfig(**sizes))


def _param_server_node(**sizes: Any) -> ParamServerNode:
    return ParamServerNode(config=RdmaConfig(**sizes))


def _fixed(component: type[wiring.Component], **parameters: Any) -> Entry:
    """Return an entry with fixed parameters, the same for every preset."""
    return Entry(component, lambda config: dict(parameters), component)


def _network(name: str) -> Network:
    if name not in EXAMPLES:
        raise ValueError(f"network must be {' or '.join(EXAMPLES)}, not {name!r}")
    return EXAMPLES[name]


def _cluster_node(*, network: str) -> ClusterNode:
    return ClusterNode(network=_network(network))


def _store(*, network: str) -> Store:
    return Store(config=MemoryMap(_network(network), frames=1).store)


def _layer(name: str, component: type[wiring.Component]) -> Entry:
    return Entry(component, lambda config: dict(by_size.SIZES[name]), partial(by_size.make, name))


_LAYERS: dict[str, type[wiring.Component]] = {
    "convolution": Convolution,
    "depthwise-convolution": Convolution,
    "dense": Convolution,
    "online-norm": OnlineNorm,
    "softmax-loss": SoftmaxLoss,
}
_GROUP = {"group": Inceptionn().group}
_BLOCKS = {"width": RING_PRESETS["u280"].width, **vars(Bfp())}
_MX = {"width": RING_PRESETS["u280"].width, **vars(Mx())}
_HALF = {"width": RING_PRESETS["u280"].width, "codec": Codec.BF16}
_NETWORK = {"network": "tiny"}
_WORKER = ("engines", "lanes", "banks", "depth", "frac", "l2")

CATALOG: dict[str, Entry] = {
    "glm-node": Entry(
        GlmNode, lambda config: dict(vars(config)), _node, lambda node: node_registers(node.config)
    ),
    "glm-worker": _from_config(GlmWorker, *_WORKER, fifo_depth="sample_fifo"),
    "glm-worker-data-parallel": _from_config(
        DataParallelWorker, *_WORKER, "gradient_values", fifo_depth="sample_fifo"
    ),
    "glm-worker-sparse": _from_config(SparseWorker, *_WORKER, fifo_depth="sample_fifo"),
    "glm-engine-sparse": _from_config(SparseEngine, "lanes", "banks", "depth", "l2", fifo_depth="sample_fifo"),
    "glm-engine": _from_config(Engine, "lanes", "banks", "depth", "l2", fifo_depth="sample_fifo"),
    "activation-reducer": _from_config(ActivationReducer, "engines", "banks"),
    "loss-unit": _from_config(LossUnit, "banks", "frac"),
    "adder-tree": Entry(
        AdderTree, lambda config: {"inputs": config.lanes, "width": VALUE_BITS, "radix": 3}, AdderTree
    ),
    "agg-transport": _from_config(AggTransport, "mac_width", "encap", "values", "slots", "protocol"),
    "frame-transmitter": _from_config(FrameTransmitter, "mac_width", "encap", "values"),
    "frame-receiver": _from_config(FrameReceiver, "mac_width", "encap", "values", "protocol"),
    "inceptionn-compressor": _fixed(InceptionnCompressor, **_GROUP),
    "inceptionn-decompressor": _fixed(InceptionnDecompressor, **_GROUP),
    "inceptionn-nic": Entry(
        InceptionnNic, lambda config: {"max_frame": MAX_FRAME}, InceptionnNic, lambda node: nic_registers()
    ),
    "bfp-compressor": _fixed(BfpCompressor, **_BLOCKS),
    "bfp-decompressor": _fixed(BfpDecompressor, **_BLOCKS),
    "mx-compressor": _fixed(MxCompressor, **_MX),
    "mx-decompressor": _fixed(MxDecompressor, **{name: _MX[name] for name in ("width", "element", "block")}),
    "half-compressor": _fixed(HalfCompressor, **_HALF, rounding=Rounding.NEAREST),
    "half-decompressor": _fixed(HalfDecompressor, **_HALF),
    "rdma-nic": Entry(RdmaNode, _rdma_parameters, _rdma_node, lambda node: rdma_registers(node.config)),
    "param-server": Entry(
        ParamServerNode,
        _rdma_parameters,
        _param_server_node,
        lambda node: param_server_registers(node.config),
    ),
    "ring-node": Entry(RingNode, _ring_parameters, _ring_node, lambda node: node.register_map),
    "ring-nic": Entry(
        RingNic,
        lambda config: _ring_parameters(config) | {"max_frame": MAX_HOST_FRAME},
        _ring_nic,
        lambda node: node.register_map,
    ),
    "cluster-node": Entry(
        ClusterNode, lambda config: dict(_NETWORK), _cluster_node, lambda node: node.register_map
    ),
    "connection": _fixed(Connection, lanes=8, row=64, rows=8, data_width=256, encap=Encap.L2, frames=8),
    "mac-hub": _fixed(MacHub, connections=4, data_width=256, encap=Encap.L2),
    "store": Entry(Store, lambda config: dict(_NETWORK), _store),
    **{name: _layer(name, component) for name, component in _LAYERS.items()},
}


def verilog_of(component: wiring.Component, module: str) -> str:
    """Return Verilog in which the name of each module is ``module``, or starts with ``module__``."""
    return kept_verilog(component, name=module, prefix=f"{module}__")


def registers(
    name: str, form: str, *, preset: str, settings: Mapping[str, str], module: str | None = None
) -> str:
    """Return the register map of a component of the catalogue in one of ``REGISTER_FORMATS``.

    Raises InputError.
    """
    entry = entry_of(name)
    if entry.registers is None:
        nodes = ", ".join(name for name, entry in CATALOG.items() if entry.registers)
        raise InputError(f"{name} has no registers; {nodes} have")
    register_map = entry.registers(entry.build(PRESETS[preset], settings))
    return REGISTER_FORMATS[form](register_map, module or module_of(name), entry.summary)


def module_of(name: str, own: str | None = None) -> str:
    """Return the Verilog module's name for a component of the catalogue: ``own``, or its own name.

    Raises InputError.
    """
    if own is None:
        return name.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z]\w*", own, re.ASCII):
        raise InputError(f"a module's name must be a letter, then letters, digits and underscores, not {own!r}")
    if own in KEYWORDS:
        raise InputError(f"a module's name must not be a word of SystemVerilog: {own!r} is reserved")
    return own


def entry_of(name: str) -> Entry:
    """Return the component of the catalogue with that name. Raises InputError."""
    if name not in CATALOG:
        raise InputError(f"no component {name!r}; there are {', '.join(CATALOG)}")
    return CATALOG[name]
