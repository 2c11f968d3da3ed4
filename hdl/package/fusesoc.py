"""FuseSoC core (CAPI2) of a node: its files, and targets that lint it and synthesise it as the top level."""

from __future__ import annotations

import json

from fanin import __version__
from fanin.hdl.package.ip_xact import LIBRARY, VENDOR

# A node has more ports than a device has pins, so its harness is placed instead. Pins have no location, since
# no board is meant: the flow for Vivado stops before the bitstream, which Vivado would refuse.
_CORE = """CAPI=2:
name: {vendor}:{library}:{module}:{version}
description: {description}

filesets:
  rtl:
    files: [{module}.v]
    file_type: verilogSource
  harness:
    files: [{module}_harness.v]
    file_type: verilogSource
  vivado:
    files: [{module}.xdc]
    file_type: xdc
  quartus:
    files: [{module}.sdc]
    file_type: SDC
  trellis:
    files: [{module}.lpf]
    file_type: LPF

targets:
  # For cores that depend on this one.
  default:
    filesets: [rtl]
    toplevel: {module}

  # The options switch off warnings that generated Verilog causes: widths that the language settles,
  # cases without a default, constant comparisons, and a name that has a meaning in C++.
  lint:
    filesets: [rtl]
    toplevel: {module}
    default_tool: verilator
    tools:
      verilator:
        mode: lint-only
        verilator_options: [-Wno-WIDTH, -Wno-CASEINCOMPLETE, -Wno-CMPCONST, -Wno-UNSIGNED, -Wno-SYMRSVDWORD]

  # The node in its harness: fusesoc run --target synth --tool vivado|quartus|trellis
  synth:
    filesets:
      - rtl
      - harness
      - tool_vivado ? (vivado)
      - tool_quartus ? (quartus)
      - tool_trellis ? (trellis)
    toplevel: {module}_harness
    default_tool: trellis
    tools:
      vivado:
        part: xcu280-fsvh2892-2L-e
        pnr: none
      quartus:
        family: Arria 10
        device: 10AX115N3F40E2SG
      trellis:
        nextpnr_options: [--um5g-85k, --package, CABGA756, --speed, "8", --lpf-allow-unconstrained]
"""


def core(module: str, description: str) -> str:
    """Return the text of a ``.core`` file.

    It refers to Verilog, harness and constraints of ``module`` in its folder.
    """
    return _CORE.format(
        vendor=VENDOR,
        library=LIBRARY,
        module=module,
        version=__version__,
        description=json.dumps(description, ensure_ascii=False),  # a string of JSON is one of YAML
    )
