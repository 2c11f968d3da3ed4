"""Climb of the search: anneal from scratch, let CP-SAT balance pairs of devices, then anneal nearby.

A climb may run in a process of its own. Its *effort* is in deterministic seconds (``limits``).
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass

from ortools.sat.python import cp_model

from fanin.planner.search.anneal import Annealing, anneal
from fanin.planner.search.instance import Instance, Placement, device_period
from fanin.planner.search.priorities import choose_priorities
from fanin.planner.search.problem import Neighbourhood, Problem

STEPS = 4_000_000  # steps per annealing, which take one or two seconds
STEPS_A_SECOND = 2_500_000  # steps of annealing per second of effort
HOT, WARM = 0.1, (0.06, 0.03)  # initial temperatures: from HOT the start has no influence, from WARM it has
FRESH_TRIES, WARM_TRIES = 4, 8  # maximum number of annealings from scratch, and of failed ones nearby
TARGET_STEP = 0.15  # improvement that an annealing nearby targets, as a share of its distance to the bound
PAIR_EFFORT = 1.0  # deterministic seconds for two devices
MAX_PAIRS = 60  # maximum number of pairs per balancing
PERIOD_WEIGHT = 4  # weight of the slower device in balancing, relative to the sum of all DRAM traffic
GAIN_DIVISOR = 2000  # a balancing step must gain at least one part in this many


@dataclass(frozen=True)
class Climb:
    """Input of a climb. Periods are in ticks."""

    instance: Instance
    start: Placement  #: start; if no placement is known, an assignment that breaks rules
    is_valid: bool  #: true if ``start`` keeps all rules
    target: int  #: period that the first annealings target
    lower_bound: int  #: lower bound of the period
    goal_period: int  #: period at which the climb may stop
    seed: int
    end: float  #: ``time.monotonic()`` at which the climb stops


def climb(job: Climb) -> tuple[Placement | None, float]:
    """Return the best placement of a climb (None if it found none), and its effort in deterministic seconds."""
    effort = 0.0
    best: Placement | None = None
    for number in range(FRESH_TRIES):
        if time.monotonic() >= job.end:
            break
        effort += STEPS / STEPS_A_SECOND
        best = anneal(Annealing(job.instance, job.start, job.target, _seed(job, number), STEPS, HOT))
        if best is not None and choose_priorities(job.instance, best) is not None:
            break
        best = None
    if best is None and not job.is_valid:
        return None, effort
    best, balance_effort = _balance(job, best or job.start)
    effort += balance_effort
    failures = 0
    while failures < WARM_TRIES and _ticks(job.instance, best) > job.goal_period and time.monotonic() < job.end:
        period = _ticks(job.instance, best)
        target = period - max(int((period - job.lower_bound) * TARGET_STEP), 1)
        hot = WARM[failures % len(WARM)]
        # numbers from 100: seeds other than those of the annealings from scratch
        candidate = anneal(Annealing(job.instance, best, target, _seed(job, 100 + failures), STEPS, hot))
        effort += STEPS / STEPS_A_SECOND
        if candidate is None or choose_priorities(job.instance, candidate) is None:
            failures += 1
        else:
            best, failures = candidate, 0
    return best, effort


def _seed(job: Climb, number: int) -> int:
    return (1000 * job.seed + number) % (1 << 32)


def _ticks(instance: Instance, placement: Placement) -> int:
    return instance.in_ticks(instance.period(placement))


def _balance(job: Climb, best: Placement) -> tuple[Placement, float]:
    """Redistribute layers between pairs of devices, the slowest with the fastest first, until none improves.

    Return the placement and the effort.
    """
    devices = range(len(job.instance.cluster.devices))
    tried: dict[tuple[int, int], tuple[object, ...]] = {}  # layers with which a pair was last tried
    generator = random.Random(job.seed)
    effort = 0.0
    for _ in range(MAX_PAIRS):
        periods = _periods(job.instance, best)
        if max(periods) <= job.goal_period or time.monotonic() >= job.end:
            break
        pairs = [p for p in itertools.combinations(devices, 2) if tried.get(p) != _layers_on(best, p)]
        if not pairs:
            break
        # the pair with the largest difference of periods; the jitter varies the choice
        jitter = {pair: 0.1 * max(periods) * generator.random() for pair in pairs}
        pair = min(pairs, key=lambda p: min(periods[d] for d in p) - max(periods[d] for d in p) + jitter[p])
        tried[pair] = _layers_on(best, pair)
        candidate, pair_effort = _solve_pair(job, best, pair, periods)
        best, effort = candidate or best, effort + pair_effort
    return best, effort


def _layers_on(placement: Placement, pair: tuple[int, int]) -> tuple[object, ...]:
    """Return the (node, device, choice) of each node on a pair of devices."""
    return tuple(
        (node, device, choice)
        for node, (device, choice) in enumerate(zip(placement.devices, placement.choices, strict=True))
        if device in pair
    )


def _periods(instance: Instance, placement: Placement) -> list[int]:
    """Return the ticks that each device takes for a frame."""
    loads = zip(instance.loads(placement), instance.cluster.devices, strict=True)
    return [instance.in_ticks(device_period(load, device.part)) for load, device in loads]


def _solve_pair(
    job: Climb, best: Placement, pair: tuple[int, int], periods: list[int]
) -> tuple[Placement | None, float]:
    """Redistribute the layers of two devices: minimise the slower one's period, and the DRAM traffic of both.

    Return the placement, or None for no improvement, and the effort.

    ``periods``: ticks of each device for a frame.
    """
    instance, pair_set = job.instance, frozenset(pair)
    slower = max(max(periods[d] for d in pair), job.lower_bound)
    problem = Problem(instance, job.lower_bound, slower, Neighbourhood(best, pair_set, max(periods)))
    per_bit = {d: instance.per_bit(instance.cluster.devices[d].part.dram) for d in pair}
    traffic = [
        (per_bit[device] * (option.choice.cost.dram_read + option.choice.cost.dram_write), variable)
        for (_, device), options in problem.option_variables.items()
        if device in pair_set
        for option, variable in options
    ]
    goal = PERIOD_WEIGHT * problem.period + sum(cost * variable for cost, variable in traffic)
    loads = instance.loads(best)
    current = PERIOD_WEIGHT * slower + sum(
        per_bit[d] * (loads[d].dram_read + loads[d].dram_write) for d in pair
    )
    problem.cp.add(goal <= current - current // GAIN_DIVISOR)
    problem.cp.minimize(goal)
    problem.hint(best)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = job.seed % (1 << 31)
    solver.parameters.max_deterministic_time = PAIR_EFFORT
    status = solver.solve(problem.cp)
    candidate = problem.placement(solver) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    if candidate is not None and choose_priorities(instance, candidate) is None:
        candidate = None
    return candidate, solver.response_proto.deterministic_time
