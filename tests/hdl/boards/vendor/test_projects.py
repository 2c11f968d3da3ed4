# amaranth: UnusedElaboratable=no
"""Projects for vendors' tools: their Verilog, with stubs of the vendors' modules, and their scripts."""

import re
from functools import cache

import pytest
from amaranth import Cat, ClockDomain, ClockSignal, Elaboratable, Module
from amaranth.lib import io
from amaranth.lib.fifo import AsyncFIFOBuffered

from fanin.base.errors import InputError
from fanin.glm.facts import PRESETS, GlmConfig
from fanin.hdl.boards.board import BOARDS, Flow, find_board
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.top import BoardTop
from fanin.hdl.boards.vendor.alveo_u280_top import AlveoU280Top
from fanin.hdl.boards.vendor.arria10_gx_top import Arria10GxTop
from fanin.hdl.boards.vendor.project import CARDS, make_project, write_project
from fanin.hdl.boards.vendor.series7 import Series7Clocks, Series7RgmiiPins, choose_dividers
from fanin.hdl.boards.vendor.stubs import STUBS
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.ring.node import RingNode
from fanin.ring.facts import PRESETS as RING_PRESETS
from tests.hdl.boards.vendor.lint import complaints, node_stub
from tests.needs import require
from tests.support import slow

require("tkinter")  # Python's Tcl runs the scripts
from tests.hdl.boards.vendor.scripts import run, words  # noqa: E402

VENDOR = sorted(name for name, board in BOARDS.items() if board.flow is Flow.VENDOR)
LOOP_STEPS = 5000  # of a loop at most, to Quartus
#: In the Verilog: where memories go, to each vendor; what yosys writes of its own, which the others pass over.
ATTRIBUTES = {"ram_style", "ramstyle", "rw_addr_collision", "init", "no_rw_check", "full_case", "parallel_case"}
ATTRIBUTES |= {"enum_base_type"}


class Loop(Elaboratable):
    """What comes by RGMII goes back: a Genesys 2 with its clocks and pins, and no more."""

    def elaborate(self, platform):
        m = Module()
        phy = find_board("genesys2").phy
        m.submodules.clock = clock = io.Buffer("i", platform.request("clk", 0, dir="-"))
        m.submodules.reset = reset = io.Buffer("i", platform.request("rst", 0, dir="-"))
        m.submodules.clocks = Series7Clocks(
            oscillator=clock.i, reset=reset.i, dividers=choose_dividers(200, 100)
        )
        port = platform.request("eth_rgmii", 0, dir="-")
        m.submodules.pins = pins = Series7RgmiiPins(
            port=port, rx_delay_ns=phy.rx_delay_ns, tx_delay_ns=phy.tx_delay_ns
        )
        for domain in (*Series7Clocks.DOMAINS, "rx"):
            m.domains += ClockDomain(domain)
        m.submodules.fifo = fifo = AsyncFIFOBuffered(width=10, depth=16, w_domain="rx", r_domain="tx")
        m.d.comb += [
            ClockSignal("rx").eq(pins.rx_clock),
            fifo.w_data.eq(Cat(pins.rx)),
            fifo.w_en.eq(1),
            fifo.r_en.eq(1),
            Cat(pins.tx).eq(fifo.r_data),
            Cat(pins.tx_clock).eq(0b01),
        ]
        return m


@cache
def files(name, *, real=False):
    """A project's files; the node is a stub, or the top a loop, unless it is to be ``real``."""
    board, top = find_board(name), None
    if name not in CARDS:
        identity = Identity.of(board, number=0, build=0)
        shell = BoardTop(board=board, config=None, identity=identity, core_mhz=board.core_mhz)
        top = shell if real else Loop()
    plan = make_project(board, top=top, **({} if real else {"emit": node_stub}))
    return {path: text.decode() if isinstance(text, bytes) else text for path, text in plan.files.items()}


def verilog(name, **options):
    """The project's Verilog and the stubs."""
    texts = {path: text for path, text in files(name, **options).items() if re.fullmatch(r"\w+\.v", path)}
    return texts | {"stubs.v": "\n".join(STUBS[name].values())}


def written(name, folder):
    for path, text in files(name).items():
        (folder / path).write_text(text)
    return folder


def instances(name, module="top"):
    """Module and pins of each instance in a module, by the instance's name."""
    start = r"top\(" if module == "top" else re.escape(f"\\{module} (")
    top = re.search(rf"^module {start}.*?^endmodule", files(name)["top.v"], re.MULTILINE | re.DOTALL)[0]
    found = re.findall(r"^  (\S+) (?:#\(.*?\) )?(\w+) \(\n(.*?)^  \);", top, re.MULTILINE | re.DOTALL)
    named = re.compile(r"^    \.(\w+)\(", re.MULTILINE)
    return {label: (module, set(named.findall(pins))) for module, label, pins in found}


