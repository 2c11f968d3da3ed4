"""The command ``fanin plan``: search, verify, write and show plans."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.printable import print_note
from fanin.base.processes import die_with_parent
from fanin.base.records import open_record
from fanin.base.scratch import write_file
from fanin.cnn.plan.options import SECONDS, SWEEP_SECONDS, PlanOptions, Saves, device_counts, factors
from fanin.cnn.plan.page.page import plan_page
from fanin.planner.check.plan import check_plan
from fanin.planner.cluster import Cluster, load_cluster
from fanin.planner.model.graph import Model
from fanin.planner.model.load import load_model
from fanin.planner.plan.digest import CONNECTIONS_FILE, PLAN_FILE
from fanin.planner.plan.plan import Plan
from fanin.planner.plan.sweep import Report, sweep
from fanin.planner.plan.write import connections_json, plan_documents, plan_json, write_documents
from fanin.planner.search.limits import Limits
from fanin.planner.search.search import PARALLEL_CLIMBS
from fanin.runs.call import Call
from fanin.runs.file_options import request_of
from fanin.runs.output import PLAN, REPORT_FILE, SWEEP, check_directory, is_kind, json_text, print_json, table
from fanin.runs.progress import StatusLine
from fanin.runs.provenance.document import run_directory

PLANS = "plans"  # folder of a sweep's plans
LOST = ToolFailed("a process of the search was killed, or failed; was there too little memory?")
SHOWN_VIOLATIONS = 20  # violations printed per plan

SweepPoint = tuple[int, int, Plan]  # number of devices, model parallelism, plan
Work = Callable[[ProcessPoolExecutor | None, Report], Iterator[SweepPoint]]


def execute(options: PlanOptions, call: Call, say: Callable[[str], None] = print) -> list[SweepPoint]:
    """Search for the plans that the options request, write the output folder, and print a summary with ``say``.

    Return all plans: one, or those of a sweep.

    Raises InputError if no plan is possible, ToolFailed if the search was killed.
    """
    for name, value in (("MODEL", options.model), ("CLUSTER", options.cluster), ("-o DIR", options.output)):
        if value is None:
            raise InputError(f"{name} is missing (fanin plan --help lists the options)")
    assert options.model
    assert options.cluster
    assert options.output
    split_factors, counts, output = factors(options.mp), device_counts(options.devices), options.output
    model, cluster = load_model(options.model), load_cluster(options.cluster)
    if options.save is Saves.PUBLISHED:
        model = model.as_published()
    for note in model.notes:
        print_note(f"fanin: warning: {note}")
    is_sweep = counts is not None or len(split_factors) > 1
    kind = SWEEP if is_sweep else PLAN
    check_directory(output, kind)
    seconds = options.time_limit or (SWEEP_SECONDS if is_sweep else SECONDS)
    limits = Limits(seconds=seconds, workers=options.workers, seed=options.seed, gap=options.gap / 100)
    counts = counts or [len(cluster.devices)]
    cluster.first(max(counts))  # raises InputError for too many devices, before any search
    plans: list[SweepPoint] = []
    with run_directory(output, kind, request_of(call, options)) as folder, StatusLine() as status:

        def work(pool: ProcessPoolExecutor | None, report: Report) -> Iterator[SweepPoint]:
            return sweep(
                model, cluster, counts, split_factors, limits, batch=options.batch, pool=pool, report=report
            )

        def show(devices: int, parts: int, best: float, bound: float) -> None:
            devices_text = f"{devices} device{'s' * (devices != 1)}" + (
                f", in {parts} parts" if parts > 1 else ""
            )
            status.show(f"{model.name} on {devices_text}: {best:,.2f} of at most {bound:,.2f} frames/s")

        try:
            for candidate in run_search(work, options.workers, show):
                plans.append(candidate)
                if is_sweep:
                    write_plan(folder / PLANS / _folder(*candidate[:2]), candidate[2])
        except InputError as error:
            _, count = list(itertools.product(split_factors, counts))[len(plans)]
            cluster_text = options.cluster if count == len(cluster.devices) else f"{count} of {options.cluster}"
            raise InputError(f"{options.model} on {cluster_text}: {error}") from None
        if is_sweep:
            document = _write_sweep(folder, model, cluster, plans)
        else:
            document = write_plan(folder, plans[0][2])[PLAN_FILE]
    if call.as_json:
        say(json_text(document))
    elif is_sweep:
        say(_sweep_text(output, f"{model.name} on {cluster.name}", plans))
    else:
        say(_text(output, plans[0][2], document))
    return plans


def run_search(work: Work, workers: int, report: Report) -> Iterator[SweepPoint]:
    """Yield the plans of ``work``, which runs in a child process that never outlives this one.

    CP-SAT catches interrupts and returns only after seconds. Because of the child, this process stays
    interruptible.

    ``workers``: number of searches in parallel.
    ``report``: callback with the arguments of each progress report.
    """
    context = multiprocessing.get_context("fork")  # a spawned child would take a second to load OR-Tools
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_search, args=(work, workers, sender, os.getpid()))
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork while threads run; these are numpy's, which allow a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        sender.close()
        while True:  # ends, since the search has a time limit and the sentinel reports the child's death
            try:
                message = receiver.recv() if receiver in wait([receiver, process.sentinel]) else LOST
            except EOFError:
                message = LOST
            if message is None:
                return
            if isinstance(message, Exception):
                raise message
            kind, values = message
            if kind == "progress":
                report(*values)
            else:
                yield values
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        receiver.close()


def _search(work: Work, workers: int, sender: Connection, parent: int) -> None:
    """Run the search in the child process of ``run_search``.

    Messages to the parent: ("progress", arguments of a progress report), ("plan", plan), an exception, and None
    at the end.
    """
    _die_with(parent)
    pool = None
    if workers > 1:
        pool = ProcessPoolExecutor(
            min(workers, PARALLEL_CLIMBS),
            mp_context=multiprocessing.get_context("fork"),
            initializer=_die_with,
            initargs=(os.getpid(),),
        )
        pool.submit(int).result()  # starts all processes now, before CP-SAT starts threads
    try:
        for plan in work(pool, lambda *values: sender.send(("progress", values))):
            sender.send(("plan", plan))
        sender.send(None)
    except (InputError, CheckFailed) as error:
        sender.send(error)
    except BrokenProcessPool:
        sender.send(LOST)
    if pool is not None:
        pool.shutdown()


def _die_with(parent: int) -> None:
    """Kill this process when ``parent`` ends, and ignore the terminal's interrupt, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent, signal.SIGKILL)


