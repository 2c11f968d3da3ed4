"""``fanin p4 run`` whose reader goes away."""

import subprocess
import sys

from scapy.all import Ether, wrpcap

import fanin


def test_a_reader_that_has_seen_enough_is_no_error_of_the_program(tmp_path):
    fanin.emit_p4(workers=2).write(tmp_path)
    frames = [Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / bytes(46) for _ in range(2000)]
    wrpcap(str(tmp_path / "in.pcap"), frames)
    command = [sys.executable, "-m", "fanin", "p4", "run", "aggregation.p4", "--job", "job.json", "--trace"]
    command += ["--in", "0=in.pcap", "--out", "out"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("packet 1 ")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
