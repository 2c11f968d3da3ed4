"""Wrong P4 text, with its place; what is not implemented; and that no text whatever gets through as a crash."""

import random
import time

import pytest

from fanin.sim.switch.embedded import P4Error, Refused, load
from tests.support import new_seed

from .programs import PARTS, V1MODEL, send, v1model


def error(text: str) -> str:
    with pytest.raises(P4Error) as caught:
        load(text, "bad.p4")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("header h {\n  bit<8> a\n}", "bad.p4:3:1: syntax error at '}', expected ';' or '['"),
        ("header h { bit 8 a; }", "bad.p4:1:16: syntax error at '8', expected '<' or '[' or a name or a type"),
        (
            "const bit<8> A = 5\nconst bit<8> B = 6;",
            "bad.p4:2:1: syntax error at 'const', perhaps ';' is missing",
        ),
        ("header h { bit<8> a; ", "bad.p4:1:20: syntax error: the text ends too early"),
        ("const bit<8> a = b;", "bad.p4:1:18: b is not declared"),
        ("const bit<8> a = 1;\nconst bit<8> a = 2;", "bad.p4:2:14: a is declared twice"),
        ("const bit<8> a = 8w1 + 9w1;", "bad.p4:1:24: bit<9> where bit<8> is needed"),
        ("const bit<8> a = true;", "bad.p4:1:18: bool where bit<8> is needed"),
        ("const bit<8> a = 8w256;", "bad.p4:1:18: 8w256: the value does not fit in 8 bits"),
        ("struct s { nothing_t x; }", "bad.p4:1:12: nothing_t is not a declared type"),
        ("const bit<8> a = 16w5[3:4];", "bad.p4:1:18: slice [3:4]: the larger bound comes first"),
        ("const bool a = 8w1 < 8s1;", "bad.p4:1:22: int<8> where bit<8> is needed"),
        ("const bit<8> a = (bit<8>)16s1;", "bad.p4:1:19: no cast from int<16> to bit<8>"),
        ("const bit<8> a = 1 $ 2;", "bad.p4:1:20: unexpected character '$'"),
        ("const bit<8> a = ٣;", "bad.p4:1:18: unexpected character '٣'"),
        ("const bit<8> a² = 1;", "bad.p4:1:15: unexpected character '²'"),
        ("typedef bit<8193> t;", "bad.p4:1:13: must be 0 to 8192, not 8193"),
        (f"const bit<8> a = 0x{'f' * 2049};", "bad.p4:1:18: a number of more than 2048 digits"),
        ("const bit<8> a = 8193w0;", "bad.p4:1:18: a number of more than 8192 bits"),
        (f"const bit<8> a = {'9' * 5000}w0;", "bad.p4:1:18: a number of more than 8192 bits"),
        ("const bit<8> a = (8192w1 ++ 1w1)[7:0];", "bad.p4:1:19: a number of more than 8192 bits"),
        ("#if 0x" + "f" * 2048 + " * 2\n#endif", "bad.p4:1:2: #if: a value of more than 8,192 bits"),
        ("#if 1\nconst bit<8> a = 1;", "bad.p4:1:2: #if without #endif"),
        ("#error no such thing", "bad.p4:1:2: #error no such thing"),
        ("#include <nothing.p4>", "bad.p4:1:2: #include of nothing.p4: it is in no folder of -I, and of no"),
        ("", "bad.p4:1:1: there is no package instance main"),
    ],
)
def test_a_wrong_text_is_refused_with_its_place(text, message):
    assert error(text).startswith(message)


def _doubled(first: str, line: str, count: int = 40) -> str:
    """``first``, then a line per number {0}, which doubles what line {1}, the one before it, declares."""
    return "\n".join([first, *(line.format(number, number - 1) for number in range(1, count))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            _doubled("const int a0 = 3;", "const int a{0} = a{1} * a{1};"),
            "a number without width that has more than 8192 bits",
        ),
        (
            _doubled("struct s0 { bit<8> a; }", "struct s{0} {{ s{1} a; s{1} b; }}"),
            "a type of more than 65536 values",
        ),
        (
            _doubled("typedef tuple<bit<8>> t0;", "typedef tuple<t{1}, t{1}> t{0};"),
            "a type of more than 65536 values",
        ),
        (
            "struct g<T> { T a; T b; }\n"
            + _doubled("struct s { bit<8> a; } typedef g<s> t0;", "typedef g<t{1}> t{0};"),
            "a type of more than 65536 values",
        ),
        (
            _doubled(
                "bit<8> f0(in bit<8> x) { return x; }",
                "bit<8> f{0}(in bit<8> x) {{ return f{1}(f{1}(x)); }}",
            ),
            "calls within calls: more than 16384",
        ),
        (
            _doubled(
                "control c0() { apply { } }", "control c{0}() {{ c{1}() a; apply {{ a.apply(); a.apply(); }} }}"
            ),
            "calls within calls: more than 16384",
        ),
    ],
    ids=["numbers", "structs", "tuples", "generic structs", "functions", "controls"],
)
def test_a_short_text_that_means_much_is_refused_at_once(text, message):
    """Each of 39 lines doubles what the line before it is: 2**39 of it in all."""
    assert message in error(text)


