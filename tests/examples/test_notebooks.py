"""The notebooks, cell by cell: each runs, and what it ends with shows itself."""

import ast
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples/notebooks"


def _cells(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        assert not cell.get("outputs"), f"{path.name}: outputs are not kept"
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def _shown(code, names):
    """Run a cell; what its last line is worth, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {}
    shown = [_shown(code, names) for code in _cells(path)]
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pages) >= 2
    assert all("<" in page for page in pages)
    assert list(tmp_path.iterdir()) == []


def test_there_are_two():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {"cluster", "gradients"}
