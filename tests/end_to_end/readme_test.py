"""The transcripts of README.md are what the program prints, and others are noticed."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "demo"))

import transcript as T  # noqa: E402

PROGRAM = os.environ["CARREL_BINARY"]
TEXT = T.README.read_text(encoding="utf-8")


def ordinary_user():
    """Whom the other tests make, where they can; None where this is an ordinary user already."""
    try:
        return pwd.getpwnam("carrel-test") if os.geteuid() == 0 else None
    except KeyError:
        return None


class WithAHome(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="carrel-readme-", ignore_cleanup_errors=True)
        self.addCleanup(place.cleanup)
        self.home = place.name

    def differences(self, text, user=None):
        return T.differences(text, PROGRAM, self.home, user)


class TheReadme(WithAHome):
    def test_has_transcripts_of_one_shots_and_of_a_long_lived_sandbox(self):
        commands = [c for one in T.transcripts(TEXT) for c in one.commands]
        for word in ("run", "code", "create", "sh", "exec", "logs", "rm"):
            self.assertTrue(any(f"carrel {word}" in command for command in commands), word)

    def test_is_what_the_program_prints(self):
        found = self.differences(TEXT)
        self.assertEqual(found, [], "./dev readme writes it anew\n" + "\n".join(found))

    def test_is_what_the_program_prints_for_an_ordinary_user(self):
        user = ordinary_user()
        if user is None:
            self.skipTest("there is no user carrel-test to become")
        os.chown(self.home, user.pw_uid, user.pw_gid)
        self.assertEqual(self.differences(TEXT, user), [])


class TheReadmesDaemon(unittest.TestCase):
    """The lines that are no transcript: they run as they are printed, with nothing set before."""

    def block(self):
        found = [part for part in TEXT.split("```")[1::2] if "curl " in part and "carrel serve" in part]
        self.assertEqual(len(found), 1)
        return found[0].split("\n", 1)[1]

    def run_as(self, user, enter):
        with tempfile.TemporaryDirectory(prefix="carrel-readme-", ignore_cleanup_errors=True) as place:
            os.chmod(place, 0o755)
            shutil.copy(PROGRAM, Path(place, "carrel"))
            home = Path(place, "home")
            home.mkdir()
            identity = {}
            if user is not None:
                os.chown(home, user.pw_uid, user.pw_gid)
                identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            script = self.block() + "\nstatus=$?\nkill %1\nwait %1\nexit $status\n"
            done = subprocess.run([*enter, "bash", "--noprofile", "--norc", "-c", script], cwd=home,
                                  env={"PATH": f"{place}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                                       "HOME": str(home), "LC_ALL": "C.UTF-8"},
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=T.SECONDS,
                                  check=False, text=True, **identity)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('"stdout":"42\\n"', done.stdout, done.stderr)
            return sorted(path.name for path in home.glob("**/carrel/*"))

    def test_works_as_printed_for_an_ordinary_user(self):
        user = ordinary_user()
        if os.geteuid() == 0 and user is None:
            self.skipTest("there is no user carrel-test to become")
        self.assertIn("run", self.run_as(user, []))

    def test_works_as_printed_for_root(self):
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        # The default is a folder of the whole machine: a place of the test's own covers it.
        self.run_as(None, ["unshare", "--mount", "sh", "-c",
                           'mount -t tmpfs none /var/lib && exec "$@"', "sh"])


class TheManual(unittest.TestCase):
    def test_names_every_variable_that_the_program_reads(self):
        page = subprocess.run([PROGRAM, "help", "--man"], capture_output=True, text=True, check=True)
        told = set(re.findall(r"^\\fB(CARREL_\w+)", page.stdout, re.MULTILINE))
        read = set()
        for path in (ROOT / "src").glob("**/*.cc"):
            if not path.name.endswith("_test.cc"):
                read |= set(re.findall(r'(?:getenv|variable)\("(CARREL_\w+)"',
                                       path.read_text(encoding="utf-8")))
        self.assertIn("CARREL_HOME", read)
        self.assertEqual(read - told, set())


class PlantedReadmes(WithAHome):
    def block(self, *lines):
        return "\n".join(["# Title", "", "```", *lines, "```", ""])

    def test_another_output_is_noticed(self):
        for lines in (["$ echo a; echo b", "a"], ["$ echo a", "a", "b"], ["$ echo a", "A"],
                      ["$ true", "a"], ["$ echo a"], ["$ (exit 3)", "$ echo $?", "0"],
                      ["$ carrel run -- echo a", "b"], ["$ carrel no-such-command"]):
            with self.subTest(lines=lines):
                found = self.differences(self.block(*lines))
                self.assertEqual(len(found), 1, found)
                self.assertIn("today", found[0])

    def test_only_the_shape_counts_and_lines_may_be_left_out(self):
        for lines in (["$ echo 'Python 3.11.2'", "Python 3.13"],
                      ["$ echo '{\"duration_ms\":2}'", '{"duration_ms":12}'],
                      ["$ echo 5b7ba0e0-f2b", "01234567-89a"],
                      ["$ seq 5", "1", "...", "5"], ["$ seq 5", "1", "2", "..."],
                      ["$ x=1", "$ echo $x; (exit 4)", "1", "$ echo $?", "4"]):
            with self.subTest(lines=lines):
                self.assertEqual(self.differences(self.block(*lines)), [])

    def test_what_a_log_tells_is_not_run_again(self):
        block = self.block("$ carrel create --name one", "ID", "$ carrel sh one 'echo x'", "x",
                           "$ carrel logs one", "...", "$ echo x", "...")
        one, = T.transcripts(block)
        self.assertEqual(len(one.steps), 3)

    def test_a_rewritten_readme_is_right_and_keeps_what_was(self):
        right = self.block("$ echo Python 3.1", "Python 2.7")
        wrong = self.block("$ seq 3", "1", "...", "9", "$ echo Python 3.1", "Python 2.7", "$ true")
        new = T.rewritten(right + wrong + right + "End.\n", PROGRAM, self.home)
        made = wrong.replace("9", "3").replace("2.7", "3.1")
        self.assertEqual(new, right + made + right + "End.\n")
        self.assertEqual(self.differences(new), [])


if __name__ == "__main__":
    unittest.main()
