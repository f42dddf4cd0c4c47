"""Files of a sandbox, and copies in and out."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from carrel import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    Sandbox,
    SandboxError,
)
from carrel._archive import unpack


def test_what_is_written_is_read(box: Sandbox) -> None:
    box.files.write("nested/a/b.txt", "text\n")
    assert box.files.read_text("/workspace/nested/a/b.txt") == "text\n"
    box.files.write("bytes", b"\x00\xff" * 3, mode=0o600)
    assert box.files.read("bytes") == b"\x00\xff" * 3
    assert box.files.read("bytes", offset=1, count=2) == b"\xff\x00"
    assert box.files.stat("bytes").mode == 0o600
    box.files.write("empty", "")
    assert box.files.read("empty") == b""
    box.files.write("empty", "more", exists="append")
    assert box.files.read_text("empty") == "more"
    with pytest.raises(ConflictError):
        box.files.write("empty", "again", exists="fail")
    with pytest.raises(FileNotFoundError):
        box.files.write("absent", "x", exists="need")


def test_what_is_not_there_is_a_file_not_found_error(box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.read("/nonexistent.txt")
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.stat("/nonexistent.txt")
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.list("/nonexistent.txt")
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.remove("nonexistent.txt")
    assert not box.files.exists("/nonexistent.txt")


def test_changes_are_heard_from_the_beginning_of_the_block_on(box: Sandbox) -> None:
    box.files.mkdir("watched/below")
    with box.files.watch("watched", recursive=True) as changes:
        box.exec(["sh", "-c", "cd watched; echo x > below/a; mv below/a b; rm b"])
        heard = []
        for change in changes:
            heard.append((change.event, change.path, change.to))
            if change.event == "remove":
                break
    assert heard[0] == ("create", "below/a", None)
    assert ("write", "below/a", None) in heard
    assert heard[-2:] == [("rename", "below/a", "b"), ("remove", "b", None)]
    with pytest.raises(FileNotFoundError, match="not found"), box.files.watch("absent"):
        pass
    with pytest.raises(DeniedError), box.files.watch("../etc"):
        pass
    # What goes wrong inside of the block is not taken for the directory's fault.
    with pytest.raises(NotFoundError) as raised, box.files.watch("watched"):
        box.command("9999").info()
    assert not isinstance(raised.value, FileNotFoundError)


def test_a_watcher_hears_of_the_end_of_its_sandbox() -> None:
    with Sandbox() as box:
        other = Sandbox.attach(box.id)
        with pytest.raises(SandboxError), box.files.watch() as changes:
            other.delete(grace=0)
            for _ in changes:
                pass


def test_paths_are_data_and_dots_are_refused(box: Sandbox) -> None:
    name = "a; touch pwned #\n'\" -x"
    box.files.write(name, "1")
    assert box.files.read_text(name) == "1"
    assert name in [info.path for info in box.files.list()]
    assert not box.files.exists("pwned")
    with pytest.raises(DeniedError, match="potentially unsafe"):
        box.files.read("a/../../etc/passwd")
    box.files.write("a..b", "fine")


def test_trees_are_listed_found_searched_moved_and_removed(box: Sandbox) -> None:
    box.files.write("tree/one.py", "alpha\nbeta\n")
    box.files.write("tree/sub/two.py", "Beta\n")
    box.files.mkdir("tree/none", mode=0o700)
    assert sorted(info.path for info in box.files.list("tree")) == ["none", "one.py", "sub"]
    assert sorted(box.files.find("*.py", "tree")) == ["one.py", "sub/two.py"]
    assert [(m.path, m.line) for m in box.files.search("beta", "tree")] == [("one.py", 2)]
    assert len(box.files.search("beta", "tree", ignore_case=True)) == 2
    box.files.move("tree/one.py", "tree/three.py")
    box.files.copy("tree/sub", "tree/again")
    assert box.files.read_text("tree/again/two.py") == "Beta\n"
    box.files.chmod("tree/three.py", 0o640)
    assert box.files.stat("tree/three.py").mode == 0o640
    box.files.replace("tree/three.py", "alpha", "")
    assert box.files.read_text("tree/three.py") == "\nbeta\n"
    with pytest.raises(ConflictError):
        box.files.replace("tree/three.py", "absent", "x")
    box.files.remove("tree", recursive=True)
    assert not box.files.exists("tree")


def test_a_large_file_goes_in_and_out_unchanged(box: Sandbox, tmp_path: Path) -> None:
    local = tmp_path / "large"
    local.write_bytes(os.urandom(1 << 20) * 24)
    box.files.upload(local, "large")
    inside = box.run("sha256sum large").stdout.split()[0]
    box.files.download("large", tmp_path / "back")
    digest = hashlib.sha256(local.read_bytes()).hexdigest()
    assert inside == digest
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == digest
    box.files.remove("large")


def test_a_directory_goes_in_and_out_with_links_modes_and_empty_ones(
    box: Sandbox, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    box.files.upload(source, "target")
    assert box.run("cd target && ls && readlink link && test -x run.sh && test -d empty").success
    box.run("cd /workspace")
    (tmp_path / "into").mkdir()
    box.files.download("target", tmp_path / "into")
    back = tmp_path / "into" / "target"
    assert sorted(path.name for path in back.iterdir()) == ["empty", "link", "run.sh"]
    assert os.readlink(back / "link") == "run.sh"
    assert back.joinpath("run.sh").stat().st_mode & 0o777 == 0o755
    box.files.download("target", tmp_path / "as")
    assert (tmp_path / "as" / "run.sh").exists()


def test_copies_have_the_four_cases(box: Sandbox, tmp_path: Path) -> None:
    box.files.write("d/f", "1")
    box.files.download("d/f", tmp_path / "new" / "g")
    assert (tmp_path / "new" / "g").read_text() == "1"
    box.files.download("d/f", tmp_path)
    assert (tmp_path / "f").read_text() == "1"
    with pytest.raises(InvalidError, match="directory but destination is a file"):
        box.files.download("d", tmp_path / "f")
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.download("/nonexistent.txt", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(FileNotFoundError, match="not found"):
        box.files.upload(tmp_path / "none", "x")
    with pytest.raises(Exception, match=r"[Rr]ead-only"):
        box.files.upload(tmp_path / "f", "/usr/f")


def hostile(entries: list[tuple[tarfile.TarInfo, bytes]]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    file.seek(0)
    return file


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    made.linkname = link
    made.mode = 0o6755
    return made


def test_a_hostile_archive_writes_nothing_outside(tmp_path: Path) -> None:
    target = tmp_path / "target"
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("../x", "/tmp/x", "a/../../x"):
        with pytest.raises(DeniedError):
            unpack(hostile([(entry(name), b"x")]), str(target))
    # A link first, and then a file through it.
    for link in (str(outside), "../outside", "sub/../../outside"):
        archive = hostile([(entry("l", tarfile.SYMTYPE, link), b""), (entry("l/x"), b"x")])
        summary = unpack(archive, str(target))
        assert [path for path, _ in summary.left_out] == ["l"]
        os.remove(target / "l" / "x")
        os.rmdir(target / "l")
    # A link that was there before.
    (target / "l").symlink_to(outside)
    with pytest.raises(DeniedError):
        unpack(hostile([(entry("l/x"), b"x")]), str(target))
    # A file that replaces a link does not go through it.
    (outside / "old").write_text("old")
    (target / "f").symlink_to(outside / "old")
    unpack(hostile([(entry("f"), b"new")]), str(target))
    assert (outside / "old").read_text() == "old" and (target / "f").read_bytes() == b"new"
    assert os.listdir(outside) == ["old"]


def test_devices_and_set_id_bits_do_not_arrive(tmp_path: Path) -> None:
    archive = hostile(
        [
            (entry("device", tarfile.CHRTYPE), b""),
            (entry("pipe", tarfile.FIFOTYPE), b""),
            (entry("hard", tarfile.LNKTYPE, "/etc/hostname"), b""),
            (entry("file"), b"x"),
            (entry("same", tarfile.LNKTYPE, "file"), b""),
        ]
    )
    with pytest.raises(DeniedError):
        unpack(archive, str(tmp_path))
    archive = hostile(
        [
            (entry("device", tarfile.CHRTYPE), b""),
            (entry("pipe", tarfile.FIFOTYPE), b""),
            (entry("file"), b"x"),
            (entry("same", tarfile.LNKTYPE, "file"), b""),
        ]
    )
    summary = unpack(archive, str(tmp_path))
    assert [path for path, _ in summary.left_out] == ["device", "pipe"]
    assert sorted(os.listdir(tmp_path)) == ["file", "same"]
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o755


def test_what_a_sandbox_made_is_copied_out_harmlessly(box: Sandbox, tmp_path: Path) -> None:
    box.run(
        "mkdir -p evil && cd evil && ln -s /etc/passwd out && ln -s . in && mkfifo pipe && cd .."
    )
    summary = box.files.download("evil", tmp_path / "evil")
    assert sorted(os.listdir(tmp_path / "evil")) == ["in"]
    assert "out" in [path for path, _ in summary.left_out]


def test_snapshots_diffs_and_restores(box: Sandbox) -> None:
    with Sandbox() as other:
        other.files.write("kept", "1\n")
        taken = other.snapshot("first")
        assert taken.name == "first"
        other.files.write("kept", "2\n")
        other.files.write("new", "x")
        changes = {change.path: change for change in other.diff("first").changes}
        assert changes["kept"].change == "modified" and changes["new"].change == "added"
        assert [*changes["kept"].hunks[0]["lines"]] == ["-1\n", "+2\n"]
        other.restore(taken)
        assert other.run("cat kept; ls").stdout == "1\nkept\n"
        with pytest.raises(LookupError):
            other.restore("none")
