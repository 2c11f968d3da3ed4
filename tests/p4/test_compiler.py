"""p4c takes the emitted programs: both targets, every encapsulation and protocol, small and large."""

import re
import shutil

import pytest

from fanin.base.errors import ToolFailed
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.compiler import COMPILERS, compile_program
from fanin.p4.emit import program_text
from fanin.wire.aggregation import Encap, Protocol

# (workers, slots, values)
SIZES = {
    Target.V1MODEL: [(1, 1, 1), (4, 32768, 8), (32, 65536, 32), (3, 64, 5)],
    Target.TNA: [(1, 256, 1), (4, 32768, 8), (32, 32768, 8), (8, 65536, 8), (32, 16384, 32), (2, 65536, 16)],
}
BACKENDS = {Target.V1MODEL: pytest.mark.needs("p4c"), Target.TNA: pytest.mark.needs("p4c-tofino")}
CASES = [
    pytest.param(
        ProgramConfig(
            target=target, encap=encap, protocol=protocol, workers=workers, slots=slots, values=values
        ),
        marks=BACKENDS[target],
    )
    for target, sizes in SIZES.items()
    for workers, slots, values in sizes
    for encap in Encap
    for protocol in Protocol
]


def _name(config):
    return f"{config.target}-{config.encap}-{config.protocol}-{config.workers}x{config.slots}x{config.values}"


@pytest.mark.p4c
@pytest.mark.parametrize("config", CASES, ids=_name)
def test_p4c_compiles_the_program(tmp_path, config):
    (tmp_path / "aggregation.p4").write_text(program_text(config))
    made = compile_program(config, tmp_path)
    assert made
    assert all(path.exists() for path in made)
    if config.target is Target.TNA:
        (assembly,) = made[0].glob("pipe/*.bfa")
        stages = re.findall(r"^stage \d+ (\w+):", assembly.read_text(), re.MULTILINE)
        assert stages.count("ingress") == config.stages
        assert stages.count("egress") <= 1


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A compiler that does what a test says, in front of PATH."""

    def install(script):
        program = tmp_path / "bin" / COMPILERS[Target.V1MODEL]
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        (tmp_path / "aggregation.p4").write_text("")
        return ProgramConfig()

    return install


def test_without_p4c_nothing_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compile_program(ProgramConfig(), tmp_path) == []
    assert shutil.which("p4c-bm2-ss") is None


def test_the_first_error_of_p4c_is_told(tmp_path, fake):
    config = fake('echo "aggregation.p4(7): [--Werror=x] error: no such thing" >&2; echo more >&2; exit 1')
    with pytest.raises(ToolFailed, match=r"rejected .*aggregation\.p4: aggregation\.p4\(7\).*no such thing$"):
        compile_program(config, tmp_path)


def test_a_compiler_that_hangs_is_stopped(tmp_path, fake, monkeypatch):
    monkeypatch.setattr("fanin.p4.compiler.LIMIT", 0.2)
    with pytest.raises(ToolFailed, match=r"did not finish in 0\.2 s"):
        compile_program(fake("exec sleep 60"), tmp_path)


def test_outputs_of_the_compiler_are_whole_or_those_of_the_program_before(tmp_path, fake):
    script = """
while [ $# -gt 1 ]; do
  case $1 in -o) output=$2;; --p4runtime-files) info=$2;; esac
  shift
done
echo new > $output
[ -s "$1" ] || exit 1
echo new > $info
"""
    config = fake(script)
    names = ("aggregation.json", "aggregation.p4info.txtpb")
    (tmp_path / "other").write_text("mine")
    (tmp_path / names[0]).symlink_to("other")
    (tmp_path / names[1]).write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ToolFailed):
        compile_program(config, tmp_path)
    assert (tmp_path / names[0]).is_symlink()
    assert (tmp_path / names[1]).read_text() == "old"
    (tmp_path / "aggregation.p4").write_text("program")
    assert compile_program(config, tmp_path) == [tmp_path / name for name in names]
    assert [(tmp_path / name).read_text() for name in names] == ["new\n", "new\n"]
    assert (tmp_path / "other").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
