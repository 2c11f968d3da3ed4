"""The table of a run's options: parser, Python arguments, checks, JSON and command line agree."""

import argparse
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path

import numpy as np
import pytest

from fanin.api.signature import stub, with_options
from fanin.base.errors import InputError
from fanin.cli.options import add_options
from fanin.glm.run.options import GlmOptions
from fanin.runs.file_options import FileOptions, file_options_of
from fanin.runs.option import (
    REQUIRED,
    FileUse,
    Group,
    Options,
    RunOptions,
    Trait,
    option,
    option_of,
    options_of,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


LINKS = Trait("links")
MAIN, SHELL = Group("main"), Group("shell", training=False)


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    depth: int | None = option(SHELL, None, "how deep", "D")


@dataclass(frozen=True, kw_only=True)
class Table(Base, RunOptions):
    data: str | None = option(MAIN, None, "a file", "DATA", positional=True, file_use=FileUse.INPUT)
    nodes: int = option(MAIN, 4, "how many", "N", low=2, high=64, aliases=("workers",))
    gbps: float = option(MAIN, 100.0, "rate of a link", "G", unit="Gb/s", trait=LINKS)
    colour: Colour = option(MAIN, Colour.RED, "which")
    size: str = option(MAIN, "s", "50 % of it", choices=("s", "l"))
    bias: bool = option(MAIN, True, "add a column")
    fast: bool = option(MAIN, False, "be quick")
    stop: tuple[str, ...] | None = option(MAIN, None, "who stops", "N:T")
    copy: Path | None = option(SHELL, None, "there, too", "FILE", file_use=FileUse.COPY)


def parsed(*words):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, Table)
    return Table.of(parser.parse_args(words))


def test_order_is_own_options_then_those_of_bases():
    names = "data nodes gbps colour size bias fast stop copy depth output"
    assert [each.name for each in options_of(Table)] == names.split()
    assert [each.name for each in options_of(Table) if not each.training] == ["copy", "depth", "output"]


def test_a_command_line_and_python_give_the_same():
    of_command = parsed(
        *("x.csv", "--nodes", "8", "--gbps=2.5", "--colour", "blue", "--no-bias", "--fast"),
        *("--stop", "1:2", "--stop", "2:3", "--copy", "c", "-o", "out", "--depth", "3"),
    )
    of_python = Table.read(
        {
            "data": Path("x.csv"),
            "nodes": np.int64(8),
            "gbps": 2.5,
            "colour": "blue",
            "bias": False,
            "fast": np.bool_(True),
            "stop": ["1:2", "2:3"],
            "copy": "c",
            "output": "out",
            "depth": 3,
        }
    )
    assert of_command == of_python
    assert (of_python.data, of_python.colour, of_python.stop) == ("x.csv", Colour.BLUE, ("1:2", "2:3"))
    assert type(of_python.nodes) is int
    assert of_python.output == Path("out")
    assert of_python.given == {each.name for each in options_of(Table)} - {"size"}


def test_words_parse_to_the_same_options():
    options = Table.read({"data": "-x", "nodes": 3, "bias": False, "stop": "1:2", "output": Path("-o")})
    again = parsed(*options.words())
    assert replace(again, given=options.given) == options
    assert options.words() == ["--nodes=3", "--no-bias", "--stop=1:2", "-o-o", "--", "-x"]
    assert Table(output=Path("out")).words() == ["-o", "out"]
    assert Table().words() == []


def test_an_argument_in_front_of_another_is_needed():
    @dataclass(frozen=True, kw_only=True)
    class Two(Options):
        first: str | None = option(MAIN, None, "the first", positional=True)
        second: str = option(MAIN, "s", "the second", positional=True)

    assert Two(first="a").words() == ["--", "a"]
    assert Two(first="a", second="b").words() == ["--", "a", "b"]
    with pytest.raises(InputError, match="second needs first before it"):
        Two(second="b").words()


def test_nothing_given_is_the_defaults():
    assert parsed() == Table() == Table.read({}) == Table.read({"nodes": None})


def test_json_has_every_option_and_plain_values():
    assert Table.read({"copy": "c", "stop": ["1:2"], "colour": "blue"}).as_json() == {
        "data": None,
        "nodes": 4,
        "gbps": 100.0,
        "colour": "blue",
        "size": "s",
        "bias": True,
        "fast": False,
        "stop": ["1:2"],
        "copy": "c",
        "depth": None,
        "output": None,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": 1}, "nodes must be in [2, 64], not 1"),
        ({"nodes": 65}, "nodes must be in [2, 64], not 65"),
        ({"nodes": "many"}, "nodes must be an integer, not 'many'"),
        ({"nodes": True}, "nodes must be an integer, not True"),
        ({"nodes": 2.0}, "nodes must be an integer, not 2.0"),
        ({"gbps": "10"}, "gbps must be a number, not '10'"),
        ({"bias": 1}, "bias must be True or False, not 1"),
        ({"colour": "green"}, "colour must be one of red, blue, not 'green'"),
        ({"size": "m"}, "size must be one of s, l, not 'm'"),
        ({"copy": 3}, "copy must be a path, not 3"),
        ({"stop": [None]}, "stop must be a text, not None"),
    ],
)
def test_python_arguments_of_another_kind_are_refused(given, message):
    with pytest.raises(InputError) as raised:
        Table.read(given)
    assert str(raised.value) == message


