"""Two racks in network namespaces: four nodes train through three served switches.

    sudo .venv/bin/python examples/racks/train.py [OUTPUT]

Each switch of ``tree.toml`` runs ``fanin p4 serve`` in a namespace of its own. The nodes are simulated in
another one. The script removes the namespaces and their processes when it ends, even after an error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fanin.base.tools import program
from fanin.host.lab import Lab
from fanin.p4.tree import load_tree
from fanin.tree import Tree, TreeSwitch

TREE = Path(__file__).parent / "tree.toml"
NODES = "nodes"  # namespace of all workers
FANIN = program("fanin", "pip install fanin")
TRAINING = ["breast_cancer", "--preset", "tiny", "--epochs", "5", "--tree", TREE]


def main(output: str = "runs/racks") -> None:
    """Wire the switches, serve their programs, train, and print the counters of each switch."""
    tree = load_tree(TREE)
    with tempfile.TemporaryDirectory() as folder, Lab([*tree.members, NODES]) as lab, ExitStack() as stack:
        wire(lab, tree)
        subprocess.run([FANIN, "p4", "tree", TREE, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        for switch in tree.switches:
            stack.enter_context(serving(lab, switch, Path(folder)))
        interfaces = ",".join(f"worker{number}" for number in range(len(tree.workers)))
        command = [FANIN, "train", *TRAINING, "--ports", interfaces, "-o", Path(output).absolute()]
        print(lab.run(NODES, command, limit=600), flush=True)


def wire(lab: Lab, tree: Tree) -> None:
    """Add a veth pair for each link of the tree."""
    uplinks = {switch.name: switch.part.uplink for switch in tree.switches}
    for switch in tree.switches:
        for member, name in zip(switch.part.members, switch.members, strict=True):
            if isinstance(name, int):
                lab.wire(switch.name, f"port{member.port}", NODES, f"worker{name}")
            elif uplink := uplinks[name]:
                lab.wire(switch.name, f"port{member.port}", name, f"port{uplink.port}")


@contextmanager
def serving(lab: Lab, switch: TreeSwitch, folder: Path) -> Iterator[None]:
    """Run a switch's program; at the end print the frames of its ports."""
    job, out = folder / f"{switch.name}.json", folder / switch.name
    sizes = ["--workers", str(len(switch.members)), "--slots", str(switch.part.slots)]
    emit = [FANIN, "p4", "emit", *sizes, "--job", job, "-o", out]
    subprocess.run(emit, check=True, stdout=subprocess.DEVNULL)
    ports = [word for port in switch.ports for word in ("--port", f"{port}=port{port}")]
    serve = [FANIN, "p4", "serve", out / "aggregation.p4", "--job", out / "job.json", *ports, "--grpc", "none"]
    process = lab.start(switch.name, serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    print(f"{switch.name}: {process.stderr.readline().strip()}", flush=True)  # as soon as it forwards
    try:
        yield
    finally:
        process.terminate()
        print(f"\n{switch.name}\n{process.communicate(timeout=30)[0]}", end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
