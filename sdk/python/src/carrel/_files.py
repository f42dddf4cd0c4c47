"""The files of a sandbox: what can be done with them, written once for both kinds of callers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal, Union

from ._archive import pack, pieces_of, unpack
from ._following import PATIENCE, problem_of
from ._sse import EventParser, ServerEvent
from ._steps import AsyncSide, Request, Steps, SyncSide, T, Work, operation
from .errors import InvalidError, NotFoundError, SandboxFileNotFoundError, UnavailableError
from .results import CopySummary, FileChange, FileInfo, Match

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox, Sandbox

LocalPath = Union[str, "os.PathLike[str]"]


def _with_file_errors(steps: Steps[T]) -> Steps[T]:
    """The same steps, with a FileNotFoundError for what is not there."""
    try:
        return (yield from steps)
    except NotFoundError as error:
        if type(error) is not NotFoundError:
            raise
        raise SandboxFileNotFoundError(error.message, status=error.status) from None


class FilesCore:
    """Paths are the sandbox's: absolute ones from its root, others from its ``/workspace``. They
    are names and never shell text, and one with ``..`` in it is refused."""

    def _path(self, action: str = "") -> str:
        raise NotImplementedError

    def _get(self, action: str, query: dict[str, str], **more: Any) -> Request:
        return Request("GET", self._path(action), query, patience=None, repeatable=True, **more)

    def _post(self, action: str, body: dict[str, Any]) -> Request:
        return Request("POST", self._path(action), json=body, patience=None)

    @operation
    def read(self, path: str, *, offset: int = 0, count: int | None = None) -> Steps[bytes]:
        """The bytes of a file, all of them or `count` from `offset` on."""
        query = {"path": path, "offset": str(offset)}
        if count is not None:
            query["count"] = str(count)
        return (yield self._get("", query)).body

    @operation
    def read_text(
        self, path: str, *, encoding: str = "utf-8", errors: str = "strict"
    ) -> Steps[str]:
        """The text of a file."""
        reply = yield self._get("", {"path": path})
        return reply.body.decode(encoding, errors)

    @operation
    def write(
        self,
        path: str,
        content: Union[str, bytes],
        *,
        mode: int | None = None,
        exists: Literal["replace", "fail", "need", "append"] = "replace",
    ) -> Steps[CopySummary]:
        """Writes a file, whole or not at all, and makes the directories above it. `exists` says
        what becomes of one that is there; "need" refuses to make a new one."""
        data = content.encode() if isinstance(content, str) else content
        query = {"path": path, "exists": exists}
        if mode is not None:
            query["mode"] = format(mode, "o")
        reply = yield Request("PUT", self._path(), query, content=data, patience=None)
        return CopySummary.of(reply.json())

    @operation
    def stat(self, path: str) -> Steps[FileInfo]:
        """What is known of one file; a link is not followed."""
        return FileInfo.of((yield self._get("/stat", {"path": path})).json())

    @operation
    def exists(self, path: str) -> Steps[bool]:
        """Whether there is something of that name."""
        try:
            yield self._get("/stat", {"path": path})
        except NotFoundError:
            return False
        return True

    @operation
    def list(
        self, path: str = ".", *, recursive: bool = False, pattern: str | None = None
    ) -> Steps[Sequence[FileInfo]]:
        """What is in a directory, with paths from there on."""
        query = {"path": path, "recursive": "true" if recursive else "false"}
        if pattern is not None:
            query["pattern"] = pattern
        reply = yield self._get("/list", query)
        return [FileInfo.of(row) for row in reply.json()["files"]]

    @operation
    def find(self, pattern: str, path: str = ".") -> Steps[Sequence[str]]:
        """The paths below a directory whose names fit a pattern such as ``*.py``."""
        query = {"path": path, "recursive": "true", "pattern": pattern}
        reply = yield self._get("/list", query)
        return [row["path"] for row in reply.json()["files"]]

    @operation
    def search(
        self,
        text: str,
        path: str = ".",
        *,
        pattern: str | None = None,
        ignore_case: bool = False,
        exclude: Sequence[str] = (),
        skip_usual: bool = False,
        limit: int = 1000,
    ) -> Steps[Sequence[Match]]:
        """The lines below a directory that have the text in them. `pattern` and `exclude` choose
        files by name; `skip_usual` leaves out what is seldom meant, such as ``node_modules``."""
        body: dict[str, Any] = {
            "path": path,
            "text": text,
            "ignore_case": ignore_case,
            "exclude": [*exclude],
            "skip_usual": skip_usual,
            "limit": limit,
        }
        if pattern is not None:
            body["pattern"] = pattern
        reply = yield self._post("/search", body)
        rows = reply.json()["matches"]
        return [Match(row["path"], row["line"], row["text"]) for row in rows]

    @operation
    def mkdir(self, path: str, *, mode: int | None = None) -> Steps[None]:
        """Makes a directory, and those above it."""
        body = {"path": path}
        if mode is not None:
            body["mode"] = format(mode, "o")
        yield self._post("/mkdir", body)

    @operation
    def chmod(self, path: str, mode: int) -> Steps[None]:
        """Changes the mode of a file."""
        body = {"path": path, "mode": format(mode, "o")}
        yield self._post("/chmod", body)

    @operation
    def move(self, path: str, to: str) -> Steps[None]:
        """Moves a file or a directory."""
        yield self._post("/move", {"path": path, "to": to})

    @operation
    def copy(self, path: str, to: str) -> Steps[None]:
        """Copies a file or a directory within the sandbox."""
        yield self._post("/copy", {"path": path, "to": to})

    @operation
    def remove(self, path: str, *, recursive: bool = False) -> Steps[None]:
        """Removes a file, an empty directory, or with `recursive` a whole one."""
        body = {"path": path, "recursive": recursive}
        yield self._post("/remove", body)

    @operation
    def replace(self, path: str, old: str, new: str) -> Steps[None]:
        """Replaces the only occurrence of a text in a file; none or several are an error."""
        body = {"path": path, "old": old, "new": new}
        yield self._post("/replace", body)

    @operation
    def upload(self, local: LocalPath, path: str) -> Steps[CopySummary]:
        """Copies a file of this host to `path`, or what is in a directory into the directory
        `path`. Modes, links and empty directories are kept; owners are not."""
        return (yield from self._upload(os.fspath(local), path))

    @operation
    def download(self, path: str, local: LocalPath) -> Steps[CopySummary]:
        """Copies a file or a directory to this host. Where `local` is a directory, it goes into it
        under its own name. Nothing outside of `local` is ever written, and what is no file,
        directory or harmless link is named in ``left_out``."""
        return (yield from self._download(path, os.fspath(local)))

    def _watch(self, path: str, recursive: bool) -> Request:
        query = {"path": path, "recursive": "true" if recursive else "false"}
        return Request("GET", self._path("/watch"), query, patience=PATIENCE, repeatable=True)

    def _upload(self, local: str, path: str) -> Steps[CopySummary]:
        if not os.path.exists(local):
            raise SandboxFileNotFoundError(f"Source file not found: {local}")
        with tempfile.TemporaryFile() if os.path.isdir(local) else open(local, "rb") as file:
            if os.path.isdir(local):
                yield Work(lambda: _packed(local, file))
                request = self._put_archive(path, file)
            else:
                mode = format(os.fstat(file.fileno()).st_mode & 0o777, "o")
                query = {"path": path, "mode": mode}
                request = Request(
                    "PUT", self._path(), query, content=pieces_of(file), patience=None
                )
            return CopySummary.of((yield request).json())

    def _put_archive(self, path: str, file: IO[bytes]) -> Request:
        place = self._path().removesuffix("/files") + "/archive"
        return Request("PUT", place, {"path": path}, content=pieces_of(file), patience=None)

    def _download(self, path: str, local: str) -> Steps[CopySummary]:
        info = FileInfo.of((yield self._get("/stat", {"path": path})).json())
        into = os.path.isdir(local)
        target = os.path.join(local, os.path.basename(path.rstrip("/"))) if into else local
        if info.kind == "directory":
            if os.path.lexists(target) and not os.path.isdir(target):
                raise InvalidError(f"Source path is a directory but destination is a file: {path}")
            with tempfile.TemporaryFile() as file:
                place = self._path().removesuffix("/files") + "/archive"
                yield Request("GET", place, {"path": path}, sink=file.write, patience=None)
                file.seek(0)
                work = Work(lambda: unpack(file, target))
                yield work
                return work.result
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        return (yield from self._download_file(path, target, info))

    def _download_file(self, path: str, target: str, info: FileInfo) -> Steps[CopySummary]:
        """Beside its target first: a download that breaks off leaves the old file."""
        folder = os.path.dirname(os.path.abspath(target))
        descriptor, part = tempfile.mkstemp(prefix=".carrel-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield self._get("", {"path": path}, sink=file.write)
                size = file.tell()
            os.chmod(part, info.mode & 0o777 | 0o600 if info.kind == "file" else 0o644)
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise
        return CopySummary(target, 1, size)


def _packed(local: str, file: IO[bytes]) -> None:
    pack(local, file)
    file.seek(0)


class _Changes:
    """What a stream of events says: that it has begun, and then the changes."""

    def __init__(self) -> None:
        self._parser = EventParser()
        self.begun = False

    def feed(self, piece: bytes) -> Iterator[FileChange]:
        for event in self._parser.feed(piece):
            change = self._take(event)
            if change is not None:
                yield change

    def _take(self, event: ServerEvent) -> FileChange | None:
        if event.kind == "error":
            raise problem_of(event.data)
        self.begun = self.begun or event.kind == "watching"
        return FileChange.of(event.data) if event.kind == "change" else None

    def explained(self, error: NotFoundError) -> NotFoundError:
        """What there was nothing of to watch is a file; later errors are the caller's own."""
        if self.begun or type(error) is not NotFoundError:
            return error
        return SandboxFileNotFoundError(error.message, status=error.status)

    @staticmethod
    def over() -> UnavailableError:
        return UnavailableError("the daemon went away: changes from now on are not known")


