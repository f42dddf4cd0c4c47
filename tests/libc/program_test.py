"""What is fragile in a program that is linked with musl: exceptions, forks, memory that is freed.

CARREL_LIBC_PROBE is tests/libc/probe.cc, linked as the shipped program is; CARREL_BINARY is that one.
"""

import os
import re
import signal
import subprocess
import unittest

PROBE = os.environ["CARREL_LIBC_PROBE"]
PROGRAM = os.environ["CARREL_BINARY"]


def probe(trial):
    return subprocess.run([PROBE, trial], capture_output=True, text=True, timeout=60, check=False)


class Program(unittest.TestCase):
    def assert_ends_itself(self, trial, why):
        run = probe(trial)
        self.assertEqual(run.returncode, -signal.SIGABRT, run)
        self.assertEqual(run.stderr, f"carrel: {why}\n")

    def test_checked_print_into_an_unknown_room_prints(self):
        run = probe("checked_print")
        self.assertEqual(run.returncode, 0, run)

    def test_exceptions_are_caught_in_threads_and_after_a_fork(self):
        run = probe("exceptions")
        self.assertEqual(run.returncode, 0, run)

    def test_child_of_a_process_with_busy_threads_can_allocate(self):
        run = probe("forks")
        self.assertEqual(run.returncode, 0, run)

    def test_double_delete_ends_the_process(self):
        self.assert_ends_itself("double_delete", "a block of memory was freed twice")
        self.assert_ends_itself("unsized_double_delete", "a block of memory was freed twice")

    def test_write_after_delete_ends_the_process(self):
        self.assert_ends_itself("write_after_delete",
                                "a block of memory was written to after it was freed")

    def test_frames_are_not_registered_at_the_start(self):
        """crtbeginT.o registers all of them; the first exception sorts them then, for 6 ms."""
        symbols = subprocess.run(["nm", PROGRAM], capture_output=True, text=True, check=True).stdout
        self.assertIn(" _dl_find_object\n", symbols)
        self.assertIsNone(re.search(r" __EH_FRAME_BEGIN__$", symbols, re.M))


if __name__ == "__main__":
    unittest.main()