def _folder(devices: int, factor: int) -> str:
    return f"devices{devices}-mp{factor}"


def write_plan(folder: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """Write a plan and its page. Return the contents of the plan's files, by path.

    The checker reads the written files. Raises CheckFailed for a broken rule.
    """
    documents = plan_documents(plan)
    write_documents(folder, documents)
    violations = check_plan(folder)
    if violations:
        raise CheckFailed(f"the plan breaks a rule: {violations[0]} ({len(violations)} in all)")
    write_file(folder / REPORT_FILE, plan_page(documents[PLAN_FILE], documents[CONNECTIONS_FILE]))
    return documents


def _write_sweep(folder: Path, model: Model, cluster: Cluster, plans: list[SweepPoint]) -> dict[str, Any]:
    """Write sweep.json, and a page with the best plan and the throughput of all. Return sweep.json."""
    rows = [
        {
            "devices": devices,
            "mp": factor,
            "throughput": float(plan.throughput),
            "bound": float(plan.bound),
            "gap": plan.gap,
            "flow_throughput": plan.flow_throughput,
            "throughput_with_update": plan.throughput_with_update,
            "status": "optimal" if plan.optimal else "gap",
            "split": plan.split,
            "devices_used": plan.used,
            "folder": f"{PLANS}/{_folder(devices, factor)}",
        }
        for devices, factor, plan in plans
    ]
    best = max((plan for *_, plan in plans), key=lambda plan: plan.throughput)
    write_file(folder / REPORT_FILE, plan_page(plan_json(best), connections_json(best), rows))
    document = {"model": model.name, "cluster": cluster.name, "plans": rows}
    write_file(folder / SWEEP.mark, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return document


def _text(output: Path, plan: Plan, values: Mapping[str, Any]) -> str:
    """Return a plan's summary as text. ``values``: contents of plan.json."""
    lines = [f"{values['model']} on {values['cluster']['name']}: {_rate(plan)}", ""]
    titles = ["device", "layers", "DSP", "LUT", "RAM", "DRAM", "DRAM read", "DRAM write", "network"]
    titles.append("connections")
    rows = [titles]
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
    lines.append(table(rows, right=range(1, len(titles))))
    limit = values["limit"]
    resource = limit["resource"].replace("_", " ").replace("dram", "DRAM")
    layer = f" of {limit['layer']}" if "layer" in limit else ""
    facts = [
        ["with updates", f"{plan.throughput_with_update:,.2f} frames/s (batch {plan.batch})"],
        ["search ended", SEARCH_ENDS[values["solver"]["stopped_by"]]],
        ["limit", f"{resource}{layer} on {limit['device']}"],
        *([["held up", _flow(plan)]] if _is_held_up(plan) else []),
        ["verified", f"yes: fanin plan --check {output}"],
        ["report", str(output / REPORT_FILE)],
    ]
    return "\n".join([*lines, "", table(facts)])


def _rate(plan: Plan) -> str:
    proof = "optimal" if plan.optimal else f"at most {float(plan.bound):,.2f}, a gap of {100 * plan.gap:.2f} %"
    planned = f"{float(plan.throughput):,.2f} frames/s, {proof}"
    return f"{plan.flow_throughput:,.2f} frames/s, planned for {planned}" if _is_held_up(plan) else planned


def _is_held_up(plan: Plan) -> bool:
    """Return True if the flow model's throughput is below the plan's."""
    return plan.flow_throughput < float(plan.throughput)


def _flow(plan: Plan) -> str:
    """Return the flow model's and the plan's time of a frame as text, in cycles of the fastest clock."""
    devices = plan.instance.cluster.devices
    clock = max(devices[device].part.clock for device in plan.placement.devices)
    planned, flow = float(plan.period * clock), clock / plan.flow_throughput
    return f"the flow model has a frame every {flow:,.1f} cycles, where the plan counts {planned:,.1f}"


SEARCH_ENDS = {
    "proof": "no plan is better",
    "gap": "no plan is better by more than --gap",
    "time": "its time was spent; --time-limit gives it more",
}


def _sweep_text(output: Path, subject: str, plans: list[SweepPoint]) -> str:
    """Return the summary of several plans as text."""
    factors = sorted({factor for _, factor, _ in plans})
    titles = ["devices", *("no MP" if factor == 1 else f"MP{factor}" for factor in factors)]
    rows = [titles]
    for count in sorted({devices for devices, *_ in plans}):
        cells = [f"{p.flow_throughput:,.2f} ({_proof(p)})" for n, _, p in plans if n == count]
        rows.append([str(count), *cells])
    report = f"  report  {output / REPORT_FILE}"
    title = f"{subject}: frames/s, and how much more there may be"
    return "\n".join([title, "", table(rows, right=range(len(titles))), "", report])


def _proof(plan: Plan) -> str:
    if _is_held_up(plan):
        return f"planned for {float(plan.throughput):,.2f}"
    return "optimal" if plan.optimal else f"{100 * plan.gap:.2f} %"


def verify(directory: Path, as_json: bool) -> int:
    """Run ``fanin plan --check``: print a line for every broken rule. Return 1 if any, else 0."""
    if is_kind(directory, SWEEP):
        folders = sorted(path.parent for path in (directory / PLANS).glob(f"*/{PLAN_FILE}"))
        listed_folders = _listed_folders(directory)
        for folder in sorted(listed_folders - set(folders)):
            raise InputError(f"{folder}: holds no {PLAN_FILE}, but {directory / SWEEP.mark} names it")
        for folder in sorted(set(folders) - listed_folders):
            raise InputError(f"{directory / SWEEP.mark}: does not name {folder}")
    elif (directory / PLAN_FILE).is_file():
        folders = [directory]
    else:
        raise InputError(f"{directory}: holds no {PLAN_FILE} and no {SWEEP.mark}")
    violations = {str(folder): check_plan(folder) for folder in folders}
    count = sum(map(len, violations.values()))
    if as_json:
        print_json({"plans": len(folders), "complaints": {k: v for k, v in violations.items() if v}})
    else:
        for name, lines in violations.items():
            for line in lines[:SHOWN_VIOLATIONS]:
                print(f"{name}: {line}")
            if len(lines) > SHOWN_VIOLATIONS:
                print(f"{name}: and {len(lines) - SHOWN_VIOLATIONS:,} more, which --json has")
        plans = f"{len(folders)} plan{'s' * (len(folders) != 1)}"
        print(
            f"{plans}: every rule is kept" if not count else f"{plans}: {count:,} complaint{'s' * (count != 1)}"
        )
    return int(count > 0)


def _listed_folders(directory: Path) -> set[Path]:
    """Return the folders named in sweep.json. Raises InputError."""
    return {directory / row.text("folder") for row in open_record(directory / SWEEP.mark).records(SWEEP.key)}
