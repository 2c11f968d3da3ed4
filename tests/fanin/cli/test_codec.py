"""``fanin codec``: files there and back, statistics, checks, and every kind of bad input."""

import json
import os
import struct

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.codec.facts import MAX_BOUND, MIN_BOUND, Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import codecs, inceptionn
from fanin.codec.golden.file import PIECE_VALUES
from fanin.codec.golden.samples import samples
from fanin.codec.run.measure import Meter
from fanin.codec.run.options import parse_bound
from fanin.sim.codec import gradients


def _run(capsys, *arguments):
    status = main(["codec", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def _refused(capsys, *arguments):
    """The one line with which a command is refused."""
    status, out, err = _run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("fanin: error: ").rstrip("\n")


@pytest.fixture
def values(tmp_path):
    """A file of 1000 values, and the values."""
    own = samples(1000, 5)
    own.tofile(tmp_path / "values")
    return tmp_path / "values", own


def _same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize(
    ("options", "config", "header"),
    [
        (["--codec", "inceptionn"], Inceptionn(), "46414e43 01 01 0a 01"),
        (
            ["--codec", "inceptionn", "--bound", "2^-6", "--mode", "published", "--group", "16"],
            Inceptionn(6, Mode.PUBLISHED, 16),
            "46414e43 01 01 06 80",
        ),
        (["--codec", "bfp"], Bfp(), "46414e43 01 02 10 07"),
        (["--codec", "bfp", "--block", "4", "--mantissa", "12"], Bfp(4, 12), "46414e43 01 02 04 0c"),
        (["--codec", "bfp", "--exponent", "5"], Bfp(16, 7, 5), "46414e43 01 02 04 37"),
        (["--codec", "bfp", "--exponent", "4", "--offset", "7"], Bfp(16, 7, 4, 7), "46414e43 01 02 3c 47"),
        (["--codec", "mx"], Mx(), "46414e43 01 03 20 00"),
        (
            ["--codec", "mx", "--element", "e2m1", "--block", "16", "--rounding", "stochastic"],
            Mx(Element.E2M1, 16, Rounding.STOCHASTIC),
            "46414e43 01 03 10 84",
        ),
        (["--codec", "bf16"], Bf16(), "46414e43 01 04 00 00"),
        (["--codec", "fp16", "--rounding", "stochastic"], Fp16(Rounding.STOCHASTIC), "46414e43 01 05 00 80"),
    ],
)
def test_a_file_goes_there_and_back_as_its_header_says(capsys, values, tmp_path, options, config, header):
    path, own = values
    status, out, err = _run(capsys, "encode", *options, path, tmp_path / "small")
    assert (status, out) == (0, "")
    stream = codecs.encode(own, config)
    assert (tmp_path / "small").read_bytes() == bytes.fromhex(header) + struct.pack("<Q", 1000) + stream
    assert err.splitlines()[-1].startswith(
        f"{tmp_path / 'small'}: 1,000 values in {len(stream) + 16:,} bytes, "
    )
    for given in [], options:
        assert _run(capsys, "decode", *given, tmp_path / "small", tmp_path / "back")[0] == 0
        assert _same(np.fromfile(tmp_path / "back", dtype="<f4"), codecs.roundtrip(own, config))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "small", "values"]


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (Inceptionn(), []),
        (Bfp(), []),
        (Mx(rounding=Rounding.STOCHASTIC), ["--rounding", "stochastic", "--seed", "77"]),
        (Bf16(Rounding.STOCHASTIC), ["--rounding", "stochastic", "--seed", "77"]),
    ],
    ids=str,
)
def test_a_file_of_several_pieces_is_coded_as_one(capsys, tmp_path, config, options):
    own = samples(2 * PIECE_VALUES + 77, 6)
    own.tofile(tmp_path / "values")
    paths = tmp_path / "values", tmp_path / "small"
    assert _run(capsys, "encode", "--codec", config.kind, *options, *paths)[0] == 0
    assert (tmp_path / "small").read_bytes()[16:] == codecs.encode(own, config, 77)
    assert _run(capsys, "decode", tmp_path / "small", tmp_path / "small")[0] == 0  # onto itself
    assert _same(np.fromfile(tmp_path / "small", dtype="<f4"), codecs.roundtrip(own, config, 77))


