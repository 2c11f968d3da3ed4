"""What a run's nodes are connected by, what happens to them, and who looks on: options, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.base.records import Record
from fanin.cnn.parts import Placement
from fanin.cnn.run.options import CONNECTIONS, ENCAPS, FRAMES, RELIABLE, BuildOptions, ClusterOptions
from fanin.cnn.training import Training
from fanin.runs.output import PCAP_FILE
from fanin.sim.network import FAULTS, LinkConfig

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.waves import Waveform


ALONE = "the plan has one device, and nothing goes over a network"


@dataclass(frozen=True)
class Wires:
    """What the connections of a build are: the protocol of their links, and what carries it."""

    link: str = RELIABLE
    encap: str = ENCAPS[0]


RELIABLE_L2 = Wires()


@dataclass(frozen=True)
class Cut:
    """A device, or two that are cut off from one another, as the first result of a batch comes.

    ``frames`` are trained in the run before that batch.
    """

    text: str  #: as it was asked for
    devices: tuple[str, ...]
    frames: int


@dataclass(frozen=True)
class Conditions:
    """What happens to a run. ``faults``: probabilities; ``capture``: where all frames go, ``wave``: signals."""

    faults: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cut: Cut | None = None
    capture: Path | None = None
    wave: Waveform | None = None

    def link(self, gbps: float) -> LinkConfig:
        """The links, at a rate."""
        return LinkConfig(gbps=gbps, **self.faults)

    def as_json(self) -> dict[str, Any]:
        """For run.json."""
        clean = asdict(LinkConfig())
        return {fault: self.faults.get(fault, clean[fault]) for fault in FAULTS} | {
            "seed": self.seed,
            "cut": self.cut and self.cut.text,
        }


LOSSLESS = Conditions()


def recorded_conditions(record: Record) -> Conditions:
    """Those that run.json has, for a run that goes on: nothing is cut off any more. Raises InputError."""
    faults: dict[str, Any] = {fault: float(record.number(fault)) for fault in FAULTS}
    record.built(lambda: LinkConfig(**faults))
    return Conditions(faults, record.integer("seed"))


def wires_of(options: BuildOptions, placement: Placement) -> Wires:
    """What a build's options say. Raises InputError for one device, which has no connection."""
    if len(placement.names) == 1:
        options.refuse({CONNECTIONS: ALONE})
    return Wires(options.link or RELIABLE, options.encap or ENCAPS[0])


def check_conditions(options: ClusterOptions) -> None:
    """Raise InputError for what is wrong with a run's options whatever it trains."""
    if options.on != "rtl":
        options.refuse({FRAMES: "faults and frames need --on rtl"})
    try:
        LinkConfig(**{fault: getattr(options, fault) for fault in FAULTS})
    except ValueError as error:
        raise InputError(f"--{error}") from None


def conditions_of(options: ClusterOptions, placement: Placement, training: Training, frames: int) -> Conditions:
    """What a run's options say, of epochs of so many frames. Raises InputError of one line."""
    if len(placement.names) == 1:
        options.refuse({FRAMES: ALONE})
    return Conditions(
        faults={fault: getattr(options, fault) for fault in FAULTS},
        seed=training.seed if options.network_seed is None else options.network_seed,
        cut=_cut(options.cut, placement, training, frames) if options.cut else None,
        capture=options.output / PCAP_FILE if options.pcap else None,
    )


def _cut(text: str, placement: Placement, training: Training, frames: int) -> Cut:
    match = re.fullmatch(r"(.+)@([0-9]{1,12})", text)
    if not match:
        raise InputError(f"--cut: must be DEVICE@BATCH or DEVICE-DEVICE@BATCH, not {text!r}")
    devices, batch = _devices(match[1], placement), int(match[2])
    batches = -(-frames // training.batch)  # of an epoch
    if not 1 <= batch <= training.epochs * batches:
        raise InputError(f"--cut: the run has batches 1…{training.epochs * batches:,}, not {batch:,}")
    epoch, place = divmod(batch - 1, batches)
    return Cut(text, devices, epoch * frames + place * training.batch)


def _devices(text: str, placement: Placement) -> tuple[str, ...]:
    """One that is called so, or two with a hyphen between them that have a connection."""
    names = placement.names
    if text in names:
        return (text,)
    pairs = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == "-"]
    connected = [
        {placement.devices[i] for i in (one.source, one.consumer.stage)} for one in placement.connections
    ]
    for pair in pairs:
        if set(pair) in connected:
            return pair
        if all(name in names for name in pair):
            raise InputError(f"--cut: no connection goes between {' and '.join(pair)}")
    raise InputError(f"--cut: there is no device {text}, but {', '.join(names)}")
