"""``fanin watch`` as a process, and what it answers."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

from fanin.cli.watch.server import WatchServer
from fanin.cli.watch.state import WatchedRun

SECONDS = 30


@contextlib.contextmanager
def serving(folder):
    """A server in this process; its address."""
    with WatchServer(WatchedRun(folder), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def command(folder):
    """The command as users start it: the process, its address and what it has said."""
    line = [sys.executable, "-m", "fanin", "watch", str(folder)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()
            yield process, re.match(r"http://127\.0\.0\.1:\d+/", said)[0], said
        finally:
            process.kill()


def interrupt(process):
    """Ctrl-C; status and what is on stderr."""
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    return process.returncode, err


def ask(url, path, *, method="GET", host=None):
    """Status, headers, body of exactly this path."""
    where = urlsplit(url).netloc
    connection = http.client.HTTPConnection(where, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or where)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def progress(url):
    """What the page is told."""
    status, _, body = ask(url, "/progress")
    assert status == 200
    return json.loads(body)
