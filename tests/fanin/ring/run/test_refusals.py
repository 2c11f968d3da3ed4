"""Bad input of ``fanin ring train`` takes one line and writes nothing."""

import pytest

from fanin.runs.output import RING_RUN
from tests.fanin.ring.run.runs import SMALL, refused, run


def test_a_gradient_that_is_not_finite_is_named(capsys, tmp_path):
    status, out, err = run(capsys, tmp_path / "run", f"{SMALL} --lr 1e9 --decay 1e9")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "node 0, layer 1, step 2: the gradient has values that are not finite; choose a smaller --lr" in err
    assert list(tmp_path.iterdir()) == []


def test_the_runs_of_other_commands_are_left_alone(capsys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RING_RUN.mark).write_text('{"options": {}}')
    assert "choose another -o" in refused(capsys, tmp_path, SMALL)
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, tmp_path / "file", SMALL)
    assert (status, "is a file; -o names a directory" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--nodes 1", "nodes must be in [2, 255], not 1"),
        ("--layers 63,10", "layers must begin with the data's 64 features, not 63"),
        ("--layers 64,9", "layers must end with at least the data's 10 classes, not 9"),
        ("--layers 64", "layers must be at least 2 widths of at least 1, not [64]"),
        ("--layers 64,0,10", "layers must be at least 2 widths of at least 1, not [64, 0, 10]"),
        ("--layers 64,999999999,10", "weights on 3 nodes take"),
        ("--layers 64,9999999999,10", "--layers 64,9999999999,10: '9999999999' is not a width"),
        ("--layers 64,x,10", "--layers 64,x,10: neither widths, such as 64,128,10, nor a file"),
        ("--layers .", ".: cannot be read: Is a directory"),
        ("--layers /dev/zero", "/dev/zero: cannot be read: has more than 1,048,576 bytes"),
        ("--layers widths", "widths:2: '1.5' is not a width"),
        ("--layers nothing", "--layers nothing: the file has no widths"),
        ("--epochs 0", "epochs must be in [1, 1000000], not 0"),
        ("--batch 0", "batch must be"),
        ("--batch 450", "batch must be 1 to 449, a worker's share of 1347 samples, not 450"),
        ("--lr nan", "lr must be in [1e-09, 1e+09], not nan"),
        ("--momentum 1", "momentum must be at least 0 and below 1, not 1.0"),
        ("--decay -1", "decay must be in [0, 1e+09], not -1"),
        ("--seed -1", "seed must be in [0, 4294967295], not -1"),
        ("--lanes 4", "argument --lanes: invalid choice: 4"),
        ("--codec zip", "argument --codec: invalid choice: 'zip'"),
        ("--bound 2^-6", "--bound: needs a --codec"),
        ("--codec bfp --bound 2^-6", "--bound is a parameter of inceptionn, not of bfp"),
        ("--codec inceptionn --bound 2^-16", "--bound 2^-16: must be a power of two, 2^-15 to 2^-1"),
        ("--codec inceptionn --group 16", "group must be the lanes, 8, not 16"),
        ("--codec bfp --mantissa 2", "mantissa must be 3 to 15 bits, not 2"),
        ("--codec bfp --block 5", "block must be one of 4, 8, 16, 32, 64, not 5"),
        ("--codec mx --block 8", "block must be one of 16, 32, 64, not 8"),
        ("--outstanding 0", "outstanding must be in [1, 8], not 0"),
        ("--outstanding 9", "outstanding must be in [1, 8], not 9"),
        ("--outstanding 2 --overlap none", "outstanding must be 1 without overlap, not 2"),
        ("--flops 0", "flops must be in [1e+06, 1e+21], not 0"),
        ("--memory-bandwidth nan", "memory-bandwidth must be in [1e+06, 1e+18], not nan"),
        ("--pcie inf", "pcie must be in [1e+08, 1e+15], not inf"),
        ("--gbps 0", "gbps must be at least 0.001, not 0.0"),
        ("--stop 1:0.1", "--stop: needs --on rtl"),
        ("--on rtl --drop 2", "drop must be a probability, not 2.0"),
        ("--drop 0.1 --corrupt 0.1", "--drop, --corrupt: needs --on rtl"),
        ("--pcap x", "--pcap: needs --on rtl"),
        ("--on rtl --stop 3:0.1", "--stop 3:0.1: nodes are 0 to 2"),
        ("--on rtl --all-reduce host", "--on rtl: hosts of --all-reduce host have no RTL"),
        (
            "--all-reduce host --codec bfp",
            "--codec bfp: only NICs have a codec, not the hosts of --all-reduce host",
        ),
        ("--all-reduce host --outstanding 2", "--outstanding: does not apply to --all-reduce"),
        ("--all-reduce host --gbps 40", "--gbps: does not apply to --all-reduce host"),
        ("--all-reduce host --pcie 1e9", "--pcie: does not apply to --all-reduce"),
        ("--all-reduce host --memory-bandwidth 1e9", "--memory-bandwidth: does not apply to --all-reduce"),
        ("--groups 4", "groups must be like 4x4, groups and workers of each, not '4'"),
        ("--groups 2x2", "groups must be of the 3 nodes that train, not 2x2: 4 workers"),
        ("--groups 1x3", "groups must be at least 2, not 1"),
        ("--above ring", "--above ring: needs --groups"),
        ("--exchange aggregator", "--exchange aggregator: smart NICs need --groups"),
        (
            "--all-reduce host --nodes 4 --groups 2x2",
            "groups are of ring nodes: hosts that reduce on their own",
        ),
        ("--system inceptionn", "--on: applies to smart NICs, not to --system inceptionn"),
        ("--on rtl --resume nowhere", "nowhere: not a run of fanin ring train, cannot be resumed"),
        ("nowhere", "nowhere: no folder with MNIST's four idx files, no .npz; the bundled set is digits"),
        ("nowhere.npz", "nowhere.npz: cannot be read: No such file or directory"),
    ],
)
def test_bad_input_takes_one_line_and_writes_nothing(capsys, tmp_path, monkeypatch, arguments, cause):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "widths").write_text("64\n1.5 10\n")
    (tmp_path / "nothing").write_text(" \n")
    assert cause in refused(capsys, tmp_path, f"{SMALL} {arguments}")


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--lanes 8", "--lanes: applies to smart NICs, not to --system inceptionn"),
        ("--overlap none", "--overlap: applies to smart NICs, not to --system inceptionn"),
        ("--all-reduce nic", "--all-reduce: applies to smart NICs, not to --system inceptionn"),
        ("--codec bfp", "--codec bfp: INCEPTIONN's NIC has its own codec, or none"),
        ("--codec inceptionn --group 16", "group must be 8, the NIC's, not 16"),
        ("--groups 3x2", "groups must be of the 4 nodes that train, not 3x2: 6 workers"),
        ("--groups 2x2 --nodes 8", "groups must be of the 8 nodes that train, not 2x2: 4 workers"),
        (
            "--groups 2x2 --exchange aggregator --above ring",
            "above must be aggregator where groups have aggreg",
        ),
        ("--nodes 65", "workers must be 2 to 64, not 65"),
        ("--exchange aggregator --stop 5:1", "--stop 5:1: nodes are 0 to 4"),
    ],
)
def test_what_inceptionns_nodes_have_nothing_for_is_refused(capsys, tmp_path, arguments, cause):
    nodes = "" if "--nodes" in arguments else "--nodes 4"
    assert cause in refused(capsys, tmp_path, f"--system inceptionn --batch 8 {nodes} {arguments}")
