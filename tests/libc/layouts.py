"""The layouts of two C libraries, compared: sizes, alignments, fields and constants.

The shipped program is compiled against glibc's headers and linked with musl, so that a structure
that the two lay out differently is read wrongly, in silence. The headers are those that src/
includes and that both have, and those that our static libraries use. The names come from the
compiler's debugging information and from its list of macros, not from a list of ours.

A difference is a line:
  DIFF T type glibc SIZE ALIGNMENT musl SIZE ALIGNMENT
  DIFF F type.field glibc OFFSET SIZE musl OFFSET SIZE
  DIFF C constant glibc VALUE musl VALUE

`python3 tests/libc/layouts.py` prints those of this machine.
"""

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the C++ library, OpenSSL, SQLite, libarchive, zlib and zstd use and src/ does not include.
OF_LIBRARIES = ("ctype.h", "dlfcn.h", "fenv.h", "iconv.h", "libintl.h", "locale.h", "math.h",
                "regex.h", "semaphore.h", "setjmp.h", "sys/times.h", "syslog.h", "ucontext.h",
                "ftw.h", "utime.h", "wchar.h", "wctype.h", "float.h", "nl_types.h", "uchar.h",
                "glob.h", "fnmatch.h", "netinet/udp.h", "netinet/ip.h", "net/ethernet.h")
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)
# A macro that may be a number: no text, no statement, nothing of the compiler's own.
NUMERIC = re.compile(r"""[^"'{};#@\\]+""")
PATH = re.compile(r"^\(?([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+\)?$")
RECORD = struct.Struct("=qq")


def included_headers(root, musl):
    """Headers of the C library that src/ includes, by their C names, and that musl has."""
    names = set(OF_LIBRARIES)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in (".h", ".cc", ".c"):
            for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
                names.add(name[1:] + ".h" if re.fullmatch(r"c[a-z]+", name) else name)
    return sorted(name for name in names if (musl / name).is_file())