@pytest.mark.parametrize(
    "line",
    [
        "struct s{0} {{ s{1} a; s{1} b; }}",
        "typedef tuple<s{1}, s{1}> s{0};",
        "struct s{0} {{ s{1} a; tuple<s{1}> b; }}",
        "struct u{0} {{ s{1} a; s{1} b; }} type u{0} s{0};",
    ],
    ids=["structs", "tuples", "both", "types"],
)
def test_types_without_fields_count(line):
    assert "a type of more than 65536 values" in error(_doubled("struct s0 { }", line))


@pytest.mark.parametrize(
    "text",
    [
        "extern bit<8> f<T>(in T a); control c(in bit<8> a) { apply { " + "f<" * 20_000 + " } }",
        "extern bit<8> f<T>(in T a); const bit<8> c = " + "f<a> b " * 20_000,
        "control c<T>(in T a, " * 20_000,
    ],
    ids=["comparisons", "arguments", "parameters"],
)
def test_a_long_text_is_read_in_linear_time(text):
    began = time.process_time()
    error("#include <core.p4>\n" + text)
    assert time.process_time() - began < 10


BIG = (
    "header n_t { "
    + " ".join(f"bit<8192> f{number};" for number in range(64))
    + " } struct big { n_t[256] s; }"
)


@pytest.mark.parametrize(
    "parts",
    [
        {"apply": "big one; big two;"},
        {"locals": "big one; big two;"},
        {"metadata": "big one; big two;"},
        {
            "declarations": "bit<8> f(in big one, in big two) { return 1; }",
            "apply": "big a; hdr.h.a = f(a, a);",
        },
    ],
    ids=["variables", "of a control", "metadata", "parameters"],
)
def test_values_of_variables_have_a_bound(parts):
    """Each value of these types takes 1 KiB; loops can give each its own."""
    parts["declarations"] = f"{PARTS['declarations']} {BIG} {parts.get('declarations', '')}"
    with pytest.raises(P4Error, match=r"^test.p4:\d+:\d+: parameters and variables have more than 4,194,304"):
        v1model(**parts)


def test_fields_of_all_types_together_have_a_bound():
    flat = "struct s { " + " ".join(f"bit<1> f{number};" for number in range(30_000)) + " }"
    headers = " ".join(f"header h{number} {{ s a; }}" for number in range(10))
    apply = " ".join(f"h{number} v{number};" for number in range(10))
    with pytest.raises(
        P4Error, match="a program with more than 262,144 fields of headers, structs and tuples is not"
    ):
        v1model(declarations=f"{PARTS['declarations']} {flat} {headers}", apply=apply)


def test_the_widest_numbers_are_computed():
    one = "01020304"
    apply = "bit<8192> x = -1; x = x + 2; x = x << 8191 | 8192w0x" + "f" * 2047 + "; hdr.h.a = x[8191:8184];"
    assert send(v1model(apply=apply).switch(), one) == [(0, "8f020304")]


def test_instances_of_controls_have_a_bound():
    nested = _doubled("control c0() { apply { } }", "control c{0}() {{ c{1}() a; c{1}() b; apply {{ }} }}")
    text = V1MODEL.format(**{**PARTS, "locals": "c39() all;"}).replace("control I(", f"{nested}\ncontrol I(", 1)
    assert "more than 4096 instances of controls and parsers" in error(text)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"apply": "hdr.h.x = 1;"}, "h_t has no field x"),
        ({"apply": "hdr.h.a = hdr.h;"}, "h_t where bit<8> is needed"),
        ({"apply": "hdr.h.a = 1 + true;"}, "where"),
        ({"apply": "nothing();"}, "nothing is not declared"),
        ({"apply": "hdr.h.setValid(1);"}, "has no method setValid of 1 arguments"),
        ({"apply": "hdr.setValid();"}, "has no method setValid"),
        ({"deparser": "hdr.h.a = 1;"}, "cannot be written"),
        ({"parser": "state start { transition nowhere; }"}, "there is no state nowhere"),
        ({"parser": "state begin { transition accept; }"}, "has no state start"),
        ({"parser": "state start { exit; transition accept; }"}, "exit is not allowed here"),
        ({"locals": "table t { actions = { missing; } }"}, "missing is not declared"),
        ({"locals": "action a(bit<8> x) {} table t { actions = { a; } default_action = a(); }"}, "takes 1"),
        ({"locals": "table t { key = { hdr.h.a: fuzzy; } actions = { NoAction; } }"}, "no match kind fuzzy"),
        ({"locals": "action a() { t.apply(); }", "apply": "a();"}, "t is not declared"),
        ({"locals": "register<bit<8>>(4) r;", "apply": "r.read(hdr.h.a);"}, "takes 1 arguments"),
        ({"locals": "register<bit<8>>(4) r;", "apply": "r.read(hdr.h, 0);"}, "h_t where bit<8> is needed"),
        ({"apply": "mark_to_drop(meta);"}, "metadata_t where standard_metadata_t is needed"),
        ({"apply": "bit<8> x = 1; bit<8> x = 2;"}, "x is declared twice"),
        ({"apply": "hdr.h.a + 1;"}, "syntax error"),
    ],
)  # fmt: skip
def test_a_type_error_is_refused_with_its_place(parts, what):
    with pytest.raises(P4Error, match=r"^test\.p4:\d+:\d+: ") as caught:
        v1model(**parts)
    assert what in str(caught.value)


