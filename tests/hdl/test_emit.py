# amaranth: UnusedElaboratable=no
"""Emission: names, sharing, determinism, and that two other tools read the text."""

import ast
import os
import re
import subprocess
from pathlib import Path
from types import MappingProxyType

import pytest
from amaranth import Cat, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

import fanin.hdl
from fanin.base.tools import yosys
from fanin.evaluation.bench.netlist import synthesise
from fanin.hdl.bus.axi4 import AXI4ReadSignature
from fanin.hdl.emit import emit_verilog, flat_ports, module_name, shared, snake_case
from fanin.hdl.stream.packet import packet_stream
from fanin.hdl.verilog import LINE
from fanin.sim.cosim.build import find_verilator
from tests.support import simulate

PAIR = data.ArrayLayout(signed(8), 2)


class Adder(wiring.Component):
    """A leaf."""

    def __init__(self, *, width=8):
        self.width = width
        layout = data.ArrayLayout(signed(width), 2)
        super().__init__({"i": In(stream.Signature(layout)), "o": Out(stream.Signature(signed(width + 1)))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(self.o.ready | ~self.o.valid)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.p[0] + self.i.p[1])]
        return m


class Adders(wiring.Component):
    """``widths`` adders side by side."""

    def __init__(self, *, widths):
        self.widths = widths
        super().__init__(
            {
                **{f"i{n}": In(stream.Signature(data.ArrayLayout(signed(w), 2))) for n, w in enumerate(widths)},
                **{f"o{n}": Out(stream.Signature(signed(w + 1))) for n, w in enumerate(widths)},
            }
        )

    def elaborate(self, platform):
        m = Module()
        for n, width in enumerate(self.widths):
            m.submodules[f"adder{n}"] = adder = shared(Adder(width=width))
            wiring.connect(m, wiring.flipped(getattr(self, f"i{n}")), adder.i)
            wiring.connect(m, adder.o, wiring.flipped(getattr(self, f"o{n}")))
        return m