def test_bounds_are_powers_of_two():
    for bound in range(MIN_BOUND, MAX_BOUND + 1):
        assert parse_bound(f"2^-{bound}") == parse_bound(str(2.0**-bound)) == bound
    for text in ("10", "1", "0", "0.001", "2^-16", "2^-0", "2^10", "-0.5", "nan", "inf", "", "2^-", "2^-9999"):
        with pytest.raises(InputError, match="must be a power of two, 2\\^-15 to 2\\^-1"):
            parse_bound(text)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "the following arguments are required: --codec"),
        (["--codec", "gzip"], "argument --codec: invalid choice: 'gzip'"),
        (["--codec", "inceptionn", "--bound", "0.3"], "--bound 0.3: must be a power of two, 2^-15 to 2^-1"),
        (["--codec", "inceptionn", "--group", "9"], "argument --group: invalid choice: 9"),
        (["--codec", "inceptionn", "--block", "16"], "--block is a parameter of bfp and mx, not of inceptionn"),
        (["--codec", "bfp", "--mode", "strict"], "--mode is a parameter of inceptionn, not of bfp"),
        (["--codec", "bfp", "--block", "5"], "block must be one of 4, 8, 16, 32, 64, not 5"),
        (["--codec", "bfp", "--mantissa", "2"], "mantissa must be 3 to 15 bits, not 2"),
        (["--codec", "bfp", "--exponent", "0"], "exponent must be 1 to 8 bits, not 0"),
        (["--codec", "bfp", "--exponent", "9"], "exponent must be 1 to 8 bits, not 9"),
        (["--codec", "bfp", "--exponent", "5", "--offset", "32"], "offset must be 0 to 31, not 32"),
        (["--codec", "bfp", "--offset", "3"], "offset must be 0 with an exponent of 8 bits, not 3"),
        (["--codec", "inceptionn", "--exponent", "5"], "--exponent is a parameter of bfp, not of inceptionn"),
        (["--codec", "mx", "--element", "e9"], "argument --element: invalid choice: 'e9'"),
        (["--codec", "mx", "--block", "8"], "block must be one of 16, 32, 64, not 8"),
        (["--codec", "bf16", "--element", "e4m3"], "--element is a parameter of mx, not of bf16"),
        (["--codec", "bfp", "--rounding", "nearest"], "--rounding is a parameter of mx and bf16 and fp16, not"),
        (["--codec", "bf16", "--seed", "0"], "--seed 0: must be 1 to 4,294,967,295"),
    ],
)
def test_bad_options_are_refused(capsys, values, tmp_path, options, complaint):
    assert _refused(capsys, "encode", *options, values[0], tmp_path / "out").startswith(complaint)
    assert not (tmp_path / "out").exists()


def test_bad_input_is_refused(capsys, tmp_path):
    def refused(content):
        path = tmp_path / "in"
        path.write_bytes(content)
        line = _refused(capsys, "encode", "--codec", "bfp", path, tmp_path / "out")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]
        return line.removeprefix(f"{path}: ")

    assert refused(b"") == "is empty"
    assert refused(bytes(1023)) == "has 1,023 bytes, which is not a multiple of 4"
    encode = ["encode", "--codec", "bfp"]
    missing = tmp_path / "missing"
    assert _refused(capsys, *encode, missing, tmp_path / "out").endswith(
        f"{missing}: cannot be read: No such file or directory"
    )
    assert _refused(capsys, *encode, tmp_path, tmp_path / "out") == f"{tmp_path}: is not a regular file"
    os.mkfifo(tmp_path / "pipe")
    assert _refused(capsys, "stats", tmp_path / "pipe") == f"{tmp_path / 'pipe'}: is not a regular file"
    (tmp_path / "in").write_bytes(bytes(8))
    assert (
        _refused(capsys, *encode, tmp_path / "in", tmp_path) == f"{tmp_path}: cannot be written: Is a directory"
    )
    below = tmp_path / "in" / "out"
    assert _refused(capsys, *encode, tmp_path / "in", below).startswith(f"{below}: cannot be written: ")


