"""Whatever the program takes from musl is on a list that somebody looked at: known/boundary.txt.

CARREL_MAP is the map of the link.
"""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import boundary  # noqa: E402

KNOWN = Path(__file__).resolve().parent / "known" / "boundary.txt"
ADVICE = ("compare what glibc's header and musl's manual and source say about it (arguments, structures, "
          f"whether it is a stub), then add it to {KNOWN.name}")

PLANTED = """
Cross Reference Table

Symbol                                            File
known                                             /usr/lib/x86_64-linux-musl/libc.a(known.lo)
                                                  src/base/libcarrel_base.a(files.cc.o)
inner                                             /usr/lib/x86_64-linux-musl/libc.a(inner.lo)
                                                  /usr/lib/x86_64-linux-musl/libc.a(known.lo)
                                                  musl_shims.o
                                                  /usr/lib/x86_64-linux-musl/crt1.o
nftw                                              /usr/lib/x86_64-linux-musl/libc.a(nftw.lo)
                                                  /usr/lib/x86_64-linux-musl/libc.a(known.lo)
                                                  src/cli/libcarrel_cli.a(run.cc.o)
a_long_name_that_has_a_line_of_its_own_and_more_than_that
                                                  /usr/lib/x86_64-linux-musl/libc.a(long.lo)
                                                  src/cli/libcarrel_cli.a(run.cc.o)
ours                                              src/base/libcarrel_base.a(files.cc.o)
                                                  src/cli/libcarrel_cli.a(run.cc.o)
"""


def known():
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


class Boundary(unittest.TestCase):
    def test_every_symbol_from_musl_is_known(self):
        with open(os.environ["CARREL_MAP"], encoding="utf-8", errors="replace") as text:
            found = boundary.crossing(text)
        self.assertGreater(len(found), 300)
        new = [f"{name}, for {user}" for name, user in sorted(found.items())
               if name not in known()]
        self.assertEqual(new, [], "\n".join(["", *new, ADVICE]))

    def test_symbol_of_another_object_is_found(self):
        found = boundary.crossing(PLANTED.splitlines())
        self.assertEqual(found, {
            "known": "libcarrel_base.a(files.cc.o)", "nftw": "libcarrel_cli.a(run.cc.o)",
            "a_long_name_that_has_a_line_of_its_own_and_more_than_that": "libcarrel_cli.a(run.cc.o)"})


if __name__ == "__main__":
    unittest.main()
