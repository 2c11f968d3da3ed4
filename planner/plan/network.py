"""Network that a plan's devices train, from the files of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import open_record
from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.node import Sizes
from fanin.cnn.flow.predict import Prediction, predict_long
from fanin.cnn.flow.verdict import Liveness, check_liveness, conclusive_frames
from fanin.cnn.layers.layer import Parallelism
from fanin.cnn.parts import PlacedNetwork
from fanin.planner.check.plan import broken_rules
from fanin.planner.model.graph import Model
from fanin.planner.plan.digest import CONNECTIONS_FILE, DEVICES, DIGEST, PLAN_FILE, plan_digest
from fanin.planner.plan.read import RATES, PlanFiles, plan_of, read_plan

MAX_FULL_BATCH = 32  #: largest batch, in frames, that is predicted in full
STORE_SHARE = 0.98  #: share of DRAM's rate that a store uses (docs/systems/cluster.md, "Store")


@dataclass(frozen=True)
class Rates:
    """Rates of a device in bits per second, per direction."""

    dram: int  #: rate of the memory
    network: int  #: rate of the network port


@dataclass(frozen=True)
class PlannedNetwork:
    """Network on its devices, with figures of its plan."""

    placement: PlacedNetwork
    clock: int  #: clock of all devices, in Hz
    throughput: Fraction  #: frames per second, without updates
    cycles: tuple[int, ...]  #: cycles of a frame, by stage
    digest: str  #: digest of the plan
    rates: Mapping[str, Rates]  #: rates of each device that has stages
    batch: int = 256  #: frames per batch for which the plan was made
    pace: float = 0  #: cycles per frame if DRAM or network is the limit, which the flow model lacks; else 0

    @property
    def network(self) -> Network:
        """Network to train."""
        return self.placement.network

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the build's FIFOs and rings."""
        return Sizes.of(self.placement.flow)

    @cached_property
    def liveness(self) -> Liveness:
        """Proof that the build cannot deadlock. Raises InputError of one line if it can."""
        return check_liveness(self.network, self.sizes)

    def prediction(self, batch: int) -> Prediction:
        """Return the flow model's prediction for two batches. Large networks take seconds.

        A batch above ``MAX_FULL_BATCH`` frames is executed in part: ``conclusive_frames``. The exposed time is
        the same; the drain is too short by the time for which images run ahead.
        """
        frames = batch if batch <= MAX_FULL_BATCH else min(batch, conclusive_frames(self.sizes))
        if frames not in self._predictions:
            period = float(self.clock / self.throughput)
            self._predictions[frames] = predict_long(self.network, self.sizes, frames, self.pace, period)
        return self._predictions[frames]

    @cached_property
    def _predictions(self) -> dict[int, Prediction]:
        return {}


def unplanned(model: Model) -> Network:
    """Return a model as a network with minimal parallelism, without a plan. Raises InputError."""
    stages = (Stage(node.name, node.layer, Parallelism(), node.sources) for node in model.nodes)
    return _trainable(model.name, Network(model.name, tuple(stages)))


def read_network(folder: Path) -> PlannedNetwork:
    """Return the network of the plan in a folder.

    Raises InputError of one line for an edited plan, a plan that breaks this version's rules, devices with
    different clocks, and a model that cannot be trained.
    """
    plan = read_plan(folder)
    return _planned(plan, str(folder / PLAN_FILE), _check_unedited(folder))


def planned_network(documents: Mapping[str, Any]) -> PlannedNetwork:
    """Return the network of documents of ``planner/plan/write.py``, as ``read_network`` does of their files."""
    return _planned(plan_of(documents), PLAN_FILE, documents[PLAN_FILE][DIGEST])


def _planned(plan: PlanFiles, location: str, digest: str) -> PlannedNetwork:
    """Return the network of a plan. ``location``: start of an error's message."""
    if violations := broken_rules(plan):
        raise InputError(f"{location}: breaks a rule, plan again: {violations[0]}")
    clock = _clock(location, plan)
    network = _trainable(location, plan.network)
    cycles = tuple(layer.figures["cycles"] for layer in plan.layers)
    placement = _placement(location, plan, network, clock)
    return PlannedNetwork(
        placement=placement,
        clock=clock,
        throughput=plan.throughput,
        cycles=cycles,
        digest=digest,
        rates={
            device.name: Rates(device.dram, device.network)
            for device in plan.devices
            if device.name in placement.names
        },
        batch=plan.batch,
        pace=_pace(plan, clock),
    )


def _trainable(location: str, network: Network) -> Network:
    """Return ``network``. Raises InputError if it cannot be trained. ``location``: start of the message."""
    try:
        _ = network.loss, network.output, network.images
    except ValueError as error:
        raise InputError(f"{location}: {error}") from None
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


def _clock(location: str, plan: PlanFiles) -> int:
    """Return the clock of all devices with layers. Raises InputError if clocks differ."""
    used = [device for device in plan.devices if device.name in set(plan.layer_devices.values())]
    clocks = {device.clock: device.name for device in used}
    if len(clocks) > 1:
        clocks_text = ", ".join(f"{name} {clock / 1e6:g} MHz" for clock, name in clocks.items())
        raise InputError(f"{location}: clocks differ ({clocks_text}); a cluster runs on one clock")
    return used[0].clock


def _pace(plan: PlanFiles, clock: int) -> float:
    """Return the cycles per frame if the network, or DRAM at a store's rate, is the limit; else 0."""
    shares = [
        float(shares[rate] or 0) / (STORE_SHARE if rate.startswith("dram") else 1)
        for shares in plan.utilisation.values()
        for rate in RATES
    ]
    pace = float(clock / plan.throughput) * max(shares)
    return pace if pace > max(layer.figures["cycles"] for layer in plan.layers) else 0


def _placement(location: str, plan: PlanFiles, network: Network, clock: int) -> PlacedNetwork:
    """Return the network placed on the plan's devices."""
    priorities = {
        (index, port): plan.connections[edge.connection].priority
        for index, stage in enumerate(network.stages)
        for port, edge in enumerate(plan.input_edges[stage.name])
        if edge.connection is not None
    }
    wiring = Wiring(clock, {device.name: device.network for device in plan.devices})
    try:
        return PlacedNetwork(
            network, tuple(plan.layer_devices[stage.name] for stage in network.stages), priorities, wiring
        )
    except ValueError as error:
        raise InputError(f"{location}: {error}") from None
