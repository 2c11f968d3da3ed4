"""Commands of the docs, typed as they stand: those of a page in their order, in the install that it asks for.

Pages that lead from an empty folder to a result are followed whole elsewhere: docs/start.md in
test_base_install.py, docs/tutorials in tests/test_tutorials.py.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.installs import blocks, shell, typed

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
ELSEWHERE = {"start", *(f"tutorials/{page.stem}" for page in (DOCS / "tutorials").glob("*.md"))}
ELSEWHERE |= {
    f"reference/nodes/{page.stem}" for page in (DOCS / "reference" / "nodes").glob("*.md")
}  # test_verilog


@dataclass(frozen=True)
class Page:
    """How a page is followed.

    ``extras``: what it says to install.
    ``before``: what its reader has at the start, as commands.
    ``other``: beginnings of commands that are not typed here, each with where they are, or why they cannot be.
    ``fails``: beginnings of those that end with status 1, as the page says.
    """

    extras: tuple[str, ...] = ()
    before: str = ""
    other: dict[str, str] = field(default_factory=dict)
    fails: tuple[str, ...] = ()


def script(text):
    """A Python program as a command of the shell."""
    return f"python - <<'END'\n{text}END\n"


def table(target):
    """my.csv, new.csv and my.libsvm of two classes; ``target`` is the column of the class."""
    return script(f"""
import numpy as np
x = np.random.default_rng(0).normal(size=(200, 5))
classes = (x.sum(axis=1) > 0).astype(int)
rows = [",".join([*(f"{{v:.4f}}" for v in row), str(y)]) for row, y in zip(x, classes)]
for name in ("my.csv", "new.csv"):
    open(name, "w").write("\\n".join(["a,b,c,d,e,{target}", *rows]) + "\\n")
from sklearn.datasets import dump_svmlight_file
dump_svmlight_file(x, 2 * classes - 1, "my.libsvm", zero_based=False)
""")


def captures(*names):
    """Captures of a few frames."""
    return script(f"""
