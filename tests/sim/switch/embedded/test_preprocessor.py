"""The preprocessor: macros, conditions, includes; and tokens with their places."""

from pathlib import Path

import pytest

from fanin.sim.switch.embedded import P4Error, Refused, load
from fanin.sim.switch.embedded.lexer import integer, tokens
from fanin.sim.switch.embedded.preprocessor import Preprocessor
from tests.support import slow


def words(text: str, folder: Path | None = None, **defines: str) -> str:
    return " ".join(t.text for t in Preprocessor([], defines).run(text, "text.p4", folder))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define A 1\nA B", "1 B"),
        ("#define A B\n#define B A\nA", "A"),
        ("#define F(x, y) x + y\nF(1, (2, 3)) F", "1 + ( 2 , 3 ) F"),
        ("#define F(x) [x]\n#define G(x) F(F(x))\nG(\n 1)", "[ [ 1 ] ]"),
        ("#define F (x)\nF", "( x )"),
        ("#define F() 7\nF()", "7"),
        ("#define A 1\n#undef A\nA", "A"),
        ("#define LONG 1 + \\\n 2\nLONG", "1 + 2"),
        ("#ifdef A\nx\n#else\ny\n#endif", "y"),
        ("#if GIVEN > 2 && !defined(OTHER)\nx\n#elif 1\ny\n#endif", "x"),
        ("#if 0\n#if 1\nx\n#else\ny\n#endif\n#elif (1 + 2) * 2 == 6\nz\n#else\nw\n#endif", "z"),
        ("#if 0\nisn't read\n#endif\nx // #if\n/* \n#if */ y", "x y"),
        ('@pragma stage 3 "x"\nx', "x"),
        ("#line 7\nx", "x"),
    ],
)
def test_what_is_left(text, expected):
    assert words(text, GIVEN="3") == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#else", "text.p4:1:2: #else without #if"),
        ("#if 1 +\n#endif", "#if: an operand is missing"),
        ("#define F(x) x\nF(1, 2)", "text.p4:2:1: F takes 1 arguments"),
        ("#define F(x) x\nF(1", "F: ) is missing"),
        ("#define F(x) #x", "# in a macro"),
        ("#frobnicate", "#frobnicate"),
        *slow(("\n".join(f"#define A{n} A{n + 1} A{n + 1}" for n in range(40)) + "\nA0", "macros that grow")),
    ],
)
def test_what_is_wrong(text, what):
    with pytest.raises(P4Error) as caught:
        words(text)
    assert what in str(caught.value)


def test_includes(tmp_path):
    (tmp_path / "inner.p4").write_text("b\n")
    assert words('a\n#include "inner.p4"\nc', tmp_path) == "a b c"
    assert "packet_in" in words("#include <core.p4>")
    with pytest.raises(Refused, match=r"text\.p4:2:2: #include of psa\.p4"):
        words("\n#include <psa.p4>")
    (tmp_path / "inner.p4").write_text('#include "inner.p4"\n#include "inner.p4"\n')
    with pytest.raises(P4Error, match="more than 256 includes"):
        words('#include "inner.p4"', tmp_path)


def test_an_error_in_an_included_file_has_its_place(tmp_path):
    (tmp_path / "types.p4").write_text("\nheader h { bit<8> a; bit<8> a; }\n")
    main = tmp_path / "main.p4"
    main.write_text('#include "types.p4"\n')
    with pytest.raises(P4Error, match=r"types\.p4:2:29: h has a twice"):
        load(main)


def test_places_count_from_1_and_see_through_comments():
    found = list(tokens("a /* \n */ b\n  8w0xF_F", "t"))
    assert [(t.text, t.position.line, t.position.column) for t in found if t.type != "NEWLINE"] == [
        ("a", 1, 1), ("b", 2, 5), ("8w0xF_F", 3, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", (31, None, False)),
        ("8w0b1010_1010", (170, 8, False)),
        ("4s7", (7, 4, True)),
        ("0o17", (15, None, False)),
        ("0d12", (12, None, False)),
    ],
)
def test_numbers(text, value):
    (token,) = tokens(text, "t")
    assert integer(token) == value


@pytest.mark.parametrize("text", ["4w16", "4s8", "0x_", "9" * 5000])
def test_numbers_that_are_none(text):
    (token,) = tokens(text, "t")
    with pytest.raises(P4Error):
        integer(token)