def _next(pieces: Iterator[bytes]) -> bytes:
    try:
        return next(pieces)
    except StopIteration:
        raise _Changes.over() from None


async def _next_async(pieces: AsyncIterator[bytes]) -> bytes:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        raise _Changes.over() from None


def _following(
    heard: _Changes, first: Sequence[FileChange], pieces: Iterator[bytes]
) -> Iterator[FileChange]:
    yield from first
    for piece in pieces:
        yield from heard.feed(piece)
    raise _Changes.over()


async def _following_async(
    heard: _Changes, first: Sequence[FileChange], pieces: AsyncIterator[bytes]
) -> AsyncIterator[FileChange]:
    for change in first:
        yield change
    async for piece in pieces:
        for change in heard.feed(piece):
            yield change
    raise _Changes.over()


class Files(FilesCore, SyncSide):
    """``box.files``: the files of a sandbox."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def _path(self, action: str = "") -> str:
        return self._box._path("/files" + action)

    def _perform(self, steps: Steps[T]) -> T:
        return self._box._perform(_with_file_errors(steps))

    @contextmanager
    def watch(self, path: str = ".", *, recursive: bool = False) -> Iterator[Iterator[FileChange]]:
        """``with box.files.watch("src") as changes: for change in changes: …``. Inside of the block
        nothing is missed; a daemon that goes away is an UnavailableError."""
        heard = _Changes()
        try:
            with self._box._transport.pieces(self._watch(path, recursive)) as pieces:
                first: list[FileChange] = []
                while not heard.begun:
                    first += heard.feed(_next(pieces))
                yield _following(heard, first, pieces)
        except NotFoundError as error:
            raise heard.explained(error) from None


class AsyncFiles(FilesCore, AsyncSide):
    """``box.files``: the files of a sandbox, awaited."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    def _path(self, action: str = "") -> str:
        return self._box._path("/files" + action)

    async def _perform(self, steps: Steps[T]) -> T:
        return await self._box._perform(_with_file_errors(steps))

    @asynccontextmanager
    async def watch(
        self, path: str = ".", *, recursive: bool = False
    ) -> AsyncIterator[AsyncIterator[FileChange]]:
        """``async with box.files.watch("src") as changes: async for change in changes: …``."""
        heard = _Changes()
        try:
            async with self._box._transport.pieces(self._watch(path, recursive)) as pieces:
                first: list[FileChange] = []
                while not heard.begun:
                    first += heard.feed(await _next_async(pieces))
                yield _following_async(heard, first, pieces)
        except NotFoundError as error:
            raise heard.explained(error) from None
