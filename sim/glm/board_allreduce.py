"""Timing of AllReduces between boards in RTL: from a node's PA over wires and switch to its FA."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin import fixed
from fanin.base.errors import CheckFailed
from fanin.fixed import Loss
from fanin.glm.driver import NodeDriver, NodeJob
from fanin.glm.facts import TrainShape
from fanin.glm.golden.layout import join_model
from fanin.glm.golden.train import train
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.memory_map import BOARD, NODE
from fanin.hdl.boards.registers import board_registers
from fanin.hdl.boards.top import EVENTS
from fanin.host.board import BoardClient
from fanin.host.driver import Batch
from fanin.job import FIRST_JOB, SWITCH, Job, worker_endpoint
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.sim.boards.board import BoardConfig
from fanin.sim.boards.direct import DeliveredFrame, DirectChannel, LoggedBoards
from fanin.sim.boards.events import read_events
from fanin.sim.boards.model import BoardModel
from fanin.sim.boards.setup import board_config, core_clock
from fanin.sim.boards.world import GIGABIT, World
from fanin.sim.glm.held_board import HeldBoard
from fanin.sim.switch.base import Delivery, Switch, SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, header_length
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import ETHERNET, Endpoint
from fanin.wire.fields import unpack_fields

Times = npt.NDArray[np.int64]

LINK = GIGABIT
PPM = 50.0  # deviation of the boards' clocks, alternately faster and slower, in millionths
PHASE_PS = 1717  # phase between the PHY clocks of two consecutive boards
RATE = 2.0**-10
_HOST = Endpoint(0x02_00_00_00_02_00, 0x0A_00_00_FD, 40_000)
_SLICE_PS = 50_000_000
_MAX_IDLE_SLICES = 20  # consecutive slices without a RESULT that end the run
_REPLY_S = 0.002  # simulated seconds until a reply is given up
_READY_S = 60.0
_TIMEOUT_CYCLES = 1_000_000  # never reached: no packet is lost


class _Aggregation:
    """A switch that drops all traffic except aggregation packets.

    Otherwise the switch would flood replies to the host, whose port it does not know.
    """

    def __init__(self, switch: Switch):
        self._switch = switch

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Return the switch's frames for an aggregation packet; drop other frames."""
        return self._switch.inject(port, frame, time) if _packet(frame) else []


@dataclass(frozen=True)
class Moments:
    """Times of an operation's steps, in ps, as arrays [worker, operation]."""

    pa: Times  #: the transport takes the PA
    sent: Times  #: the MAC takes the last word of the AGG
    agg: Times  #: the AGG's last byte has left
    result: Times  #: the RESULT's last byte has arrived
    received: Times  #: the MAC puts out the RESULT's first word
    fa: Times  #: the transport puts out the FA

    def skip(self, operations: int) -> Moments:
        """Return the times of all operations except the first ``operations``."""
        return Moments(**{f.name: getattr(self, f.name)[:, operations:] for f in fields(self)})


def cluster(board: Board, model: BoardModel, workers: int) -> list[BoardConfig]:
    """Return the configurations of ``workers`` boards of a model with events, each with different clocks."""
    return [
        board_config(board, model, ppm=PPM * (-1) ** worker, phase_ps=PHASE_PS * worker)
        for worker in range(workers)
    ]


def run_allreduces(configs: Sequence[BoardConfig], shape: TrainShape, epochs: int) -> Moments:
    """Train on boards in one world, whose switch runs the emitted program in no time; return all times.

    Raises CheckFailed if the model differs from the golden model's, or a board stops.
    """
    with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
        paths = [Path(folder) / str(worker) for worker in range(shape.workers)]
        with LoggedBoards(configs) as boards:
            for worker, path in enumerate(paths):
                boards.trace(worker, path, [EVENTS])
            _train(boards, shape, epochs)
        operations = epochs * shape.micro_batches_per_epoch
        moments = [
            moments_of(boards, worker, read_events(path, core_clock(config).period_ps), operations)
            for worker, (path, config) in enumerate(zip(paths, configs, strict=True))
        ]
    return Moments(
        **{f.name: np.stack([worker_moments[f.name] for worker_moments in moments]) for f in fields(Moments)}
    )


