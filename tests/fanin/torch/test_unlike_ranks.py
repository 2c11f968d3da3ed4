"""Process groups whose ranks do not agree, or one of which stops: all end within the timeout, with one line."""

import json
import socket
import subprocess
import sys

import pytest

from tests.fanin.torch import unlike_ranks

#: What the ranks say, rank by rank; None where it is PyTorch's own, or the rank cannot.
RING = "ring NICs u280, no codec, 100 Gb/s, golden"
SUM = "collective 6, all_reduce of 785 float32 sum: "
#: Of two ranks that wait, the later one may see the end of the earlier one first.
ALONE = "rank 1 has not come in 4 s|rank 0 has ended"
CASES = {
    "world": [f"rank 2 says world size 4, {RING}, rank {rank} world size 3, {RING}" for rank in (0, 1)]
    + [f"rank 0 says world size 3, {RING}, rank 2 world size 4"],
    "options": ["rank 1 says world size 3, ring NICs u280, bfp, block 16, mantissa 7", None, "rank 1 says"],
    "collective": ["rank 1 says world size 3, NICs at a switch", None, "rank 1 says"],
    "unknown option": [ALONE, "'codecs=bfp' is not an option", ALONE],
    "backend": [ALONE, None, ALONE],
    "type": ["collective 3: rank 0 calls broadcast of 785 float32 from rank 0, rank 1 broadcast of 785 float64"]
    * 3,
    "layers": ["DDP expects same model across all ranks"] * 3,
    "width": ["rank 1 has ended, or stopped answering", "appears not to match sizes", "rank 1 has ended"],
    "stopped 1": ["rank 1 has ended, or stopped answering", None, "rank 1 has ended, or stopped answering"],
    "stopped 0": [None, "rank 0 has stopped answering", "rank 0 has stopped answering"],
    "killed 0": [None, "rank 0 has ended, or torchrun", "rank 0 has ended, or torchrun"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_all_ranks_end_within_the_timeout_and_say_why(case):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "tests.fanin.torch.unlike_ranks", case, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = {one["rank"]: one for one in map(json.loads, done.stdout.splitlines())}
    silent = int(case.split()[1]) if case.startswith(("stopped", "killed")) else None
    assert sorted(found) == [rank for rank in range(unlike_ranks.RANKS) if rank != silent]
    for rank, told in enumerate(CASES[case]):
        if rank in found:
            assert found[rank]["said"] != "done"
            assert told is None or any(one in found[rank]["said"] for one in told.split("|"))
            assert found[rank]["seconds"] < 45
