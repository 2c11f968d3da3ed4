"""Words of every ``--help`` line and of every text of an error for users."""

import argparse
import ast
import re

from fanin.cli.main import build_parser
from tests import prose

ERRORS = ("InputError", "DoesNotFit", "CheckFailed", "SimulationFailed", "ToolFailed", "wrong")
HELP_WORDS = 25  # at most, without the default
DESCRIPTION_WORDS = 28  # at most, of a sentence
ERROR_WORDS = 30  # at most, of a text's literal part
CLAUSE = r"what|who|whose|where|when|how|that|which|whether|why"
PRONOUN = r"it|its|they|this|these|those|such|there|here|one|both|neither|none|each|others|so"
NAMES = "Linux|Unix"  # with a capital


def parsers(parser):
    """The parser and those of its commands, at any depth."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def helps():
    """Command and option, and the line of help."""
    for parser in parsers(build_parser()):
        for action in parser._actions:
            shown = [action]
            if isinstance(action, argparse._SubParsersAction):
                shown = action._choices_actions
            for one in shown:
                if one.help not in (None, argparse.SUPPRESS) and not isinstance(one, argparse._HelpAction):
                    yield f"{parser.prog} {'/'.join(one.option_strings) or one.dest}", one.help


def help_faults(text):
    """Rules that a line of help breaks."""
    meaning = re.sub(r" \(default: .*\)$", "", text)
    if len(meaning.split()) > HELP_WORDS:
        yield "long"
    if re.match(rf"({CLAUSE}|{PRONOUN}|of|by|then)\b", text, re.IGNORECASE):
        yield "begins without a noun or verb"
    if re.match(rf"(?!{NAMES})[A-Z][a-z]+\b", text):
        yield "capital"
    if text.endswith("."):
        yield "full stop"
    if prose.PRIVATE.search(text):
        yield "private word"


def description_faults(text):
    """Rules that a command's description breaks."""
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text):
        if len(sentence.split()) > DESCRIPTION_WORDS:
            yield "long"
        if prose.RULES["words"](sentence):
            yield "private word"


def errors():
    """File, line, and the literal text of each error for users."""
    for path in prose.files("fanin", "hdl", "p4", "planner", "sim"):
        source = path.read_text()
        if path.suffix == ".py" and any(name in source for name in ERRORS):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and node.args and prose.called(node) in ERRORS:
                    yield f"{path.relative_to(prose.ROOT)}:{node.lineno}", prose.literal(node.args[0])


def error_faults(text):
    """Rules that the text of an error breaks; X stands for what is filled in."""
    if len(text.split()) > ERROR_WORDS:
        yield "long"
    if re.match(rf"({CLAUSE}|{PRONOUN}|X: (?!its)({CLAUSE}|{PRONOUN}))\b", text):
        yield "begins without a noun or verb"
    if prose.PRIVATE.search(text):
        yield "private word"


def found(texts, faults):
    """Each text with its faults, if it has any."""
    return [(where, broken, text) for where, text in texts if (broken := list(faults(text)))]


def test_each_line_of_help_is_short_and_begins_with_a_noun_or_verb():
    lines = dict(helps())
    assert len(lines) > 500
    assert found(lines.items(), help_faults) == []


def test_each_description_is_of_short_sentences():
    texts = {parser.prog: parser.description for parser in parsers(build_parser()) if parser.description}
    assert len(texts) > 60
    assert found(texts.items(), description_faults) == []


def test_each_error_is_short_and_begins_with_a_noun_or_verb():
    texts = list(errors())
    assert len(texts) > 700
    assert found(texts, error_faults) == []


def test_faults_are_found():
    assert list(help_faults("what it runs on (default: rtl)")) == ["begins without a noun or verb"]
    assert list(help_faults("of a gradient")) == ["begins without a noun or verb"]
    assert list(help_faults("Number of nodes.")) == ["capital", "full stop"]
    assert list(help_faults("word " * 26 + "(default: 1)")) == ["long"]
    assert list(help_faults("nodes to come")) == ["private word"]
    assert list(help_faults("INCEPTIONN's mode")) == list(help_faults("values of a group")) == []
    assert list(description_faults("Run it. " + "word " * 29)) == ["long"]
    assert list(error_faults("X: it has ended")) == ["begins without a noun or verb"]
    assert list(error_faults("X: nobody answers")) == ["private word"]
    assert list(error_faults("word " * 31)) == ["long"]
