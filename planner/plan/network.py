"""Reader of a plan's folder: the network that its devices train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.records import open_record
from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.node import Sizes
from fanin.cnn.flow.predict import Prediction, predict_long
from fanin.cnn.flow.verdict import Liveness, check_liveness, conclusive_frames
from fanin.cnn.layers.layer import Parallelism
from fanin.cnn.parts import Placement
from fanin.planner.check.files import RATES, Plan, read_plan
from fanin.planner.check.memory import stages
from fanin.planner.check.plan import check_plan
from fanin.planner.model.graph import Model
from fanin.planner.plan.digest import CONNECTIONS_FILE, DEVICES, DIGEST, PLAN_FILE, plan_digest

EXECUTED = 32  #: largest batch, in frames, that is predicted in full
STORE_SHARE = 0.98  #: share of DRAM's rate that a store uses (docs/systems/cluster.md, "Store")


@dataclass(frozen=True)
class Rates:
    """Rates of a device's memory and network, in bits per second, each way."""

    dram: int
    network: int


@dataclass(frozen=True)
class PlannedNetwork:
    """A network on its devices, with the plan's figures.

    - ``clock``: of all devices, in Hz.
    - ``cycles``: of a frame, by stage.
    - ``pace``: cycles from frame to frame if DRAM or the network is the limit, since the flow model does not
      include them; else 0.
    """

    placement: Placement
    clock: int
    throughput: Fraction  #: frames per second, without updates
    cycles: tuple[int, ...]
    digest: str  #: digest of the plan
    rates: Mapping[str, Rates]  #: by device, for devices with stages
    batch: int = 256  #: frames per batch for which the plan was made
    pace: float = 0

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return self.placement.network

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the build's FIFOs and stores."""
        return Sizes.of(self.placement.flow)

    @cached_property
    def liveness(self) -> Liveness:
        """Proof that the build cannot deadlock. Raises InputError of one line for a build that could."""
        return check_liveness(self.network, self.sizes)

    def prediction(self, batch: int) -> Prediction:
        """Predict frames in the build by the timed flow model, for two batches; takes seconds for large
        networks.

        Of a large batch only somewhat more frames than the rings hold are executed. The exposed time is the
        same, but the drain misses how far images run ahead of it.
        """
        frames = batch if batch <= EXECUTED else min(batch, conclusive_frames(self.sizes))
        if frames not in self._predictions:
            period = float(self.clock / self.throughput)
            self._predictions[frames] = predict_long(self.network, self.sizes, frames, self.pace, period)
        return self._predictions[frames]

    @cached_property
    def _predictions(self) -> dict[int, Prediction]:
        return {}


def unplanned(model: Model) -> Network:
    """Return the network of a model without a plan, with minimal parallelism. Raises InputError."""
    stages = (Stage(node.name, node.layer, Parallelism(), node.sources) for node in model.nodes)
    return _checked(model.name, Network(model.name, tuple(stages)))


def read_network(folder: Path) -> PlannedNetwork:
    """Return the network of a plan. Raises InputError of one line.

    Refused are edited plans, plans that break this version's rules, devices with different clocks, and models
    that cannot be trained.
    """
    plan, path = read_plan(folder), folder / PLAN_FILE
    digest = _check_unedited(folder)
    if complaints := check_plan(folder):
        raise InputError(f"{path}: breaks a rule, plan again: {complaints[0]}")
    clock = _clock(path, plan)
    network = _checked(str(path), Network(open_record(path).text("model"), stages(plan)))
    cycles = tuple(layer.figures["cycles"] for layer in plan.layers)
    placement = _placed(path, plan, network)
    return PlannedNetwork(
        placement=placement,
        clock=clock,
        throughput=plan.throughput,
        cycles=cycles,
        digest=digest,
        rates={one.name: Rates(one.dram, one.network) for one in plan.devices if one.name in placement.names},
        batch=plan.batch,
        pace=_pace(plan, clock),
    )


def _checked(where: str, network: Network) -> Network:
    """Return the network. Raises InputError if it cannot be trained."""
    try:
        _ = network.loss, network.output, network.images
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return network


def _check_unedited(folder: Path) -> str:
    """Return the plan's digest. Raises InputError if the plan was edited."""
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
    """Return the clock of all devices with layers. Raises InputError if clocks differ."""
    used = [device for device in plan.devices if device.name in set(plan.place.values())]
    clocks = {device.clock: device.name for device in used}
    if len(clocks) > 1:
        said = ", ".join(f"{name} {clock / 1e6:g} MHz" for clock, name in clocks.items())
        raise InputError(f"{path}: clocks differ ({said}); a cluster runs on one clock")
    return used[0].clock


def _pace(plan: Plan, clock: int) -> float:
    """Return cycles from frame to frame if the network or DRAM (at a store's share) is the limit; else 0."""
    shares = [
        float(shares[rate] or 0) / (STORE_SHARE if rate.startswith("dram") else 1)
        for shares in plan.utilisation.values()
        for rate in RATES
    ]
    pace = float(clock / plan.throughput) * max(shares)
    return pace if pace > max(layer.figures["cycles"] for layer in plan.layers) else 0


def _placed(path: Path, plan: Plan, network: Network) -> Placement:
    """Return the network placed on the plan's devices."""
    priorities = {
        (index, port): plan.connections[edge.connection].priority
        for index, stage in enumerate(network.stages)
        for port, edge in enumerate(plan.into[stage.name])
        if edge.connection is not None
    }
    wiring = Wiring(_clock(path, plan), {device.name: device.network for device in plan.devices})
    try:
        return Placement(network, tuple(plan.place[stage.name] for stage in network.stages), priorities, wiring)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