def _train(boards: LoggedBoards, shape: TrainShape, epochs: int) -> None:
    """Train on the boards, and compare with the golden model."""
    node = shape.node
    program = ProgramConfig(
        protocol=node.protocol, workers=shape.workers, slots=node.slots, values=node.values, encap=Encap.UDP
    )
    (job,) = default_deployment(program).jobs
    switch = make_switch(shape.workers, kind=SwitchKind.EMBEDDED, config=program)
    switch.add_job(job)
    boards.power_up()
    world = World(boards, link=LINK, switch=_Aggregation(switch))
    held_boards = [_hold(world, boards, worker, NodeDriver(node, base=NODE)) for worker in range(shape.workers)]
    rng = np.random.default_rng(shape.columns)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = fixed.labels(rng.integers(0, 2, shape.samples), Loss.LOGISTIC, node.frac)
    rate = fixed.learning_rate(RATE)
    for worker, board in enumerate(held_boards):
        board.load(shape, features, labels, worker)
        board.configure(shape, loss=Loss.LOGISTIC, rate=rate, epochs=epochs, job=_node_job(job, worker))
        _until_ready(board)
    for board in held_boards:
        board.start()
    run_on(world, boards, epochs * shape.micro_batches_per_epoch)
    for board in held_boards:
        _until_ready(board)
    model = join_model([board.model(shape) for board in held_boards], shape)
    *_, golden = train(features, labels, shape, loss=Loss.LOGISTIC, rate=rate, epochs=epochs)
    if not np.array_equal(model, golden.model):
        raise CheckFailed("the boards' model differs from the golden model")


def _until_ready(board: HeldBoard) -> None:
    board.wait("still busy", lambda status: not status.busy, timeout=_READY_S, check=lambda: None)


def _hold(world: World, boards: LoggedBoards, worker: int, driver: NodeDriver) -> HeldBoard:
    """Acquire a board and give it the addresses of its worker, since all boards are the same build."""
    channel = DirectChannel(world, boards, worker, endpoint=_control(0), host=_HOST)
    client = BoardClient(f"number {worker}", channel=channel, timeout=_REPLY_S, tries=1)
    endpoint = _control(worker)
    client.run(Batch(board_registers(), base=BOARD).write("own_mac", endpoint.mac).write("own_ip", endpoint.ip))
    channel.endpoint = endpoint
    return HeldBoard.identify(client, driver)


def _control(worker: int) -> Endpoint:
    endpoint = worker_endpoint(worker)
    return Endpoint(endpoint.mac, endpoint.ip, CONTROL_PORT)


def _node_job(job: Job, worker: int) -> NodeJob:
    return NodeJob(
        id=FIRST_JOB,
        base=job.base,
        slots=job.slots,
        member=job.members[worker].bitmap,
        own=job.members[worker].endpoint,
        switch=SWITCH,
        timeout=_TIMEOUT_CYCLES,
    )


def run_on(world: World, boards: LoggedBoards, operations: int) -> None:
    """Run until all operations are finished at all boards, without requests. Raises CheckFailed."""
    done, idle_slices = 0, 0
    while done < operations * len(boards.configs):
        world.run(world.time + _SLICE_PS)
        done_before, done = done, sum(_count(frames, Kind.CONFIRM) for frames in boards.delivered)
        idle_slices = idle_slices + 1 if done == done_before else 0
        if idle_slices == _MAX_IDLE_SLICES:
            raise CheckFailed(
                f"the boards stopped after {done} of {operations * len(boards.configs)} AllReduces"
            )


def _count(frames: Iterable[DeliveredFrame], kind: Kind) -> int:
    return sum(packet.kind == kind for frame in frames if (packet := _packet(frame.frame)))


def _packet(frame: bytes) -> AggPacket | None:
    """Return the aggregation packet in a frame from or to the switch; None for other frames."""
    ethernet = unpack_fields(ETHERNET, frame)
    if SWITCH.mac not in (ethernet["source"], ethernet["destination"]):
        return None
    return decode_payload(frame[header_length(Encap.UDP) :])


def moments_of(
    boards: LoggedBoards, worker: int, events: Mapping[str, Times], operations: int
) -> dict[str, Times]:
    """Return a worker's moments, by name. Raises CheckFailed if frames or events are missing."""
    received = [(frame.end, frame.frame) for frame in sorted(boards.delivered[worker])]
    sent = [(frame.time, frame.data) for frame in boards.sent[worker]]
    moments = {"pa": events["pa"], "fa": events["fa"]}
    moments["sent"], moments["agg"] = _in_order(Kind.AGG, sent, events["sent"])
    moments["received"], moments["result"] = _in_order(Kind.RESULT, received, events["received"])
    if wrong_counts := {name: len(times) for name, times in moments.items() if len(times) != operations}:
        raise CheckFailed(f"board {worker}: not {operations} operations, but {wrong_counts}")
    return moments


def _in_order(kind: Kind, frames: Sequence[tuple[int, bytes]], at_mac: Times) -> tuple[Times, Times]:
    """Return the times of a kind's packets at the MAC and at RGMII, operation by operation.

    Both saw the same frames in the same order, since none was lost or dropped.
    """
    if len(at_mac) != len(frames):
        raise CheckFailed(f"{len(at_mac)} frames at a MAC, but {len(frames)} at its RGMII")
    packets = [_packet(frame) for _, frame in frames]
    numbers = {
        (packet.round, packet.slot): n for n, packet in enumerate(packets) if packet and packet.kind == kind
    }
    order = [numbers[operation] for operation in sorted(numbers)]
    return at_mac[order], np.array([frames[n][0] for n in order])
