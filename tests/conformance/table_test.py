"""The published table of the backends is what the suite found, and the lists agree."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
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

    def test_every_difference_is_published_with_its_reason(self):
        text = table.tables(table.read_differences(), {})
        for backend, tests, reason in table.read_differences():
            self.assertIn(f"`{tests}`", text)
            self.assertIn(f"| `{backend}` | {reason} |", text)
            self.assertNotEqual(reason, "")

    def test_the_same_is_the_reason_before_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# c\n\na | X.* | because | of it\na | Y.* | the same\n")
            file.flush()
            rows = table.read_differences(Path(file.name))
        self.assertEqual(rows, [("a", "X.*", "because | of it"), ("a", "Y.*", "because | of it")])

    def test_a_backend_that_was_not_run_is_said_to_be_so(self):
        lines = table.counts([("a", "X.*", "r")], {})
        self.assertIn("| `a` | not yet | | | | 1 |", lines)
        held = {"backend": "b", "run": "whole", "passed": 7, "failed": [], "skipped": 1}
        self.assertIn("| `b` | whole | 7 | 0 | 1 | 0 |", table.counts([], {"b": held}))

    def test_a_page_without_marks_is_an_error(self):
        with self.assertRaises(ValueError):
            table.replaced("nothing", "")


if __name__ == "__main__":
    unittest.main()
