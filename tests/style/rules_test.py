"""The code keeps the rules of rules.py, and rules.py notices when it does not."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import layers  # noqa: E402
import rules as R  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


class TheRealTree(unittest.TestCase):
    def test_the_rules_see_the_source_files(self):
        names = [name for _, name in layers.source_files(ROOT)]
        self.assertIn("base/result.h", names)

    def test_every_rule_holds_in_src(self):
        for check in R.CHECKS:
            with self.subTest(rule=check.__name__):
                findings = []
                for path, name in layers.source_files(ROOT):
                    findings += check("src/" + name, path.read_text(encoding="utf-8"))
                self.assertEqual(findings, [], "\n" + "\n".join(findings))


class PlantedFiles(unittest.TestCase):
    def assert_bad(self, check, name, text, *words):
        findings = check(name, text)
        self.assertEqual(len(findings), 1, findings)
        for word in (name, *words):
            self.assertIn(word, findings[0])

    def assert_good(self, check, name, text):
        self.assertEqual(check(name, text), [])

    def test_a_header_begins_with_pragma_once(self):
        self.assert_bad(R.check_header_guard, "src/a.h", "#include <string>\n#pragma once\n")
        self.assert_bad(R.check_header_guard, "src/a.h", "// #pragma once\n")
        self.assert_good(R.check_header_guard, "src/a.h", "// What.\n\n#pragma once\n")
        self.assert_good(R.check_header_guard, "src/a.cc", "int x;\n")

    def test_a_header_has_a_comment(self):
        self.assert_bad(R.check_header_comment, "src/a.h", "#pragma once\nint f();\n")
        self.assert_good(R.check_header_comment, "src/a.h", "#pragma once\n// It.\nint f();\n")

    def test_a_long_file_is_found_unless_it_is_a_test(self):
        text = "\n" * (R.LINE_LIMIT + 1)
        self.assert_bad(R.check_length, "src/a.cc", text, "501")
        self.assert_good(R.check_length, "src/a_test.cc", text)
        self.assert_good(R.check_length, "src/a.cc", "\n" * R.LINE_LIMIT)

    def test_a_child_has_no_heap_no_strings_and_no_exceptions(self):
        for text in ("std::string s;", "auto* p = new int;", "p = malloc(3);", "throw 1;",
                     "std::vector<int> v;", "free(realloc(p, 3));", "x = '\"'; throw 1; y = '\"';"):
            with self.subTest(text=text):
                self.assert_bad(R.check_child, "src/k/x_child.cc", "int a;\n" + text, ":2:")
                self.assert_good(R.check_child, "src/k/x.cc", text)

    def test_a_child_may_talk_about_strings(self):
        for text in ("// a new std::string", 'log("malloc");', "/* throw\n new */", "int news = 1;",
                     "#include <new>", "std::string_view v;", "int mallocs = 1'000;"):
            with self.subTest(text=text):
                self.assert_good(R.check_child, "src/k/x_child.cc", text)

    def test_iostream_is_found(self):
        self.assert_bad(R.check_iostream, "src/a.cc", "\n#include <iostream>\n", ":2:")
        self.assert_good(R.check_iostream, "src/a.cc", "#include <ostream>\n")

    def test_a_coroutine_is_found(self):
        self.assert_bad(R.check_coroutines, "src/a.cc", "co_await x;", "co_await")
        self.assert_good(R.check_coroutines, "src/a.cc", "// no co_await here\n")

    def test_what_is_awaited_has_no_temporaries(self):
        for text in ("if (co_await f()) {}", "x = co_await f(a ? b : c);", "co_await f(g(a));",
                     "return a && co_await f();", 'co_await f("text");', "co_await f({a});",
                     "co_await f(a + b);", "while (co_await f()) {}", "co_return co_await f();"):
            with self.subTest(text=text):
                self.assert_bad(R.check_coroutines, "src/egress/a.cc", text, "co_await")
        for text in ("co_await f(a, b);", "const bool x = co_await f(std::move(a), in(kTime));",
                     "n = co_await from.read(buffer);"):
            with self.subTest(text=text):
                self.assert_good(R.check_coroutines, "src/egress/a.cc", text)

    def test_a_boolean_parameter_is_found(self):
        for text in ("void f(bool deep);", "void f(int a,\n       bool deep = false);",
                     "void f(const bool deep);"):
            with self.subTest(text=text):
                self.assert_bad(R.check_boolean_parameters, "src/a.h", text, "bool deep")
                self.assert_good(R.check_boolean_parameters, "src/a.cc", text)

    def test_a_boolean_elsewhere_is_fine(self):
        for text in ("bool ok() const;", "struct S { bool deep = false; };", "// f(bool deep)",
                     "class C {\n public:\n  bool a();\n private:\n  void f(bool deep);\n};\n"):
            with self.subTest(text=text):
                self.assert_good(R.check_boolean_parameters, "src/a.h", text)
        text = "class C {\n private:\n  int a_;\n};\nvoid f(bool deep);\n"
        self.assert_bad(R.check_boolean_parameters, "src/a.h", text, ":5:")

    def test_unfinished_work_is_found(self):
        self.assert_bad(R.check_unfinished, "src/a.cc", "\n// TO" "DO: later\n", ":2:")
        self.assert_good(R.check_unfinished, "src/a.cc", '"/tmp/carrel-XXXXXX"\n')

    def test_what_musl_does_otherwise_is_found(self):
        for text in ("std::recursive_mutex m;", "std::recursive_timed_mutex m;",
                     "pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;",
                     "::strerror_r(e, b, 9);", "regexec(&r, t, 0, n, 0);", "int n = ::nftw(p, f, 3, 0);",
                     "::sched_setscheduler(0, p, &x);", "if (sched_getparam(0, &x)) {}",
                     "auto n = ::basename(path);", "iconv_open(a, b);", "std::setlocale(LC_ALL, n);",
                     "auto l = std::locale(n);", "pthread_cancel(t);", "getcontext(&c);",
                     "::dlopen(n, 0);", "res_ninit(&s);", "regex_t r;"):
            with self.subTest(text=text):
                self.assert_bad(R.check_musl, "src/a.cc", "int x;\n" + text, ":2:")
                self.assert_good(R.check_musl, "src/guest/a.cc", text)
                self.assert_good(R.check_musl, "src/a_test.cc", text)
        for text in ("// std::recursive_mutex", '"strerror_r("', "std::regex r; std::regex_search(a, r);",
                     "::syscall(SYS_sched_setscheduler, 0, p, &x);", "std::mutex m;",
                     "base.basename();", "std::locale::classic()", "PTHREAD_MUTEX_INITIALIZER",
                     "left(a);", "drive.shift(x);", "std::locale()"):
            with self.subTest(text=text):
                self.assert_good(R.check_musl, "src/a.cc", text)

    def test_a_file_name_is_snake_case(self):
        self.assert_bad(R.check_file_name, "src/base/UniqueFd.h", "")
        self.assert_good(R.check_file_name, "src/base/unique_fd_test.cc", "")

    def test_a_folder_that_shadows_system_headers_is_found(self):
        self.assert_bad(R.check_include_folder, "src/linux/x.h", "", "linux/")
        self.assert_good(R.check_include_folder, "src/kernel/uapi/linux.h", "")


if __name__ == "__main__":
    unittest.main()
