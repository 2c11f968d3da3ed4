"""The preprocessor: macros, conditions, includes; and tokens with their places."""

import os
from pathlib import Path

import pytest

from fanin.sim.switch.embedded import P4Error, Refused, load, preprocessor
from fanin.sim.switch.embedded.classify import Classifier
from fanin.sim.switch.embedded.errors import Position
from fanin.sim.switch.embedded.lexer import Token, integer, tokens
from fanin.sim.switch.embedded.preprocessor import MAX_TEXT, Preprocessor
from tests.support import slow

from .programs import PARTS, V1MODEL, send


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
        ('# 7 "other.p4" 1\nx', "x"),
        # Expected: what GNU cpp makes of it.
        ('#define S(x) #x\nS(a  +  "q" b)', r'"a + \"q\" b"'),
        ("#define V 7\n#define P(a, b) a##b\nP(foo, V) P(x, 2)", "fooV x2"),
        ("#define Q(n) reg ## n.f\nQ(3)", "reg3 . f"),
        (
            "#define V 7\n#define S(x) #x\n#define P(a, b) a##b\n#define E(x) P(x, 1) S(x) S(V)\nE(V)",
            '71 "7" "V"',
        ),
        ("#define P(a, b) a##b\nP(<, <)", "<<"),
        ("#define D(a) h.##a\nD(k)", "h . k"),
        ("#define JOIN x ## y\nJOIN", "xy"),
        ("\ufeff#define A 1\nA", "1"),
        ("#if (GIVEN << 2) > 11 && GIVEN >> 1 == 1\nx\n#endif", "x"),
        ("#if -7 / 2 == -3 && -7 % 2 == -1 && ~0 == -1 && +1\nx\n#endif", "x"),
        ("#if 0 ? 1 : GIVEN == 3 ? 2 : 0\nx\n#endif", "x"),
        ("#if 1 + 1 << 2 != 8\ny\n#else\nx\n#endif", "x"),
        ("#if true\ny\n#else\nx\n#endif", "x"),
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
        ("#define F(x) #y\nF(1)", "F: # needs a parameter behind it"),
        ("#define F(x) x ##", "#define: ## needs a token on each side"),
        ("#define F ## x", "#define: ## needs a token on each side"),
        ("#frobnicate", "the directive #frobnicate is not supported here"),
        ("#if 1\n" * 257, "text.p4:257:2: #if nested deeper than 256"),
        ("#if 1 / 0\n#endif", "#if: / by 0"),
        ("#if 1 << 65\n#endif", "#if: a shift by 65"),
        ("#if 1" + " << 64" * 256 + "\n#endif", "#if: a value of more than 8,192 bits"),
        ("#if 1 ? 2\n#endif", "#if: : is missing"),
        ("#if 1 > > 2\n#endif", "#if: unexpected >"),
        *slow(("\n".join(f"#define A{n} A{n + 1} A{n + 1}" for n in range(40)) + "\nA0", "macros that grow")),
    ],
)
def test_what_is_wrong(text, what):
    with pytest.raises(P4Error) as caught:
        words(text)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "#define A0\n" + "".join(f"#define A{n + 1} A{n} A{n}\n" for n in range(40)) + "A40",
        "#define B " + "b " * 500 + "\n#define N(x)\n" + "N(B) " * 50,
        "#define P " + " ## ".join(["a"] * 3000) + "\nP",
        "#define S(x) #x\n#define X(x) S(x)\n" + "X(" * 40 + r'"\\"' + ")" * 40,
        "#define D(x) x##x\n#define E(x) D(x)\n" + "E(" * 40 + "a" + ")" * 40,
        "#define F(x) 0\n#if " + "F(" * 20 + "; " * 1000 + ")" * 20 + "\n#endif",
    ],
    ids=["to nothing", "unused", "pasted", "in quotes", "doubled", "arguments"],
)
def test_macros_that_grow_without_bound_end_in_one_line(monkeypatch, text):
    monkeypatch.setattr(preprocessor, "_MAX_MACRO_TOKENS", 10_000)
    monkeypatch.setattr(preprocessor, "_MAX_MACRO_CHARACTERS", 100_000)
    with pytest.raises(
        P4Error, match=r"^text\.p4:\d+:\d+: macros that grow to more than 10,000 tokens or 100,000"
    ):
        words(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("\n\n" + "x" * MAX_TEXT, "text.p4:3:1: more than 8,388,608 characters, with all includes"),
        ("x " * 30 + "\n" + "y " * 71, "text.p4:2:141: more than 100 tokens"),
        ("#define M " + "x " * 50 + "\nM M\n#ifdef M\ny\n#endif", "text.p4:4:1: more than 100 tokens"),
        ("#define M " + "x " * 200, "text.p4:1:205: more than 100 tokens"),
        ("#if 0\n" + "x " * 200 + "\n#endif", "text.p4:2:195: more than 100 tokens"),
    ],
    ids=["text", "tokens", "tokens of macros", "tokens of a macro's body", "unread tokens"],
)
def test_texts_without_bound_end_in_one_line(monkeypatch, text, what):
    monkeypatch.setattr(preprocessor, "MAX_TOKENS", 100)
    with pytest.raises(P4Error) as caught:
        words(text)
    assert str(caught.value) == what


