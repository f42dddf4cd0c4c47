"""What the shipped program takes from musl, although it was compiled against glibc's headers.

Read from the cross reference of the linker's map: symbols that musl's libc.a defines and that an
object refers to which is neither musl's own nor compiled against musl's headers (src/base/musl*.c).
`python3 tests/libc/boundary.py build/carrel.map` prints them.
"""

import re
import sys

LIBRARY = re.compile(r"-linux-musl/libc\.a\(")
OF_MUSL = re.compile(r"-linux-musl/(?:libc\.a\(|\w+\.o$)|(?:^|/)musl\w*_shims\.o$")


def cross_reference(lines):
    """(symbol, files) for each; the first file is the one that defines it."""
    symbol, files, begun = None, [], False
    for line in lines:
        if not begun:
            begun = line.startswith("Symbol ")
            continue
        words = line.split()
        if words and not line.startswith(" "):
            if symbol is not None:
                yield symbol, files
            symbol, files = words[0], words[1:]
        elif words:
            files.append(words[-1])
    if symbol is not None:
        yield symbol, files


def crossing(lines):
    """The symbols that cross, each with one object that refers to it."""
    found = {}
    for symbol, files in cross_reference(lines):
        others = [name for name in files[1:] if not OF_MUSL.search(name)]
        if files and LIBRARY.search(files[0]) and others:
            found[symbol] = others[0].rsplit("/", 1)[-1]
    return found


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as text:
        print("\n".join(sorted(crossing(text))))


if __name__ == "__main__":
    main()
