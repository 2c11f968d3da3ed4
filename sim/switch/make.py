"""Switches by kind, for a job's workers at ports 0, 1, 2…"""

from __future__ import annotations

from fanin.job import SWITCH
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.switch.base import Switch, SwitchKind
from fanin.sim.switch.reference import ReferenceSwitch


def check_switch(kind: SwitchKind) -> None:
    """Raise InputError naming what to install for a switch of this kind."""
    if kind is SwitchKind.BMV2:
        from fanin.sim.switch.bmv2.process import check_tools

        check_tools()


def make_switch(ports: int, *, kind: SwitchKind, config: ProgramConfig) -> Switch:
    """A switch with the default addresses that runs the program of ``config``, or does the same."""
    if kind is SwitchKind.REFERENCE:
        return ReferenceSwitch(
            endpoint=SWITCH, ports=ports, values=config.values, protocol=config.protocol, encap=config.encap
        )
    # What others need not load: gRPC here, a parser there.
    if kind is SwitchKind.BMV2:
        from fanin.sim.switch.bmv2.switch import bmv2_switch

        return bmv2_switch(config, endpoint=SWITCH, ports=range(ports))
    from fanin.sim.switch.emitted import embedded_switch

    return embedded_switch(config, endpoint=SWITCH, ports=range(ports))
