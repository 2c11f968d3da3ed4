"""What the documentation says is so: links, commands, generated pages, packaging."""

import importlib.util
import os
import re
import shlex
import subprocess
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from fanin.base import archive, records
from fanin.base.extras import EXTRAS
from fanin.cli.main import build_parser
from fanin.cli.watch import server as watch
from fanin.host import lobby
from fanin.sim import capture, network
from fanin.sim.boards import hosts
from fanin.sim.nic import address, control
from fanin.sim.switch.embedded import blocks, budget, lexer, preprocessor, runtime, scope
from fanin.sim.switch.embedded import calls as p4_calls
from fanin.sim.switch.service import calls, forwarding, front, link, requests

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
FOLDERS = ("fanin", "hdl", "p4", "planner", "sim")
PAGES = sorted(page for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(pattern))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _prose(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def _code_lines(page):
    """The lines of a page's code blocks that call ``fanin`` or ``make``, comments apart."""
    for block in re.findall(r"```\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith(("fanin ", "make ")):
                yield line.partition("#")[0].strip()


def _anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


@each_page
def test_files_that_are_named_exist(page):
    """Paths in backticks that start with a folder of ours."""
    named = re.findall(r"`((?:fanin|hdl|p4|planner|sim|tests|docs)/[\w/.]*\w)`", _prose(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_table_of_the_co_simulation_names_its_files():
    rows = re.findall(
        r"^\| (`[\w/.]+`(?:, `[\w/.]+`)*) \|", (ROOT / "docs/reference/cosim.md").read_text(), re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"`([\w/.]+\.\w+)`", row)}
    folder = ROOT / "sim" / "cosim"
    assert {name for name in named if not (folder / name).exists()} == set()
    assert {file.name for file in folder.iterdir() if file.is_file()} - named == {"__init__.py"}


def _citations(text):
    """Pages, and headings of theirs, that a source file names: page, "Heading" and "Another"."""
    for page, quoted in re.findall(r'(docs/[\w/-]+\.md)((?:(?:,| and) "[^"]+")*)', " ".join(text.split())):
        for heading in re.findall(r'"([^"]+)"', quoted) or [""]:
            yield page, heading


def test_citations_are_found_whatever_their_form():
    text = 'see docs/a/b-c.md, "One-sided\n    writes" and "Two"; docs/d.md. "No heading"'
    assert list(_citations(text)) == [
        ("docs/a/b-c.md", "One-sided writes"),
        ("docs/a/b-c.md", "Two"),
        ("docs/d.md", ""),
    ]


def test_pages_and_headings_that_the_code_cites_exist():
    sources = {".py", ".j2", ".cpp", ".sv"}
    cited = {
        citation
        for folder in (*FOLDERS, "tests", "examples")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in sources and file != Path(__file__)
        for citation in _citations(file.read_text())
    }
    assert any("-" in page and heading for page, heading in cited)
    assert [page for page, _ in cited if not (ROOT / page).exists()] == []
    assert [f"{p}: {h}" for p, h in cited if h and f"# {h}\n" not in (ROOT / p).read_text()] == []


@each_page
def test_commands_that_are_shown_exist(page):
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in _code_lines(page):
        program, *arguments = shlex.split(line)
        if program == "make":
            assert {argument for argument in arguments if "=" not in argument} <= set(targets), line
        else:
            build_parser().parse_args(arguments)


def test_every_rule_of_the_planner_is_the_line_that_its_page_quotes():
    code = " ".join((ROOT / "planner/search/problem.py").read_text().split())
    rows = re.findall(
        r"^\| .* \| .* \| (`.*`) \|$", (ROOT / "docs/systems/planner.md").read_text(), re.MULTILINE
    )
    quoted = [line for row in rows for line in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 12
    assert [line for line in quoted if line != "planner/search/problem.py" and line not in code] == []


def test_the_readme_shows_commands():
    assert len(list(_code_lines(ROOT / "README.md"))) == 7  # two, and five more


def test_generated_pages_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert len(generate.PAGES) >= 5
    assert [n for n, page in generate.PAGES.items() if (generate.FOLDER / n).read_text() != page()] == []


def _number(text):
    """A figure of the docs: 262,144, a million, 16 MiB, 1 GiB."""
    text = text.replace("a million", "1000000")
    count, unit = re.match(r"([\d,]+)(?: (KiB|MiB|GiB))?", text).groups()
    return int(count.replace(",", "")) << {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}[unit]


def _figures(page, *patterns):
    text = (ROOT / "docs" / "reference" / page).read_text()
    return [_number(re.search(pattern, text)[1]) for pattern in patterns]


def test_limits_of_p4_serve_are_those_of_its_page():
    found = _figures(
        "serve.md",
        r"\| request \| (.+?) \|",
        r"\| updates of a Write; entities of a Read \| ([\d,]+);",
        r"\| updates of a Write; entities of a Read \| [\d,]+; ([\d,]+)",
        r"\| one update, entity or stream message \| (.+?) \|",
        r"\| P4Info \| (.+?) \|",
        r"writes and pipelines at a time \| (\d+);",
        r"writes and pipelines at a time \| \d+; (\d+);",
        r"writes and pipelines at a time \| \d+; \d+; (\d+)",
        r"\| answers under way to a client of a call \| (.+?) \|",
        r"\| messages under way on a stream \| (.+?) \|",
        r"opens a stream and does not bid \| (\d+) s",
        r"gives calls a slice of (\d+) ms",
        r"all calls together have (\d+) % of",
    )
    assert found == [
        front.MAX_REQUEST_BYTES,
        front.MAX_UPDATES,
        front.MAX_ENTITIES,
        link.MAX_PART_BYTES,
        front.MAX_P4INFO_BYTES,
        requests.MAX_CONTROLLERS,
        requests.MAX_READS,
        requests.MAX_WRITES,
        calls.WINDOW,
        calls.STREAM_WINDOW,
        calls.STALL,
        1000 * forwarding.SLICE,
        100 * forwarding.SHARE,
    ]


def test_bounds_of_inputs_are_those_of_the_page_on_security():
    found = _figures(
        "security.md",
        r"at most ([\d,]+) times their size",
        r"times their size, or (\d+ MiB)",
        r"64 levels at most, TOML (\d+ MiB)",
        r"at most (\d+ MiB) of text",
        r"of text in (\d+) includes",
        r"includes, (a million) tokens",
        r"(\d+) `#if` or braces nested",
        r"([\d,]+) bits a number",
        r"([\d,]+) values a type",
        r"([\d,]+) nested calls",
        r"([\d,]+) instances",
        r"([\d,]+) values in registers and counters",
        r"([\d,]+) in parameters and local variables",
        r"a frame: ([\d,]+) passes",
        r"([\d,]+) parser states",
        r"([\d,]+) rounds of loops",
        r"rounds of loops, (\d+) s",
        r"([\d,]+) silent connections",
        r"([\d,]+) clients; frames at the line's rate",
        r"([\d,]+) connections; \d+ s and",
        r"connections; (\d+) s and",
        r"connections; \d+ s and (\d+ KiB) each",
        r"(\d+ KiB) a request; ",
        r"(\d+ MiB) of unread answers",
        r"unread answers; ([\d,]+) clients",
        r"([\d,]+) requests without an answer",
        r"([\d,]+) addresses by ARP",
        r"([\d,]+) that a node in RTL has not taken",
        r"\| captures \| data: (\d+ GiB);",
    )
    assert found == [
        archive.MAX_GROWTH,
        archive.MAX_UNPACKED_BYTES,
        records.MAX_TOML,
        preprocessor.MAX_TEXT,
        preprocessor._MAX_INCLUDES,
        preprocessor.MAX_TOKENS,
        preprocessor._MAX_CONDITIONS,
        lexer.MAX_WIDTH,
        scope.MAX_PARTS,
        p4_calls.MAX_CALLS,
        blocks.MAX_INSTANCES,
        budget.MAX_VALUES,
        budget.MAX_LOCALS,
        runtime.MAX_PASSES,
        runtime.MAX_STATES,
        budget.MAX_ROUNDS,
        budget.MAX_SECONDS,
        lobby.MAX_PENDING,
        hosts.MAX_CLIENTS,
        watch.CONNECTIONS,
        watch.REQUEST_SECONDS,
        watch.REQUEST_BYTES,
        control.MAX_LINE,
        control.MAX_UNREAD,
        control.MAX_CLIENTS,
        control.MAX_UNANSWERED,
        address.MAX_ADDRESSES,
        network.MAX_WAITING,
        capture.MAX_BYTES,
    ]


def test_every_target_of_the_makefile_is_listed():
    listed = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True)
    targets = re.search(r"^\.PHONY: help (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert {"demo", "test", "verilog", "p4", "plan"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target} +\w", listed.stdout, re.MULTILINE), target


@pytest.mark.parametrize(
    ("goal", "command"),
    [
        ("verilog", "fanin verilog glm-node --preset u280 -o build/verilog/glm_node.v"),
        (
            "verilog NODE=ring-node PRESET=tiny",
            "fanin verilog ring-node --preset tiny -o build/verilog/ring_node.v",
        ),
        ("p4", "fanin p4 emit --target v1model --workers 4 -o build/p4/v1model-4"),
        ("p4 TARGET=tna WORKERS=8", "fanin p4 emit --target tna --workers 8 -o build/p4/tna-8"),
        ("plan", "fanin plan example_cnn arria10x4 -o runs/plan"),
        ("plan MODEL=my.onnx CLUSTER=u280x2", "fanin plan my.onnx u280x2 -o runs/plan"),
    ],
)
def test_targets_of_the_makefile_hand_their_arguments_to_the_command(goal, command):
    make = ["make", "--no-print-directory", "--dry-run", "--old-file=.venv/.user", *goal.split()]
    shown = subprocess.run(make, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == f".venv/bin/{command}"
    build_parser().parse_args(shlex.split(command)[1:])


def test_every_package_is_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {name: "fanin" if name == "fanin" else f"fanin.{name}" for name in FOLDERS}
    packages = {
        ".".join([package, *init.parent.relative_to(ROOT / folder).parts])
        for folder, package in folders.items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert packages == set(project["tool"]["setuptools"]["packages"])


def test_everything_that_is_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = (project["optional-dependencies"][extra.name] for extra in EXTRAS)
    lines = [*project["dependencies"], *chain(*optional)]  # a module of an extra says so where that is missing
    declared = {re.match(r"[\w-]+", line)[0].lower().replace("-", "_") for line in lines}
    distributions = packages_distributions()
    foreign = set()
    for source in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        for name in re.findall(r"^\s*(?:from|import) (\w+)", source.read_text(), re.MULTILINE):
            foreign |= {d.lower().replace("-", "_") for d in distributions.get(name, ())}
    assert foreign - declared - {"fanin"} == set()


def test_every_dependency_has_a_reason():
    text = (ROOT / "pyproject.toml").read_text()
    requirements = re.findall(r'^    "[\w-]+[<>=][^"]*",.*$', text, re.MULTILINE)
    assert len(requirements) > 10
    assert [line for line in requirements if "  # " not in line] == []