def test_bad_compressed_files_are_refused(capsys, values, tmp_path):
    small, out = tmp_path / "small", tmp_path / "out"
    assert _run(capsys, "encode", "--codec", "inceptionn", values[0], small)[0] == 0
    good = small.read_bytes()

    def refused(content, *options):
        small.write_bytes(content)
        line = _refused(capsys, "decode", *options, small, out)
        assert not out.exists()
        return line.removeprefix(f"{small}: ")

    def patched(at, *numbers):
        return good[:at] + bytes(numbers) + good[at + len(numbers) :]

    assert refused(b"") == "is empty"
    assert refused(b"FAN") == "ends after 3 bytes, within its header of 16"
    assert refused(b"fanc" + good[4:]) == "is not a file of fanin codec: it begins with b'fanc', not b'FANC'"
    assert refused(good[:15]) == "ends after 15 bytes, within its header of 16"
    assert refused(patched(4, 2)) == "has version 2 of the file format; this is version 1"
    assert (
        refused(patched(5, 6)) == "has codec 6; known are 1 (inceptionn), 2 (bfp), 3 (mx), 4 (bf16), 5 (fp16)"
    )
    assert refused(patched(6, 16)).startswith("has invalid parameters: bound must be from")
    assert refused(patched(7, 2)).startswith("has invalid parameters: 2 is not a valid Mode")
    assert refused(patched(5, 2, 17)).startswith("has invalid parameters: block must be one of")
    assert refused(patched(5, 2, 4, 0x87)).endswith("exponent must be 1 to 8 bits, not 0")
    assert refused(patched(5, 2, 7, 0x37)).endswith("block must be one of 4, 8, 16, 32, 64, not 128")
    assert refused(patched(5, 3, 32, 6)).endswith("number of an element must be below 6, not 6")
    assert refused(patched(5, 4, 1, 0)).endswith("parameters must be 0 and 0 or 128, not 1 and 0")
    assert refused(patched(8, 0, 0)) == "holds no values"
    size = len(good) - 16
    assert refused(patched(8, *[255] * 8)).startswith(f"has {size:,} bytes after its header, but 18,446,744,")
    assert refused(patched(5, 2, 16, 7)) == f"has {size:,} bytes after its header, but 1,000 values take 1,071"
    assert refused(good[:-1]) == "the stream ends within values 0 to 999"
    assert refused(good + b"\0") == "has bytes after its 1,000 values"
    whole = "is inceptionn, 2^-10, strict, group 8"
    assert refused(good, "--codec", "bfp") == f"{whole}; --codec says otherwise"
    assert refused(good, "--bound", "2^-9") == f"{whole}; --bound says otherwise"
    assert refused(good, "--mode", "published") == f"{whole}; --mode says otherwise"
    assert refused(good, "--mantissa", "7") == f"{whole}; --mantissa says otherwise"


def test_statistics_say_what_the_codecs_make_of_a_file(capsys, tmp_path):
    own = np.array([0, 2.0**-11, 2.0**-4, 0.3, -3, np.inf, np.nan, 0.5], dtype=np.float32)
    own.tofile(tmp_path / "values")
    status, out, _ = _run(capsys, "stats", tmp_path / "values", "--json", "--bound", "2^-10", "--bound", "0.25")
    result = json.loads(out)
    assert (status, result["values"], len(result["rows"])) == (0, 8, 13)
    strict, _, published, _, block, *narrow = result["rows"]
    assert (strict["mode"], strict["bound"], published["mode"]) == ("strict", 10, "published")
    assert list(strict["shares"].values()) == [2 / 8, 2 / 8, 1 / 8, 3 / 8]
    assert strict["bits"] == (2 * 2 + 2 * 10 + 18 + 3 * 34) / 8
    assert strict["bytes"] == len(inceptionn.encode(own, Inceptionn(10))) == 18
    assert strict["ratio"] == 32 / 18
    assert strict["max_error"] == 2.0**-11
    assert block["bytes"] == len(codecs.encode(own, Bfp()))
    assert [row["element"] for row in narrow] == [*Element, None, None]
    assert [row["bytes"] for row in narrow] == [33, 33, 25, 25, 17, 33, 16, 16]
    assert [row["max_error"] for row in narrow[:6]] == [None] * 6  # the block's finite values become NaN
    assert narrow[6]["max_error"] == pytest.approx(abs(0.3 - codecs.roundtrip(own, Bf16())[3]), rel=1e-4)
    assert result["paper"][0]["shares"]["2"] == 0.92


def test_statistics_as_a_table(capsys, values):
    _, out, _ = _run(capsys, "stats", values[0], "--mode", "strict", "--block", "8", "--mantissa", "5")
    lines = out.splitlines()
    assert lines[0] == f"{values[0]}: 1,000 values, 4,000 bytes"
    assert lines[1].split()[:3] == ["codec", "mode", "parameters"]
    assert [line.split()[0] for line in lines[2:]] == [
        *["inceptionn"] * 3,
        "bfp",
        *["mx"] * 6,
        *("bf16", "fp16"),
        *["paper,"] * 3,
    ]
    assert "8 × 5, 8" in lines[5]
    assert "32 × e4m3" in lines[6]
    _, out, _ = _run(capsys, "stats", values[0], "--exponent", "5", "--offset", "8")
    assert "16 × 7, 5 - 8" in out
    assert "11.59×" in lines[-3]
    _, out, _ = _run(
        capsys, "stats", values[0], "--element", "e2m1", "--block", "64", "--rounding", "stochastic"
    )
    assert out.count(" mx ") == 1
    assert "mx          stochastic  64 × e2m1" in out
    assert _refused(capsys, "stats", values[0], "--bound", "3").startswith("--bound 3: must be")


