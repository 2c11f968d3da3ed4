"""What the code of a body may ask of the program and of the block that it belongs to.

``blocks.py`` has the classes that answer. They write bodies, and bodies ask them: so bodies know them by these
protocols alone, and no module imports itself by way of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.description import ExternInfo, TableInfo
from fanin.sim.switch.embedded.errors import Position
from fanin.sim.switch.embedded.records import Records
from fanin.sim.switch.embedded.source import Source


class ProgramContext(Protocol):
    """What all blocks of a program share; ``functions`` is the text that theirs are written to."""

    architecture: type
    records: Records
    functions: Source
    tables: dict[str, TableInfo]
    externs: dict[str, ExternInfo]

    def action_number(self, action: ast.Action) -> int:
        """A number that is the action's alone."""

    def function_of(self, node: ast.Declaration, instance: BlockContext | None) -> str:
        """The Python function of an action or function."""

    def extern(
        self,
        node: ast.Call,
        kind: types.External,
        name: str,
        instance: BlockContext | None,
        body: Sequence[ast.Declaration] = (),
        annotations: ast.Annotations | None = None,
    ) -> str:
        """Make an instance of an extern; the Python name of it."""

    def global_extern(self, node: ast.Instance) -> str:
        """The Python name of an extern instance outside of all blocks."""

    def digest(self, node: ast.Call, kind: types.Type) -> str:
        """The name of what a call of ``digest`` sends."""

    def extern_class(self, position: Position, name: str) -> type:
        """The class that implements an extern object. Raises Refused where there is none."""

    def member_name(self, node: ast.Expression) -> str:
        """Code of an enum member's name. Raises Refused unless it is constant."""


class BlockContext(Protocol):
    """An instance of a control or parser: what names mean in it, and the functions that it has become."""

    node: ast.Parser | ast.Control
    tables: dict[ast.Table, str]
    own_functions: set[ast.Declaration]
    frame: str
    run: str

    def place_of(self, target: ast.Declaration) -> str:
        """The Python place of a parameter or variable."""

    def extern_of(self, node: ast.Name) -> str:
        """The Python name of the extern instance that ``node`` means."""

    def block_of(self, node: ast.Expression) -> BlockContext:
        """The instance whose ``apply`` is called."""

    def name_of(self, node: ast.Declaration) -> str:
        """The name for the control plane of something declared in the block."""
