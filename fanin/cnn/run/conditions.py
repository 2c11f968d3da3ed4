"""Network of a run from its options: link protocol, encapsulation, faults, cuts, capture and waveform."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.base.records import Record
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run.options import CONNECTIONS, ENCAPS, FRAMES, RELIABLE, BuildOptions, ClusterOptions
from fanin.cnn.training import Training
from fanin.link import FAULTS, LinkConfig
from fanin.runs.output import PCAP_FILE

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.waves import Waveform


ONE_DEVICE = "does not apply: the plan has one device and no network"


@dataclass(frozen=True)
class Wires:
    """Options of a build's connections. The fields are keys of ``build.json``."""

    link: str = RELIABLE  #: protocol of the links, one of LINKS
    encap: str = ENCAPS[0]  #: encapsulation of the frames, one of ENCAPS


RELIABLE_L2 = Wires()


@dataclass(frozen=True)
class Cut:
    """Cut of the network when a batch gives its first result: around one device, or between two devices."""

    text: str  #: value of the option ``--cut``
    devices: tuple[str, ...]  #: the device that is cut off, or the two devices
    frames: int  #: frames that the run trains before that batch


@dataclass(frozen=True)
class Conditions:
    """Faults and recordings of a run's network."""

    faults: Mapping[str, Any] = field(default_factory=dict)  #: the ``FAULTS`` parameters of ``LinkConfig``
    seed: int = 0  #: seed of the faults
    cut: Cut | None = None
    capture: Path | None = None  #: PCAP file of all frames; None for none
    wave: Waveform | None = None  #: waveform of signals; None for none

    def link(self, gbps: float) -> LinkConfig:
        """Return the configuration of links with these faults, at a rate in Gbit/s."""
        return LinkConfig(gbps=gbps, **self.faults)

    def as_json(self) -> dict[str, Any]:
        """Return ``conditions`` of run.json."""
        clean = asdict(LinkConfig())
        return {fault: self.faults.get(fault, clean[fault]) for fault in FAULTS} | {
            "seed": self.seed,
            "cut": self.cut and self.cut.text,
        }


LOSSLESS = Conditions()


def recorded_conditions(record: Record) -> Conditions:
    """Return the conditions of a resumed run from ``run.json``, without its cut. Raises InputError."""
    faults: dict[str, Any] = {fault: float(record.number(fault)) for fault in FAULTS}
    record.build(lambda: LinkConfig(**faults))
    return Conditions(faults, record.integer("seed"))


def wires_of(options: BuildOptions, placement: PlacedNetwork) -> Wires:
    """Return the wires of a build's options. Raises InputError if they are given for a single device."""
    if len(placement.names) == 1:
        options.refuse({CONNECTIONS: ONE_DEVICE})
    return Wires(options.link or RELIABLE, options.encap or ENCAPS[0])


def check_conditions(options: ClusterOptions) -> None:
    """Raise InputError for network options that are invalid with any plan."""
    if options.on != "rtl":
        options.refuse({FRAMES: "needs --on rtl"})
    try:
        LinkConfig(**{fault: getattr(options, fault) for fault in FAULTS})
    except ValueError as error:
        raise InputError(f"--{error}") from None


def conditions_of(
    options: ClusterOptions, placement: PlacedNetwork, training: Training, frames: int
) -> Conditions:
    """Return the conditions of a run's options. ``frames``: frames of an epoch. Raises InputError."""
    if len(placement.names) == 1:
        options.refuse({FRAMES: ONE_DEVICE})
    return Conditions(
        faults={fault: getattr(options, fault) for fault in FAULTS},
        seed=training.seed if options.network_seed is None else options.network_seed,
        cut=_cut(options.cut, placement, training, frames) if options.cut else None,
        capture=options.output / PCAP_FILE if options.pcap else None,
    )


def _cut(text: str, placement: PlacedNetwork, training: Training, frames: int) -> Cut:
    match = re.fullmatch(r"(.+)@([0-9]{1,12})", text)
    if not match:
        raise InputError(f"--cut: must be DEVICE@BATCH or DEVICE-DEVICE@BATCH, not {text!r}")
    devices, batch = _devices(match[1], placement), int(match[2])
    epoch_batches = -(-frames // training.batch)  # of an epoch
    if not 1 <= batch <= training.epochs * epoch_batches:
        raise InputError(f"--cut: the run has batches 1…{training.epochs * epoch_batches:,}, not {batch:,}")
    epoch, batch_in_epoch = divmod(batch - 1, epoch_batches)
    return Cut(text, devices, epoch * frames + batch_in_epoch * training.batch)


def _devices(text: str, placement: PlacedNetwork) -> tuple[str, ...]:
    """Return the device called ``text``, or two connected devices whose names ``text`` joins by a hyphen."""
    names = placement.names
    if text in names:
        return (text,)
    pairs = [(text[:index], text[index + 1 :]) for index, letter in enumerate(text) if letter == "-"]
    connected = [
        {placement.devices[i] for i in (connection.source, connection.consumer.stage)}
        for connection in placement.connections
    ]
    for pair in pairs:
        if set(pair) in connected:
            return pair
        if all(name in names for name in pair):
            raise InputError(f"--cut: no connection goes between {' and '.join(pair)}")
    raise InputError(f"--cut: no device {text}; devices are {', '.join(names)}")
