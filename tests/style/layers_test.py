"""Dependencies point downward only, and these checks notice when one does not."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import layers as L  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

TABLE = """# Architecture
| 9 | `outside` | built | a row outside the markers does not count |
<!-- layers: begin -->
| layer | folder of `src/` | state | what it is |
|---|---|---|---|
| 4 | `cli` | built | the command |
| 3 | `backends/one` | built | a backend |
| 3 | `backends/two` | built | another |
| 2 | `kernel` | built | the kernel |
| 1 | `base` | built | the ground |
| 5 | `server` | not yet | later |
<!-- layers: end -->
"""

TREE = {
    "docs/architecture.md": TABLE,
    "CMakeLists.txt": "\n".join(
        f"add_subdirectory(src/{name})"
        for name in ("base", "kernel", "backends/one", "backends/two", "cli")
    ),
    "src/base/a.h": "#pragma once\n#include <string>\n",
    "src/base/CMakeLists.txt": "carrel_module(base)\n",
    "src/kernel/k.cc": '#include "kernel/uapi/k.h"\n#include "base/a.h"\n#include <kernel/no.h>\n',
    "src/kernel/uapi/k.h": '#pragma once\n#include "base/a.h"\n',
    "src/kernel/CMakeLists.txt": "carrel_module(kernel\n  SOURCES k.cc\n  DEPS base)\n",
    "src/backends/one/one.cc": '#include "kernel/uapi/k.h"\n',
    "src/backends/one/CMakeLists.txt": "carrel_module(one SOURCES one.cc DEPS kernel base)\n",
    "src/backends/two/two.cc": '#include "base/a.h"\n',
    "src/backends/two/CMakeLists.txt": "carrel_module(two SOURCES two.cc PUBLIC_DEPS base)\n",
    "src/cli/main.cc": '#include "backends/one/one.h"\n',
    "src/cli/CMakeLists.txt": "add_executable(carrel main.cc)\n"
    "target_link_libraries(carrel PRIVATE carrel_flags carrel_one)\n",
}


class TheRealTree(unittest.TestCase):
    def setUp(self):
        self.layers = L.read_layers(ROOT)

    def assert_clean(self, findings):
        self.assertEqual(findings, [], "\n" + "\n".join(findings))

    def test_every_folder_is_in_the_table(self):
        self.assert_clean(L.check_folders(ROOT, self.layers))

    def test_includes_point_downward(self):
        self.assert_clean(L.check_includes(ROOT, self.layers))

    def test_targets_link_downward(self):
        self.assert_clean(L.check_targets(ROOT, self.layers))

    def test_folders_are_added_from_the_ground_up(self):
        self.assert_clean(L.check_order(ROOT, self.layers))


class APlantedTree(unittest.TestCase):
    def findings(self, check, files=None):
        """What `check` finds in TREE with `files` laid over it; None leaves a file out."""
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for path, text in {**TREE, **(files or {})}.items():
                if text is not None:
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / path).write_text(text, encoding="utf-8")
            return check(root, L.read_layers(root))

    def assert_found(self, check, files, *words):
        found = self.findings(check, files=files)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_good_tree_has_no_findings(self):
        for check in (L.check_folders, L.check_includes, L.check_targets, L.check_order):
            self.assertEqual(self.findings(check), [])

    def test_an_upward_include_is_found_with_its_line(self):
        bad = {"src/base/b.cc": '#include "base/a.h"\n\n  # include "kernel/uapi/k.h"\n'}
        self.assert_found(L.check_includes, bad, "src/base/b.cc:3", "upward", "kernel/uapi/k.h")

    def test_an_upward_include_in_a_test_is_found(self):
        bad = {"src/kernel/k_test.cc": '#include "cli/main.h"\n'}
        self.assert_found(L.check_includes, bad, "k_test.cc:1", "upward")

    def test_only_tests_include_how_long_tests_wait(self):
        patience = '#include "support/patience.h"\n'
        self.assertEqual(self.findings(L.check_includes, {"src/kernel/k_test.cc": patience}), [])
        self.assert_found(L.check_includes, {"src/kernel/k.cc": patience}, "not a path from src/")

    def test_an_upward_include_from_a_subfolder_is_found(self):
        bad = {"src/kernel/uapi/x.h": '#include "backends/one/one.h"\n'}
        self.assert_found(L.check_includes, bad, "kernel includes upward")

    def test_backends_do_not_know_each_other(self):
        bad = {"src/backends/two/two.cc": '#include "backends/one/one.h"\n'}
        self.assert_found(L.check_includes, bad, "sideways", "backends/one/one.h")

    def test_angle_brackets_do_not_hide_an_include(self):
        bad = {"src/base/b.cc": "#include <kernel/uapi/k.h>\n"}
        self.assert_found(L.check_includes, bad, "upward")

    def test_dots_do_not_hide_an_include(self):
        bad = {"src/base/b.cc": '#include "../kernel/uapi/k.h"\n'}
        self.assert_found(L.check_includes, bad, "not a path from src/")
        bad = {"src/base/b.cc": '#include "base/../kernel/uapi/k.h"\n'}
        self.assert_found(L.check_includes, bad, "not a path from src/")

    def test_a_name_without_its_folder_is_found(self):
        self.assert_found(L.check_includes, {"src/base/b.cc": '#include "a.h"\n'}, '"a.h"')

    def test_an_unlisted_folder_is_found(self):
        self.assert_found(L.check_folders, {"src/misc/x.cc": ""}, "src/misc/x.cc")
        self.assert_found(L.check_folders, {"src/backends/three/x.cc": ""}, "src/backends/three")

    def test_a_built_folder_without_code_is_found(self):
        self.assert_found(L.check_folders, {"src/backends/two/two.cc": None}, "no source file")

    def test_a_folder_listed_as_not_yet_has_no_code(self):
        self.assert_found(L.check_folders, {"src/server/x.cc": ""}, "src/server", "not yet")

    def test_an_upward_link_is_found(self):
        bad = {"src/base/CMakeLists.txt": "carrel_module(base DEPS kernel)\n"}
        self.assert_found(L.check_targets, bad, "base links upward", "carrel_kernel")
        bad = {"src/base/CMakeLists.txt": "carrel_module(base)\n"
               "target_link_libraries(carrel_base PUBLIC\n  carrel_one)\n"}
        self.assert_found(L.check_targets, bad, "base links upward", "carrel_one")

    def test_a_sideways_link_is_found(self):
        bad = {"src/backends/two/CMakeLists.txt": "carrel_module(two PUBLIC_DEPS one base)\n"}
        self.assert_found(L.check_targets, bad, "backends/two links sideways", "carrel_one")

    def test_a_link_in_a_comment_is_no_link(self):
        good = {"src/base/CMakeLists.txt": "carrel_module(base)  # DEPS kernel\n# DEPS one)\n"}
        self.assertEqual(self.findings(L.check_targets, files=good), [])

    def test_a_link_to_a_missing_target_is_found(self):
        bad = {"src/kernel/CMakeLists.txt": "carrel_module(kernel DEPS bose)\n"}
        self.assert_found(L.check_targets, bad, "carrel_bose")

    def test_a_folder_without_a_target_is_found(self):
        self.assert_found(L.check_targets, {"src/backends/two/CMakeLists.txt": ""}, "no CMake")

    def test_a_folder_added_too_early_is_found(self):
        bad = {"CMakeLists.txt": TREE["CMakeLists.txt"].replace(
            "add_subdirectory(src/base)\nadd_subdirectory(src/kernel)",
            "add_subdirectory(src/kernel)\nadd_subdirectory(src/base)")}
        self.assert_found(L.check_order, bad, "adds src/kernel before src/base")

    def test_a_table_that_cannot_be_read_is_an_error(self):
        for table in ("no table", TABLE.replace("built | the kernel", "soon | the kernel"),
                      TABLE.replace("`kernel`", "`base`"), TABLE.replace("`", "")):
            with self.subTest(table=table), self.assertRaises(ValueError):
                self.findings(L.check_folders, files={"docs/architecture.md": table})


if __name__ == "__main__":
    unittest.main()
