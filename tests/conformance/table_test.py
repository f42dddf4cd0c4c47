"""The published table of the backends is what the suite found, and the lists agree."""

import fnmatch
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import conformance  # noqa: E402
import table  # noqa: E402


class Table(unittest.TestCase):
    def test_published_table_is_what_the_suite_found(self):
        wanted = table.replaced(table.PAGE.read_text(),
                                table.tables(table.read_differences(), table.read_results()))
        self.assertEqual(table.PAGE.read_text(), wanted,
                         "run python3 tests/conformance/table.py")

    def test_results_name_the_differences_that_are_listed(self):
        listed = table.read_differences()
        for backend, one in table.read_results().items():
            patterns = {tests for name, tests, _ in listed if name == backend}
            self.assertEqual(set(one["differences"]), patterns, f"{backend} was run with others")
            self.assertEqual(one["failed"], [], backend)

    def test_a_difference_names_tests_that_are_there(self):
        for backend, one in table.read_results().items():
            if one["run"] == "whole":
                names = [name for program in one["programs"].values()
                         for name in program["differing"]]
                for pattern in one["differences"]:
                    self.assertTrue(any(fnmatch.filter(names, part) for part in pattern.split(":")),
                                    f"{backend}: {pattern}")

    def test_every_difference_is_published_with_its_reason(self):
        text = table.tables(table.read_differences(), {})
        for backend, tests, reason in table.read_differences():
            self.assertNotEqual(reason, "")
            self.assertTrue(any(f"`{backend}`" in line and f"| {reason} |" in line
                                and f"`{tests}`" in line for line in text.splitlines()), tests)

    def test_the_same_is_the_reason_before_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# c\n\na | X.* | because | of it\na, b | Y.* | the same\n")
            file.flush()
            rows = table.read_differences(Path(file.name))
        self.assertEqual(rows, [("a", "X.*", "because | of it"), ("a", "Y.*", "because | of it"),
                                ("b", "Y.*", "because | of it")])
        self.assertEqual(table.reasons(rows)[2:], ["| `a` | because | of it | `X.*` |",
                                                   "| `a`, `b` | because | of it | `Y.*` |"])

    def test_a_backend_that_was_not_run_is_said_to_be_so(self):
        lines = table.counts([("a", "X.*", "r")], {})
        self.assertIn("| `a` | not yet | | | | | 1 |", lines)
        held = {"backend": "b", "run": "whole", "passed": 7, "failed": [], "skipped": 1,
                "again": ["X.Y"]}
        self.assertIn("| `b` | whole | 7 | 1 | 0 | 1 | 0 |", table.counts([], {"b": held}))

    def test_a_page_without_marks_is_an_error(self):
        with self.assertRaises(ValueError):
            table.replaced("nothing", "")


class Judged(unittest.TestCase):
    def test_a_difference_has_to_be_one(self):
        known = {"A.*:B.One/*": "because"}
        self.assertEqual(conformance.judged({"A.Two/root": "not so", "B.One/user": "skipped"}, known), {})
        self.assertIn("there is none", conformance.judged({"B.One/root": "passed"}, known)["B.One/root"])

    def test_what_is_refused_fails_with_the_words_of_the_refusal(self):
        known = {"A.*": 'it is refused ("has no network")'}
        found = {"A.One": "carrel: this has no network here", "A.Two": "passed", "A.Three": "leaked"}
        self.assertEqual(list(conformance.judged(found, known)), ["A.Three"])

    def test_a_program_that_told_nothing_has_failed(self):
        found = {"a_test 1 of 1": "it ended with -11"}
        self.assertEqual(conformance.judged(found, {"A.*": "because"}), found)


if __name__ == "__main__":
    unittest.main()