from scapy.all import Ether, wrpcap, wrpcapng
frames = [Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:09", type=0x88B5) / bytes(44) for _ in range(3)]
for name in {names}:
    (wrpcapng if name.endswith("ng") else wrpcap)(name, frames)
""")


DEMO = "fanin train breast_cancer --epochs 2 -o runs/demo\n"
BREAST_CANCER = script("""
from sklearn.datasets import load_breast_cancer
load_breast_cancer(as_frame=True).frame.to_csv("new.csv", index=False)
""")
MINE = "fanin p4 emit --workers 2 -o mine\ncp mine/aggregation.p4 mine.p4\necho '[]' > entries.json\n"
STF = """echo 'packet 0 00' > test.stf
cat > program.p4 <<'END'
#include <core.p4>
#include <v1model.p4>
struct H {} struct M {}
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) { state start { transition accept; } }
control C(inout H h, inout M m) { apply {} }
control I(inout H h, inout M m, inout standard_metadata_t s) { apply { mark_to_drop(s); } }
control E(inout H h, inout M m, inout standard_metadata_t s) { apply {} }
control D(packet_out p, in H h) { apply {} }
V1Switch(P(), C(), I(), E(), C(), D()) main;
END
"""
CAMPAIGN = """cat > small.toml <<'END'
command = "p4 allreduce"
seeds = 2
figures = ["latency_ns.mean"]
[options]
operations = 20
[[grid]]
workers = [2, 4]
END
fanin campaign small.toml -o runs/before
fanin campaign small.toml -o runs/after
"""
INTERFACES = "Linux interfaces: tests of p4 serve, nic run and train --ports have namespaces"
BENCH = {"fanin bench": "make bench: hours"}
SERVED = {"fanin watch": "serves until Ctrl-C: tests/fanin/cli/watch"}
RUNS = {"fanin campaign examples/": "180 runs: their file is read in tests/fanin/campaign/test_file.py"}
MNIST = "a data set that is not here"
PAGES = {
    "../README": Page(
        other={"fanin plan": "minutes: make bench", "fanin cluster": "minutes: tests/fanin/cnn/run"}
    ),
    "boards": Page(
        extras=("boards",),
        other={"fanin board": "tests/fanin/cli/board", "fanin train": "tests/fanin/cli/test_train_boards.py"},
    ),
    "howto": Page(
        extras=("mpi", "campaign"),
        before=DEMO + table("label") + MINE + captures("in.pcap") + "cp -r runs/demo runs/bad\n",
        other=SERVED | RUNS | {"fanin p4 serve": INTERFACES, "fanin nic": INTERFACES},
    ),
    "packages": Page(),
    "scale": Page(extras=("mpi",)),
    "reference/bmv2": Page(
        other={"fanin train": "tests/sim/switch/bmv2", "fanin p4 job": "tests/fanin/cli/test_p4_job.py"}
    ),
    "reference/campaign": Page(extras=("campaign",), before=CAMPAIGN, other=RUNS),
    "reference/data": Page(before=DEMO + BREAST_CANCER),
    "reference/embedded": Page(
        before="fanin train breast_cancer --epochs 1 -o a\ncp a/{aggregation.p4,job.json,frames.pcap} .\n"
        + captures("a.pcap", "b.pcapng")
        + STF
    ),
    "reference/nic": Page(
        other={"fanin nic": INTERFACES, "fanin p4 serve": INTERFACES, "fanin train": INTERFACES}
    ),
    "reference/nodes": Page(other={"fanin verilog NAME": "NAME stands for each: tests/hdl/test_catalog.py"}),
    "reference/p4runtime": Page(other={"fanin p4 serve": INTERFACES}),
    "reference/runs": Page(before="fanin train breast_cancer --epochs 2 -o runs/breast_cancer\n"),
    "reference/serve": Page(other={"fanin p4 serve": INTERFACES}),
    "reference/watch": Page(other=SERVED),
    "reference/waves": Page(),
    "systems/ai-smart-nic": Page(
        before=script("import numpy as np\nfor n in 'abc':\n    np.save(n, np.ones(100, 'f4'))\n"),
        fails=("fanin ring check --dead", "fanin ring check --list"),
    ),
    "systems/nada": Page(
        extras=("planner",),
        other={
            "fanin cluster run": "15 epochs in RTL take half an hour: tests/fanin/cnn/run/test_rtl.py",
            "fanin cluster resume": "tests/fanin/cnn/run/test_resume.py",
            "fanin cluster check": "tests/fanin/cnn/run/test_run.py",
            "fanin cluster export": "tests/fanin/cnn/run/test_export.py",
            "fanin doctor": "tests/fanin/cnn/run/test_doctor.py",
        },
    ),
    "systems/codec": Page(
        before=script("import numpy as np\nnp.arange(64, dtype='<f4').tofile('IN')\n"),
        other=BENCH | {"fanin codec decode": "IN is another file here: tests/fanin/cli/test_codec.py"},
    ),
    "systems/glm": Page(
        other={
            "fanin p4 serve": INTERFACES,
            "fanin train breast_cancer --workers 2 --worker 0": INTERFACES,
            "fanin train --resume runs/w0": INTERFACES,
        },
    ),
    "systems/gradient-training": Page(other=BENCH),
    "systems/inceptionn": Page(other={"fanin nic": INTERFACES}),
    "systems/p4sgd": Page(),
    "systems/param-server-training": Page(other={"fanin ps train ~": MNIST}),
    "systems/rdma-wild": Page(),
    "systems/ring-training": Page(other={"fanin ring train ~": MNIST}),
    "systems/scale": Page(other={"fanin train": "32 nodes of u280 in RTL: an hour"}),
    "systems/switch-program": Page(before=DEMO),
    "systems/trees": Page(),
}  # fmt: skip


def shown(page):
    """Commands of fanin in a page's blocks, and changes of folder; without comments and placeholders."""
    lines = [line.removeprefix("$ ") for *_, text in blocks(page) for line in text.splitlines()]
    commands = [line.partition(" #")[0].strip() for line in lines if line.startswith(("fanin ", "cd runs/"))]
    return [command for command in commands if " … " not in command]


def test_every_page_with_commands_is_followed():
    pages = {str(page.relative_to(DOCS).with_suffix("")): page for page in DOCS.rglob("*.md")}
    having = {name for name, page in pages.items() if shown(page)}
    assert having - ELSEWHERE == PAGES.keys() - {"../README"}


@pytest.mark.parametrize("page", PAGES)
def test_what_is_left_out_or_fails_is_on_the_page(page):
    commands = shown(DOCS / f"{page}.md")
    for beginning in (*PAGES[page].other, *PAGES[page].fails):
        assert any(command.startswith(beginning) for command in commands), beginning
    for reason in PAGES[page].other.values():
        for word in reason.split():
            assert not word.startswith("tests/") or (ROOT / word).exists(), reason


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_their_order(page, tmp_path):
    how = PAGES[page]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")  # a reader has a clone
    lines = [
        f"! {command}" if command.startswith(how.fails) else command
        for command in shown(DOCS / f"{page}.md")
        if not command.startswith(tuple(how.other))
    ]
    if lines:
        shell(how.before, tmp_path)
        typed("set -x\n" + "\n".join(lines), tmp_path, *how.extras)
