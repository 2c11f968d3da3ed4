"""Small P4 programs around a piece of text that a test is about."""

from fanin.sim.switch.embedded import Program, Switch, load

V1MODEL = """
#include <core.p4>
#include <v1model.p4>
{declarations}
struct headers_t {{ {headers} }}
struct metadata_t {{ {metadata} }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{
    {parser}
}}
control Verify(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {verify} }} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{
    {locals}
    apply {{ {apply} }}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {{
    apply {{ {egress} }}
}}
control Compute(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {compute} }} }}
control D(packet_out packet, in headers_t hdr) {{ apply {{ {deparser} }} }}
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
"""
PARTS = {
    "declarations": "header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }",
    "headers": "h_t h; h_t g;",
    "metadata": "bit<8> m; @field_list(1) bit<8> kept;",
    "parser": "state start { packet.extract(hdr.h); transition accept; }",
    "verify": "",
    "locals": "",
    "apply": "",
    "egress": "",
    "compute": "",
    "deparser": "packet.emit(hdr);",
}


def v1model(**parts: str) -> Program:
    """A program with one header of four bytes, ``h``, that goes to port 0; the parts given replace its own."""
    return load(V1MODEL.format(**{**PARTS, **parts}), "test.p4")


def send(switch: Switch, frame: str, port: int = 1) -> list[tuple[int, str]]:
    """What leaves when a frame comes in, in hexadecimal digits."""
    return [(to, data.hex()) for to, data in switch.process(port, bytes.fromhex(frame))]


def one(frame: str, **parts: str) -> str:
    """The one frame that a program sends for ``frame``."""
    ((_, data),) = send(v1model(**parts).switch(), frame)
    return data