def ports(name):
    head = re.search(r"^module top\((.*?)\);", files(name)["top.v"], re.MULTILINE | re.DOTALL)
    return set(re.split(r"\s*,\s*", head[1]))


def loops(text):
    """Steps of each loop that synthesis sees."""
    seen = re.sub(r"// synthesis translate_off.*?// synthesis translate_on", "", text, flags=re.DOTALL)
    return [int(b) - int(a) + 1 for a, b in re.findall(r"for \(\w+ = (\d+); \w+ <= (\d+);", seen)]


def test_the_table_of_boards_has_them():
    assert VENDOR == ["alveo_u280", "arria10_gx", "genesys2"]
    assert set(STUBS) == set(VENDOR)
    assert {board.number for board in BOARDS.values()} == set(range(1, len(BOARDS) + 1))


@pytest.mark.verilator
@pytest.mark.parametrize("name", [*slow(VENDOR[0]), *VENDOR[1:]])
def test_two_front_ends_have_nothing_to_say(name, tmp_path):
    assert complaints(tmp_path, verilog(name)) == []


@pytest.mark.verilator
@pytest.mark.parametrize(
    "damage",
    [
        {
            "memory_read": (r"\.memory_read\(.*?\),\n", ""),
            "l4_tx_empty": (r"(\.l4_tx_empty\()(.*?)\)", r"\1{4'h0, \2})"),
        },
        {"clock_status": (r"\.clk_status\(", ".clock_status(")},
    ],
    ids=["an input left open and a port too wide", "a port that is none"],
)
def test_they_would_say_it(damage, tmp_path):
    texts = verilog("arria10_gx")
    for before, after in damage.values():
        texts["top.v"], count = re.subn(before, after, texts["top.v"], count=1)
        assert count == 1
    said = complaints(tmp_path, texts)
    for tool in ("verilator", "slang"):
        for port in damage:
            assert any(line.startswith(tool) and port in line for line in said), (tool, port, said)


@pytest.mark.slow
@pytest.mark.verilator
def test_with_the_open_boards_top_too(tmp_path):
    assert complaints(tmp_path, verilog("genesys2", real=True)) == []


@pytest.mark.slow  # minutes: a node of 8 engines, or a ring node
@pytest.mark.verilator
@pytest.mark.parametrize("name", sorted(CARDS))
def test_with_the_whole_node_too(name, tmp_path):
    texts = verilog(name, real=True)
    assert complaints(tmp_path, texts) == []
    node = texts[f"{CARDS[name].module}.v"]
    assert all(steps <= LOOP_STEPS for steps in loops(node))
    if name == "alveo_u280":
        assert 'ram_style = "ultra"' in node
    assert 'ramstyle = "M20K"' in node
    used = {word for group in re.findall(r"\(\* (.*?) \*\)", node) for word in re.findall(r"(\w+) = ", group)}
    assert {word for word in used - ATTRIBUTES if not word.startswith("enum_value")} == set()


@pytest.mark.parametrize("name", ["alveo_u280", "genesys2"])
def test_vivado_gets_sources_constraints_and_cores(name, tmp_path):
    calls = run(written(name, tmp_path), "top.tcl")
    assert (
        words(calls, "create_project")[0][-1]
        == {
            "alveo_u280": "xcu280-fsvh2892-2L-e",
            "genesys2": "xc7k325tffg900-2",
        }[name]
    )
    added = {argument for arguments in words(calls, "add_files") for argument in arguments}
    assert added == {path for path in files(name) if re.fullmatch(r"\w+\.v", path)}
    assert ["top.xdc"] in words(calls, "read_xdc")
    order = [call[0] for call in calls]
    for command in ("synth_design", "place_design", "route_design", "write_bitstream"):
        assert command in order
    made = {arguments[-1] for arguments in words(calls, "create_ip")}
    assert made == {module for module, _ in instances(name).values() if module.startswith("fanin_")}
    if made:
        assert order.index("create_ip") < order.index("synth_ip") < order.index("synth_design")


@pytest.mark.parametrize("name", ["alveo_u280", "genesys2"])
def test_every_port_has_a_place_and_no_place_two_ports(name, tmp_path):
    calls = run(written(name, tmp_path), "top.xdc")
    named = [ports_[-1] for ports_ in words(calls, "get_ports")]
    placed = [arguments[1] for arguments in words(calls, "set_property") if arguments[0] == "LOC"]
    assert len(placed) == len(set(placed))
    assert {re.sub(r"\[\d+\]$", "", port) for port in named} == ports(name)


