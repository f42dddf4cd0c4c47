"""The unit files: systemd reads them without a word, and they are as closed as they can be."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging"
# systemd's own measure, from 0 (closed) to 10 (open) in tenths; 96 is a unit without any of it.
MOST_EXPOSED = 75


class Units(unittest.TestCase):
    def setUp(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("there is no systemd-analyze on this machine")
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.place = pathlib.Path(self.directory.name)
        for unit in UNITS.glob("carrel.*"):
            text = unit.read_text().replace("/usr/bin/carrel", "/bin/true")
            (self.place / unit.name).write_text(text)

    def analyze(self, *words):
        run = subprocess.run(
            ["systemd-analyze", *words], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    def test_systemd_understands_every_line(self):
        status, said = self.analyze("verify", "--man=no", str(self.place / "carrel.service"),
                                    str(self.place / "carrel.socket"))
        ours = [line for line in said.splitlines() if "carrel" in line]
        self.assertEqual(ours, [])
        self.assertEqual(status, 0, said)

    def test_service_is_not_more_exposed_than_it_has_to_be(self):
        status, said = self.analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}",
                                    "--no-pager", str(self.place / "carrel.service"))
        self.assertEqual(status, 0, said[-2000:])

    def test_daemon_is_watched_and_leaves_sandboxes_alone(self):
        text = (UNITS / "carrel.service").read_text()
        for line in ("Type=notify", "KillMode=process", "Delegate=yes", "NoNewPrivileges=yes"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, re.compile(r"^WatchdogSec=\d+$", re.M))


if __name__ == "__main__":
    unittest.main()
