"""What a run's nodes are connected by, what happens to them, and who looks on: options, and what they mean."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.cli.output import PCAP_FILE
from fanin.cnn_parts import Placement
from fanin.cnn_training import Training
from fanin.errors import InputError
from fanin.records import Record
from fanin.seed import MAX_SEED
from fanin.sim.network import FAULTS, LinkConfig

if TYPE_CHECKING:  # Amaranth takes a second to load
    from fanin.sim.cosim.waves import Waveform

LINKS = (RELIABLE, PUBLISHED) = ("reliable", "published")
ENCAPS = ("l2", "udp")  # by fanin.wire.ethernet

#: Options of the network, as they are where nothing is asked for.
_UNASKED = {**dict.fromkeys(FAULTS, 0.0), "network_seed": None, "cut": None, "pcap": False}


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


def add_conditions(group: argparse._ArgumentGroup) -> None:
    """Options of a run."""
    for fault in FAULTS:
        group.add_argument(
            f"--{fault}", type=float, default=0.0, metavar="P", help="probability per frame and link"
        )
    group.add_argument("--network-seed", type=int, metavar="N", help="of these (default: --seed)")
    group.add_argument(
        "--cut",
        metavar="DEVICE@BATCH",
        help="fpga1@12: cut off a device in the run's batch 12, counted from 1; fpga1-fpga2@12: these two from "
        "one another",
    )
    group.add_argument(
        "--pcap", action="store_true", help=f"write all frames to {PCAP_FILE} in the run's folder"
    )


def add_wires(group: argparse._ArgumentGroup) -> None:
    """Options of a build."""
    group.add_argument(
        "--link",
        choices=LINKS,
        help="a lost frame is sent again, or ends the run, as NADA was published (default: reliable)",
    )
    group.add_argument("--encap", choices=ENCAPS, help="raw Ethernet, or UDP over IPv4 (default: l2)")


def wires_of(args: argparse.Namespace, placement: Placement) -> Wires:
    """What a build's options say. Raises InputError for one device, which has no connection."""
    asked = {name: value for name in ("link", "encap") if (value := getattr(args, name))}
    _check_devices(placement, asked)
    return Wires(**asked)


def check_conditions(args: argparse.Namespace) -> None:
    """Raise InputError for what is wrong with a run's options whatever it trains."""
    asked = _asked(args)
    if asked and args.on != "rtl":
        raise InputError(f"{_options(asked)}: faults and frames need --on rtl")
    try:
        LinkConfig(**{fault: getattr(args, fault) for fault in FAULTS})
    except ValueError as error:
        raise InputError(f"--{error}") from None
    if args.network_seed is not None and not 0 <= args.network_seed <= MAX_SEED:
        raise InputError(f"--network-seed must be in 0…{MAX_SEED:,}, not {args.network_seed:,}")


def conditions_of(
    args: argparse.Namespace, placement: Placement, training: Training, frames: int
) -> Conditions:
    """What a run's options say, of epochs of so many frames. Raises InputError of one line."""
    _check_devices(placement, _asked(args))
    return Conditions(
        faults={fault: getattr(args, fault) for fault in FAULTS},
        seed=training.seed if args.network_seed is None else args.network_seed,
        cut=_cut(args.cut, placement, training, frames) if args.cut else None,
        capture=args.output / PCAP_FILE if args.pcap else None,
    )


def _asked(args: argparse.Namespace) -> list[str]:
    """Options of the network that were given."""
    return [name for name, value in _UNASKED.items() if getattr(args, name) != value]


def _check_devices(placement: Placement, asked: Any) -> None:
    if asked and len(placement.names) == 1:
        raise InputError(f"{_options(asked)}: the plan has one device, and nothing goes over a network")


def _options(names: Any) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


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
