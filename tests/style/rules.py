"""Rules of the code that a compiler and clang-format do not check.

Each check takes (name, text) of one file, where `name` is its path from the root of the source
tree, and returns findings: sentences that name the file and, where there is one, the line.
"""

import re

LINE_LIMIT = 500
COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
# Between clone and exec there is no heap, no exception, no lock and no string.
CHILD_FORBIDDEN = re.compile(
    r"\bstd::(?:string|vector|map|function|unique_ptr|make_unique|mutex|lock_guard)\b"
    r"|\bnew\b|\b(?:m|c|re)alloc\b|\bthrow\b"
)
COROUTINE = re.compile(r"\bco_(?:await|yield|return)\b")
BOOLEAN_PARAMETER = re.compile(r"[(,]\s*(?:const\s+)?bool\s+\w+\s*(?=[,)=])")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
SNAKE_CASE = re.compile(r"^[a-z0-9]+(_[a-z0-9]+)*\.(h|cc|c|S)$")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    """The text with comments and literals blanked, every line where it was."""
    return COMMENT_OR_LITERAL.sub(blank, text)


def found(name, text, pattern, sentence):
    """A finding for every match of `pattern`; `sentence` may use {} for what was matched."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: "
        + sentence.format(match.group(0).strip(" (,"))
        for match in pattern.finditer(text)
    ]


def check_header_guard(name, text):
    if not name.endswith(".h"):
        return []
    first = [line for line in without_comments(text).splitlines() if line.strip()][:1]
    return [] if first == ["#pragma once"] else [f"{name}: does not begin with #pragma once"]


def check_header_comment(name, text):
    """A header says what it is for."""
    if not name.endswith(".h") or "//" in text or "/*" in text:
        return []
    return [f"{name}: says nowhere what it is for"]


def check_length(name, text):
    lines = text.count("\n")
    if "_test." in name or lines <= LINE_LIMIT:
        return []
    return [f"{name}: {lines} lines, more than {LINE_LIMIT}; split it by subject"]


def check_child(name, text):
    if not name.endswith(("_child.cc", "_child.h")):
        return []
    code = re.sub(r"^\s*#\s*include[^\n]*", blank, without_comments(text), flags=re.MULTILINE)
    return found(name, code, CHILD_FORBIDDEN, "{} has no place between clone and exec")


def check_iostream(name, text):
    pattern = re.compile(r"^[ \t]*#\s*include\s*<iostream>", re.MULTILINE)
    return found(name, text, pattern, "library code returns and never prints: no <iostream>")


AWAITED = re.compile(r"(?:(?:const )?[\w:<>,\s*&]+ \w+ =|[\w.]+ =|)")
CALL = re.compile(r"([\w:]+)\s*\(")
# What makes nothing that has to be destroyed: times, views, references.
HARMLESS = {"in", "bytes_of", "Bytes", "first", "move", "seconds", "milliseconds", "of", "subspan",
            "span", "get", "fd", "loop", "service", "data", "size", "value", "address", "empty",
            "port", "text", "policy", "turn", "sleep", "resolve", "now"}


def check_coroutines(name, text):
    """g++ 12 miscompiles them unless what is awaited is a statement of its own without temporaries;
    so they are in one folder, and written in that way alone (docs/decisions/0021)."""
    code = without_comments(text)
    if "src/egress/" not in name:
        return found(name, code, COROUTINE, "g++ 12 miscompiles coroutines: no {}")
    findings = []
    for match in re.finditer(r"\bco_await\b", code):
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        before = " ".join(code[begin:match.start()].split())
        end = code.find(";", match.end())
        awaited = code[match.end():end]
        others = [call.split("::")[-1] for call in CALL.findall(awaited)[1:]]
        if (not AWAITED.fullmatch(before) or re.search(r"[?{\[+]", awaited)
                or '"' in text[match.end():end]
                or any(call not in HARMLESS for call in others)):
            line = code.count("\n", 0, match.start()) + 1
            findings.append(f"{name}:{line}: co_await is a statement of its own, without temporaries")
    return findings


def check_boolean_parameters(name, text):
    """Public functions of a header; what stands after private: is the class's own business."""
    if not name.endswith(".h"):
        return []
    private = re.compile(r"^ *private:.*?^ *\};", re.DOTALL | re.MULTILINE)
    code = private.sub(blank, without_comments(text))
    return found(name, code, BOOLEAN_PARAMETER, "'{}': an enum class or an options struct instead")


