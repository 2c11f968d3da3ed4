"""Network of a run from its options: link protocol, encapsulation, faults, cuts, capture and waveform."""

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


ALONE = "does not apply: the plan has one device and no network"


@dataclass(frozen=True)
class Wires:
    """Connections of a build. ``link``: protocol of the links; ``encap``: encapsulation of their frames."""

    link: str = RELIABLE
    encap: str = ENCAPS[0]


RELIABLE_L2 = Wires()


@dataclass(frozen=True)
class Cut:
    """Cut of the network at the first result of a batch: around one device, or between two devices.

    ``frames``: frames that the run trains before that batch.
    """

    text: str  #: the option's value
    devices: tuple[str, ...]
    frames: int


@dataclass(frozen=True)
class Conditions:
    """Faults and recordings of a run.

    ``faults``: the ``FAULTS`` parameters of ``LinkConfig``; ``seed``: seed of the faults.
    ``cut``: cut of the network; ``capture``: PCAP file of all frames; ``wave``: waveform of signals.
    """

    faults: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cut: Cut | None = None
    capture: Path | None = None
    wave: Waveform | None = None

    def link(self, gbps: float) -> LinkConfig:
        """Return the configuration of links with these faults, at a rate in Gbit/s."""
        return LinkConfig(gbps=gbps, **self.faults)

    def as_json(self) -> dict[str, Any]:
        """Return the conditions as in run.json."""
        clean = asdict(LinkConfig())
        return {fault: self.faults.get(fault, clean[fault]) for fault in FAULTS} | {
            "seed": self.seed,
            "cut": self.cut and self.cut.text,
        }


LOSSLESS = Conditions()


def recorded_conditions(record: Record) -> Conditions:
    """Return the conditions recorded in run.json, without the cut, for a resumed run. Raises InputError."""
    faults: dict[str, Any] = {fault: float(record.number(fault)) for fault in FAULTS}
    record.build(lambda: LinkConfig(**faults))
    return Conditions(faults, record.integer("seed"))


def wires_of(options: BuildOptions, placement: Placement) -> Wires:
    """Return the wires that a build's options give. Raises InputError for such options with a single device."""
    if len(placement.names) == 1:
        options.refuse({CONNECTIONS: ALONE})
    return Wires(options.link or RELIABLE, options.encap or ENCAPS[0])


def check_conditions(options: ClusterOptions) -> None:
    """Raise InputError for invalid network options; this check needs no plan."""
    if options.on != "rtl":
        options.refuse({FRAMES: "needs --on rtl"})
    try:
        LinkConfig(**{fault: getattr(options, fault) for fault in FAULTS})
    except ValueError as error:
        raise InputError(f"--{error}") from None


def conditions_of(options: ClusterOptions, placement: Placement, training: Training, frames: int) -> Conditions:
    """Return the conditions that a run's options give. ``frames``: frames of an epoch. Raises InputError."""
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
    """Return the device of that name, or two connected devices whose names are joined by a hyphen."""
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
    raise InputError(f"--cut: no device {text}; devices are {', '.join(names)}")
