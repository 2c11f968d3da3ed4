"""Reader of a plan's JSON files as typed records. The checker uses it; it knows nothing of the search."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from fanin.base.records import MAX_SIZE, Record, open_record
from fanin.cnn.facts import Network, Stage
from fanin.cnn.layers.family import family_names
from fanin.cnn.layers.kinds import layer_kinds
from fanin.cnn.layers.layer import Layer, Parallelism, Storage
from fanin.cnn.layers.layer import Shape as LayerShape
from fanin.planner.check.kinds import CONVOLUTIONS, KINDS, WINDOWS
from fanin.planner.plan.digest import CONNECTIONS_FILE, DEVICES, PLAN_FILE

Shape = tuple[int, ...]  # rows, columns, channels
#: figures of a layer
FIGURES = (
    "parameter_words",
    "saved_words",
    "cycles",
    "dsp",
    "luts",
    "ram_bits",
    "ram_blocks",
    "dram_read",
    "dram_write",
)
RATES = ("dram_read", "dram_write", "network")
RESOURCES = ("dsp", "luts", "ram_bits", "ram_blocks", "dram_bytes", *RATES, "connections")


@dataclass(frozen=True)
class Ram:
    """Kind of RAM block of a device."""

    kind: str  #: name of the kind
    from_bits: int  #: least size in bits of a memory that uses the kind
    shapes: tuple[tuple[int, ...], ...]  #: every possible (depth, width)
    blocks: int | None  #: number of blocks; None if not limited


@dataclass(frozen=True)
class DeviceEntry:
    """Resources of a device of the cluster. None: not limited."""

    name: str
    family: str
    dsp: int
    luts: int | None
    ram_bits: int | None
    ram: tuple[Ram, ...]
    dram_bytes: int | None
    dram: int  #: bits per second and direction
    network: int  #: bits per second and direction
    clock: int  #: Hz
    connections: int


@dataclass(frozen=True)
class LayerEntry:
    """Layer as the plan states it. Fields that its kind lacks have the values of a 1×1 window."""

    name: str
    kind: str
    device: str
    inputs: tuple[Shape, ...]
    output: Shape
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_channels: int
    groups: int
    constants: Mapping[str, float]  #: constants that ``KINDS`` lists for the kind, by name
    masked: bool  #: true for a ReLU that saves a bit of each output
    gradient: bool  #: true if the layer computes its input's gradient
    parallelism: Mapping[str, int]  #: by name: pic, poc, ph, pi, po; frames if above 1
    figures: Mapping[str, int]  #: by name in FIGURES
    blocks: Mapping[str, int]  #: RAM blocks by kind
    parameters: str  #: "chip" or "dram"
    delay: Fraction  #: frames


@dataclass(frozen=True)
class EdgeEntry:
    """Feature map from one layer to another."""

    source: str  #: name of the layer
    target: str  #: name of the layer
    bits: int  #: bits per frame
    label: bool  #: true for the labels of a loss
    connection: int | None  #: index of the connection; None within a device

    def __str__(self) -> str:
        return f"edge {self.source} → {self.target}"


@dataclass(frozen=True)
class ConnectionEntry:
    """Edge between two devices."""

    id: int
    source: tuple[str, str]  #: device and layer
    target: tuple[str, str]  #: device and layer
    bits: int  #: bits per frame
    bits_per_second: Fraction
    priority: int
    hops: int


@dataclass(frozen=True)
class DeviceFile:
    """Contents of ``devices/NAME.json``."""

    device: str
    host: bool
    clock: int  #: Hz
    throughput: Fraction
    layers: tuple[tuple[str, str, Mapping[str, Any]], ...]  #: name, kind, specification
    connections: tuple[tuple[str, str], ...]  #: source and target of each edge within the device
    network: tuple[tuple[int, str, str, str, int], ...]  #: id, direction, layer, peer, priority


@dataclass(frozen=True)
class PlanFiles:
    """Contents of all files of a plan."""

    model: str  #: name of the model
    host: str  #: name of the host's device
    devices: tuple[DeviceEntry, ...]
    throughput: Fraction  #: frames per second
    flow: Fraction  #: frames per second in the flow model
    with_update: Fraction  #: frames per second with updates
    batch: int  #: frames of a batch
    drain: Fraction  #: seconds to drain the pipeline
    update: Fraction  #: seconds to update the parameters
    bound: Fraction  #: upper bound of the throughput
    gap: Fraction
    status: str  #: "optimal" or "gap"
    limit: tuple[str, str, str | None]  #: device, resource, and the layer if the resource is its cycles
    utilisation: Mapping[str, Mapping[str, Fraction | None]]  #: shares by device and resource
    layers: tuple[LayerEntry, ...]
    edges: tuple[EdgeEntry, ...]
    connections: tuple[ConnectionEntry, ...]
    files: Mapping[str, DeviceFile]  #: file of each device that has layers
    strays: tuple[str, ...]  #: names of other files in the folder ``devices``

    @cached_property
    def layer_devices(self) -> Mapping[str, str]:
        """Device of each layer, by name."""
        return {layer.name: layer.device for layer in self.layers}

    @cached_property
    def input_edges(self) -> Mapping[str, Sequence[EdgeEntry]]:
        """Edges into each layer, in the order of its inputs."""
        return {layer.name: [e for e in self.edges if e.target == layer.name] for layer in self.layers}

    @cached_property
    def network(self) -> Network:
        """Network of the layers with their parallelism and storage. The graph must be valid."""
        numbers = {layer.name: number for number, layer in enumerate(self.layers)}

        def stage(entry: LayerEntry) -> Stage:
            sources = tuple(numbers[edge.source] for edge in self.input_edges[entry.name])
            layer = layer_of(entry, tuple(self.layers[source].output for source in sources), entry.gradient)
            return Stage(
                entry.name, layer, Parallelism(**entry.parallelism), sources, Storage(entry.parameters)
            )

        return Network(self.model, tuple(map(stage, self.layers)))

    def is_cut(self, edge: EdgeEntry) -> bool:
        """Return True if the ends of ``edge`` are on different devices."""
        return self.layer_devices[edge.source] != self.layer_devices[edge.target]

    @cached_property
    def connection_edges(self) -> Mapping[int, EdgeEntry]:
        """Cut edge of each connection, by the connection's index; the first edge if several state it."""
        edges: dict[int, EdgeEntry] = {}
        for edge in self.edges:
            if self.is_cut(edge) and edge.connection is not None and edge.connection < len(self.connections):
                edges.setdefault(edge.connection, edge)
        return edges

    def is_label(self, edge: EdgeEntry) -> bool:
        """Return True if ``edge`` leads to the labels of a loss, whose hops do not count."""
        return edge.target in self._losses and self.input_edges[edge.target][1] is edge

    @cached_property
    def _losses(self) -> set[str]:
        return {layer.name for layer in self.layers if layer.kind == "soft_cross_loss"}


