"""Parts that need no daemon."""

from __future__ import annotations

import inspect
import pickle

import pytest

import carrel
from carrel import SandboxError, SandboxFileNotFoundError, SandboxTimeoutError
from carrel._following import Capture, Following
from carrel._sse import EventParser, ServerEvent
from carrel._steps import NOTHING, Reply, Request, Steps, Work, perform
from carrel._transport import problem_of
from carrel.errors import error_of


def test_each_code_of_the_api_has_its_error() -> None:
    """R206, B-39"""
    for code, kinds in {
        "invalid": (carrel.InvalidError, ValueError),
        "not_found": (carrel.NotFoundError, LookupError),
        "conflict": (carrel.ConflictError,),
        "denied": (carrel.DeniedError, PermissionError),
        "unsupported": (carrel.UnsupportedError,),
        "unavailable": (carrel.UnavailableError, ConnectionError),
        "resource": (carrel.SandboxResourceError,),
        "timeout": (SandboxTimeoutError, TimeoutError),
        "gone": (carrel.GoneError,),
        "system": (carrel.SystemFailure,),
        "unauthenticated": (carrel.UnauthenticatedError, PermissionError),
        "method_not_allowed": (SandboxError,),
        "too_large": (carrel.InvalidError,),
        "unsupported_media_type": (carrel.InvalidError,),
        "a code of the future": (SandboxError,),
    }.items():
        error = error_of(code, "why", 418)
        for kind in (*kinds, SandboxError, RuntimeError):
            assert isinstance(error, kind)
        assert (error.code, str(error), error.status) == (code, "why", 418)


def test_errors_can_be_pickled() -> None:
    for kind in (SandboxError, SandboxFileNotFoundError, SandboxTimeoutError):
        copy = pickle.loads(pickle.dumps(kind("why", status=7)))
        assert type(copy) is kind and (str(copy), copy.status) == ("why", 7)


def test_an_answer_that_is_no_problem_is_told_as_it_is() -> None:
    assert "502" in str(problem_of(502, b"<html>bad gateway"))
    assert "502" in str(problem_of(502, b"[]"))


def test_events_come_whole_whatever_the_pieces() -> None:
    text = (
        b'event: stdout\nid: 1-2\ndata: {"a":\ndata: 1}\n\n:\n\nevent: exit\ndata: 2\n\nevent: half'
    )
    for size in range(1, len(text)):
        parser = EventParser()
        events: list[ServerEvent] = []
        for at in range(0, len(text), size):
            events += parser.feed(text[at : at + size])
        assert [(event.kind, event.data, event.id) for event in events] == [
            ("stdout", {"a": 1}, "1-2"),
            ("exit", 2, ""),
        ]


def test_a_capture_keeps_the_beginning_and_the_end() -> None:
    capture = Capture(kept=4)
    for piece in (b"abc", b"def", b"ghijkl", b"mn", b"op"):
        capture.add(piece)
    assert capture.data() == b"abcd\n[... 8 bytes left out ...]\nmnop"
    assert capture.cut == 8
    short = Capture(kept=4)
    short.add(b"abcdefgh")
    assert short.data() == b"abcdefgh" and short.cut == 0


def test_following_gives_up_after_a_few_failures_in_a_row() -> None:
    following = Following("/x")
    with pytest.raises(ConnectionError):
        for _ in range(6):
            following.broke_off()


def test_an_error_of_a_request_is_raised_at_its_yield() -> None:
    class Broken:
        def send(self, request: Request) -> Reply:
            if request.path == "/bad":
                raise SandboxError("bad")
            return Reply(200, {}, request.path.encode())

    def steps() -> Steps[list[bytes]]:
        seen = []
        try:
            yield Request("GET", "/bad")
        except SandboxError:
            seen.append((yield Request("GET", "/after")).body)
        work = Work(lambda: b"worked")
        assert (yield work) is NOTHING
        seen.append(work.result)
        return seen

    assert perform(steps(), Broken()) == [b"/after", b"worked"]


def test_help_shows_what_a_caller_gives_and_gets() -> None:
    signature = str(inspect.signature(carrel.Sandbox().run))
    assert signature.startswith("(command: 'str', *") and signature.endswith("-> 'ExecResult'")


def test_everything_that_is_offered_is_named() -> None:
    public = {
        name
        for name, value in vars(carrel).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(carrel.__all__)
