"""The examples of README.md run, and print what they say they do."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def expected(example: str) -> str:
    """What the comments say: `# -> text`, with \\n for the end of a line."""
    texts = re.findall(r"# -> (.*)$", example, re.MULTILINE)
    return "".join(text.replace("\\n", "\n") + "\n" for text in texts)


def printed(example: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    return re.sub(r"\n\n+", "\n", out.getvalue())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_it_says(example: str) -> None:
    assert printed(example) == expected(example)


def test_another_output_is_noticed() -> None:
    assert printed("print('a')  # -> b") != expected("print('a')  # -> b")
