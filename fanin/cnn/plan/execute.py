"""The command ``fanin plan``: search, verify, write and show plans."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.printable import print_note
from fanin.base.processes import end_with
from fanin.base.records import open_record
from fanin.base.scratch import write_file
from fanin.cnn.plan.options import PlanOptions, device_counts, factors
from fanin.cnn.plan.page.page import plan_page
from fanin.planner.check.plan import check_plan
from fanin.planner.cluster import Cluster, load_cluster
from fanin.planner.model.graph import Model
from fanin.planner.model.load import load_model
from fanin.planner.plan.digest import CONNECTIONS_FILE, PLAN_FILE
from fanin.planner.plan.plan import Plan
from fanin.planner.plan.sweep import Say, sweep
from fanin.planner.plan.write import plan_files
from fanin.planner.search.limits import Limits
from fanin.planner.search.search import SIDE_BY_SIDE
from fanin.runs.call import Call
from fanin.runs.files import asked
from fanin.runs.output import PLAN, SWEEP, check_directory, is_kind, json_text, print_json, table
from fanin.runs.progress import StatusLine
from fanin.runs.provenance.document import run_directory

SECONDS, SWEEP_SECONDS = 100.0, 12.0  # of one search, alone and in a sweep
PLANS = "plans"  # folder of a sweep's plans
LOST = ToolFailed("a process of the search was killed, or failed; was there too little memory?")
SHOWN = 20  # complaints about one plan

Found = tuple[int, int, Plan]  # devices, model parallelism
Work = Callable[[ProcessPoolExecutor | None, Say], Iterator[Found]]


def execute(options: PlanOptions, call: Call, say: Callable[[str], None] = print) -> list[Found]:
    """Plan what the options ask for, write the plan's folder, and ``say`` a summary. Return all plans.

    Raises InputError if no plan is possible, ToolFailed if the search was killed.
    """
    for name, value in (("MODEL", options.model), ("CLUSTER", options.cluster), ("-o DIR", options.output)):
        if value is None:
            raise InputError(f"{name} is missing (fanin plan --help lists the options)")
    assert options.model
    assert options.cluster
    assert options.output
    ways, counts, output = factors(options.mp), device_counts(options.devices), options.output
    model, cluster = load_model(options.model), load_cluster(options.cluster)
    for note in model.notes:
        print_note(f"fanin: warning: {note}")
    many = counts is not None or len(ways) > 1
    kind = SWEEP if many else PLAN
    check_directory(output, kind)
    seconds = options.time_limit or (SWEEP_SECONDS if many else SECONDS)
    limits = Limits(seconds=seconds, workers=options.workers, seed=options.seed, gap=options.gap / 100)
    counts = counts or [len(cluster.devices)]
    cluster.first(max(counts))  # said before the search for fewer
    plans: list[Found] = []
    with run_directory(output, kind, asked(call, options)) as folder, StatusLine() as status:

        def work(pool: ProcessPoolExecutor | None, say: Say) -> Iterator[Found]:
            return sweep(model, cluster, counts, ways, limits, batch=options.batch, pool=pool, say=say)

        def show(devices: int, ways: int, best: float, bound: float) -> None:
            on = f"{devices} device{'s' * (devices != 1)}" + (f", in {ways} parts" if ways > 1 else "")
            status.show(f"{model.name} on {on}: {best:,.2f} of at most {bound:,.2f} frames/s")

        try:
            for found in searched(work, options.workers, show):
                plans.append(found)
                if many:
                    write_plan(folder / PLANS / _folder(*found[:2]), found[2])
        except InputError as error:
            _, count = list(itertools.product(ways, counts))[len(plans)]
            on = options.cluster if count == len(cluster.devices) else f"{count} of {options.cluster}"
            raise InputError(f"{options.model} on {on}: {error}") from None
        if many:
            _write_sweep(folder, model, cluster, plans)
        else:
            write_plan(folder, plans[0][2])
    if call.as_json:
        say(json_text(json.loads((output / (SWEEP.mark if many else PLAN_FILE)).read_bytes())))
    elif many:
        say(_sweep_text(output, f"{model.name} on {cluster.name}", plans))
    else:
        say(_text(output, plans[0][2]))
    return plans


def searched(work: Work, workers: int, say: Say) -> Iterator[Found]:
    """Yield the results of ``work``, run in another process that always ends with this one.

    CP-SAT catches interrupts and returns only after seconds. This process stays interruptible.
    """
    context = multiprocessing.get_context("fork")  # spawned, it would load OR-Tools for another second
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_search, args=(work, workers, sender, os.getpid()))
    try:
        with warnings.catch_warnings():  # Python 3.12's, of threads: numpy's, which are made for it
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        sender.close()
        while True:  # the search has a time limit of its own; its process's death is seen, too
            try:
                message = receiver.recv() if receiver in wait([receiver, process.sentinel]) else LOST
            except EOFError:
                message = LOST
            if message is None:
                return
            if isinstance(message, Exception):
                raise message
            kind, values = message
            if kind == "say":
                say(*values)
            else:
                yield values
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        receiver.close()


def _search(work: Work, workers: int, sender: Connection, parent: int) -> None:
    """Run the process of ``searched``."""
    _end_quietly_with(parent)
    pool = None
    if workers > 1:
        pool = ProcessPoolExecutor(
            min(workers, SIDE_BY_SIDE),
            mp_context=multiprocessing.get_context("fork"),
            initializer=_end_quietly_with,
            initargs=(os.getpid(),),
        )
        pool.submit(int).result()  # all are started now, while there are no threads of CP-SAT's
    try:
        for found in work(pool, lambda *values: sender.send(("say", values))):
            sender.send(("plan", found))
        sender.send(None)
    except (InputError, CheckFailed) as error:
        sender.send(error)
    except BrokenProcessPool:
        sender.send(LOST)
    if pool is not None:
        pool.shutdown()


def _end_quietly_with(parent: int) -> None:
    """End this process when its parent ends. Leave the terminal's interrupt to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent, signal.SIGKILL)


