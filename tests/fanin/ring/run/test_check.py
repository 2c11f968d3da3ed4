"""``fanin ring check``: a ring that is right, wrongly listed, or has a dead node."""

import pytest

from fanin.cli.main import main

EACH_ITSELF_FIRST = "--list 0=0,1,2 --list 1=1,2,0 --list 2=2,0,1"
DIFFERENT = "the previous node has not the place before this node's: the hosts list the ring differently"
STRANGER = "frames of this job come from a node not listed as this one's neighbour: wrong list or cable"


@pytest.mark.verilator
@pytest.mark.parametrize(
    ("options", "status", "lines"),
    [
        ("", 0, ["fine"] * 3),
        (EACH_ITSELF_FIRST, 1, [DIFFERENT] * 3),
        ("--list 1=0,2,1", 1, [STRANGER] * 3),
        (
            "--dead 2",
            1,
            [
                "the previous node was never heard; the next one answered at first, and is silent now",
                "the next node does not answer in this job: dead, not started, or cabled elsewhere; "
                "the previous node was heard",
            ],
        ),
    ],
    ids=["right", "each itself first", "swapped", "dead"],
)
def test_a_line_for_each_node_says_what_is_wrong(options, status, lines, capsys):
    assert main(["ring", "check", *options.split()]) == status
    assert capsys.readouterr().out.splitlines() == [f"node {n}: {line}" for n, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--nodes 1", "--nodes 1: a ring has 2 to 255 nodes"),
        ("--dead 3", "--dead 3: must be 0 to 2"),
        ("--list 1", "--list 1: must be NODE=NODE,NODE,…, such as 1=1,2,0"),
        ("--list 3=3,1", "--list 3=3,1: the node must be 0 to 2"),
        ("--list 1=0,2", "--list 1=0,2: must have node 1 and others, each once"),
        ("--list 1=1,255", "--list 1=1,255: nodes must be 0 to 254"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, message, capsys):
    assert main(["ring", "check", *options.split()]) == 2
    assert capsys.readouterr().err.strip().endswith(message)
