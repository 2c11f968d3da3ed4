"""docs/reference/json.md: the fields that each command prints with ``--json``, and their types."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "json.md"
TYPES = {"text": str, "flag": bool, "list": list, "object": dict, "null": type(None)}


def sections():
    """Of each heading the fields, by name, as lists of types."""
    found = {}
    for part in re.split(r"^## fanin ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        if same := re.match(r"\nThe fields of `fanin (.+)`\.\n$", body):
            found[heading] = found[same[1]]
            continue
        rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\w ?]+) \|", body, re.MULTILINE)
        kinds = {names: kind.replace("?", " or absent").split(" or ") for names, kind in rows}
        found[heading] = {name: kinds[names] for names in kinds for name in re.findall(r"\w+", names)}
    return found


def wrong(heading, value):
    """What a printed object has that its section does not say, and the other way round."""
    fields = sections()[heading]
    missing = {name for name, kinds in fields.items() if "absent" not in kinds} - value.keys()
    unknown = value.keys() - fields.keys()
    mistyped = {name for name in value.keys() & fields.keys() if not _is(value[name], fields[name])}
    return {"missing": missing, "unknown": unknown, "mistyped": mistyped}


def documented(heading, text):
    """The object that a command has printed, which is as its section says."""
    value = json.loads(text)
    assert wrong(heading, value) == RIGHT
    return value


RIGHT = {"missing": set(), "unknown": set(), "mistyped": set()}


def _is(value, kinds):
    return any(_is_a(value, kind) for kind in kinds if kind != "absent")


def _is_a(value, kind):
    if kind in ("integer", "number"):
        return isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[kind])
