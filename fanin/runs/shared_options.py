"""Options that runs of several systems share: links of a simulated network, and images to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fanin.link import LinkConfig
from fanin.runs.option import FileUse, Group, Options, Trait, option
from fanin.sim.network import NetworkConfig

LINKS = Trait("simulated links")
NETWORK = Group("network")


def fault(group: Group, trait: Trait) -> Any:
    """Return the field of a fault of links: its probability. ``trait``: what a run with faults must have."""
    return option(
        group, 0.0, "probability per frame and link: once to the switch, once from it", "P", trait=trait
    )


def images(group: Group) -> Any:
    """Return the field of the images that a run trains on."""
    return option(
        group,
        "digits",
        "digits, a folder with MNIST's idx files, or an .npz by Keras' convention",
        "DATA",
        positional=True,
        file_use=FileUse.INPUT,
    )


@dataclass(frozen=True, kw_only=True)
class LinkOptions(Options):
    """Links between nodes and a switch, all alike."""

    drop: float = fault(NETWORK, LINKS)
    duplicate: float = fault(NETWORK, LINKS)
    reorder: float = fault(NETWORK, LINKS)
    corrupt: float = fault(NETWORK, LINKS)
    link_ns: float = option(NETWORK, LinkConfig.delay_ns, "delay of a link", "N", trait=LINKS)
    switch_ns: float = option(NETWORK, NetworkConfig.switch_ns, "delay of the switch", "N", trait=LINKS)
    gbps: float = option(NETWORK, LinkConfig.gbps, "rate of a link", "G", unit="Gb/s", trait=LINKS)
    host_ns: float = option(
        NETWORK, LinkConfig.host_ns, "time of a host's software per frame, each way", "N", trait=LINKS
    )
    host_jitter_ns: float = option(
        NETWORK, LinkConfig.host_jitter_ns, "mean of a random addition to --host-ns", "N", trait=LINKS
    )
    frame_bytes: int = option(
        NETWORK,
        LinkConfig.frame_bytes,
        "a shorter frame occupies the wire as one of N bytes",
        "N",
        trait=LINKS,
    )
