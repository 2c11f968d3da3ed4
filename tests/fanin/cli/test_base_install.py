"""Commands import no more than they need: without extras, only those of planner and campaign fail."""

import subprocess
import sys

from fanin.extras import EXTRAS

WALK = """
import importlib, pkgutil, sys
blocked = set(sys.argv[1].split(","))
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
import fanin.cli
for module in pkgutil.walk_packages(fanin.cli.__path__, "fanin.cli."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError:
        print(module.name)
"""
NEED_EXTRAS = (
    "fanin.cli.bench.cluster",
    "fanin.cli.bench.plan",
    "fanin.cli.campaign",
    "fanin.cli.cluster",
    "fanin.cli.doctor.cluster",
    "fanin.cli.plan",
)


def test_only_commands_of_an_extra_import_its_modules():
    blocked = ",".join(module for extra in EXTRAS for module in extra.modules)
    done = subprocess.run([sys.executable, "-c", WALK, blocked], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    missing = done.stdout.split()
    assert "fanin.cli.plan.execute" in missing
    assert [name for name in missing if not name.startswith(NEED_EXTRAS)] == []
