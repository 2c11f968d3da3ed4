"""The emitted program, executed by a real BMv2."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.compiler import compile_program
from fanin.p4.emit import program_text
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram
from fanin.sim.switch.bmv2.pipeline import Bmv2Pipeline
from fanin.sim.switch.bmv2.process import check_tools
from fanin.sim.switch.program import ProgramSwitch
from fanin.wire.ethernet import Endpoint


class Bmv2Switch(ProgramSwitch):
    """Aggregation program in ``simple_switch_grpc``; it ends with :meth:`close`, at exit or in a crash."""

    pipeline: Bmv2Pipeline

    def close(self) -> None:
        """Stop the switch; afterwards every call raises ToolFailed."""
        self.pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def bmv2_switch(
    config: ProgramConfig, *, endpoint: Endpoint, ports: Sequence[int], veth: bool | None = None
) -> Bmv2Switch:
    """Return the program of ``config``, compiled and running without a job; it lives as long as this thread.

    ``veth`` is that of :class:`Bmv2Pipeline`. Raises InputError if a tool is missing.
    """
    if config.target is not Target.V1MODEL:
        raise ValueError(f"target must be v1model for BMv2, not {config.target}")
    check_tools()
    with tempfile.TemporaryDirectory(prefix="fanin-p4c-") as folder:
        Path(folder, "aggregation.p4").write_text(program_text(config))
        program = CompiledProgram(*compile_program(config, Path(folder)))
        pipeline = Bmv2Pipeline(config, program, ports, veth=veth)
    try:
        return Bmv2Switch(config=config, pipeline=pipeline, endpoint=endpoint, ports=ports)
    except BaseException:
        pipeline.close()
        raise
