"""Run of ``fanin train``: trains, compares, writes the run's folder and prints the summary."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.records import open_record
from fanin.base.scratch import write_file
from fanin.glm.run.files import (
    COUNT_FIELDS,
    NO_RECOVERY,
    tree_files,
    write_failure,
    write_json,
    write_model,
    write_result,
    write_switch,
    write_unfinished,
)
from fanin.glm.run.options import GlmOptions
from fanin.glm.run.progress import ProgressReporter, simulate
from fanin.glm.run.restarts import Attempts, Survival
from fanin.glm.run.resume import Earlier, configuration_of, is_complete, open_earlier
from fanin.glm.run.setup import trainers_of
from fanin.glm.run.state import About, data_digest, names_of, training_of
from fanin.glm.run.summary import summary, summary_of_classes
from fanin.runs.call import Call
from fanin.runs.file_options import request_of
from fanin.runs.live import LiveFile
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import list_files, make_folder
from fanin.runs.output import (
    CLASSES_FOLDER,
    MODEL_FILE,
    PCAP_FILE,
    RUN,
    RUN_FILE,
    check_directory,
    check_writable,
    json_text,
)
from fanin.runs.provenance.document import note_resumption, renew_results, run_directory
from fanin.runs.ranks import refuse_ranks
from fanin.runs.states import STATES
from fanin.runs.unfinished import STOP_EXCEPTIONS, cause_of, raise_stop
from fanin.runs.wave import waveform
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm.classes import ClassesResult, together
from fanin.sim.glm.course import History, TrainRun, first_course
from fanin.sim.glm.data import Dataset
from fanin.sim.glm.result import GlmTraining, TrainResult
from fanin.sim.glm.train import Trainer

DIFFERS = "the RTL's model differs from the golden model"
_SCRATCH = ".fanin-"  # before a capture's name during writing
_SCRATCH_PCAP = f"{_SCRATCH}{PCAP_FILE}"
_SWITCH_FILES = ("frames-*.pcap", "job-*.json")  # of switches below the root, by name


def execute(
    options: GlmOptions, call: Call, say: Callable[[str], None] = print
) -> TrainResult | ClassesResult | None:
    """Train, write the run's folder, and ``say`` its summary. Return the result.

    Returns None if the resumed run had already finished. Raises CheckFailed if the models differ or a node
    stopped, InputError for options that do not fit.
    """
    earlier = None
    if options.resume is not None:
        options, earlier = open_earlier(options)
    elif options.data is None:
        raise InputError(
            "the following arguments are required: DATA, or --resume (fanin train --help lists the options)"
        )
    output = options.output or (earlier.folder if earlier else Path("runs") / Path(options.data or "").stem)
    options = replace(options, output=output)
    check_directory(output)
    if earlier and output.resolve() == earlier.folder.resolve() and is_complete(earlier, options):
        record = open_record(earlier.folder / RUN_FILE)
        say(json_text(record.value) if call.as_json else f"{earlier.folder}: the run has finished already")
        return None
    copies = _copies(options, output)
    with waveform(options, rtl=options.on is None) as wave:
        return _Command(options, call, say, wave, earlier).carry_out(copies)


def _copies(options: GlmOptions, output: Path) -> dict[str, Path]:
    """Return the user's paths for copies of the run's files, by the file's name in the folder.

    Raises InputError if a copy cannot be written.
    """
    options_by_name = {MODEL_FILE: options.model_out, PCAP_FILE: options.pcap}
    copies = {name: path for name, path in options_by_name.items() if path}
    names_by_path = {(output / name).resolve(): name for name in RUN.names}
    for name, path in copies.items():
        check_writable(path)
        resolved = path.resolve()
        if names_by_path.setdefault(resolved, name) != name:
            raise InputError(f"{path}: cannot be {name} and {names_by_path[resolved]} at once")
        if resolved.parent == output.resolve() and any(map(resolved.match, _SWITCH_FILES)):
            raise InputError(f"{path}: cannot be {name} and the file of a switch at once; name another file")
        if any(resolved in other.parents or other in resolved.parents for other in names_by_path):
            raise InputError(f"{path}: cannot be a file and the folder of others")
    return copies


class _Command:
    """One call of the command: a run, or a run per class.

    Without states and restarts, a run is a single simulation, and the folder appears as a whole at the end.
    With states, restarts or ``--resume``, a run is a series of :class:`Attempts`, and the folder is written
    during the run (``Survival.in_place``).
    """

    def __init__(
        self,
        options: GlmOptions,
        call: Call,
        say: Callable[[str], None],
        wave: Waveform | None,
        earlier: Earlier | None,
    ):
        assert options.output is not None
        self.options, self.call, self.output, self.earlier = options, call, options.output, earlier
        self._say, self._request = say, request_of(call, options)
        self._wave = wave
        self._reporter: ProgressReporter  # from ``carry_out`` on
        self._result: TrainResult | ClassesResult | None = None
        self._record: dict[str, Any] = {}  # content of the folder's run.json
        self._survival = self._survival_of()
        self._live = LiveFile(self.output, "train", title=options.data or "", unit="AllReduces")

    def _survival_of(self) -> Survival:
        """Return the states and restarts of the run. Raises InputError."""
        options, earlier = self.options, self.earlier
        for name in ("checkpoint", "restart"):
            if getattr(options, name) is not None:
                refuse_ranks(self.call, f"--{name}")
        survival = Survival(
            checkpoint=options.checkpoint,
            restart=options.restart or 0,
            in_place=bool(options.checkpoint or options.restart or earlier),
        )
        if earlier:  # its packets may still be in flight at a switch that is not simulated
            survival.job = earlier.job
            survival.next_job()
        return survival

    def carry_out(self, copies: dict[str, Path]) -> TrainResult | ClassesResult | None:
        """Train, write the run's folder, print the summary, return the result. Raises CheckFailed."""
        output = self.output
        with self._folder() as (runs, folder):
            self._reporter = ProgressReporter(self._live, runs)
            if len(runs) == 1:
                failure, details = self._run(runs[0], folder), output
            else:
                failure, details = self._run_classes(runs, folder)
        for name, copy in copies.items():
            if (output / name).exists():  # a failed run has no model
                write_file(copy, (output / name).read_bytes())
        if self.call.as_json:
            self._say(json_text(self._record))
        if isinstance(failure, (SimulationFailed, *STOP_EXCEPTIONS)):
            raise_stop(failure, f"{cause_of(failure)} (fanin doctor {details} says more)")
        if failure:
            raise failure
        return self._result

    @contextlib.contextmanager
    def _folder(self) -> Iterator[tuple[list[Trainer], Path]]:
        """Yield the runs, and the folder that they write to."""
        if not self._survival.in_place:
            with (
                sole_writer(self.output),
                self._live,
                run_directory(self.output, RUN, self._request, is_locked=True) as folder,
            ):
                yield self._trainers(), folder
            return
        with sole_writer(self.output), self._live:
            earlier = self.earlier
            if earlier and earlier.folder.resolve() == self.output.resolve():
                runs = self._trainers()
                write_unfinished(self.output, runs[0])
                note_resumption(self.output, self._request, ignored=COUNT_FIELDS)
            else:
                with run_directory(self.output, RUN, self._request, is_locked=True) as folder:
                    runs = self._trainers()
                    self._prepare(runs, folder)
                list_files(self.output, RUN.files)
            yield runs, self.output.absolute()  # simulators work in another folder
            renew_results(self.output, RUN)

    def _prepare(self, runs: list[Trainer], folder: Path) -> None:
        """Fill a new folder: run.json of an unfinished run, and states of the earlier run."""
        write_unfinished(folder, runs[0])
        if self.earlier:
            for part in self.earlier.states:
                (folder / part / STATES).mkdir(parents=True)
                for name in names_of(self.earlier.folder / part):
                    shutil.copyfile(self.earlier.folder / part / name, folder / part / name)

    def _trainers(self) -> list[Trainer]:
        """Return the trainers. Raises InputError for options that contradict the resumed run."""
        self._live.stage("reading the samples, building the simulator")
        return trainers_of(
            self.options, self.call, self._wave, check=self._check_training, loaded=self._check_data
        )

    def _check_training(self, training: GlmTraining) -> None:
        """Raise InputError if the training contradicts the resumed run."""
        if self.earlier:
            self.earlier.check(training_of(training))
            self.earlier.check_epochs(training.epochs)
            self.earlier.check_nodes(len(training.network.here) or training.workers)
        else:
            self._survival.job = first_course(training.network).job

    def _check_data(self, training: GlmTraining, dataset: Dataset) -> None:
        """Raise InputError if the samples are not those of the resumed run; keep all inputs for the states."""
        configuration, values = configuration_of(self.options), training_of(training)
        digest = data_digest(dataset)
        if self.earlier:
            self.earlier.check_data(self.options.data or "", digest, dataset.features.shape[1])
        self._survival.about = lambda job: About(configuration, values, digest, job)

    def _run(self, trainer: Trainer, folder: Path) -> BaseException | None:
        """Train and fill the run's folder; return the failure that stopped the run, or None."""
        result = self._train(trainer, folder, ".")
        if isinstance(result, BaseException):
            return result
        self._result = result
        if not self.call.as_json:
            self._say(summary(result, self.output))
        return None if result.bit_exact else CheckFailed(DIFFERS)

    def _run_classes(self, runs: list[Trainer], folder: Path) -> tuple[BaseException | None, Path]:
        """Train one run per class; fill the folder with them and their joint result.

        Return the failure that stopped the runs, or None, and the folder with its details. Raises InputError
        for --pcap.
        """
        output = self.output
        if self.options.pcap:
            raise InputError(f"--pcap: {len(runs)} classes have a capture each, in {output / CLASSES_FOLDER}")
        results = []
        for index, trainer in enumerate(runs):
            name = f"{CLASSES_FOLDER}/{index}"
            make_folder(folder, name)
            result = self._train(trainer, folder / name, name)
            if isinstance(result, BaseException):
                self._write_failure(folder, trainer, result)
                return result, output / name
            results.append(result)
        joint = self._result = together(runs, results)
        write_model(folder, joint.model)
        self._record = write_json(folder, joint.as_json())
        if not self.call.as_json:
            self._say(summary_of_classes(joint, output))
        return None if joint.bit_exact else CheckFailed(DIFFERS), output

    def _train(self, trainer: Trainer, folder: Path, part: str) -> TrainResult | BaseException:
        """Train and fill the folder; the model of a class is left out, as it is a part of the joint one.

        Return the result, or the failure that stopped the run.

        - ``part``: the run's sub-folder in the command's folder; ``.`` for the command's folder itself.
        """
        if self._survival.in_place:
            return self._train_with_states(trainer, folder, part)
        course = first_course(trainer.training.network)
        end = _failure_or_run(lambda: simulate(trainer, course, folder / PCAP_FILE, self._reporter))
        write_switch(folder, trainer, course)
        return self._finish(trainer, folder, end)

    def _train_with_states(self, trainer: Trainer, folder: Path, part: str) -> TrainResult | BaseException:
        """Train as ``_train`` does, in a folder that is written during the run."""
        attempts = Attempts(
            trainer,
            folder,
            self._survival,
            self._history(part),
            lambda: write_unfinished(folder, trainer, attempts.as_json()),
        )
        of_tree = tree_files(trainer, attempts.course())
        list_files(folder, (*RUN.files, *of_tree))
        write_unfinished(folder, trainer, attempts.as_json())
        end = _failure_or_run(lambda: attempts.train(self._reporter, folder / _SCRATCH_PCAP))
        for name in (PCAP_FILE, *of_tree):
            if (scratch := folder / f"{_SCRATCH}{name}").exists():
                scratch.replace(folder / name)
        write_switch(folder, trainer, attempts.course())
        return self._finish(trainer, folder, end, attempts.earlier, attempts.as_json())

    def _finish(
        self,
        trainer: Trainer,
        folder: Path,
        end: TrainRun | BaseException,
        earlier: History | None = None,
        recovery: Mapping[str, Any] = NO_RECOVERY,
    ) -> TrainResult | BaseException:
        """Compare a run with the golden model and write its results, or those of a failure.

        - ``end``: the nodes' run, or the failure that stopped it.
        - ``earlier``: epochs before ``end``; None if it starts with epoch 1.
        - ``recovery``: fields of run.json about states and restarts.
        """
        if isinstance(end, BaseException):
            self._write_failure(folder, trainer, end, recovery)
            return _lost_interface(trainer, end) or end
        self._reporter.comparison()
        result = trainer.compare(end, earlier)
        if trainer.against_the_rest is None:
            write_model(folder, result.model)
        self._record = write_result(folder, result, self.options, recovery)
        return result

    def _write_failure(
        self,
        folder: Path,
        trainer: Trainer,
        failure: BaseException,
        recovery: Mapping[str, Any] = NO_RECOVERY,
    ) -> None:
        self._record = write_failure(
            folder,
            trainer,
            failure,
            self.call,
            self.output,
            recovery=recovery,
            suggest_checkpoint=self.options.checkpoint is None,
        )

    def _history(self, part: str) -> History | None:
        """Return the epochs that the earlier run has finished in its sub-folder ``part``; None without any."""
        state = self.earlier.states.get(part) if self.earlier else None
        return state.history if state else None


def _failure_or_run(train: Callable[[], TrainRun]) -> TrainRun | BaseException:
    """Return the nodes' run, or the failure that stopped it."""
    try:
        return train()
    except (SimulationFailed, CheckFailed, ToolFailed, *STOP_EXCEPTIONS) as failure:
        return failure


def _lost_interface(trainer: Trainer, failure: BaseException) -> InputError | None:
    """Return ``failure`` as an InputError if the user has removed an interface of ``--ports``; else None."""
    from fanin.sim.nic.outside import check_interfaces

    if isinstance(failure, SimulationFailed) and (ports := trainer.training.network.ports):
        try:
            check_interfaces(ports)
        except InputError:
            return InputError(cause_of(failure))
    return None
