"""Programs of Verilated models and C++: built once, in shared units; a failure has the compiler's words."""

import subprocess

import pytest

from fanin.base.errors import ToolFailed
from fanin.sim.cosim import program_build as module
from fanin.sim.cosim.program_build import VerilogModel, build_program

pytestmark = pytest.mark.verilator

WIDTHS = (3, 40)
MAIN = """
#include <cstdio>
{includes}
int main() {{ {body} return 0; }}
"""
SAY = 'V{width} m{width}; m{width}.i = 5; m{width}.eval(); printf("%llu ", (unsigned long long)m{width}.o);'


def models():
    text = "module inverter(i, o); input [{last}:0] i; output [{last}:0] o; assign o = ~i; endmodule\n"
    return [VerilogModel(f"V{width}", "inverter", text.format(last=width - 1)) for width in WIDTHS]


def sources():
    includes = "\n".join(f'#include "V{width}.h"' for width in WIDTHS)
    return {"main.cpp": MAIN.format(includes=includes, body="".join(SAY.format(width=w) for w in WIDTHS))}


def test_two_models_of_one_name_are_one_program(monkeypatch):
    program = build_program(models(), sources(), quiet=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(word) for word in said.split()] == [~5 & (1 << width) - 1 for width in WIDTHS]
    assert {path.name for path in program.parent.iterdir()} == {"main.cpp", program.name}
    monkeypatch.setattr(module, "_make", None)  # nothing is made again
    assert build_program(models(), sources(), quiet=True) == program


@pytest.mark.parametrize(
    ("least", "most", "included"), [(1000, 10_000, [4]), (100, 1000, [1, 3]), (100, 100, [1, 1, 1, 1])]
)
def test_units_are_as_many_as_cores_unless_there_is_little_or_much(
    tmp_path, monkeypatch, least, most, included
):
    for name, value in {"_CORES": 2, "_MIN_UNIT_BYTES": least, "_MAX_UNIT_BYTES": most}.items():
        monkeypatch.setattr(module, name, value)
    (tmp_path / module._MODELS).mkdir()
    for number, size in enumerate((10, 250, 20, 70)):
        (tmp_path / module._MODELS / f"part{number}.cpp").write_text("x" * size)
    assert [unit.read_text().count("#include") for unit in module._model_units(tmp_path)] == included


def test_the_compilers_words_are_shown():
    with pytest.raises(ToolFailed, match=r"main\.cpp:1:14: error: .nonsense. was not declared"):
        build_program([], {"main.cpp": "int main() { nonsense; }"}, quiet=True)
