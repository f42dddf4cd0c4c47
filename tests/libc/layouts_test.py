"""Every difference between the layouts of glibc and musl is one that somebody looked at.

The known ones are in known/layouts-MACHINE.txt, with a word on why each group does no harm. A
structure that is new in src/ and differs is a finding, whether or not anybody passes it yet.
"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import layouts  # noqa: E402

KNOWN = Path(__file__).resolve().parent / "known" / f"layouts-{layouts.machine()}.txt"
ADVICE = ("see that nothing in src/ and in our libraries passes it, write why into {}, or call the "
          "kernel by number with the kernel's own structure").format(KNOWN.name)


def known():
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def differences(extra=("", "")):
    with tempfile.TemporaryDirectory() as work:
        return layouts.compare(layouts.tables_of_this_machine(Path(work), extra))


class Layouts(unittest.TestCase):
    def test_every_difference_is_known(self):
        counts, lines = differences()
        self.assertGreater(counts["T"], 250)
        self.assertGreater(counts["F"], 600)
        self.assertGreater(counts["C"], 4500)
        new = sorted(set(lines) - known())
        self.assertEqual(new, [], "\n".join(["", *new, ADVICE]))

    def test_planted_difference_is_found(self):
        extra = ("struct planted { int a; long b; int bits : 3; };\n#define PLANTED 3\n"
                 "enum { PLANTED_ENUM = 1 };\ntypedef struct { int x; } planted_t;\n"
                 "#define PLANTED_TEXT \"glibc\"\n",
                 "struct planted { long a; int b; int bits : 4; };\n#define PLANTED 4\n"
                 "enum { PLANTED_ENUM = 2 };\ntypedef struct { char pad; int x; } planted_t;\n"
                 "#define PLANTED_TEXT \"musl\"\n")
        found = {line for line in differences(extra)[1] if "lanted" in line.lower()}
        self.assertEqual(found, {
            "DIFF F struct planted.a glibc 0 4 musl 0 8",
            "DIFF F struct planted.b glibc 8 8 musl 8 4",
            "DIFF T planted_t glibc 4 4 musl 8 4",
            "DIFF F planted_t.x glibc 0 4 musl 4 4",
            "DIFF C PLANTED glibc 3 musl 4",
            "DIFF C PLANTED_ENUM glibc 1 musl 2"} | {
            line for line in found if line.startswith("DIFF T struct planted ")})


if __name__ == "__main__":
    unittest.main()