def layer_of(entry: LayerEntry, inputs: tuple[Shape, ...], gradient: bool) -> Layer:
    """Return the layer of an entry, which must be valid."""
    fields: dict[str, Any] = {"inputs": tuple(LayerShape(*shape) for shape in inputs), "gradient": gradient}
    if entry.kind == "input":
        fields["shape"] = LayerShape(*entry.output)
    if entry.kind in WINDOWS:
        fields |= {"kernel": entry.kernel, "stride": entry.stride, "padding": entry.padding}
    fields |= entry.constants
    if entry.kind in CONVOLUTIONS:
        fields |= {"output_channels": entry.output_channels, "groups": entry.groups}
    if KINDS[entry.kind].saves == "mask":
        fields["masked"] = entry.masked
    return layer_kinds()[entry.kind](**fields)


def read_plan(directory: Path) -> PlanFiles:
    """Read the plan in a folder. Raises InputError, with file and field, for missing fields and wrong types."""
    device_files = [path.name for path in (directory / DEVICES).glob("*.json")]
    return _plan(lambda name: open_record(directory / name), device_files)


def plan_of(documents: Mapping[str, Any]) -> PlanFiles:
    """Return the plan in the documents of ``planner/plan/write.py``."""
    return _plan(lambda name: Record(name, "", documents[name]), ())


