"""Protocols for the program and the block that a body's code belongs to.

``blocks.py`` has the classes that implement them. These classes write bodies, and bodies call them. With the
protocols, no module imports itself through other modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.description import ExternInfo, TableInfo
from fanin.sim.switch.embedded.errors import Position
from fanin.sim.switch.embedded.records import Records
from fanin.sim.switch.embedded.source import Source


class ProgramContext(Protocol):
    """Data that all blocks of a program share; ``functions`` is the text of their functions."""

    architecture: type[Any]
    records: Records
    functions: Source
    tables: dict[str, TableInfo]
    externs: dict[str, ExternInfo]

    def action_number(self, action: ast.Action) -> int:
        """Return the action's unique number."""

    def hold(self, node: ast.Declaration) -> None:
        """Count the values of a parameter or local variable. Raises P4Error if the program has too many."""

    def repeats(self, node: ast.Call, instance: BlockContext | None) -> bool:
        """Return whether a call in ``instance`` runs a function that an earlier such call runs, too."""

    def function_of(self, node: ast.Declaration, instance: BlockContext | None) -> str:
        """Return the Python function of an action or function."""

    def extern(
        self,
        node: ast.Call,
        kind: types.External,
        name: str,
        instance: BlockContext | None,
        body: Sequence[ast.Declaration] = (),
        annotations: ast.Annotations | None = None,
    ) -> str:
        """Emit code of an extern's instance; return its Python name."""

    def global_extern(self, node: ast.Instance) -> str:
        """Return the Python name of an extern instance outside all blocks."""

    def digest(self, node: ast.Call, kind: types.Type) -> str:
        """Return the name of the digest that a call of ``digest`` sends."""

    def extern_class(self, position: Position, name: str) -> type[Any]:
        """Return the class that implements an extern object. Raises Refused if there is none."""

    def member_name(self, node: ast.Expression) -> str:
        """Return code of an enum member's name. Raises Refused unless it is constant."""


class BlockContext(Protocol):
    """An instance of a control or parser: the names in it, and its functions."""

    node: ast.Parser | ast.Control
    tables: dict[ast.Table, str]
    own_functions: set[ast.Declaration]
    frame: str
    run: str

    def python_name(self, target: ast.Declaration) -> str:
        """Return the Python place of a parameter or variable."""

    def extern_of(self, node: ast.Name) -> str:
        """Return the Python name of the extern instance that ``node`` means."""

    def block_of(self, node: ast.Expression) -> BlockContext:
        """Return the instance whose ``apply`` is called."""

    def name_of(self, node: ast.Declaration) -> str:
        """Return the name of a declaration in the block for the control plane."""
