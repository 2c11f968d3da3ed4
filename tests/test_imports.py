"""Imports run one way, module by module: facts, golden models, what is generated, what runs, what shows it."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"fanin": "fanin", **{name: f"fanin.{name}" for name in ("hdl", "p4", "planner", "sim")}}

#: From the bottom up; a floor may import itself and those below it. What stands in no other floor is a fact.
FLOORS = (
    ("fanin",),
    ("fanin.golden", "fanin.*.golden"),
    ("fanin.hdl", "fanin.p4", "fanin.planner"),
    ("fanin.host", "fanin.*.driver", "fanin.*.nic_driver", "fanin.sim", "fanin.evaluation.models"),
    ("fanin.torch", "fanin.sklearn", "fanin.report", "fanin.*.page", "fanin.cnn.plan.page"),
    ("fanin.runs", "fanin.*.run", "fanin.cnn.plan"),
    ("fanin.cli", "fanin.api", "fanin.doctor", "fanin.campaign", "fanin.evaluation", "fanin.__main__"),
)
PARTS = [part for floor in FLOORS for part in floor]
APART = FLOORS[2]  # these know nothing of one another


def _module(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    name = ".".join((FOLDERS[parts[0]], *parts[1:]))
    return name.removesuffix(".__init__")


def _imports(file, modules):
    """The modules of ours that a file imports, anywhere in it: a function's imports count, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            yield from submodules or {node.module}


@cache
def source_modules():
    """File of each module of ours."""
    return {_module(file): file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}


@cache
def import_graph():
    """Modules of ours that each of them imports. All sources are parsed, which takes seconds."""
    files = source_modules()
    return {module: set(_imports(file, set(files))) - {module} for module, file in files.items()}


def _part(module):
    """The part of a floor that a module belongs to: the longest that names it or a package around it.

    A name comes before a pattern, and ``fanin`` alone comes last.
    """
    names = module.split(".")
    around = [".".join(names[:count]) for count in range(len(names), 1, -1)]
    named = [name for name in around if name in PARTS]
    return next(iter(named + [part for name in around for part in PARTS if fits(name, part)]), "fanin")


def fits(name, part):
    """Whether a name is that of a part, of as many words, in which ``*`` is any."""
    words, pattern = name.split("."), part.split(".")
    return len(words) == len(pattern) and all(p in ("*", w) for w, p in zip(words, pattern, strict=True))


def _floor(module):
    return next(n for n, floor in enumerate(FLOORS) if _part(module) in floor)


def _wrong(graph):
    """Imports that run upwards, or between those that are to know nothing of one another."""
    return sorted(
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if _floor(other) > _floor(module)
        or (_part(module) != _part(other) and {_part(module), _part(other)} <= set(APART))
    )


def test_every_module_imports_its_own_floor_or_those_below():
    assert len(import_graph()) > 400
    assert {_part(module) for module in import_graph()} == {part for floor in FLOORS for part in floor}
    assert _wrong(import_graph()) == []


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("fanin.fixed", "fanin.golden.fp32"),
        ("fanin.hdl.emit", "fanin.p4.emit"),
        ("fanin.sim.pcap", "fanin.cli.main"),
    ],
)
def test_an_import_in_the_wrong_direction_is_seen(module, other):
    assert _wrong({module: {other}}) == [f"{module} imports {other}"]


def test_no_module_imports_itself_by_way_of_others():
    try:
        list(TopologicalSorter(import_graph()).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1]))
