"""Sentences of the tree's texts, and the rates of those that are hard to read.

Texts are docstrings and comments of Python files, and Markdown pages that are not generated. Help and error
texts have stricter rules, in tests/fanin/cli/test_help_words.py.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 28  # words of a sentence
WH_SUBJECT = re.compile(r"(What|Who|Whose|Whoever|Whatever|All that|Those that|That which|Which of)\b(?!.*\?$)")
PRIVATE = re.compile(
    r"\b(comes? round|came round|told|tells? (it|them|rank|all)|goes on|go on with|went on|lest|thereby|whoever"
    r"|wherever|nobody|somebody|beside each other|one behind the other|at once with|put off|left alone"
    r"|of one's own|of his own|is so|likewise|ones? to come|to come|on its way|on their way"
    r"|stands? (there|in|for|at)|lies? (there|in|at)|has come|have come|is there|are there|is no more"
    r"|no more than that|by itself|for nothing|in vain|as often as|as many as|as long as one|foretells?"
    r"|reckoned|takes? .{1,30} for alike|beneath|behind)\b"
)
RULES = {
    "words": lambda sentence: bool(WH_SUBJECT.match(sentence)) or bool(PRIVATE.search(sentence)),
    "long": lambda sentence: len(re.findall(r"[A-Za-z][\w'’-]*", sentence)) > LONGEST,
}
COMMENT = re.compile(r"^(.*  |\s*)#(?!!)[:#]* ?(\S.*)$", re.MULTILINE)
ITEM = re.compile(r" *(?:[-*] |\d+\. |#+ )? *")
FENCE = re.compile(r"```.*?(```|\Z)", re.DOTALL)
DIAGRAM = re.compile(r"^ *\||──|::|^ *[-=^~]{3,} *$")


def files(*folders: str) -> Iterator[Path]:
    """Yield the Python files and the hand-written pages that git tracks in these folders of the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".md") and path.exists():
            yield path


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's texts with the line at which each begins."""
    source = path.read_text()
    if path.suffix == ".py":
        yield from _comments(source)
        yield from _docstrings(ast.parse(source))
    elif not re.search(r"Generated (from|by)|Copied from", source[:400]):
        yield 1, source


def _docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text:
            yield node.body[0].lineno, text
    for part in ("body", "orelse", "handlers", "finalbody"):
        children = getattr(node, part, ())
        for child in children if isinstance(children, list) else ():
            yield from _docstrings(child)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each run of comment lines as one text; a comment after code is a text of its own."""
    run: list[str] = []
    first = last = 0
    for number, line in enumerate(source.splitlines(), 1):
        if "#" not in line or not (match := COMMENT.match(line)):
            continue
        code, text = match.groups()
        if run and (code.strip() or number != last + 1):
            yield first, "\n".join(run)
            run = []
        first, last = first if run else number, 0 if code.strip() else number
        run.append(text)
    if run:
        yield first, "\n".join(run)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of at least three words, without code blocks, tables and diagrams."""
    for block in _blocks(FENCE.sub("\n\n", text)):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*])", block):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence.replace("`", ""))
            if len(plain.split()) >= 3:
                yield plain.strip()


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs and list items.

    A smaller indentation begins a new one, and so does a larger one unless a sentence goes across it.
    """
    block: list[str] = []
    indent = 0
    for line in [*text.splitlines(), ""]:
        start = ITEM.match(line)
        assert start is not None
        column = start.end()
        rest = line[column:].strip()
        ended = not rest or start[0].strip() or DIAGRAM.search(line)
        if block and (ended or column < indent or (column > indent and not rest[0].islower())):
            yield " ".join(block)
            block = []
        if rest and not DIAGRAM.search(line):
            block.append(rest)
        indent = column


def called(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def literal(node: ast.AST) -> str:
    """Return the text of a string or f-string, with X for each expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "X"
    if isinstance(node, ast.JoinedStr):
        return "".join(map(literal, node.values))
    return "X"


def rates(*folders: str) -> dict[str, float]:
    """Return the sentences of these folders that break each rule, per 1,000 words."""
    words, found = 0, Counter(dict.fromkeys(RULES, 0))
    for path in files(*folders):
        for sentence in (sentence for _, text in texts(path) for sentence in sentences(text)):
            words += len(sentence.split())
            found.update(name for name, broken in RULES.items() if broken(sentence))
    return {name: 1000 * count / max(words, 1) for name, count in found.items()}


def hits(*folders: str) -> Iterator[str]:
    """Yield a line for each sentence that breaks a rule: file, line of its text, rule, sentence."""
    for path in files(*folders):
        for line, text in texts(path):
            for sentence in sentences(text):
                for name in (name for name, broken in RULES.items() if broken(sentence)):
                    yield f'{path.relative_to(ROOT)}:{line} {name} "{sentence}"'


if __name__ == "__main__":
    print("\n".join(hits(*(sys.argv[1:] or ["."]))))