def _folder(devices: int, ways: int) -> str:
    return f"devices{devices}-mp{ways}"


def write_plan(folder: Path, plan: Plan, others: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write a plan and its page, and check the written files. Raises CheckFailed."""
    files = plan_files(plan)
    for name, text in files.items():
        write_file(folder / name, text)
    complaints = check_plan(folder)
    if complaints:
        raise CheckFailed(f"the plan breaks a rule: {complaints[0]} ({len(complaints)} in all)")
    page = plan_page(json.loads(files[PLAN_FILE]), json.loads(files[CONNECTIONS_FILE]), others)
    write_file(folder / "report.html", page)


def _write_sweep(folder: Path, model: Model, cluster: Cluster, plans: list[Found]) -> None:
    """Write sweep.json, and a page with the best plan and the throughput of all plans."""
    rows = [
        {
            "devices": devices,
            "mp": ways,
            "throughput": float(plan.throughput),
            "bound": float(plan.bound),
            "gap": plan.gap,
            "flow_throughput": plan.flow_throughput,
            "throughput_with_update": plan.throughput_with_update,
            "status": "optimal" if plan.optimal else "gap",
            "split": plan.split,
            "devices_used": plan.used,
            "folder": f"{PLANS}/{_folder(devices, ways)}",
        }
        for devices, ways, plan in plans
    ]
    best = max((plan for *_, plan in plans), key=lambda plan: plan.throughput)
    files = plan_files(best)
    page = plan_page(json.loads(files[PLAN_FILE]), json.loads(files[CONNECTIONS_FILE]), rows)
    write_file(folder / "report.html", page)
    text = {"model": model.name, "cluster": cluster.name, "plans": rows}
    write_file(folder / SWEEP.mark, json.dumps(text, indent=2, ensure_ascii=False) + "\n")


def _text(output: Path, plan: Plan) -> str:
    """Return a plan's summary as text."""
    values = json.loads((output / PLAN_FILE).read_bytes())
    lines = [f"{values['model']} on {values['cluster']['name']}: {_rate(plan)}", ""]
    heads = ["device", "layers", "DSP", "LUT", "RAM", "DRAM", "DRAM read", "DRAM write", "network"]
    heads.append("connections")
    rows = [heads]
    for number, device in enumerate(plan.instance.cluster.devices):
        used = values["utilisation"][device.name]
        ram = max(used["ram_bits"] or 0, used["ram_blocks"] or 0)
        resources = ("dram_bytes", "dram_read", "dram_write", "network")
        shares = [used["dsp"], used["luts"], ram, *(used[resource] for resource in resources)]
        layers = plan.placement.devices.count(number)
        links = f"{plan.loads[number].connections} of {device.part.connections}"
        rows.append(
            [
                device.name,
                str(layers),
                *("–" if share is None else f"{100 * share:.1f} %" for share in shares),
                links,
            ]
        )
    lines.append(table(rows, right=range(1, len(heads))))
    limit = values["limit"]
    resource = limit["resource"].replace("_", " ").replace("dram", "DRAM")
    layer = f" of {limit['layer']}" if "layer" in limit else ""
    facts = [
        ["with updates", f"{plan.throughput_with_update:,.2f} frames/s (batch {plan.batch})"],
        ["search ended", ENDED[values["solver"]["stopped_by"]]],
        ["limit", f"{resource}{layer} on {limit['device']}"],
        *([["held up", _flow(plan)]] if _held_up(plan) else []),
        ["verified", f"yes: fanin plan --check {output}"],
        ["report", str(output / "report.html")],
    ]
    return "\n".join([*lines, "", table(facts)])


def _rate(plan: Plan) -> str:
    proof = "optimal" if plan.optimal else f"at most {float(plan.bound):,.2f}, a gap of {100 * plan.gap:.2f} %"
    planned = f"{float(plan.throughput):,.2f} frames/s, {proof}"
    return f"{plan.flow_throughput:,.2f} frames/s, planned for {planned}" if _held_up(plan) else planned


def _held_up(plan: Plan) -> bool:
    """Return True if the flow model's throughput is below the plan's."""
    return plan.flow_throughput < float(plan.throughput)


def _flow(plan: Plan) -> str:
    """In cycles of the fastest clock that the plan uses."""
    devices = plan.instance.cluster.devices
    clock = max(devices[device].part.clock for device in plan.placement.devices)
    counted, found = float(plan.period * clock), clock / plan.flow_throughput
    return f"the flow model has a frame every {found:,.1f} cycles, where the plan counts {counted:,.1f}"


ENDED = {
    "proof": "no plan is better",
    "gap": "no plan is better by more than --gap",
    "time": "its time was spent; --time-limit gives it more",
}


def _sweep_text(output: Path, what: str, plans: list[Found]) -> str:
    """Return the summary of several plans as text."""
    factors = sorted({ways for _, ways, _ in plans})
    heads = ["devices", *("no MP" if ways == 1 else f"MP{ways}" for ways in factors)]
    rows = [heads]
    for count in sorted({devices for devices, *_ in plans}):
        cells = [f"{p.flow_throughput:,.2f} ({_proof(p)})" for n, _, p in plans if n == count]
        rows.append([str(count), *cells])
    report = f"  report  {output / 'report.html'}"
    title = f"{what}: frames/s, and how much more there may be"
    return "\n".join([title, "", table(rows, right=range(len(heads))), "", report])


def _proof(plan: Plan) -> str:
    if _held_up(plan):
        return f"planned for {float(plan.throughput):,.2f}"
    return "optimal" if plan.optimal else f"{100 * plan.gap:.2f} %"


def verify(directory: Path, as_json: bool) -> int:
    """Run ``fanin plan --check``: print a line for every broken rule. Return 1 if there is one."""
    if is_kind(directory, SWEEP):
        folders = sorted(path.parent for path in (directory / PLANS).glob(f"*/{PLAN_FILE}"))
        known = _plans_of(directory)
        for folder in sorted(known - set(folders)):
            raise InputError(f"{folder}: holds no {PLAN_FILE}, but {directory / SWEEP.mark} names it")
        for folder in sorted(set(folders) - known):
            raise InputError(f"{directory / SWEEP.mark}: does not name {folder}")
    elif (directory / PLAN_FILE).is_file():
        folders = [directory]
    else:
        raise InputError(f"{directory}: holds no {PLAN_FILE} and no {SWEEP.mark}")
    complaints = {str(folder): check_plan(folder) for folder in folders}
    count = sum(map(len, complaints.values()))
    if as_json:
        print_json({"plans": len(folders), "complaints": {k: v for k, v in complaints.items() if v}})
    else:
        for name, lines in complaints.items():
            for line in lines[:SHOWN]:
                print(f"{name}: {line}")
            if len(lines) > SHOWN:
                print(f"{name}: and {len(lines) - SHOWN:,} more, which --json has")
        plans = f"{len(folders)} plan{'s' * (len(folders) != 1)}"
        print(
            f"{plans}: every rule is kept" if not count else f"{plans}: {count:,} complaint{'s' * (count != 1)}"
        )
    return int(count > 0)


def _plans_of(directory: Path) -> set[Path]:
    """Return the folders named in sweep.json. Raises InputError."""
    return {directory / row.text("folder") for row in open_record(directory / SWEEP.mark).records(SWEEP.key)}
