#!/usr/bin/env python3
"""The transcripts in README.md, run for real.

A transcript is a block between ``` lines whose first line begins with "$ ". Its commands run one
after the other in one shell, with the program as `carrel`, in a throw-away CARREL_HOME.

    transcript.py --write    puts what they really print into README.md
    transcript.py --check    compares that with what is there, in shape: numbers, ids and versions
                             may differ, and a line "..." stands for any lines

CARREL is the program, build/carrel if it is not set.
"""

import argparse
import difflib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PROMPT = "$ "
LEFT_OUT = "..."
SECONDS = 120

# Runs each command as if it had been typed: `$?` is that of the one before. What is printed between
# two marks is the output of one command.
DRIVER = r"""
status=0
while IFS= read -r -u 9 line; do
  (exit $status)
  eval "$line" < /dev/null
  status=$?
  printf '\n%s\n' "$MARK"
done 2>&1
carrel rm --all --force > /dev/null 2>&1
"""

# What differs from run to run and from host to host, without being another answer.
VARIABLE = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{3,4}(?:-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\b"), "ID"),
    (re.compile(r'"duration_ms":\d+'), '"duration_ms":N'),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\bPython \d+(?:\.\d+)+"), "Python N"),
)


class Transcript:
    """A block of README.md: (command, lines of its output) in order, and where it stands."""

    def __init__(self, first, last, steps):
        self.first, self.last, self.steps = first, last, steps

    @property
    def commands(self):
        return [command for command, _ in self.steps]


def transcripts(text):
    """Those of a Markdown text. `first` and `last` are the numbers of its lines, from 0."""
    found = []
    lines = text.splitlines()
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    for begin, end in zip(fences[::2], fences[1::2]):
        block = lines[begin + 1:end]
        if not block or not block[0].startswith(PROMPT):
            continue
        steps = []
        for line in block:
            if line.startswith(PROMPT) and not is_told(steps, line):
                steps.append((line[len(PROMPT):], []))
            else:
                steps[-1][1].append(line)
        found.append(Transcript(begin + 1, end, steps))
    return found


def is_told(steps, line):
    """Whether a line that looks like a prompt is what `carrel logs` tells of an earlier command."""
    if not steps or not re.match(r"carrel logs\b", steps[-1][0]):
        return False
    told = line[len(PROMPT):]
    return any(f"'{told}'" in command for command, _ in steps[:-1])


def run(commands, program, home, user=None):
    """What each command prints, as lists of lines. As `user` (an entry of pwd), if there is one."""
    mark = "mark-" + secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        shutil.copy(program, Path(place, "carrel"))  # its folder may be closed to the user
        words = Path(place, "commands")
        words.write_text("".join(command + "\n" for command in commands), encoding="utf-8")
        environment = {"PATH": place + ":/usr/local/bin:/usr/bin:/bin", "MARK": mark,
                       "CARREL_HOME": str(home), "HOME": str(home), "LC_ALL": "C.UTF-8"}
        identity = {}
        if user is not None:
            identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with words.open(encoding="utf-8") as typed:
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-c", f"exec 9<&{typed.fileno()}; {DRIVER}"],
                env=environment, pass_fds=[typed.fileno()], cwd=home, timeout=SECONDS,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, **identity)
    pieces = done.stdout.decode("utf-8", "replace").split(f"\n{mark}\n")[:-1]
    return [piece.rstrip("\n").split("\n") if piece.strip("\n") else [] for piece in pieces]


def shape(line):
    for pattern, word in VARIABLE:
        line = pattern.sub(word, line)
    return line.rstrip()


def fits(told, real):
    """Whether lines of README.md are what was printed."""
    if not told:
        return not real
    if told[0] == LEFT_OUT:
        return any(fits(told[1:], real[skipped:]) for skipped in range(len(real) + 1))
    return bool(real) and shape(told[0]) == shape(real[0]) and fits(told[1:], real[1:])


def shorten(told, real):
    """The real lines, with those left out that `told` leaves out as well."""
    if LEFT_OUT not in told:
        return real
    before = told.index(LEFT_OUT)
    after = len(told) - before - 1
    return real[:before] + [LEFT_OUT] + real[len(real) - after:]


def differences(text, program, home, user=None):
    """Sentences about each command of the text whose output is another one today."""
    found = []
    for transcript in transcripts(text):
        outputs = run(transcript.commands, program, home, user)
        for (command, told), real in zip(transcript.steps, outputs, strict=True):
            if not fits(told, real):
                lines = difflib.unified_diff(told, real, "README.md", "today", lineterm="")
                found.append(f"{PROMPT}{command}\n" + "\n".join(lines))
    return found


def rewritten(text, program, home):
    lines = text.splitlines()
    for transcript in reversed(transcripts(text)):
        outputs = run(transcript.commands, program, home)
        steps = list(zip(transcript.steps, outputs, strict=True))
        # No change for the sake of a number, and none by halves: the same id is in several lines.
        if all(fits(told, real) for (_, told), real in steps):
            continue
        block = []
        for (command, told), real in steps:
            block += [PROMPT + command, *shorten(told, real)]
        lines[transcript.first:transcript.last] = block
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    program = os.environ.get("CARREL", str(ROOT / "build" / "carrel"))
    text = README.read_text(encoding="utf-8")
    # A keeper may be leaving while its home is removed.
    with tempfile.TemporaryDirectory(prefix="carrel-readme-", ignore_cleanup_errors=True) as home:
        if arguments.write:
            README.write_text(rewritten(text, program, home), encoding="utf-8")
            return 0
        found = differences(text, program, home)
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
