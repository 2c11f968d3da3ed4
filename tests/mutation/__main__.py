"""``python -m tests.mutation [-n COUNT] [--seed SEED] PATH...``: exit status 1 if a mutant survives."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.mutation.lane import SOURCES, Lane, sample

TREE = Path(__file__).parents[2]


def main() -> int:
    """Run a sample, a line for each mutant, and list the survivors."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a source, or a folder of sources")
    parser.add_argument("-n", type=int, default=20, metavar="COUNT", help="mutants; 20 by default")
    parser.add_argument("--seed", type=int, help="of the sample and of the tests; random by default")
    arguments = parser.parse_args()
    for path in arguments.paths:
        if Path(path).parts[0] not in SOURCES or not (TREE / path).exists():
            parser.error(f"{path} is no source below {', '.join(SOURCES)}")
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"SEED={seed}", flush=True)
    mutants = sample(TREE, arguments.paths, arguments.n, random.Random(seed))
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        lane = Lane(TREE, Path(directory), seed)
        for mutant in mutants:
            noticed = lane.notices(mutant)
            print(f"{'noticed ' if noticed else 'SURVIVED'}  {mutant}", flush=True)
            survivors += [] if noticed else [mutant]
    print(f"{len(survivors)} of {len(mutants)} mutants survived")
    for mutant in survivors:
        print(f"  {mutant}")
    return bool(survivors)


sys.exit(main())