def test_an_unknown_name_is_a_type_error():
    with pytest.raises(TypeError, match=r"no option 'node'$"):
        Table.read({"node": 3})


@pytest.mark.parametrize("words", [["--nodes", "1"], ["--workers", "1"]])
def test_a_range_holds_on_a_command_line(words):
    with pytest.raises(InputError, match=r"nodes must be in \[2, 64\], not 1"):
        parsed(*words)


def test_an_earlier_name_is_taken_with_a_note(capsys):
    assert parsed("--workers", "8").nodes == 8
    assert capsys.readouterr().err == "fanin: note: --workers is --nodes now\n"
    parser = argparse.ArgumentParser()
    add_options(parser, Table)
    assert "--nodes" in parser.format_help()
    assert "--workers" not in parser.format_help()


def test_an_earlier_name_is_taken_in_python_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"^workers is nodes now$"):
        assert Table.read({"workers": 3}) == Table.read({"nodes": 3})
    with pytest.raises(TypeError, match="workers and nodes are the same option"):
        Table.read({"workers": 3, "nodes": 4})


def test_a_text_is_read_as_on_a_command_line():
    texts = {"nodes": "8", "gbps": "2.5", "colour": "blue", "stop": "1:2", "copy": "c"}
    options = {name: option_of(Table, name) for name in texts}
    found = {name: options[name].parse(text) for name, text in texts.items()}
    assert found == {"nodes": 8, "gbps": 2.5, "colour": Colour.BLUE, "stop": ("1:2",), "copy": Path("c")}
    for name, text, message in (
        ("nodes", "2.0", "an integer, not '2.0'"),
        ("bias", "1", "True or False, not '1'"),
    ):
        with pytest.raises(InputError, match=message):
            option_of(Table, name).parse(text)


def test_options_of_what_a_run_lacks_are_refused_where_they_are_given():
    Table.read({}).refuse({LINKS: "there are none"})
    with pytest.raises(InputError, match=r"^--gbps: there are none$"):
        parsed("--gbps", "100").refuse({LINKS: "there are none"})


def test_help_has_unit_and_default():
    help_of = {each.name: each.help for each in options_of(Table)}
    assert help_of["gbps"] == "rate of a link, in Gb/s (default: 100)"
    assert help_of["colour"] == "which (default: red)"
    assert (help_of["bias"], help_of["depth"]) == ("add a column", "how deep")


def test_places_become_the_files_of_a_command():
    assert file_options_of(Table) == FileOptions(("data",), "output", ("copy",), None)


def test_a_python_function_is_declared_by_the_table():
    @with_options(Table, required=("data",), excluded=("copy",))
    def run(data: str, **options: object) -> None:
        """Run."""

    found = {each.name: (str(each.annotation), each.default) for each in signature(run).parameters.values()}
    assert found["data"] == ("PathLike", Parameter.empty)
    assert found["nodes"] == ("int", 4)
    assert found["stop"] == ("Repeatable | None", None)
    assert found["colour"] == ("str", "red")
    assert "copy" not in found
    assert run.__doc__.startswith("Run.\n\nArguments:\n``data`` : a file.\n")
    assert "``size`` : 50 % of it (default: s). s, l.\n" in run.__doc__
    text = stub(run)
    assert text.startswith("def run(\n    data: PathLike,\n    *,\n    nodes: int = 4,\n")
    assert '    colour: str = "red",\n' in text
    compile(text, "stub", "exec")


def test_what_must_be_given_is():
    @dataclass(frozen=True, kw_only=True)
    class Needs(Options):
        output: Path = option(MAIN, REQUIRED, "where to", "DIR", short="-o")

    with pytest.raises(InputError, match=r"^output must be given$"):
        Needs.read({})
    assert Needs.read({"output": "x"}).output == Path("x")
    (only,) = options_of(Needs)
    assert (only.help, only.required) == ("where to", True)


def test_every_option_of_a_training_is_documented_by_its_meaning():
    assert all(each.meaning and not each.meaning.endswith(".") for each in options_of(GlmOptions))