def test_the_scripts_name_what_is_in_the_top(tmp_path):
    """Of the Alveo's placement: cells, pins and dies."""
    calls = run(written("alveo_u280", tmp_path), "placement.tcl")
    parts = instances("alveo_u280")
    for (pin,) in words(calls, "get_pins"):
        cell, _, name = pin.partition("/")
        assert name in parts[cell][1]
    patterns = [a[-1].removeprefix("NAME =~ *") for a in words(calls, "get_cells") if "-filter" in a]
    assert patterns == ["_slr0", "_slr1", "_slr2"]
    in_text = files("alveo_u280")["top.v"]
    cut = {die: len(re.findall(rf"^  \\top\.\w+_slr{die} ", in_text, re.MULTILINE)) for die in range(3)}
    assert cut == {0: 18, 1: 20, 2: 2}  # ports of memory and registers over one border, frames over another


def test_bounds_of_crossings_are_between_clocks_of_the_top(tmp_path):
    calls = run(written("genesys2", tmp_path), "crossings.tcl")
    for (path,) in words(calls, "get_pins"):
        part, cell, pin = path.split("/")
        assert pin in instances("genesys2", f"top.{part}")[cell][1]
    assert len(words(calls, "set_max_delay")) == 6


def test_quartus_gets_sources_constraints_and_cores(tmp_path):
    calls = run(written("arria10_gx", tmp_path), "top.qsf")
    settings = [arguments[1:] for arguments in words(calls, "set_global_assignment")]
    assert ["DEVICE", "10AX115S2F45I1SG"] in settings
    assert {path for kind, path in settings if kind == "VERILOG_FILE"} == {"top.v", "ring_node.v"}
    assert ["SDC_FILE", "top.sdc"] in settings
    made = {path.split("/")[0] for kind, path in settings if kind == "QIP_FILE"}
    assert made == {module for module, _ in instances("arria10_gx").values() if module.startswith("fanin_")}
    placed = {re.sub(r"\[\d+\]$", "", arguments[1]) for arguments in words(calls, "set_location_assignment")}
    assert ports("arria10_gx") - placed == {"qsfp_clk", "qsfp_rx", "qsfp_tx"}  # a user's
    places = [arguments[2] for arguments in words(calls, "set_location_assignment")]
    assert len(places) == len(set(places))


def test_the_memory_system_is_whole(tmp_path):
    calls = run(written("arria10_gx", tmp_path), "system.tcl")
    parts = {arguments[0] for arguments in words(calls, "add_instance")}
    assert parts == {"clk", "ddr", "core_clk", "core_reset", "memory", "registers", "host"}
    for arguments in words(calls, "add_connection"):
        assert {end.split(".")[0] for end in arguments} <= parts
    exported = {interface for interface, *_ in words(calls, "set_interface_property")}
    pins = instances("arria10_gx")["system"][1]
    assert {next((e for e in exported if pin.startswith(f"{e}_")), pin) for pin in pins} == exported
    assert words(calls, "save_system") == [["fanin_system.qsys"]]


def test_clocks_of_the_arria_are_those_of_its_cores(tmp_path):
    calls = run(written("arria10_gx", tmp_path), "top.sdc")
    named = {arguments[0] for arguments in words(calls, "get_clocks")}
    cells = {name.split("|")[0] for name in named if "|" in name}
    assert cells <= set(instances("arria10_gx"))
    assert {port for (port,) in words(calls, "get_ports")} >= {"qsfp_clk", "clk100_0__io"}


def test_the_cores_are_made_before_quartus_maps():
    script = files("arria10_gx")["build_top.sh"]
    order = ["QSYS_SCRIPT", "QSYS_GENERATE", "IP_GENERATE", "QUARTUS_MAP", "QUARTUS_FIT"]
    at = [script.index(f'"${tool}"') for tool in order]
    assert at == sorted(at)


def test_a_project_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fanin.hdl.boards.vendor.project._emit", node_stub)
    made = write_project(find_board("genesys2"), tmp_path / "a" / "b", top=Loop())
    assert {path.name for path in made} >= {"top.v", "top.xdc", "top.tcl", "build_top.sh"}
    assert all(path.exists() for path in made)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: "):
        write_project(find_board("genesys2"), tmp_path / "file", top=Loop())


def test_a_top_too_few_or_too_many():
    with pytest.raises(ValueError, match="genesys2 needs a top"):
        make_project(find_board("genesys2"))
    with pytest.raises(ValueError, match="alveo_u280 has a top of its own"):
        make_project(find_board("alveo_u280"), top=Loop())


def test_a_node_of_other_widths():
    with pytest.raises(ValueError, match="port_bits must be 256"):
        AlveoU280Top(node=GlmNode(config=PRESETS["tiny"]), module="glm_node")
    with pytest.raises(ValueError, match="mac_width must be 512"):
        AlveoU280Top(node=GlmNode(config=GlmConfig(name="", mac_width=256)), module="glm_node")
    with pytest.raises(ValueError, match="width must be 256"):
        Arria10GxTop(node=RingNode(config=RING_PRESETS["u280"]), module="ring_node")