@pytest.mark.parametrize(
    "config",
    [
        Inceptionn(4, Mode.STRICT, 16),
        Inceptionn(7, Mode.PUBLISHED),
        Bfp(64, 3),
        Mx(block=64, rounding=Rounding.STOCHASTIC),
    ],
)
def test_statistics_of_pieces_are_those_of_the_whole(config):
    own = samples(1024 + 100, 9)
    whole, pieces = Meter(config), Meter(config)
    whole.add(own)
    for piece in (own[:1024], own[1024:]):
        pieces.add(piece)
    assert whole.row().bytes == pieces.row().bytes
    assert whole.row().max_error == pieces.row().max_error
    assert whole.row().bytes == len(codecs.encode(own, config))
    if isinstance(config, Inceptionn) and config.mode is Mode.STRICT:
        assert whole.row().max_error <= 2.0**-config.bound


def test_statistics_of_values_without_a_finite_one(capsys, tmp_path):
    np.full(8, np.nan, dtype=np.float32).tofile(tmp_path / "values")
    _, out, _ = _run(capsys, "stats", tmp_path / "values", "--json")
    assert json.loads(out)["rows"][0]["max_error"] is None
    assert _run(capsys, "stats", tmp_path / "values")[0] == 0


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
def test_an_npy_is_read_by_its_header(capsys, tmp_path, dtype):
    own = np.random.default_rng(3).normal(0, 0.01, (30, 40)).astype(dtype)
    np.save(tmp_path / "gradient.npy", own)
    (tmp_path / "gradient.npy").rename(tmp_path / "values")
    status, _, err = _run(capsys, "encode", "--codec", "bfp", tmp_path / "values", tmp_path / "small")
    assert (status, err.count("\n")) == (0, 1)
    stream = codecs.encode(own.astype(np.float32).reshape(-1), Bfp())
    assert (tmp_path / "small").read_bytes()[16:] == stream
    _, out, _ = _run(capsys, "stats", tmp_path / "values", "--json")
    assert json.loads(out)["values"] == 1200


def test_an_npy_of_several_pieces_is_read_whole(capsys, tmp_path):
    own = np.linspace(-1, 1, 2 * PIECE_VALUES + 77)
    np.save(tmp_path / "values.npy", own)
    assert _run(capsys, "encode", "--codec", "bfp", tmp_path / "values.npy", tmp_path / "small")[0] == 0
    assert (tmp_path / "small").read_bytes()[16:] == codecs.encode(own.astype(np.float32), Bfp())


def test_what_holds_no_float_values_is_refused(capsys, tmp_path):
    path = tmp_path / "in.npy"

    def refused():
        line = _refused(capsys, "encode", "--codec", "bfp", path, tmp_path / "out")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy"]
        return line.removeprefix(f"{path}: ")

    for array, complaint in (
        (np.arange(9), "holds values of type int64, not float32: save array.astype(numpy.float32)"),
        (np.ones(3, complex), "holds values of type complex128, not float32: "),
        (np.array([1.0, -1e300]), "value 1 is -1e+300, which float32 cannot hold"),
        (np.asfortranarray(np.ones((2, 3), "f4")), "is in Fortran order: "),
        (np.ones(0, "f4"), "holds no values"),
    ):
        np.save(path, array)
        assert refused().startswith(complaint)
    np.save(path, np.ones(9, "f4"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert refused() == "has 35 bytes after its header, but 9 values of type float32 take 36"
    path.write_bytes(whole[:20])
    assert refused().startswith("is not a complete .npy file: ")
    path.write_bytes(whole[:6] + b"\x09" + whole[7:])
    assert refused().startswith("is not a complete .npy file: ")
    for header, cause in (
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)\n", ""),
        (b"(" * 9000, ""),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,-2)}\n", "its shape is (-1, -2)"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), '\x1b[31m': 1}\n", ""),
    ):
        path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(8))
        assert refused().startswith(f"is not a complete .npy file: {cause}")
    path.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", 0xFFFFFFFF) + bytes(1 << 20))
    assert refused().startswith("is not a complete .npy file: ")
    with path.open("wb") as file:
        np.savez(file, np.ones(8, "f4"))
    assert refused().startswith("is a zip archive (.npz, .pt): ")
    path.write_bytes(b"FANC" + bytes(16))
    assert refused() == "is compressed already: fanin codec decode gives its values"


