"""What is kept between runs: whole entries only, made by one process, never waited for without a bound."""

import os
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from fanin.base import cache
from fanin.base.cache import cache_directory, cached_text, digest, entry_lock, fresh_cache, usage_of
from fanin.base.errors import InputError
from fanin.cli.main import main


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Of an entry in a cache of its own."""
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    return tmp_path / "emitted" / "entry"


def _never():
    pytest.fail("made again")


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("FANIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "fanin"
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FANIN_CACHE", "own")  # builds run in folders of their own
    assert cache_directory() == tmp_path / "own"


@pytest.mark.parametrize(
    ("mode", "owner", "group", "cause"),
    [
        (0o40755, 1000, 1000, ""),
        (0o40775, 1000, 1000, "other users or a group may write there"),  # its group may be a primary one
        (0o40755, 0, 0, ""),  # the administrator's, for all to read
        (0o40775, 1000, 100, "other users or a group may write there"),
        (0o40777, 1000, 1000, "other users or a group may write there"),
        (0o41777, 0, 0, "other users or a group may write there"),
        (0o40700, 1001, 1001, "belongs to another user"),
    ],
)
def test_a_folder_that_others_may_write_is_refused(monkeypatch, tmp_path, mode, owner, group, cause):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = os.stat_result((mode, 1, 1, 1, owner, group, 0, 0, 0, 0))
    with pytest.raises(InputError, match=cause) if cause else nullcontext():
        cache._check_own(tmp_path, found)


def _list(place):
    """Give user 65534 all rights to a folder by an access control list; its group is the user's own."""
    none = 0xFFFFFFFF
    entries = [(1, 7, none), (2, 7, 65534), (4, 0, none), (0x10, 7, none), (0x20, 0, none)]
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(place, "system.posix_acl_access", content)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")


def test_a_folder_that_others_may_write_by_a_list_is_refused(tmp_path):
    """The group's bits of a folder with a list are the most that any entry of the list allows."""
    place = tmp_path / "cache"
    place.mkdir(0o700)
    cache._check_own(place, place.stat())
    _list(place)
    with pytest.raises(InputError, match="other users or a group may write there"):
        cache._check_own(place, place.stat())


def test_a_world_writable_cache_ends_a_command_in_one_line(monkeypatch, tmp_path, capsys):
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    monkeypatch.setenv("FANIN_CACHE", str(place))
    assert main(["verilog", "adder-tree", "-o", "-"]) == 2
    error = capsys.readouterr().err
    cause = "other users or a group may write there, and fanin would run their programs"
    assert error == f"fanin: error: {place}: {cause}; delete it, or make it anew with mode 755\n"
    assert list(place.iterdir()) == []


def test_a_part_of_it_that_others_may_write_is_refused(monkeypatch, tmp_path):
    part = tmp_path / "emitted"
    part.mkdir()
    part.chmod(0o777)
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path))
    assert part.name in cache.KINDS
    with pytest.raises(InputError, match="emitted: other users or a group may write there"):
        cache.cache_directory()


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_an_entry_is_its_users_alone_under_any_umask(monkeypatch, tmp_path, open_umask):
    monkeypatch.setenv("FANIN_CACHE", str(tmp_path / "home" / "cache"))
    entry = cache_directory() / "emitted" / "entry"
    cached_text(entry, lambda: "text")
    assert cache_directory() == tmp_path / "home" / "cache"
    for path in (entry, *list(entry.parents)[:3]):
        assert path.stat().st_mode & 0o022 == 0, path


def test_a_text_that_others_may_write_is_made_anew(place):
    cached_text(place, lambda: "evil")
    place.chmod(0o666)
    assert cached_text(place, lambda: "text") == "text"
    assert cached_text(place, _never) == "text"


@pytest.mark.parametrize("part", ["", "program", "inner", "inner/header"])
def test_a_folder_is_used_only_if_all_of_it_is_its_users(tmp_path, part):
    entry = tmp_path / "entry"
    (entry / "inner").mkdir(parents=True)
    (entry / "program").write_text("")
    (entry / "inner" / "header").write_text("")
    (entry / "link").symlink_to("program")
    cache.seal(entry)
    assert cache.is_own(entry)
    cache.delete_foreign(entry)
    (entry / part).chmod(0o777)
    assert not cache.is_own(entry)
    cache.delete_foreign(entry)
    assert not entry.exists()
    assert not cache.is_own(entry)


def test_an_entry_that_cannot_be_deleted_ends_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry").chmod(0o777)
    monkeypatch.setattr(cache.shutil, "rmtree", lambda place, ignore_errors: None)
    with pytest.raises(InputError, match=r"entry: is open to programs of other users; delete it$"):
        cache.delete_foreign(tmp_path / "entry")


def test_parts_and_their_order_decide_a_digest():
    assert digest(["a", b"b"]) == digest(["a", "b"])
    assert len({digest(parts) for parts in (["a", "b"], ["b", "a"], ["ab"], ["ab", ""], ["a"])}) == 5


def test_a_text_is_made_once(place):
    assert cached_text(place, lambda: "σ\n") == "σ\n"
    assert cached_text(place, _never) == "σ\n"
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda whole: b"", lambda whole: whole + b"x"])
def test_a_damaged_text_is_made_anew(place, damage):
    cached_text(place, lambda: "a text\n")
    place.write_bytes(damage(place.read_bytes()))
    assert cached_text(place, lambda: "a text\n") == "a text\n"
    assert cached_text(place, _never) == "a text\n"


def test_what_fails_keeps_nothing(place):
    with pytest.raises(ZeroDivisionError):
        cached_text(place, lambda: str(1 // 0))
    assert list(place.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_keeps_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    assert cached_text(tmp_path / "file" / "emitted" / "entry", lambda: "made") == "made"


def test_of_several_that_want_a_text_one_makes_it(place):
    made = []

    def make():
        made.append(1)
        time.sleep(0.3)
        return "made"

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: cached_text(place, make), range(4))) == {"made"}
    assert len(made) == 1


def test_a_process_that_stands_still_is_waited_for_no_longer_than_the_bound(place, monkeypatch):
    place.parent.mkdir()
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_SECONDS", 0.2)
    start = time.monotonic()
    with entry_lock(place):
        assert cached_text(place, lambda: "made") == "made"
    assert 0.2 <= time.monotonic() - start < 10


HOLD = """
import sys, time
from pathlib import Path
from fanin.base.cache import entry_lock
with entry_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_is_not_waited_for(place):
    place.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"held\n"
        os.kill(holder.pid, signal.SIGKILL)
    start = time.monotonic()
    assert cached_text(place, lambda: "made") == "made"
    assert time.monotonic() - start < 10


def test_a_fresh_cache_uses_and_leaves_nothing(place, monkeypatch):
    cached_text(place, lambda: "before")
    with fresh_cache():
        inside = cache_directory()
        assert cached_text(inside / "emitted" / "entry", lambda: "anew") == "anew"
    assert not inside.exists()
    assert cached_text(cache_directory() / "emitted" / "entry", _never) == "before"
    with fresh_cache(False):
        assert cache_directory() == place.parent.parent


def test_entries_and_their_bytes_are_counted(place):
    assert usage_of("emitted") == cache.CacheUsage(entries=0, bytes=0)
    cached_text(place, lambda: "12345")
    with entry_lock(place.with_name("other")):
        assert usage_of("emitted") == cache.CacheUsage(entries=1, bytes=64 + 1 + 5)
