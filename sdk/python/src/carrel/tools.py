"""Functions that an agent may call, run in sandboxes instead of in this process."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any, Literal

from .errors import InvalidError
from .runner import SandboxRunner

Kind = Literal["code", "files", "other"]
Which = Literal["code", "files", "all"]

_CALL = """
import json as _json
_arguments = _json.loads({arguments!r})
_value = {name}(*_arguments["args"], **_arguments["kwargs"])
if _value is not None:
    print(_value)
"""


class ToolSandbox:
    """Wraps functions so that calling them runs their source in a fresh sandbox.

    ::

        tools = ToolSandbox(sandboxed="all")

        @tools.wrap
        def double(x: int) -> int:
            return 2 * x

        double(21)   # '42\\n', from a sandbox

    `sandboxed` says which: ``"code"`` those of kind "code", ``"files"`` those of kind "files",
    ``"all"`` every one. The others are returned as they are. A wrapped call takes what JSON can
    say, sees nothing of this process but its arguments, and returns a text: what the function
    printed and returned, or after a failure the exit code and both streams.
    """

    def __init__(self, runner: SandboxRunner | None = None, *, sandboxed: Which = "code") -> None:
        if sandboxed not in ("code", "files", "all"):
            raise InvalidError(f"'sandboxed' cannot be {sandboxed!r} (code, files or all)")
        self.runner = runner or SandboxRunner()
        self.sandboxed = sandboxed

    def covers(self, kind: Kind) -> bool:
        """Whether functions of that kind run in a sandbox."""
        return self.sandboxed in ("all", kind)

    def wrap(self, function: Callable[..., Any], *, kind: Kind = "code") -> Callable[..., Any]:
        """The function as an agent should get it. A use as a decorator is fine."""
        if not self.covers(kind):
            return function
        source = _source_of(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> str:
            arguments = json.dumps({"args": args, "kwargs": kwargs})
            code = source + _CALL.format(name=function.__name__, arguments=arguments)
            return str(self.runner.run_code(code))

        return call


def _source_of(function: Callable[..., Any]) -> str:
    """The function's own source, without decorators and annotations: what they name is not there
    inside."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise InvalidError(f"the source of {function!r} is not known: {error}") from error
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise InvalidError(f"{function!r} is no plain function")
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for one in [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *([arguments.vararg] if arguments.vararg else []),
        *([arguments.kwarg] if arguments.kwarg else []),
    ]:
        one.annotation = None
    return ast.unparse(definition) + "\n"
