"""Embedded switch with the jobs of a job.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import InputError

if TYPE_CHECKING:
    from fanin.p4.deployment import Deployment
    from fanin.sim.switch.embedded import Program, Switch


def switch_with_jobs(
    program: Program, deployment: Deployment, path: Path, *, create: Callable[[Iterable[int]], Switch]
) -> Switch:
    """Return the switch that ``create`` makes for the ports of ``path``, with the jobs of ``path``.

    Raises InputError for another program, and ValueError for a job that the program cannot run.
    """
    from fanin.p4.aggregation import register_words
    from fanin.sim.switch.emitted import EmbeddedPipeline
    from fanin.sim.switch.program import ProgramSwitch

    config = deployment.program
    if config is None:
        raise InputError(f'{path}: "program" is missing: fanin p4 emit --job {path} adds it')
    if set(program.registers) != set(register_words(config)):
        raise InputError(f"{path}: is for another program than {program.name}: fanin p4 emit writes both")
    job_ports = [port.number for port in deployment.ports]
    switch = create(job_ports)
    pipeline = EmbeddedPipeline(config, switch)
    control = ProgramSwitch(config=config, pipeline=pipeline, endpoint=deployment.switch, ports=job_ports)
    for job in deployment.jobs:
        control.add_job(job)
    return switch