def test_a_file_and_its_includes_are_bounded_together(tmp_path):
    half = "/" * 2 + "x" * (MAX_TEXT // 2)
    (tmp_path / "inner.p4").write_text(half)
    main = tmp_path / "main.p4"
    main.write_text('#include "inner.p4"\n' + half)
    with pytest.raises(P4Error, match=r"inner\.p4:1:1: more than 8,388,608 characters, with all includes$"):
        load(main)
    with pytest.raises(P4Error, match=r"^/dev/zero:1:1: more than 8,388,608 characters, with all includes$"):
        load(Path("/dev/zero"))


def test_tokens_of_a_file_and_its_includes_are_counted_as_they_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr(preprocessor, "MAX_TOKENS", 100)
    (tmp_path / "inner.p4").write_text("#define A " + "x " * 50 + "\n")
    with pytest.raises(P4Error, match=r"text\.p4:2:93: more than 100 tokens$"):
        words('#include "inner.p4"\n#define B ' + "x " * 100, tmp_path)

    def endless(text, file):
        for number in range(200):
            assert number <= 101
            yield Token("OP", ";", Position(file, 1, number + 1))

    monkeypatch.setattr(preprocessor, "tokens", endless)
    with pytest.raises(P4Error, match=r"text\.p4:1:101: more than 100 tokens$"):
        words(";")


def test_a_pasted_text_of_very_many_tokens_ends_in_one_line(monkeypatch):
    monkeypatch.setattr(preprocessor, "_MAX_MACRO_TOKENS", 1000)
    made = []
    monkeypatch.setattr(preprocessor, "tokens", lambda *text: (made.append(1) or t for t in tokens(*text)))
    with pytest.raises(P4Error, match="macros that grow to more than 1,000 tokens"):
        words('#define P(a, b) a ## b\n#define I(a, b) P(a, b)\n#define Q "\nI(Q, "' + ";" * 5000 + '")')
    assert len(made) < 2000


def test_a_row_of_enums_is_read_once(monkeypatch):
    looks = []
    text = Classifier._text
    monkeypatch.setattr(Classifier, "_text", lambda *arguments: looks.append(1) or text(*arguments))
    Classifier(list(tokens("enum " * 1000, "t"))).run()
    assert len(looks) < 20_000


def test_braces_nested_too_deeply_are_refused():
    Classifier(list(tokens("{" * 256, "t"))).run()
    with pytest.raises(Refused, match=r"^t:1:257: a text nested this deep is not supported here$"):
        Classifier(list(tokens("{" * 257, "t"))).run()


def test_includes(tmp_path):
    (tmp_path / "inner.p4").write_text("b\n")
    assert words('a\n#include "inner.p4"\nc', tmp_path) == "a b c"
    assert "packet_in" in words("#include <core.p4>")
    with pytest.raises(Refused, match=r"text\.p4:2:2: #include of psa\.p4"):
        words("\n#include <psa.p4>")
    (tmp_path / "inner.p4").write_text('#include "inner.p4"\n#include "inner.p4"\n')
    with pytest.raises(P4Error, match="more than 256 includes"):
        words('#include "inner.p4"', tmp_path)


def test_an_include_never_waits(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="#include of pipe: it is in no folder"):
        words('#include "pipe"', tmp_path)
    assert words('a\n#include "/proc/version"\nb', tmp_path) == "a b"  # without a size: never read


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


def test_a_comment_without_an_end_is_an_error_at_once():
    with pytest.raises(P4Error, match=r"^t:2:3: a comment that does not end"):
        list(tokens("a // /*\nb /***" + "*" * 2_000_000, "t"))


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


TARGET = """
#ifdef __TARGET_TOFINO__
const bit<8> TARGET = __TARGET_TOFINO__;
#elif defined(__TARGET_BMV2__)
const bit<8> TARGET = 2;
#else
const bit<8> TARGET = OTHER;
#endif
"""


@pytest.mark.parametrize(("defines", "target"), [({}, "02"), ({"__TARGET_X__": "1", "OTHER": "7"}, "07")])
def test_the_macro_of_the_target_is_that_of_bmv2_unless_one_is_given(defines, target):
    parts = {"declarations": TARGET + PARTS["declarations"], "apply": "hdr.h.a = TARGET;"}
    text = V1MODEL.format(**PARTS | parts)
    assert send(load(text, "test.p4", defines=defines).switch(), "01020304") == [(0, f"{target}020304")]


def test_the_macro_of_the_target_is_that_of_tofino_for_its_architecture():
    """Which architecture is included may depend on it, too: then BMv2 comes first."""
    tna = "#include <tna.p4>\n#ifdef __TARGET_TOFINO__\n#error for Tofino\n#endif\n"
    with pytest.raises(P4Error, match=r"^test\.p4:3:2: #error for Tofino$"):
        load(tna, "test.p4")
    either = "#ifdef __TARGET_BMV2__\n#include <v1model.p4>\n#error for BMv2\n"
    either += "#else\n#include <tna.p4>\n#endif\n"
    with pytest.raises(P4Error, match="#error for BMv2"):
        load(either, "test.p4")
    with pytest.raises(P4Error, match="there is no package instance main"):
        load(either, "test.p4", defines={"__TARGET_TOFINO__": "1"})


def test_the_macros_of_p4c():
    with pytest.raises(P4Error, match="#error p4c of version 1"):
        load("#if __p4c__ && __p4c_major__ == 1\n#error p4c of version 1\n#endif\n", "test.p4")