def _plan(open_file: Callable[[str], Record], device_files: Iterable[str]) -> PlanFiles:
    """Return the plan in JSON files. ``device_files``: names of the files in the folder of devices."""
    plan = open_file(PLAN_FILE)
    cluster, limit = plan.record("cluster"), plan.record("limit")
    devices = tuple(_device(item) for item in cluster.records("devices"))
    layers = tuple(_layer(item) for item in plan.records("layers"))
    plan.text("fanin")
    model = plan.text("model")
    plan.integer("split", 1)
    used_names = {layer.device for layer in layers}
    used = [device.name for device in devices if device.name in used_names]
    resource = limit.text("resource", (*RATES, "cycles"))
    return PlanFiles(
        model=model,
        host=cluster.text("host"),
        devices=devices,
        throughput=_positive(plan, "throughput"),
        flow=_positive(plan, "flow_throughput"),
        with_update=plan.number("throughput_with_update"),
        batch=plan.integer("batch", 1),
        drain=plan.number("drain_seconds"),
        update=plan.number("update_seconds"),
        bound=plan.number("bound"),
        gap=plan.number("gap", low=-1),
        status=plan.record("solver").text("status", ("optimal", "gap")),
        limit=(limit.text("device"), resource, limit.text("layer") if resource == "cycles" else None),
        utilisation={device.name: _utilisation(plan, device.name) for device in devices},
        layers=layers,
        edges=tuple(_edge(item) for item in plan.records("edges")),
        connections=tuple(_connection(item) for item in open_file(CONNECTIONS_FILE).records("connections")),
        files={name: _device_file(open_file(f"{DEVICES}/{name}.json")) for name in used},
        strays=tuple(sorted(name for name in device_files if name.removesuffix(".json") not in used)),
    )


def _positive(item: Record, field: str) -> Fraction:
    if not (value := item.number(field)):
        raise item.error(f'"{field}" must be above 0')
    return value


def _device(item: Record) -> DeviceEntry:
    name = item.text("name")
    if not re.fullmatch(r"[\w.-]+", name):
        raise item.error(f'"name" must be letters, digits, _ . or -, not {name!r}')
    ram = tuple(
        Ram(entry.text("kind"), entry.integer("from_bits"), entry.lists("shapes", 2), entry.optional("blocks"))
        for entry in item.records("ram")
    )
    starts = [kind.from_bits for kind in ram]
    if starts[:1] != [0] or sorted(starts) != starts or len({kind.kind for kind in ram}) != len(ram):
        raise item.error('"ram" must list every kind once, by growing from_bits from 0 on')
    if not all(kind.shapes for kind in ram):
        raise item.error('"ram" must give every kind shapes')
    return DeviceEntry(
        name=name,
        family=item.text("family", family_names()),
        dsp=item.integer("dsp"),
        luts=item.optional("luts"),
        ram_bits=item.optional("ram_bits"),
        ram=ram,
        dram_bytes=item.optional("dram_bytes"),
        dram=item.integer("dram_bits_per_second"),
        network=item.integer("network_bits_per_second"),
        clock=item.integer("clock_hz", 1),
        connections=item.integer("connections"),
    )


def _utilisation(plan: Record, device: str) -> Mapping[str, Fraction | None]:
    item = plan.record("utilisation").record(device)
    return {field: None if item.value.get(field, 0) is None else item.number(field) for field in RESOURCES}