class Nest(wiring.Component):
    """Shared inside shared."""

    def __init__(self):
        super().__init__(Adders(widths=(8, 8)).signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = shared(Adders(widths=(8, 8)))
        m.submodules.spare = shared(Adder())
        for n in range(2):
            wiring.connect(m, wiring.flipped(getattr(self, f"i{n}")), getattr(inner, f"i{n}"))
            wiring.connect(m, getattr(inner, f"o{n}"), wiring.flipped(getattr(self, f"o{n}")))
        return m


class Ports(wiring.Component):
    """One of everything."""

    def __init__(self, members=None):
        self.members = None
        super().__init__(
            members
            or {
                "mac_rx": In(packet_stream(64, error=True)),
                "mac_tx": Out(packet_stream(64)),
                "samples": Out(AXI4ReadSignature(data_width=32, address_width=20, id_width=0)).array(2),
                "pa": Out(stream.Signature(PAIR)),
                "shape": In(data.StructLayout({"a": 3, "b": 5})),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.mac_tx.valid.eq(self.mac_rx.valid), self.mac_rx.ready.eq(self.mac_tx.ready)]
        m.d.comb += self.mac_tx.p.keep.eq(self.mac_rx.p.keep & ~self.mac_rx.p.error)
        m.d.comb += self.pa.p[1].eq(self.shape.b)
        return m


class Counters(wiring.Component):
    """Three counters side by side, an array of a port."""

    def __init__(self):
        super().__init__({"counts": Out(data.ArrayLayout(4, 3))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [count.eq(count + n) for n, count in enumerate(self.counts, start=1)]
        return m


class Around(wiring.Component):
    """Something with such a part."""

    def __init__(self):
        super().__init__({"sum": Out(6)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.counters = counters = shared(Counters())
        m.d.comb += self.sum.eq(sum(counters.counts))
        return m


class TwoClocks(wiring.Component):
    """A register in a domain of its own, named by a member of it."""

    domains = MappingProxyType({"o": "other"})

    def __init__(self):
        super().__init__({"i": In(4), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(4)
        m.d.sync += held.eq(self.i)
        m.d.other += self.o.eq(held)
        return m


class SelfReader(wiring.Component):
    """A block that drives part of a signal and reads another part."""

    def __init__(self):
        super().__init__({"a": In(1), "o": Out(data.StructLayout({"low": 8, "high": 1}))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.high.eq(~self.a)
        with m.If(self.o.high):
            m.d.comb += self.o.low.eq(15)
        return m


def modules(verilog):
    return re.findall(r"^module (\w+)\(", verilog, re.MULTILINE)


class Mask(wiring.Component):
    """A wide word behind a mask, of which yosys writes each bit out: more than Verilator reads in a line."""

    def __init__(self):
        super().__init__({"mask": In(4), "i": In(10_000), "o": Out(10_000)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.i & Cat(bit.replicate(2_500) for bit in self.mask))
        return m


def test_port_names_are_flat_and_packet_streams_axi():
    ports = {p.name: (len(p.value), p.output) for p in flat_ports(Ports())}
    assert ports["mac_rx_tdata"] == (64, False)
    assert ports["mac_rx_tkeep"] == (8, False)
    assert ports["mac_rx_tuser"] == (1, False)
    assert ports["mac_rx_tready"] == (1, True)
    assert ports["mac_tx_tlast"] == (1, True)
    assert ports["mac_tx_tready"] == (1, False)
    assert "mac_tx_tuser" not in ports
    assert ports["samples0_araddr"] == ports["samples1_araddr"] == (20, True)
    assert ports["samples1_rdata"] == (32, False)
    assert "samples0_arid" not in ports  # no bits, no port
    assert ports["pa_payload"] == (16, True)
    assert ports["pa_valid"] == (1, True)
    assert ports["pa_ready"] == (1, False)
    assert ports["shape"] == (8, False)
    assert not [name for name in ports if "__" in name]


def test_the_verilog_has_these_ports_and_clock_and_reset():
    header = re.search(r"module ports\(([^)]*)\)", emit_verilog(Ports()))[1]
    names = {name.strip() for name in header.split(",")}
    assert names == {p.name for p in flat_ports(Ports())} | {"clk", "rst"}


def test_a_further_domain_has_clock_and_reset_of_its_own():
    verilog = emit_verilog(TwoClocks())
    header = re.search(r"module two_clocks\(([^)]*)\)", verilog)[1]
    names = {name.strip() for name in header.split(",")}
    assert names == {"i", "o", "clk", "rst", "other_clk", "other_rst"}
    assert set(re.findall(r"posedge (\w+)", verilog)) == {"clk", "other_clk"}


def test_a_component_with_a_further_domain_cannot_be_shared():
    class Holder(wiring.Component):
        def __init__(self):
            super().__init__({})

        def elaborate(self, platform):
            m = Module()
            m.submodules.part = shared(TwoClocks())
            return m

    with pytest.raises(ValueError, match=r"TwoClocks: a shared\(\) component cannot have domains beside sync"):
        emit_verilog(Holder())


def test_two_members_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two ports would be called 'a_b'"):
        flat_ports(Ports({"a_b": In(1), "a": Out(wiring.Signature({"b": Out(1)}))}))


def test_equal_components_share_a_module_and_different_ones_do_not():
    verilog = emit_verilog(Adders(widths=(8, 8, 16, 8)))
    assert sorted(modules(verilog)) == ["adder_width16", "adder_width8", "adders"]
    assert len(re.findall(r"^  adder_width8 ", verilog, re.MULTILINE)) == 3
    assert len(re.findall(r"^  adder_width16 ", verilog, re.MULTILINE)) == 1


def test_sharing_works_at_any_depth():
    verilog = emit_verilog(Nest())
    found = modules(verilog)
    assert len(found) == len(set(found)) == 3
    assert len(re.findall(r"^  adder_width8 ", verilog, re.MULTILINE)) == 3


def test_in_amaranth_shared_is_the_component_itself():
    adder = Adder()
    assert shared(adder) is adder
    log = simulate(
        Adders(widths=(8, 8)),
        drive={"i0": [[1, 2], [-3, -4]], "i1": [[127, 127]]},
        collect={"o0": 2, "o1": 1},
    )
    assert [p for _, p in log["o0"]] == [3, -7]
    assert [p for _, p in log["o1"]] == [254]


def test_the_text_is_the_same_every_time_and_names_no_path():
    one, two = emit_verilog(Nest()), emit_verilog(Nest())
    assert one == two
    assert os.getcwd() not in one
    assert "src =" not in one


def test_the_header_says_what_it_is():
    verilog = emit_verilog(Adders(widths=(8, 16)), name="my_adders")
    first, *notes = verilog.splitlines()
    assert first.startswith("// my_adders, generated by fanin ")
    assert "//   my_adders: Adders(widths=(8, 16))" in notes
    assert "//   adder_width16: Adder(width=16)" in notes


def test_a_module_with_an_array_as_port_is_mapped():
    """``counts[0]`` would be a field's name and that of a bit of the port, which yosys does not survive."""
    verilog = emit_verilog(Around())
    assert r"\counts.2 " in verilog
    assert synthesise(verilog, "around").flip_flops == 11  # the second counter is even


def test_module_names_are_readable_and_bounded():
    assert snake_case("GlmNode") == "glm_node"
    assert snake_case("FP32Adder") == "fp32_adder"
    assert module_name(Adder(width=12)) == "adder_width12"
    long = module_name(Adders(widths=tuple(range(1, 40))))
    assert re.fullmatch(r"adders_[0-9a-f]{8}", long)
    assert long != module_name(Adders(widths=tuple(range(2, 41))))


def test_a_parameter_that_is_not_kept_is_named():
    class Forgetful(Adder):
        def __init__(self, *, bits):
            super().__init__(width=bits)

    with pytest.raises(TypeError, match="Forgetful must keep its parameter 'bits'"):
        emit_verilog(Forgetful(bits=3))


def test_a_parameter_without_a_stable_repr_is_named():
    adders = Adders(widths=(8,))
    adders.widths = object()
    with pytest.raises(TypeError, match="parameter 'widths' has no stable repr"):
        emit_verilog(adders)


def test_a_block_that_reads_the_signal_that_it_drives_is_refused():
    with pytest.raises(ValueError, match="self_reader: the block that drives part of o reads another part"):
        emit_verilog(SelfReader())


@pytest.mark.parametrize("component", [Nest, Ports])
def test_yosys_reads_it(component, tmp_path):
    (tmp_path / "x.v").write_text(emit_verilog(component(), name="top"))
    script = "read_verilog x.v; hierarchy -check -top top; proc; check -assert"
    subprocess.run([yosys(), "-q", "-p", script], cwd=tmp_path, check=True)


def test_no_line_is_longer_than_tools_read():
    assert max(map(len, emit_verilog(Mask(), name="top").splitlines())) < 2 * LINE


@pytest.mark.verilator
@pytest.mark.parametrize("component", [Nest, Ports, Mask])
def test_verilator_reads_it(component, tmp_path):
    (tmp_path / "x.v").write_text(emit_verilog(component(), name="top"))
    verilator = find_verilator()
    subprocess.run(
        [verilator.program, "--lint-only", "--top-module", "top", "x.v"],
        cwd=tmp_path,
        env=os.environ | dict(verilator.environment),
        check=True,
    )


class Constants(wiring.Component):
    """A combinational block whose inputs never change."""

    def __init__(self):
        super().__init__({"o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        never = Signal(init=0)
        m.d.sync += never.eq(never)
        m.d.comb += self.o.eq(0x5A)
        with m.If(never):
            m.d.comb += self.o.eq(0xFF)
        return m


class Wide(wiring.Component):
    """Two registers, one with a view of a part of it."""

    def __init__(self):
        super().__init__({"o": Out(100), "part": Out(4)})

    def elaborate(self, platform):
        m = Module()
        zero = Signal(100)
        five = Signal(data.StructLayout({"low": 4, "high": 96}), init={"low": 5})
        m.d.sync += [zero.eq(zero + 1), five.eq(five.as_value() + 3)]
        m.d.comb += [self.o.eq(zero ^ five.as_value()), self.part.eq(five.low)]
        return m


def test_registers_have_short_initial_values_and_nothing_else_repeats_them():
    text = emit_verilog(Wide())
    declared = dict(re.findall(r"^  reg \[99:0\] (\w+) = (\S+);$", text, re.MULTILINE))
    assert declared == {"zero": "100'h0", "five": "100'h5"}
    assert "(* init" not in text
    assert re.search(r"'h0{8}", text) is None


def test_every_combinational_block_is_triggered_at_time_0_in_simulation_alone():
    verilog = emit_verilog(Constants(), name="constants")
    (trigger,) = set(re.findall(r"^  always @\* begin\n    if \((\S+) \) begin end$", verilog, re.MULTILINE))
    simulated = re.findall(r"(?s)`ifndef SYNTHESIS\n.*?`ifndef VERILATOR\n(.*?)`endif\n.*?`endif", verilog)
    assert simulated == [f"  initial {trigger} <= 1;\n"]


@pytest.mark.needs("iverilog")
@pytest.mark.parametrize("language", ["2005", "2012"])
def test_no_output_stays_x_whether_it_is_read_as_verilog_or_systemverilog(tmp_path, language):
    """By SystemVerilog's rules the start value of a register is no change: nothing would run the block."""
    bench = "module bench; reg clk = 0, rst = 0; wire [7:0] o; constants c(.clk(clk), .rst(rst), .o(o));\n"
    bench += 'initial #1 $display("%h", o); endmodule\n'
    (tmp_path / "bench.v").write_text(bench + emit_verilog(Constants(), name="constants"))
    subprocess.run(["iverilog", f"-g{language}", "-o", "out", "bench.v"], cwd=tmp_path, check=True)
    done = subprocess.run(["vvp", "out"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "5a\n"


def test_no_signal_is_made_in_a_tuple():
    """Amaranth takes a signal's name from its assignment, and has none in ``a, b = Signal(), Signal()``."""
    found = []
    for path in sorted(Path(fanin.hdl.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            values = (
                node.value.elts if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) else []
            )
            calls = [value.func for value in values if isinstance(value, ast.Call)]
            if any(
                "Signal" in (getattr(f, "id", ""), getattr(getattr(f, "value", f), "id", "")) for f in calls
            ):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
