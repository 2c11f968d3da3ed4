"""From the folder of a plan to the network that its devices train."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from fanin.cnn import Network, Stage
from fanin.cnn_parts import Placement
from fanin.errors import InputError
from fanin.layers.layer import Parallelism
from fanin.planner.check.files import Plan, read_plan
from fanin.planner.check.memory import stages
from fanin.planner.check.plan import check_plan
from fanin.planner.model.graph import Model
from fanin.planner.plan.digest import CONNECTIONS_FILE, DEVICES, DIGEST, PLAN_FILE, plan_digest
from fanin.records import open_record


@dataclass(frozen=True)
class PlannedNetwork:
    """A network on its devices, and what the plan promises of it.

    ``cycles``: of a frame, by stage; ``clock``: of all devices, in Hz.
    """

    placement: Placement
    clock: int
    throughput: Fraction  #: frames a second, updates apart
    cycles: tuple[int, ...]
    digest: str  #: of the plan

    @property
    def network(self) -> Network:
        """What is trained."""
        return self.placement.network


def unplanned(model: Model) -> Network:
    """The network of a model that has no plan yet: layers as narrow as they can be. Raises InputError."""
    stages = (Stage(node.name, node.layer, Parallelism(), node.sources) for node in model.nodes)
    return _checked(model.name, Network(model.name, tuple(stages)))


def read_network(folder: Path) -> PlannedNetwork:
    """The network of a plan. Raises InputError of one line.

    Refused are a plan that was edited, one that this version's rules do not hold for, devices with several
    clocks, and a model that cannot be trained.
    """
    plan, path = read_plan(folder), folder / PLAN_FILE
    digest = _check_unedited(folder)
    if complaints := check_plan(folder):
        raise InputError(f"{path}: breaks a rule, plan again: {complaints[0]}")
    clock = _clock(path, plan)
    network = _checked(str(path), Network(open_record(path).text("model"), stages(plan)))
    cycles = tuple(layer.figures["cycles"] for layer in plan.layers)
    return PlannedNetwork(_placed(path, plan, network), clock, plan.throughput, cycles, digest)


def _checked(where: str, network: Network) -> Network:
    """The network, if it can be trained."""
    try:
        _ = network.loss, network.output, network.images
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return network


def _check_unedited(folder: Path) -> str:
    """The plan's digest."""
    names = [
        PLAN_FILE,
        CONNECTIONS_FILE,
        *(f"{DEVICES}/{path.name}" for path in (folder / DEVICES).glob("*.json")),
    ]
    files = {name: open_record(folder / name).value for name in names}
    recorded, digest = open_record(folder / PLAN_FILE).text(DIGEST), plan_digest(files)
    if recorded != digest:
        raise InputError(f"{folder / PLAN_FILE}: the plan was edited: its {DIGEST} is {digest}, not {recorded}")
    return digest


def _clock(path: Path, plan: Plan) -> int:
    """Of all devices that have layers."""
    used = [device for device in plan.devices if device.name in set(plan.place.values())]
    clocks = {device.clock: device.name for device in used}
    if len(clocks) > 1:
        said = ", ".join(f"{name} {clock / 1e6:g} MHz" for clock, name in clocks.items())
        raise InputError(f"{path}: clocks differ ({said}); a cluster runs on one clock")
    return used[0].clock


def _placed(path: Path, plan: Plan, network: Network) -> Placement:
    """The network on the plan's devices."""
    priorities = {
        (index, port): plan.connections[edge.connection].priority
        for index, stage in enumerate(network.stages)
        for port, edge in enumerate(plan.into[stage.name])
        if edge.connection is not None
    }
    try:
        return Placement(network, tuple(plan.place[stage.name] for stage in network.stages), priorities)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
