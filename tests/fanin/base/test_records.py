"""JSON from outside: values that Python reads, and may fail to write again, are refused."""

import json
import os
import time

import pytest

from fanin.base import records
from fanin.base.errors import InputError
from fanin.base.plain import MAX_FILE_BYTES
from fanin.base.records import MAX_DEPTH, Record, open_record, parse_json, read_toml


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a": ', "}")])
def test_values_may_be_nested_so_deep_and_no_deeper(begin, end):
    value = parse_json(begin * MAX_DEPTH + "5" + end * MAX_DEPTH)
    assert json.dumps(value) == begin * MAX_DEPTH + "5" + end * MAX_DEPTH
    for depth in (MAX_DEPTH + 1, 900, 985, 100_000):
        with pytest.raises(ValueError, match=r"values are nested deeper than 64|recursion"):
            parse_json(begin * depth + "5" + end * depth)


def test_a_file_of_values_without_end_is_an_error_of_one_line(tmp_path):
    path = tmp_path / "job.json"
    for depth in (65, *range(900, 1000)):
        path.write_text('{"a": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(InputError, match=r"job\.json: not JSON: ") as caught:
            open_record(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 5000])
@pytest.mark.parametrize("dots", [False, True])
def test_toml_is_nested_no_deeper_than_json(tmp_path, depth, dots):
    path = tmp_path / "file.toml"
    path.write_text(f"a{'.a' * depth} = 1" if dots else f"a = {'[' * depth}{']' * depth}")
    with pytest.raises(InputError, match=r"^[^\n]*file\.toml: values are nested deeper than 64$"):
        read_toml(path)


@pytest.mark.parametrize("part", ["a", "'.'", r'"\""', '"."'])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "x = {{ y = 1, {} = 1 }}"])
@pytest.mark.parametrize("dot", [".", " \t. "])
def test_a_deep_key_is_refused_before_it_is_parsed(tmp_path, monkeypatch, part, form, dot):
    path = tmp_path / "file.toml"
    path.write_text(form.format(dot.join([part] * (MAX_DEPTH + 1))))
    monkeypatch.setattr(records.tomllib, "loads", lambda text: pytest.fail("parsed"))
    with pytest.raises(InputError, match=r"^[^\n]*file\.toml: values are nested deeper than 64$"):
        read_toml(path)


def test_a_large_toml_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "file.toml"
    path.write_text("a = 1  # bytes")
    monkeypatch.setattr(records, "MAX_TOML", 14)
    assert read_toml(path) == {"a": 1}
    monkeypatch.setattr(records, "MAX_TOML", 13)
    with pytest.raises(InputError, match=r"file\.toml: cannot be read: has more than 13 bytes$"):
        read_toml(path)


def test_toml_is_read_or_refused_in_one_line(tmp_path):
    path = tmp_path / "file.toml"
    path.write_text("[[board]]\nhost = 'a'\n")
    assert read_toml(path) == {"board": [{"host": "a"}]}
    for content in (b"[[a", b"a = '\xff'", b"a = " + b"9" * 5000):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"^[^\n]*file\.toml: [^\n]+$"):
            read_toml(path)
    with pytest.raises(InputError, match=r"/none: no such file$"):
        read_toml(tmp_path / "none")
    with pytest.raises(InputError, match=r": cannot be read: Is a directory$"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job = 1979-05-27", '"1979-05-27"'),
        ("job = {c = [07:32:00]}", '{"c": ["07:32:00"]}'),
        ("job = 0x" + "f" * 10_000, "a number of very many digits"),
        ("job = [0x" + "f" * 10_000 + "]", "a number of very many digits"),
    ],
    ids=["date", "time", "digits", "digits in a list"],
)
def test_values_of_toml_that_json_does_not_have_are_named_in_one_line(tmp_path, text, said):
    path = tmp_path / "file.toml"
    path.write_text(text)
    record = Record(str(path), "", read_toml(path))
    with pytest.raises(InputError) as caught:
        record.integer("job", high=256)
    assert str(caught.value) == f'{path}: "job" must be an integer in 0…255, not {said}'


@pytest.mark.parametrize(
    "unit", ['\\"', "\\'", '"', "'", '"\\', "a.", "a ", '"a"', "'\"", '\\"a.', "\t.", "a\\"]
)
def test_keys_are_searched_in_linear_time(unit):
    """A pattern that is tried at each place, and reads on from each, takes half an hour for 1 MiB."""
    text = unit * ((1 << 15) // len(unit))
    start = time.process_time()
    for begin in ("", 'a = """', "a = '''", 'a = "', "x."):
        records._DEEP_KEY.search(begin + text)
    assert time.process_time() - start < 1


def test_a_file_that_waits_or_does_not_end_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match=r"pipe\.json: cannot be read: is no regular file$"):
        open_record(tmp_path / "pipe.json")
    with pytest.raises(InputError, match=r"cannot be read: Is a directory$"):
        open_record(tmp_path)
    (tmp_path / "long.json").write_text("{}")
    os.truncate(tmp_path / "long.json", MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match=r"long\.json: cannot be read: has more than 67,108,864 bytes$"):
        open_record(tmp_path / "long.json")
