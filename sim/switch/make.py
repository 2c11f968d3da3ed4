"""Factory of switches by kind, for a job's workers at ports 0, 1, 2…"""

from __future__ import annotations

import functools

from fanin.job import SWITCH
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.switch.base import Switch, SwitchKind
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.sim.tree import SwitchTree
from fanin.tree import Tree
from fanin.wire.ethernet import Endpoint


def check_switch(kind: SwitchKind) -> None:
    """Raise InputError that names missing programs for a switch of this kind."""
    if kind is SwitchKind.BMV2:
        from fanin.sim.switch.bmv2.process import check_tools

        check_tools()


def make_switch(ports: int, endpoint: Endpoint = SWITCH, *, kind: SwitchKind, config: ProgramConfig) -> Switch:
    """Return a switch with these addresses that runs the program of ``config``, or an equivalent."""
    if kind is SwitchKind.REFERENCE:
        return ReferenceSwitch(
            endpoint=endpoint, ports=ports, values=config.values, protocol=config.protocol, encap=config.encap
        )
    # Import only what this kind needs: gRPC here, a parser below.
    if kind is SwitchKind.BMV2:
        from fanin.sim.switch.bmv2.switch import bmv2_switch

        return bmv2_switch(config, endpoint=endpoint, ports=range(ports))
    from fanin.sim.switch.emitted import embedded_switch

    return embedded_switch(config, endpoint=endpoint, ports=range(ports))


def make_tree(tree: Tree, *, kind: SwitchKind, config: ProgramConfig) -> SwitchTree:
    """Return a tree of switches, each with its part of the job. Not for BMv2, whose switches share ports."""
    return SwitchTree(tree, functools.partial(make_switch, kind=kind, config=config))