class Library:
    """The compiler with the headers of one library."""

    def __init__(self, name, options, headers, work):
        self.name = name
        self.options = ["-std=gnu17", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-w", *options]
        self.text = "".join(f"#include <{header}>\n" for header in headers)
        self.work = work

    def compile(self, text, *options, may_fail=False):
        source = self.work / f"{self.name}.c"
        source.write_text(self.text + "#line 1 \"table\"\n" + text, encoding="utf-8")
        run = subprocess.run(["gcc", *self.options, *options, str(source)], text=True,
                             capture_output=True, check=False)
        if run.returncode != 0 and not may_fail:
            raise RuntimeError(f"{self.name}: {run.stderr[:2000]}")
        return run

    def macros(self):
        """Every macro without parameters, with what it stands for before expansion."""
        found = {}
        for line in self.compile("", "-dM", "-E").stdout.splitlines():
            words = line.split(" ", 2)
            if len(words) == 3 and "(" not in words[1] and words[2].strip():
                found[words[1]] = words[2].strip()
        return found

    def debugging_information(self):
        target = self.work / f"{self.name}.o"
        self.compile("", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c", "-o",
                     str(target))
        return subprocess.run(["readelf", "--debug-dump=info", "-W", str(target)], text=True,
                              capture_output=True, check=True).stdout

    def values(self, rows):
        """Two numbers for each of the rows, which are pairs of expressions; None: not constant."""
        wanted = list(range(len(rows)))
        while True:
            target = self.work / f"{self.name}.o"
            text = ("const long long carrel_table[][2] __attribute__((section(\"carrel\"))) = {\n"
                    + "".join(f"{{(long long)({rows[i][0]}), (long long)({rows[i][1]})}},\n"
                              for i in wanted) + "};\n")
            # Not what is constant for this compiler only, such as an address.
            text += "".join(f"_Static_assert((({rows[i][0]}) | 0) || 1, \"\");\n" for i in wanted)
            run = self.compile(text, "-c", "-fmax-errors=0", "-o", str(target), may_fail=True)
            if run.returncode == 0:
                break
            bad = {(int(line) - 2) % (len(wanted) + 1)
                   for line in re.findall(r"^table:(\d+):\d+: error", run.stderr, re.M)}
            bad = {number for number in bad if number < len(wanted)}
            if not bad:
                raise RuntimeError(f"{self.name}: {run.stderr[:2000]}")
            wanted = [i for number, i in enumerate(wanted) if number not in bad]
        binary = self.work / f"{self.name}.bin"
        subprocess.run(["objcopy", "-O", "binary", "-j", "carrel", "--set-section-flags",
                        "carrel=alloc", str(target), str(binary)], check=True)
        found = dict(zip(wanted, RECORD.iter_unpack(binary.read_bytes())))
        return [found.get(i) for i in range(len(rows))]


class Entry:
    """One entry of the debugging information."""

    def __init__(self, tag, depth):
        self.tag, self.depth = tag, depth
        self.name, self.type = None, None
        self.children = []


def entries_of(dump):
    found, stack = {}, []
    head = re.compile(r"^ <(\w+)><(\w+)>: Abbrev Number: \d+ \((\w+)\)")
    entry = Entry("", -1)
    for line in dump.splitlines():
        match = head.match(line)
        if match:
            entry = Entry(match.group(3), int(match.group(1)))
            found[int(match.group(2), 16)] = entry
            del stack[entry.depth:]
            if stack:
                stack[-1].children.append(entry)
            stack.append(entry)
        elif "DW_AT_name" in line:
            entry.name = line.split()[-1]
        elif "DW_AT_type" in line:
            entry.type = int(re.search(r"<0x([0-9a-f]+)>", line).group(1), 16)
    return found


def fields_of(entry, entries):
    for child in entry.children:
        if child.tag == "DW_TAG_member" and child.name:
            yield child.name
        elif child.tag == "DW_TAG_member" and child.type in entries:
            yield from fields_of(entries[child.type], entries)


RECORDS = {"DW_TAG_structure_type": "struct ", "DW_TAG_union_type": "union "}


def declared(dump):
    """What the headers declare: types with their fields, and names of enumerations."""
    entries = entries_of(dump)
    types, constants = {}, set()
    for entry in entries.values():
        if entry.tag == "DW_TAG_enumerator":
            constants.add(entry.name)
        elif entry.depth != 1 or not entry.name:
            continue
        elif entry.tag in RECORDS and entry.children:
            types[RECORDS[entry.tag] + entry.name] = set(fields_of(entry, entries))
        elif entry.tag == "DW_TAG_typedef":
            base = entries.get(entry.type)
            alone = base is not None and base.tag in RECORDS and not base.name
            types[entry.name] = set(fields_of(base, entries)) if alone else set()
    return types, constants


def aliases_of(macros):
    """Macros that stand for a part of a field, such as st_mtime."""
    return {name: PATH.match(text).group(1) for name, text in macros.items() if PATH.match(text)}


class Tables:
    """The two libraries side by side."""

    def __init__(self, libraries):
        self.libraries = libraries
        self.macros = [library.macros() for library in libraries]
        seen = [declared(library.debugging_information()) for library in libraries]
        self.types = [types for types, _ in seen]
        self.constants = [names for _, names in seen]
        self.aliases = [aliases_of(macros) for macros in self.macros]

    def common_types(self):
        return sorted(set(self.types[0]) & set(self.types[1]))

    def names_in(self, side, type_name):
        fields = self.types[side][type_name]
        return fields | {name for name, first in self.aliases[side].items() if first in fields}

    def common_fields(self):
        return [(type_name, field) for type_name in self.common_types()
                for field in sorted(self.names_in(0, type_name) & self.names_in(1, type_name))]

    def common_constants(self):
        names = [{name for name, text in macros.items() if NUMERIC.fullmatch(text)} | constants
                 for macros, constants in zip(self.macros, self.constants)]
        return sorted(name for name in names[0] & names[1] if not name.startswith("__"))

    def rows(self):
        """(kind, name, expression, expression) of everything that both have."""
        for name in self.common_types():
            yield "T", name, f"sizeof({name})", f"_Alignof({name})"
        for name, field in self.common_fields():
            yield ("F", f"{name}.{field}", f"__builtin_offsetof({name}, {field})",
                   f"sizeof((({name}*)0)->{field})")
        for name in self.common_constants():
            yield "C", name, name, "0"


def compare(tables):
    """(how many were compared of each kind, the lines of differences)."""
    rows = list(tables.rows())
    expressions = [row[2:] for row in rows]
    glibc, musl = (library.values(expressions) for library in tables.libraries)
    counts, lines = {"T": 0, "F": 0, "C": 0}, []
    for (kind, name, *_), ours, theirs in zip(rows, glibc, musl):
        if ours is None or theirs is None:
            continue
        counts[kind] += 1
        if ours != theirs:
            shown = [" ".join(map(str, value[:1] if kind == "C" else value))
                     for value in (ours, theirs)]
            lines.append(f"DIFF {kind} {name} glibc {shown[0]} musl {shown[1]}")
    return counts, lines


def machine():
    return subprocess.run(["gcc", "-dumpmachine"], text=True, capture_output=True,
                          check=True).stdout.split("-", 1)[0]


def tables_of_this_machine(work, extra=("", "")):
    """`extra` is text that is put behind the headers of each library."""
    musl = Path(f"/usr/include/{machine()}-linux-musl")
    of_compiler = subprocess.run(["gcc", "-print-file-name=include"], text=True,
                                 capture_output=True, check=True).stdout.strip()
    headers = included_headers(ROOT, musl)
    libraries = [Library("glibc", [], headers, work),
                 Library("musl", ["-nostdinc", "-isystem", str(musl), "-isystem", of_compiler],
                         headers, work)]
    for library, text in zip(libraries, extra):
        library.text += text
    return Tables(libraries)


def main():
    with tempfile.TemporaryDirectory() as work:
        counts, lines = compare(tables_of_this_machine(Path(work)))
    print("\n".join(lines))
    print(f"{counts['T']} types, {counts['F']} fields, {counts['C']} constants", file=sys.stderr)


if __name__ == "__main__":
    main()
