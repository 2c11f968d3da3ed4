"""Instances: a wire for each port except clock and reset, and a connection for all."""

import re

from fanin.hdl.package import package
from fanin.hdl.package.harness import Port
from fanin.hdl.package.instance import instance


def test_every_port_has_a_wire_of_its_width_and_a_connection():
    ports = [Port("clk", 1, False), Port("rst", 1, False), Port("a", 1, False), Port("b", 8, True)]
    ports += [Port("c", 8, False)]
    assert instance("part", ports).splitlines()[1:] == [
        "wire a;",
        "wire [7:0] b, c;",
        "part node (",
        "    .clk(clk), .rst(rst), .a(a), .b(b), .c(c)",
        ");",
    ]


def test_an_instance_of_a_node_connects_the_ports_of_its_verilog():
    design = {"preset": "tiny", "settings": {}, "module": "mine"}
    text = package.instance("frame-receiver", **design)
    header = re.search(r"^module mine\((.*?)\);", package.emit("frame-receiver", **design), re.M | re.S)
    ports = re.findall(r"\w+", header[1])
    assert sorted(re.findall(r"\.(\w+)\(\1\)", text)) == sorted(ports)
    assert max(map(len, text.splitlines())) <= 112
