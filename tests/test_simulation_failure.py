"""A simulation that fails, fails its own test, and not the next one as well."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import gc

from amaranth import Module, Signal
from amaranth.sim import Simulator


def test_fails():
    async def waits(ctx):
        await ctx.tick().repeat(30)

    async def fails(ctx):
        await ctx.tick()
        raise AssertionError("on purpose")

    m = Module()
    m.d.sync += Signal().eq(1)
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(waits)
    simulator.add_testbench(fails, background=True)
    simulator.run()


def test_next():
    gc.collect()
"""


def test_the_test_after_a_failed_simulation_passes(tmp_path):
    (tmp_path / "test_two.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "on purpose" in done.stdout
