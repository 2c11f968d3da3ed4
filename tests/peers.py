"""Third-party bus models as peers: a component's emitted Verilog in Verilator, under cocotb."""

import contextlib
import subprocess
from pathlib import Path

from amaranth.lib import wiring
from cocotb_tools.runner import get_results, get_runner

from fanin.hdl.emission import kept_verilog
from fanin.sim.cosim.build import EXECUTABLE, build
from tests.needs import require

_ROOT = Path(__file__).parent.parent
_VISIBLE = '`verilator_config\npublic_flat_rw -module "top" -var "*"\n'


def run_cocotb(component: wiring.Component, module: str, directory: Path, *, seed: int, more: str = "") -> None:
    """Run the cocotb tests in ``module`` on a component; AssertionError unless all pass and there is one.

    ``more``: Verilog of the modules of others that it instantiates.
    """
    built = build({"top.vlt": _VISIBLE, "top.v": kept_verilog(component, name="top") + more}, quiet=True)
    (directory / "top").symlink_to(built / EXECUTABLE)
    log = directory / "log"
    with contextlib.suppress(SystemExit):  # how the runner reports a test that failed
        get_runner("verilator").test(
            test_module=module,
            hdl_toplevel="top",
            hdl_toplevel_lang="verilog",
            build_dir=directory,
            results_xml=str(directory / "results.xml"),
            extra_env={"PYTHONPATH": str(_ROOT)},
            log_file=log,
            seed=seed,
        )
    tests, failed = get_results(directory / "results.xml")
    assert tests, f"no test ran:\n{log.read_text()}"
    assert not failed, f"{failed} of {tests} failed:\n{log.read_text()}"


def tshark_roce(pcap):
    """Opcode, PSN, queue pair and ICRC of every packet, as tshark reads them; it must complain of none."""
    require("tshark")
    bth = [f"infiniband.{name}" for name in ("bth.opcode", "bth.psn", "bth.destqp", "invariant.crc")]
    fields = [*bth, "_ws.malformed", "_ws.expert.severity"]
    done = subprocess.run(
        ["tshark", "-r", pcap, "-T", "fields", "-E", "separator=,", *(x for f in fields for x in ("-e", f))],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert {tuple(row[4:]) for row in rows} == {("", "")}
    return [tuple(int(value, 0) for value in row[:4]) for row in rows]