def test_a_warning_counts_values_that_are_no_gradients(capsys, tmp_path):
    """Raw float64 values are the usual cause; those that were float32 before are seen as well."""
    own = np.random.default_rng(3).normal(0, 0.01, 1000)
    for file, absurd in ((own, True), (own.astype("f4").astype("f8"), True), (own.astype("f4"), False)):
        file.tofile(tmp_path / "values")
        status, _, err = _run(capsys, "stats", tmp_path / "values")
        assert (status, err.count("\n"), bool(err)) == (0, absurd, absurd)
    np.array([0, -1e15, 9e14, np.inf, np.nan], "f4").tofile(tmp_path / "values")
    assert _run(capsys, "stats", tmp_path / "values")[2] == (
        f"fanin: warning: {tmp_path / 'values'}: 3 of 5 values (60.00%) are NaN, infinite or of magnitude "
        "1e+15 and more: most likely not float32 gradients\n"
    )


def test_verify_compares_numpy_with_the_scalar_reading(capsys, monkeypatch):
    verify = ["verify", "--codec", "inceptionn", "--values", "3000"]
    status, out, _ = _run(capsys, *verify)
    assert status == 0
    assert out.startswith("inceptionn, 2^-10, strict, group 8, seed 1\n")
    assert "NumPy against the scalar reading: 3,000 values, 0 differ, " in out
    wrong = inceptionn.decompress
    monkeypatch.setattr(
        inceptionn, "decompress", lambda *args: (wrong(*args).view(np.uint32) & 0xFFFEFFFF).view(np.float32)
    )
    status, out, err = _run(capsys, *verify)
    assert status == 1
    assert "differ: 0x" in err
    status, out, err = _run(capsys, *verify, "--json")
    assert json.loads(out)["checks"][0]["mismatches"] > 0


@pytest.mark.parametrize("part", [[], ["encode"], ["decode"], ["stats"], ["gradients"], ["verify"]])
def test_every_part_has_help_of_complete_sentences(capsys, part):
    with pytest.raises(SystemExit, match="0"):
        main(["codec", *part, "--help"])
    description = capsys.readouterr().out.split("\n\n")[1]
    assert description.endswith(".")


def test_gradients_are_files_of_values(capsys, monkeypatch, tmp_path):
    trained = {stage: np.full(5, at, dtype=np.float32) for at, stage in enumerate(gradients.STAGES)}
    monkeypatch.setattr(
        gradients, "gradients", lambda stages, seed: {stage: trained[stage] for stage in stages}
    )
    status, out, _ = _run(capsys, "gradients", "-o", tmp_path / "new")
    assert (status, out.count("\n")) == (0, 3)
    for stage, values in trained.items():
        assert (tmp_path / "new" / f"gradient-{stage}.f32").read_bytes() == values.tobytes()
    assert _refused(capsys, "gradients", "--seed", "-1") == "--seed -1: must be 0 to 4294967295"
    path = tmp_path / "new" / "gradient-early.f32"
    assert _refused(capsys, "gradients", "-o", path).startswith(
        f"{path}/gradient-early.f32: cannot be written: "
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--values", "0"], "--values 0: must be 1 to 10,000,000"),
        (["--values", "1000000000000"], "--values 1000000000000: must be 1 to 10,000,000"),
        (["--seed", "-1"], "--seed -1: must be at least 0"),
        (["--stalls", "1"], "--stalls 1: must be at least 0 and less than 1"),
        (["--stalls", "nan"], "--stalls nan: must be at least 0 and less than 1"),
        (["--bound", "2^-20"], "--bound 2^-20: must be"),
    ],
)
def test_bad_options_of_verify_are_refused(capsys, options, complaint):
    assert _refused(capsys, "verify", "--codec", "inceptionn", *options).startswith(complaint)


@pytest.mark.parametrize("codec", ["mx", "bf16", "fp16"])
def test_verify_compares_narrow_formats(capsys, codec):
    status, out, _ = _run(capsys, "verify", "--codec", codec, "--rounding", "stochastic", "--values", "1000")
    assert status == 0
    assert "1,000 values, 0 differ" in out