def _layer(item: Record) -> LayerEntry:
    kind = item.text("kind", tuple(KINDS))
    window, convolution = kind in WINDOWS, kind in CONVOLUTIONS
    parallelism, blocks = item.record("parallelism"), item.record("ram_blocks_by_kind")
    return LayerEntry(
        name=item.text("name"),
        kind=kind,
        device=item.text("device"),
        inputs=item.lists("inputs", 3),
        output=item.integers("output", 3),
        kernel=item.integers("kernel", 2) if window else (1, 1),
        stride=item.integers("stride", 2) if window else (1, 1),
        padding=item.integers("padding", 4, 0) if window else (0, 0, 0, 0),
        output_channels=item.integer("output_channels", 1, MAX_SIZE + 1) if convolution else 1,
        groups=item.integer("groups", 1, MAX_SIZE + 1) if convolution else 1,
        constants={field: float(item.number(field)) for field in KINDS[kind].constants},
        masked="masked" in item.value and item.flag("masked"),
        gradient=item.flag("gradient"),
        parallelism={
            field: parallelism.integer(field, 1)
            for field in ("pic", "poc", "ph", "pi", "po", "frames")
            if field != "frames" or field in parallelism.value
        },
        figures={field: item.integer(field) for field in FIGURES},
        blocks={field: blocks.integer(field) for field in blocks.value},
        parameters=item.text("parameters", ("chip", "dram")),
        delay=item.number("delay_frames"),
    )


def _edge(item: Record) -> EdgeEntry:
    return EdgeEntry(
        source=item.text("from"),
        target=item.text("to"),
        bits=item.integer("bits"),
        label=item.flag("label"),
        connection=item.optional("connection"),
    )


def _connection(item: Record) -> ConnectionEntry:
    source, target = item.record("from"), item.record("to")
    return ConnectionEntry(
        id=item.integer("id"),
        source=(source.text("device"), source.text("layer")),
        target=(target.text("device"), target.text("layer")),
        bits=item.integer("bits"),
        bits_per_second=item.number("bits_per_second"),
        priority=item.integer("priority"),
        hops=item.integer("hops"),
    )


def _device_file(item: Record) -> DeviceFile:
    network = [
        (
            entry.integer("id"),
            entry.text("direction", ("in", "out")),
            *(entry.text(field) for field in ("layer", "peer")),
            entry.integer("priority"),
        )
        for entry in item.records("network")
    ]
    return DeviceFile(
        device=item.text("device"),
        host=item.flag("host"),
        clock=item.integer("clock_hz", 1),
        throughput=item.number("throughput"),
        layers=tuple(
            (entry.text("name"), kind, _specification(entry.record("specification"), kind))
            for entry in item.records("layers")
            for kind in [entry.text("kind", tuple(KINDS))]
        ),
        connections=tuple((entry.text("from"), entry.text("to")) for entry in item.records("connections")),
        network=tuple(network),  # type: ignore[arg-type]
    )


_SIZES = (
    "output_channels",
    "groups",
    "parallel_input_channel",
    "parallel_output_channel",
    "parallel_horizontal",
)
#: (numbers, least value) of each list in a specification
_LISTS = {
    "kernel_shape": (2, 1),
    "stride": (2, 1),
    "padding": (4, 0),
    "parallel_io": (2, 1),
    "input_shape": (3, 1),
    "output_shape": (3, 1),
}
_NUMBERS = ("induced_delay_frames", "target_throughput", "actual_throughput")


def _required(kind: str) -> set[str]:
    """Return the fields that a specification of this kind must have; other fields of the plan are optional."""
    fields = {"parallel_io", "output_shape", *_NUMBERS}
    if kind != "input":
        fields.add("input_shape")
    if kind in WINDOWS and kind != "dense":
        fields |= {"kernel_shape", "stride", "padding"}
    if kind in CONVOLUTIONS:
        fields |= {"output_channels", "parallel_output_channel"}
    if kind in ("conv", "dense"):
        fields.add("parallel_input_channel")
    if kind in ("conv", "dwconv"):
        fields.add("parallel_horizontal")
    return fields | ({"parameters"} if kind in (*CONVOLUTIONS, "bias") else set())


def _specification(item: Record, kind: str) -> Mapping[str, Any]:
    fields = _required(kind) | set(item.value)
    return {
        **{field: item.integer(field) for field in _SIZES if field in fields},
        **{field: item.integers(field, *size) for field, size in _LISTS.items() if field in fields},
        **{field: item.number(field) for field in _NUMBERS},
        **({"parameters": item.text("parameters", ("chip", "dram"))} if "parameters" in fields else {}),
    }
