"""Tree of switches of ``fanin train``, from ``--racks`` or ``--tree``."""

from __future__ import annotations

from pathlib import Path

from fanin.base.errors import InputError
from fanin.glm.facts import PRESETS
from fanin.glm.run.options import GlmOptions
from fanin.job import FIRST_JOB
from fanin.p4.tree import check_udp, load_tree
from fanin.sim.nic.agreement import SLOTS as AGREEMENT_SLOTS
from fanin.sim.switch.base import SwitchKind
from fanin.tree import Tree, parse_shape, tree_of
from fanin.wire.aggregation import Encap


def tree_of_options(options: GlmOptions) -> Tree | None:
    """Return the tree of switches that the options describe; None for one switch. Raises InputError."""
    if options.racks is not None:
        tree, given = _from_shape(options, options.racks), f"--racks {options.racks}"
    elif options.tree is not None:
        tree, given = load_tree(options.tree), f"--tree {options.tree}"
        _check_file(options, tree, options.tree)
    else:
        return None
    workers = len(tree.workers)
    if "workers" in options.given and options.workers != workers:
        raise InputError(f"--workers {options.workers}: {given} has {workers}")
    if options.switch is SwitchKind.BMV2:
        raise InputError(f"{given}: not with --switch bmv2; embedded and reference make trees")
    return tree


def _from_shape(options: GlmOptions, text: str) -> Tree:
    slots = PRESETS[options.preset].slots if options.slots is None else options.slots
    try:
        return tree_of(parse_shape(text), job=FIRST_JOB, base=0, slots=slots)
    except ValueError as error:
        raise InputError(f"--racks: {error}") from error


def _check_file(options: GlmOptions, tree: Tree, path: Path) -> None:
    """Raise InputError for a file that contradicts the options."""
    slots, given = tree.root.part.slots, f"--tree {path}"
    if "slots" in options.given and options.slots != slots:
        raise InputError(f"--slots {options.slots}: {given} has {slots}")
    if options.worker is not None and slots < 2 * AGREEMENT_SLOTS:
        raise InputError(f"--worker: {given} has {slots} slots; separate workers need {2 * AGREEMENT_SLOTS}")
    if options.encap is Encap.UDP:
        check_udp(tree, path)
