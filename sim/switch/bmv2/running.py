"""A switch started by another process, BMv2 or ``fanin p4 serve``: its jobs are read back and changed."""

from __future__ import annotations

import functools
from pathlib import Path

from fanin.job import SWITCH, Job, JobCounters, SwitchCounters
from fanin.p4.aggregation import FLOOD_GROUP
from fanin.p4.deployment import Deployment
from fanin.p4.installation import FOREIGN_ENTRY
from fanin.p4.readback import JOB_TABLES, RunningJob, program_config, running_jobs
from fanin.sim.switch.bmv2.p4runtime import CompiledProgram, P4Runtime
from fanin.sim.switch.bmv2.pipeline import ControlPlane, RegisterAccess
from fanin.sim.switch.bmv2.thrift import Registers, connect_thrift
from fanin.sim.switch.program import ProgramSwitch
from fanin.wire.ethernet import Endpoint


class RunningSwitch:
    """Running switch with its P4Runtime server at ``address``; ``thrift`` resets registers if P4Runtime cannot.

    Raises ToolFailed if a server does not answer or refuses. Raises ValueError for jobs that the switch cannot
    run or does not know.
    """

    def __init__(self, address: str, *, thrift: tuple[str, int], device: int = 0):
        self.address = address
        self._thrift = functools.cache(lambda: Registers(connect_thrift(thrift)))
        self._registers = functools.cache(self._find_registers)
        self._control = P4Runtime(address, device=device)
        self._switch: ProgramSwitch | None = None
        self._running: dict[int, RunningJob] = {}
        if self._control.schema.exists:
            try:
                self._attach()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Disconnect from the switch, which continues."""
        self._control.close()
        if self._thrift.cache_info().currsize:
            self._thrift().close()

    def prepare(self, directory: Path, deployment: Deployment) -> None:
        """Load the program of ``directory`` unless one runs, and install what it needs before the first job."""
        if not self._control.schema.exists:
            program = CompiledProgram(directory / "aggregation.json", directory / "aggregation.p4info.txtpb")
            missing = [str(path) for path in (program.config, program.p4info) if not path.exists()]
            if missing:
                raise ValueError(
                    f"{self.address} runs no program, and {missing[0]} is missing: fanin p4 emit writes it "
                    "where p4c-bm2-ss is installed"
                )
            self._control.set_pipeline(program)
        ports = [port.number for port in deployment.ports]
        self._attach(deployment.switch, ports)

    def add(self, job: Job) -> None:
        """Clear the job's slots and admit its members."""
        self._program().add_job(job)

    def remove(self, number: int) -> Job:
        """Remove a job."""
        (number,) = self.numbers(number)
        self._program().remove_job(number)
        return self._running[number].job

    def reset(self, number: int) -> None:
        """Remove a job and add it again, its slots clear."""
        self._registers()  # before the removal, which cannot be undone if this fails
        job = self.remove(number)
        program = self._program()
        program.endpoint = self._running[number].switch  # other jobs may have another one
        program.add_job(job)

    def numbers(self, number: int | None = None) -> list[int]:
        """Return the running jobs' ids, or only ``number`` if it is one of them."""
        self._program()
        if number is None:
            return sorted(self._running)
        if number not in self._running:
            job_list = ", ".join(map(str, sorted(self._running))) or "none"
            raise ValueError(f"{self.address} runs no job {number}; it runs {job_list}")
        return [number]

    def job_counters(self, number: int) -> JobCounters:
        """Return the counters of a job since it was added."""
        return self._program().job_counters(number)

    def counters(self) -> SwitchCounters:
        """Return the counters of the switch, without traffic forwarded to removed jobs."""
        return self._program().counters()

    def _find_registers(self) -> RegisterAccess:
        """Return P4Runtime if it has registers there, otherwise Thrift, as for BMv2."""
        name = next(iter(self._control.schema.registers)).name
        return self._control if self._control.has_registers(name) else self._thrift()

    def _program(self) -> ProgramSwitch:
        if self._switch is None:
            raise ValueError(f"{self.address} runs no aggregation program yet: fanin p4 job add loads it")
        return self._switch

    def _attach(self, endpoint: Endpoint | None = None, ports: list[int] | None = None) -> None:
        """Read the running jobs; with ``endpoint`` and ``ports`` also install the job-independent entries."""
        schema, control = self._control.schema, self._control
        try:
            config = program_config(
                {register.name: register.size for register in schema.registers},
                {running_job.name: running_job.size for running_job in schema.tables},
                {action.name: [parameter.name for parameter in action.params] for action in schema.actions},
            )
            entries = [entry for name in JOB_TABLES for entry in control.entries(name)]
            installed = FOREIGN_ENTRY in control.entries(FOREIGN_ENTRY.table)
            if not installed and ports is None:
                return
            running = running_jobs(config, entries)
        except ValueError as error:
            raise ValueError(f"{self.address}: {error}") from error
        self._running = {running_job.job.id: running_job for running_job in running}
        if installed:
            flooded = [group for group in control.multicast_groups() if group.id == FLOOD_GROUP]
            ports = [replica.port for group in flooded for replica in group.replicas]
        self._switch = ProgramSwitch(
            config=config,
            pipeline=ControlPlane(config, control, self._registers),
            endpoint=endpoint or next((running_job.switch for running_job in running), SWITCH),
            ports=ports or [],
            running={running_job.place: running_job.job for running_job in running} if installed else None,
        )
