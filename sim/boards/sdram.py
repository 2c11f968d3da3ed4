"""Model of SDRAM chips for the simulator, and its connection to a board's pins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.resources import files

from fanin.boards.sdram import Sdram, SdramTiming
from fanin.sim.boards.model import BoardModel

MODULE = "fanin_sdram"


def chips_verilog() -> str:
    """Return the Verilog of the module ``fanin_sdram``."""
    return (files("fanin.sim.boards") / "sdram.v").read_text()


def chip_parameters(sdram: Sdram, timing: SdramTiming) -> dict[str, int]:
    """Return the module's parameters: the chips' size, and their times in cycles."""
    sizes = {"banks": sdram.banks, "rows": sdram.rows, "columns": sdram.columns}
    return {name.upper(): value for name, value in (sizes | asdict(timing)).items()}


_PREFIX = "sdram_0_"  # Amaranth's prefix of the pins of a board's SDRAM


def with_chips(model: BoardModel, sdram: Sdram, timing: SdramTiming) -> BoardModel:
    """Return a board's model with chips at its SDRAM pins, which are then no longer ports.

    ``timing`` is in cycles of the core's clock. If the board breaks a rule of the chips, the simulation's
    process ends with a message.
    """
    inputs, outputs = (
        tuple(name for name in names if not name.startswith(_PREFIX)) for names in (model.inputs, model.outputs)
    )
    top = f"{model.top}_with_sdram"
    verilog = "\n".join(_wrapper(model, top, inputs, outputs, chip_parameters(sdram, timing)))
    return replace(
        model, top=top, verilog=model.verilog + chips_verilog() + verilog, inputs=inputs, outputs=outputs
    )


def _wrapper(
    model: BoardModel, top: str, inputs: Sequence[str], outputs: Sequence[str], parameters: dict[str, int]
) -> Iterator[str]:
    def declaration(kind: str, name: str) -> str:
        return f"{kind} [{model.widths[name] - 1}:0] {name}"

    ports = [declaration("input", name) for name in inputs] + [declaration("output", name) for name in outputs]
    yield f"module {top}({', '.join(ports)});"
    ports_of_board = (*model.inputs, *model.outputs)
    for name in sorted({*ports_of_board}.difference(inputs, outputs)):
        yield f"{declaration('wire', name)};"
    yield f"{model.top} board({', '.join(f'.{name}({name})' for name in ports_of_board)});"
    pins = {name: name for name in ("clk", "ba", "a")} | {f"{name}_n": name for name in ("ras", "cas", "we")}
    pins |= {"dq_i": "dq_o", "dq_o": "dq_i"}
    connections = [f".{pin}({_PREFIX}{name})" for pin, name in pins.items()]
    connections.append(f".driven({_PREFIX}dq_t == 0)")
    settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
    yield f"{MODULE} #({settings}) chips({', '.join(connections)});"
    yield "endmodule"
