"""One climb: anneal from scratch, let CP-SAT balance pairs of devices, anneal again nearby. Runs in a
process.
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

STEPS = 4_000_000  # per annealing: one or two seconds
STEPS_A_SECOND = 2_500_000  # of annealing, to convert steps to effort
HOT, WARM = 0.1, (0.06, 0.03)  # initial temperatures: HOT forgets the start, WARM stays near it
FRESH_TRIES, WARM_TRIES = 4, 8
NEARER = 0.15  # a warm annealing's target, as a share of the distance to the bound
PAIR_EFFORT = 1.0  # deterministic seconds for two devices
MOST_PAIRS = 60  # per balancing
PERIODS = 4  # weight of the slowest device in balancing, relative to the sum of all DRAM traffic
LEAST_GAIN = 2000  # a balancing step must gain at least one part in this many


@dataclass(frozen=True)
class Climb:
    """Input of a climb. Periods are in ticks: ``aim`` is the first target, ``least`` a lower bound."""

    instance: Instance
    start: Placement  #: start; an assignment that breaks rules if no placement is known
    known: bool  #: whether ``start`` keeps all rules
    aim: int
    least: int
    enough: int  #: period at which the climb may stop
    seed: int
    end: float  #: time of ``time.monotonic`` at which the climb stops


def climb(given: Climb) -> tuple[Placement | None, float]:
    """Return the best placement of a climb, None if it found none, and the effort."""
    effort = 0.0
    best: Placement | None = None
    for number in range(FRESH_TRIES):
        if time.monotonic() >= given.end:
            break
        effort += STEPS / STEPS_A_SECOND
        best = anneal(Annealing(given.instance, given.start, given.aim, _seed(given, number), STEPS, HOT))
        if best is not None and choose_priorities(given.instance, best) is not None:
            break
        best = None
    if best is None and not given.known:
        return None, effort
    best, spent = _balance(given, best or given.start)
    effort += spent
    failed = 0
    while failed < WARM_TRIES and _ticks(given.instance, best) > given.enough and time.monotonic() < given.end:
        period = _ticks(given.instance, best)
        aim = period - max(int((period - given.least) * NEARER), 1)
        hot = WARM[failed % len(WARM)]
        found = anneal(Annealing(given.instance, best, aim, _seed(given, 100 + failed), STEPS, hot))
        effort += STEPS / STEPS_A_SECOND
        if found is None or choose_priorities(given.instance, found) is None:
            failed += 1
        else:
            best, failed = found, 0
    return best, effort


def _seed(given: Climb, number: int) -> int:
    return (1000 * given.seed + number) % (1 << 32)


def _ticks(instance: Instance, placement: Placement) -> int:
    return instance.in_ticks(instance.period(placement))


def _balance(given: Climb, best: Placement) -> tuple[Placement, float]:
    """Solve pairs of devices, the fullest with the emptiest first, until none improves."""
    devices = range(len(given.instance.cluster.devices))
    tried: dict[tuple[int, int], tuple[object, ...]] = {}
    order = random.Random(given.seed)
    effort = 0.0
    for _ in range(MOST_PAIRS):
        periods = _periods(given.instance, best)
        if max(periods) <= given.enough or time.monotonic() >= given.end:
            break
        pairs = [p for p in itertools.combinations(devices, 2) if tried.get(p) != _on(best, p)]
        if not pairs:
            break
        jitter = {pair: 0.1 * max(periods) * order.random() for pair in pairs}
        pair = min(pairs, key=lambda p: min(periods[d] for d in p) - max(periods[d] for d in p) + jitter[p])
        tried[pair] = _on(best, pair)
        found, spent = _solve_pair(given, best, pair, periods)
        best, effort = found or best, effort + spent
    return best, effort


def _on(placement: Placement, pair: tuple[int, int]) -> tuple[object, ...]:
    return tuple(
        (node, device, choice)
        for node, (device, choice) in enumerate(zip(placement.devices, placement.choices, strict=True))
        if device in pair
    )


def _periods(instance: Instance, placement: Placement) -> list[int]:
    """Return the ticks that every device takes for a frame."""
    loads = zip(instance.loads(placement), instance.cluster.devices, strict=True)
    return [instance.in_ticks(device_period(load, device.part)) for load, device in loads]


def _solve_pair(
    given: Climb, best: Placement, pair: tuple[int, int], periods: list[int]
) -> tuple[Placement | None, float]:
    """Redistribute the layers of two devices: minimise the slower one's period, and the DRAM traffic of
    both.
    """
    instance, both = given.instance, frozenset(pair)
    slower = max(max(periods[d] for d in pair), given.least)
    problem = Problem(instance, given.least, slower, Neighbourhood(best, both, max(periods)))
    per_bit = {d: instance.per_bit(instance.cluster.devices[d].part.dram) for d in pair}
    traffic = [
        (per_bit[device] * (option.choice.cost.dram_read + option.choice.cost.dram_write), way)
        for (_, device), ways in problem.built.items()
        if device in both
        for option, way in ways
    ]
    goal = PERIODS * problem.period + sum(cost * way for cost, way in traffic)
    loads = instance.loads(best)
    now = PERIODS * slower + sum(per_bit[d] * (loads[d].dram_read + loads[d].dram_write) for d in pair)
    problem.cp.add(goal <= now - now // LEAST_GAIN)
    problem.cp.minimize(goal)
    problem.hint(best)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = given.seed % (1 << 31)
    solver.parameters.max_deterministic_time = PAIR_EFFORT
    status = solver.solve(problem.cp)
    found = problem.placement(solver) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    if found is not None and choose_priorities(instance, found) is None:
        found = None
    return found, solver.response_proto.deterministic_time