def check_unfinished(name, text):
    return found(name, text, UNFINISHED, "{}: finish it, or say in a decision why not")


def check_file_name(name, _text):
    last = name.rsplit("/", 1)[-1]
    return [] if SNAKE_CASE.match(last) else [f"{name}: file names are snake_case"]


def check_include_folder(name, _text):
    """A folder of these names on the include path would shadow the system's headers."""
    bad = {"sys", "linux", "net", "asm"} & set(name.split("/")[:-1])
    return [f"{name}: the folder {folder}/ shadows the system's headers" for folder in sorted(bad)]


# Compiles against glibc's headers, links with musl, and does something else there
# (docs/decisions/0012-musl.md). A missing function is the linker's affair, a difference in a
# structure that of tests/libc.
BROKEN_WITH_MUSL = (
    (r"std::recursive_(?:timed_)?mutex\b|\bPTHREAD_\w+_INITIALIZER_NP\b",
     "glibc's initial value is that of an ordinary mutex for musl, which waits for itself; "
     "use std::mutex"),
    (r"\bstrerror_r\s*\(",
     "glibc's returns the text and musl's a number; use std::generic_category().message()"),
    (r"\breg(?:comp|exec|error|free)\s*\(|\bregex_t\b|\bregmatch_t\b",
     "regex_t and regmatch_t are laid out differently; write the match out"),
    (r"\bn?ftw(?:64)?\s*\(|\bFTW_\w+", "the values of FTW_* differ; use base/open_below.h or fdopendir()"),
    (r"(?:::|(?<![\w.:>]))sched_[gs]et(?:scheduler|param)\s*\(",
     "musl's only answers ENOSYS; use syscall() with SYS_ and its name"),
    (r"(?:::|(?<![\w.:>]))basename\s*\(",
     "glibc's leaves its argument as it is and musl's writes into it; use std::string_view::rfind()"),
    (r"\biconv(?:_open)?\s*\(",
     "where glibc's reports a character that cannot be converted, musl's writes a '*'"),
    (r"\bsetlocale\s*\(|std::locale\s*[({]\s*[^)}\s]",
     "the one locale of the C++ library here is \"C\" (src/base/musl.c)"),
    (r"\bpthread_(?:cancel|exit)\s*\(",
     "glibc's runs destructors on the way and musl's does not; let the thread return"),
    (r"\b(?:get|set|make|swap)context\s*\(", "musl has none, and src/base/musl.c refuses"),
    (r"\bdlopen\s*\(", "a static program on musl loads nothing"),
    (r"\bres_n\w+\s*\(|\bstruct __res_state\b",
     "the state of the resolver is laid out differently, and musl does not use it"),
)
# Compiled against musl's own headers, or linked with glibc on purpose.
WITHOUT_GLIBC_HEADERS = ("src/guest/", "src/base/musl", "src/verify/probes/")


# Words without which none of them can be there: most files have none.
HINTS = ("recursive_", "_INITIALIZER_NP", "strerror_r", "regcomp", "regexec", "regerror", "regfree",
         "regex_t", "regmatch_t", "ftw", "FTW_", "scheduler", "param", "basename", "iconv", "locale",
         "pthread_", "context", "dlopen", "res_n", "__res_state")


def check_musl(name, text):
    if (name.startswith(WITHOUT_GLIBC_HEADERS) or "_test." in name
            or not any(hint in text for hint in HINTS)):
        return []
    code = without_comments(text)
    return [finding for pattern, why in BROKEN_WITH_MUSL
            for finding in found(name, code, re.compile(pattern),
                                 "{}: " + why.replace("{", "{{").replace("}", "}}"))]


CHECKS = (
    check_header_guard,
    check_header_comment,
    check_length,
    check_child,
    check_iostream,
    check_coroutines,
    check_boolean_parameters,
    check_unfinished,
    check_file_name,
    check_include_folder,
    check_musl,
)
