"""Trees as tar archives: packed on this host for a sandbox, and unpacked here from one.

What a sandbox made is hostile: an archive from it writes below one directory and nowhere else.
Every directory on the way is opened without following links, files replace what has their name and
are never written through it, and what is no file, directory or harmless link is left out.
"""

from __future__ import annotations

import functools
import os
import secrets
import stat
import tarfile
from collections.abc import Callable, Iterator
from typing import IO

from .errors import DeniedError, InvalidError
from .results import CopySummary

PIECE = 1 << 18
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """The rest of an open file, in pieces that a request can send."""
    while piece := file.read(PIECE):
        yield piece


def pack(source: str, file: IO[bytes]) -> None:
    """Writes what is below the directory `source` as a tar: files, directories, links, modes."""

    def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode &= 0o777
        return entry

    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(os.listdir(source)):
            archive.add(os.path.join(source, name), arcname=name, filter=without_owner)


def unpack(file: IO[bytes], destination: str) -> CopySummary:
    """Unpacks below the directory `destination`, which is made if it is missing."""
    os.makedirs(destination, exist_ok=True)
    top = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    left_out: list[tuple[str, str]] = []
    entries = size = 0
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for entry in archive:
                reason = _unpack_one(archive, entry, top)
                if reason:
                    left_out.append((entry.name, reason))
                else:
                    entries += 1
                    size += entry.size if entry.isreg() else 0
    except tarfile.TarError as error:
        raise InvalidError(f"the archive of the sandbox is damaged: {error}") from error
    finally:
        os.close(top)
    return CopySummary(destination, entries, size, tuple(left_out))


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise DeniedError(f"the archive of the sandbox has an unsafe path: '{name}'")
    return parts


def _unpack_one(archive: tarfile.TarFile, entry: tarfile.TarInfo, top: int) -> str:
    """Returns why the entry was left out, or nothing."""
    parts = _parts(entry.name)
    if not parts:
        return ""
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return "it is no file, directory or link"
    if entry.issym() and _leads_out(parts, entry.linkname):
        return "it is a link that leads out of the directory"
    parent = _open_directories(top, parts[:-1])
    try:
        name = parts[-1]
        mode = entry.mode & 0o777
        if entry.isdir():
            os.close(_open_directory(parent, name))
            os.chmod(name, mode | 0o700, dir_fd=parent)
        elif entry.issym():
            _replace(parent, name, lambda new: os.symlink(entry.linkname, new, dir_fd=parent))
        elif entry.islnk():
            return _link(top, _parts(entry.linkname), parent, name)
        else:
            source = archive.extractfile(entry)
            assert source is not None
            write = functools.partial(_write, parent, source=source, mode=mode | 0o600)
            _replace(parent, name, write)
    finally:
        os.close(parent)
    return ""


def _leads_out(parts: list[str], target: str) -> bool:
    """Whether a link's target is absolute or climbs above the top of the tree."""
    if target.startswith("/"):
        return True
    depth = len(parts) - 1
    for part in target.split("/"):
        depth += -1 if part == ".." else (0 if part in ("", ".") else 1)
        if depth < 0:
            return True
    return False


def _open_directory(parent: int, name: str) -> int:
    """The directory of that name, made at need; a link to one is not taken for it."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise DeniedError(f"'{name}' is in the way and is no directory") from error


def _open_directories(top: int, parts: list[str]) -> int:
    current = os.dup(top)
    for part in parts:
        try:
            below = _open_directory(current, part)
        finally:
            os.close(current)
        current = below
    return current


def _replace(parent: int, name: str, make: Callable[[str], None]) -> None:
    """Makes the entry under a name of its own and then gives it the name it should have."""
    new = f".carrel-{secrets.token_hex(8)}"
    try:
        make(new)
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError as error:
        raise DeniedError(f"'{name}' is in the way and is a directory") from error
    finally:
        try:
            os.unlink(new, dir_fd=parent)
        except OSError:
            pass


def _write(parent: int, name: str, source: IO[bytes], mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, mode, dir_fd=parent), "wb") as file:
        for piece in pieces_of(source):
            file.write(piece)


def _link(top: int, source: list[str], parent: int, name: str) -> str:
    if not source:
        return "it is a link to nothing"
    directory = _open_directories(top, source[:-1])
    try:
        found = os.stat(source[-1], dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            return "it is a hard link to what is no file"
        _replace(
            parent,
            name,
            lambda new: os.link(
                source[-1], new, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False
            ),
        )
    except FileNotFoundError:
        return "it is a hard link to nothing"
    finally:
        os.close(directory)
    return ""
