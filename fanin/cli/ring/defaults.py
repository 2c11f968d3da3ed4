"""What ``fanin ring train`` takes for options that are not given, and which options belong to what."""

from __future__ import annotations

from typing import Any

from fanin.cli.codec.options import PARAMETERS
from fanin.ring import PRESETS
from fanin.sim.network import FAULTS
from fanin.sim.ring.profile import WorkerProfile

SYSTEMS = (SMART_NIC, INCEPTIONN) = ("smart-nic", "inceptionn")
EXCHANGES = (RING, AGGREGATOR) = ("ring", "aggregator")

SIZES = {8: PRESETS["prototype"], 16: PRESETS["u280"]}  #: of a smart NIC, by its lanes

#: By option; None where it depends on the others, or is for nothing.
DEFAULTS: dict[str, Any] = {
    "data": "digits",
    "layers": None,
    "epochs": 10,
    "batch": 32,
    "rate": 0.1,
    "momentum": 0.9,
    "decay": 0.0,
    "seed": 0,
    "system": SMART_NIC,
    "nodes": 4,
    "exchange": RING,
    "groups": None,
    "above": None,
    "lanes": 8,
    "codec": "none",
    "all_reduce": "nic",
    "on": None,
    "overlap": "backward",
    "outstanding": 1,
    "flops": WorkerProfile.flops,
    "memory_bandwidth": WorkerProfile.memory_bandwidth,
    "pcie": WorkerProfile.pcie,
    "gbps": None,
    **dict.fromkeys(FAULTS, 0.0),
    "stop": "",
}
GBPS = {SMART_NIC: 40.0, INCEPTIONN: 10.0}  # of the prototype with 8 lanes, and of INCEPTIONN's cluster

_NOT_OF_MODEL = ("epochs", "all_reduce", "on", "overlap", "outstanding", "flops", "memory_bandwidth", "pcie")
#: Options that decide the bits; with ``--resume`` they are as in the folder.
OF_MODEL = (
    *(name for name in DEFAULTS if name not in (*_NOT_OF_MODEL, "gbps", *FAULTS, "stop")),
    *PARAMETERS,
)
#: Options that INCEPTIONN's nodes have nothing for.
OF_SMART_NIC = ("lanes", "all_reduce", "on", "overlap", "outstanding", "pcie")
#: Options that hosts that add up themselves do not use: α, β and γ of their ring have these times in them.
OF_REDUCING_NIC = ("outstanding", "memory_bandwidth", "pcie", "gbps")