OWN = "extern void own(in bit<8> x);"


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"parser": "value_set<bit<8>>(4) s; state start { transition accept; }"}, "a value_set"),
        ({"declarations": PARTS["declarations"] + OWN, "apply": "own(hdr.h.a);"}, "the extern function own"),
        ({"locals": "table t { actions = { NoAction; } colour = 3; }"}, "the table property colour"),
        (
            {"declarations": PARTS["declarations"] + "T same<T>(in T x) { return x; }"},
            "a function with type parameters",
        ),
        ({"apply": "tuple<bit<8>> t = {1}; t[0] = 2;"}, "writing an element of a tuple"),
        ({"metadata": "bit<8> m; bit<8>[4] list;"}, "an array of bit<8>"),
        ({"metadata": "bit<8> m; bit<8> list[4];"}, "an array's size after its name (list[...])"),
        ({"declarations": PARTS["declarations"] + "typedef tuple<match_kind> k_t;"}, "match_kind as a type"),
        ({"apply": "hdr.h.a = (bit<8>)((int)hdr.h.b + 1);"}, "an int whose value is not known at compile time"),
        ({"apply": "hdr.h.a = hdr.h.b[4+:2];"}, "a slice [base +: width]"),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused_with_its_place(parts, what):
    with pytest.raises(Refused, match=r"^test\.p4:\d+:\d+: ") as caught:
        v1model(**parts)
    assert str(caught.value).endswith(f": {what} is not supported here")


def test_an_unknown_architecture_is_refused():
    text = "control C(); package Other(C c); control D() { apply {} } Other(D()) main;"
    with pytest.raises(Refused, match="architecture Other"):
        load(text)


def test_a_deeply_nested_text_is_refused_and_no_crash():
    with pytest.raises(P4Error):
        v1model(apply="hdr.h.a = " + "~" * 5000 + "hdr.h.b;")


WHOLE = V1MODEL.format(
    **{
        **PARTS,
        "locals": "register<bit<8>>(4) r; action a(bit<8> v) { hdr.h.a = v; exit; } table t { key = { hdr.h.b: "
        "ternary; hdr.g.isValid(): exact; } actions = { a; NoAction; } "
        "const entries = { (1 &&& 3, true): a(1); "
        "(_, false): a(2); } default_action = NoAction(); }",
        "apply": "if (t.apply().hit && hdr.h.c[3:0] != 4w2) { r.write(0, hdr.h.a |+| 1); } else { bit<8> x; "
        "r.read(x, (bit<32>)hdr.h.b); hdr.h.b = (bit<8>)((int<8>)x >> 2); }",
    }
)


def test_mutated_programs_end_in_a_program_or_an_error():
    """Nothing but P4Error comes out of the front end, and nothing but Refused out of a run."""
    rng = random.Random(new_seed())
    pieces = WHOLE.split(" ")
    lines: list[str] = []
    for _ in range(60):
        text = list(pieces)
        for _ in range(rng.randint(1, 3)):
            index = rng.randrange(len(text))
            change = rng.randrange(4)
            if change == 0:
                del text[index]
            elif change == 1:
                text.insert(index, rng.choice(pieces))
            elif change == 2:
                text[index] = rng.choice(
                    ("{", "}", "<", ">>", "(", "8w3", "hdr", ";", "bit<8>", "@name(", "0x", '"')
                )
            else:
                word = text[index]
                cut = rng.randrange(len(word) + 1)
                text[index] = word[:cut] + rng.choice('{}();<>=+-&|.:#@~"\\\n0z') + word[cut:]
        try:
            load(" ".join(text)).switch().process(0, bytes(8))
        except P4Error as caught:
            lines.append(str(caught))
    assert lines
    assert all(".p4:" in line and "internal error" not in line for line in lines)
