"""``fanin completion``: shells complete commands, options and values."""

import subprocess

import pytest

from fanin.cli.completion import SHELLS
from fanin.cli.main import main

SHELL_MARKS = {"bash": (), "zsh": pytest.mark.needs("zsh"), "tcsh": pytest.mark.needs("tcsh")}


def _script(capsys, shell):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fanin", "tr"], ["train"]),
        (["fanin", "p4", "em"], ["emit"]),
        (["fanin", "train", "--dupl"], ["--duplicate"]),
        (["fanin", "train", "--loss", "lo"], ["logistic"]),
        (["fanin", "cluster", "run", "--on", "g"], ["golden"]),
    ],
)
def test_bash_completes(capsys, tmp_path, words, expected):
    (tmp_path / "script").write_text(_script(capsys, "bash"))
    line = " ".join(f'"{word}"' for word in words)
    code = f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_fanin fanin"
    found = subprocess.run(
        ["bash", "-c", f'{code} "{words[-1]}" "{words[-2]}"; echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_of_its_own(capsys, shell):
    script = _script(capsys, shell)
    assert "duplicate" in script
    assert all(script != _script(capsys, other) for other in SHELLS if other != shell)


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=SHELL_MARKS[shell]) for shell in SHELLS])
def test_a_script_is_one_of_its_shell(capsys, tmp_path, shell):
    path = tmp_path / "script"
    path.write_text(_script(capsys, shell))
    subprocess.run([shell, "-n", str(path)], check=True)


def test_another_shell_is_refused(capsys):
    assert main(["completion", "fish"]) == 2
    assert "invalid choice: 'fish'" in capsys.readouterr().err
