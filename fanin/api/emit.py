"""``fanin.emit`` and ``fanin.emit_p4``: Verilog and switch programs as objects."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fanin.api.arguments import check_integers, member_of, path_of
from fanin.api.shown import DisplayedResult
from fanin.base.errors import InputError
from fanin.base.scratch import as_input_error, write_file, write_files
from fanin.glm.facts import PRESETS
from fanin.hdl import catalog
from fanin.hdl.area import Area
from fanin.hdl.package import package
from fanin.p4 import companions
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.deployment import Deployment, default_deployment, deployment_json, load_deployment
from fanin.p4.emit import program_text
from fanin.report.html import Rows
from fanin.runs.manifest import check_places, make_folder
from fanin.runs.output import JOB_FILE, PROGRAM_FILE, PROVENANCE_FILE, SWITCH_DISSECTOR_FILE
from fanin.wire.aggregation import Encap, Protocol


@dataclass(frozen=True, repr=False)
class Emitted(DisplayedResult):
    """A component of the catalogue as Verilog."""

    name: str
    parameters: Mapping[str, Any]
    verilog: str
    preset: str
    settings: Mapping[str, str]
    module: str  #: top module; the names of all others begin with its name

    @cached_property
    def area(self) -> Area:
        """Flip-flops and memories before synthesis."""
        return Area.read(self.verilog)

    @property
    def title(self) -> str:
        """Name and summary of the component."""
        return f"{self.name}: {catalog.entry_of(self.name).summary}"

    @property
    def facts(self) -> Rows:
        """Module, parameters and area."""
        parameters = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        area = f"{self.area.flip_flops:,} bits of flip-flops, {self.area.memory_bits:,} bits of memory"
        lines = self.verilog.count("\n")
        return [
            ("module", f"{self.module}, {lines:,} lines"),
            ("parameters", parameters),
            ("before synthesis", area),
        ]

    def registers(self, form: str = "json") -> str:
        """Return the register map: a C header ("c"), Verilog constants ("verilog"), CMSIS-SVD ("svd"), "json".

        Raises InputError.
        """
        if form not in catalog.REGISTER_FORMATS:
            raise InputError(f"form must be one of {', '.join(catalog.REGISTER_FORMATS)}, not {form!r}")
        return catalog.registers(
            self.name, form, preset=self.preset, settings=self.settings, module=self.module
        )

    def write(self, path: str | Path) -> None:
        """Write the Verilog as ``fanin verilog`` does. Raises InputError if it cannot be written."""
        write_file(Path(path), self.verilog)


def components(preset: str = "demo") -> dict[str, dict[str, Any]]:
    """Return the components that ``emit`` can emit, with their parameters for a preset."""
    config = PRESETS[_preset(preset)]
    return {name: entry.parameters(config) for name, entry in catalog.CATALOG.items()}


def emit(name: str, *, preset: str = "demo", module: str | None = None, **settings: Any) -> Emitted:
    """Emit a component as Verilog; ``settings`` override the preset's parameters. Raises InputError.

    ``module``: name of the top module, by default that of the component.
    """
    module = catalog.module_of(name, module)
    texts = {key: str(value) for key, value in settings.items()}
    entry = catalog.entry_of(name)
    verilog = package.emit(name, preset=_preset(preset), settings=texts, module=module)
    parameters = entry.parameters(PRESETS[preset]) | settings
    return Emitted(name, parameters, verilog, preset, texts, module)


def _preset(name: str) -> str:
    if name not in PRESETS:
        raise InputError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    return name


@dataclass(frozen=True, repr=False)
class SwitchProgram(DisplayedResult):
    """Aggregation program for a switch, and the jobs that it runs."""

    config: ProgramConfig
    deployment: Deployment

    @cached_property
    def text(self) -> str:
        """Text of the program in P4_16."""
        return program_text(self.config)

    @property
    def title(self) -> str:
        """Protocol, target and length in one line."""
        return f"{self.config.protocol} for {self.config.target}: {self.text.count(chr(10)):,} lines of P4_16"

    @property
    def facts(self) -> Rows:
        """Configuration and jobs."""
        jobs = len(self.deployment.jobs)
        return [
            *((field.name, str(getattr(self.config, field.name))) for field in dataclasses.fields(self.config)),
            ("jobs", f"{jobs}, of {sum(len(job.members) for job in self.deployment.jobs)} workers"),
        ]

    @cached_property
    def files(self) -> dict[str, str]:
        """Files by name: program, job, Wireshark dissector, PTF tests and, for Tofino, a script for its
        driver.
        """
        files = {
            PROGRAM_FILE: self.text,
            JOB_FILE: deployment_json(self.deployment),
            SWITCH_DISSECTOR_FILE: companions.dissector(self.config),
            "ptf/aggregation_test.py": companions.ptf_tests(self.config),
        }
        if self.config.target is Target.TNA:
            files["aggregation_bfrt.py"] = companions.bfruntime_script(self.config, self.deployment)
        return files

    def write(self, folder: str | Path, *, taken: str | Path | None = None) -> list[Path]:
        """Write ``files`` into a folder; return their paths.

        Links in the place of files and folders are replaced. Raises InputError for an existing job.json that
        differs, since it may have been edited, unless it is the file ``taken`` as input. Without a job.json the
        files are not fanin's, and one that would be replaced is an InputError, too.
        """
        write_program(self, Path(folder), None if taken is None else Path(taken))
        return [Path(folder) / name for name in self.files]


def emit_p4(
    *,
    target: str = ProgramConfig.target,
    protocol: str = ProgramConfig.protocol,
    workers: int = ProgramConfig.workers,
    slots: int = ProgramConfig.slots,
    values: int = ProgramConfig.values,
    encap: str = ProgramConfig.encap,
    jobs: int = 1,
    job: str | Path | None = None,
) -> SwitchProgram:
    """Emit the switch program, with ``jobs`` jobs of all workers, or those of a job.json. Raises InputError."""
    check_integers(workers=workers, slots=slots, values=values, jobs=jobs)
    if job is not None and jobs != 1:
        raise InputError("jobs: must be 1 with a job.json, which has its own")
    try:
        config = ProgramConfig(
            target=member_of(Target, "target", target),
            protocol=member_of(Protocol, "protocol", protocol),
            workers=workers,
            slots=slots,
            values=values,
            encap=member_of(Encap, "encap", encap),
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    try:
        deployment = default_deployment(config, jobs) if job is None else load_deployment(path_of("job", job))
    except ValueError as error:
        raise InputError(str(error)) from error
    try:
        return SwitchProgram(config, dataclasses.replace(deployment, program=config))
    except ValueError as error:
        raise InputError(f"{job}: {error}") from error


def write_program(
    program: SwitchProgram, folder: Path, taken: Path | None, provenance: str | None = None
) -> None:
    """Write a program's files as ``SwitchProgram.write`` does.

    - ``provenance``: content of ``provenance.json``, which is written last: with it the files are whole. None:
      the file is left as it is.
    """
    files = program.files
    _check_own(folder, files)
    _keep_edited(folder / JOB_FILE, files[JOB_FILE], taken)
    with as_input_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        check_places(folder, files)
        for parent in {Path(name).parent for name in files}:
            make_folder(folder, parent.as_posix())
    names = sorted(files, key=lambda name: name != JOB_FILE)  # job.json first: fanin's files may be replaced
    contents = {name: files[name] for name in names}
    if provenance is None:
        write_files(folder, contents)
    else:
        write_files(folder, {**contents, PROVENANCE_FILE: provenance}, mark=PROVENANCE_FILE)


def _check_own(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError if a file of these names exists in a folder without a job.json."""
    present = [name for name in names if os.path.lexists(folder / name)]
    if present and not (folder / JOB_FILE).exists():
        raise InputError(
            f"{folder / present[0]}: exists, and {folder} has no {JOB_FILE} of an earlier program; choose "
            "another folder"
        )


def _keep_edited(path: Path, text: str, source: Path | None) -> None:
    if path.exists() and path.read_bytes() != text.encode() and not (source and source.samefile(path)):
        raise InputError(f"{path}: exists and differs; --job {path} takes it, or remove it")
