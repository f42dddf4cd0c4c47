"""The layers of src/, as docs/architecture.md lists them, and what breaks them.

Each check takes the root of a source tree and returns findings: sentences that name the file.
The CMake files are read as text, so only literal target names are seen.
"""

import re
from dataclasses import dataclass
from pathlib import Path

SOURCE_ENDINGS = {".h", ".cc", ".c", ".S"}
ROW = re.compile(r"^\|\s*(\d+)\s*\|\s*`([^`]+)`\s*\|\s*([^|]+?)\s*\|")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
COMMAND = re.compile(r"\b([A-Za-z_]+)\s*\(([^()]*)\)")
MODULE_KEYWORDS = {"SOURCES", "TESTS", "DEPS", "PUBLIC_DEPS", "LIBS"}


@dataclass(frozen=True)
class Layer:
    level: int
    state: str


def read_layers(root):
    """The table between the two markers, by folder. An unreadable table is a ValueError."""
    text = (root / "docs/architecture.md").read_text(encoding="utf-8")
    match = re.search(r"<!-- layers: begin -->(.*?)<!-- layers: end -->", text, re.DOTALL)
    if not match:
        raise ValueError("docs/architecture.md has no table between its layer markers")
    layers = {}
    for line in match.group(1).splitlines():
        row = ROW.match(line)
        if not row:
            continue
        level, folder, state = int(row.group(1)), row.group(2), row.group(3)
        if folder in layers:
            raise ValueError(f"docs/architecture.md lists {folder} twice")
        if state not in ("built", "not yet"):
            raise ValueError(f"docs/architecture.md: {folder} is '{state}', not built or not yet")
        layers[folder] = Layer(level, state)
    if not layers:
        raise ValueError("docs/architecture.md has a table of layers without rows")
    return layers


def folder_of(path, layers):
    """The listed folder that holds `path` (a path relative to src/), or None."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        if folder in layers:
            return folder
    return None


def source_files(root):
    source = root / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix in SOURCE_ENDINGS and path.is_file():
            yield path, path.relative_to(source).as_posix()


def direction(here, there, layers):
    """Why `here` may not use `there`, or None if it may."""
    if here == there or layers[there].level < layers[here].level:
        return None
    return "sideways" if layers[there].level == layers[here].level else "upward"


def check_folders(root, layers):
    """Every folder with code is in the table, and the table tells the truth about it."""
    findings = []
    with_code = set()
    for _, name in source_files(root):
        folder = folder_of(name, layers)
        if folder is None:
            findings.append(f"src/{name}: its folder is not in the table of docs/architecture.md")
        else:
            with_code.add(folder)
    for folder, layer in layers.items():
        if layer.state == "built" and folder not in with_code:
            findings.append(f"src/{folder}: listed as built and has no source file")
        if layer.state == "not yet" and folder in with_code:
            findings.append(f"src/{folder}: listed as not yet and has source files")
    return findings


# How long tests wait: the one header of tests/ that unit tests use.
FOR_UNIT_TESTS = "support/patience.h"


def check_includes(root, layers):
    """Includes point downward, and are written from src/."""
    findings = []
    for path, name in source_files(root):
        here = folder_of(name, layers)
        if here is None:
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            quote, target = match.groups()
            if target == FOR_UNIT_TESTS and path.stem.endswith("_test"):
                continue
            where = f"src/{name}:{text.count(chr(10), 0, match.start(2)) + 1}"
            there = folder_of(target, layers)
            if quote == "<" and (there is None or not (root / "src" / target).exists()):
                continue
            if there is None or ".." in target.split("/"):
                findings.append(f'{where}: "{target}" is not a path from src/')
                continue
            wrong = direction(here, there, layers)
            if wrong:
                findings.append(f'{where}: {here} includes {wrong}: "{target}"')
    return findings


def cmake_commands(path):
    """(name, arguments) of every simple command in a CMake file, without comments."""
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    # Generator expressions have no parentheses, nested ones stand only in conditions.
    return [(m.group(1).lower(), m.group(2).split()) for m in COMMAND.finditer(text)]


def cmake_files(root, layers):
    source = root / "src"
    for path in sorted(source.rglob("CMakeLists.txt")):
        name = path.relative_to(source).as_posix()
        yield path, name, folder_of(name, layers)


def module_links(arguments):
    """The modules that a carrel_module() call names in DEPS and PUBLIC_DEPS."""
    keyword = None
    for argument in arguments[1:]:
        if argument in MODULE_KEYWORDS:
            keyword = argument
        elif keyword in ("DEPS", "PUBLIC_DEPS"):
            yield "carrel_" + argument


def check_targets(root, layers):
    """Every built folder has a target, and links point downward."""
    findings = []
    owner = {}
    links = []
    for path, name, folder in cmake_files(root, layers):
        if folder is None:
            continue
        for command, arguments in cmake_commands(path):
            if not arguments:
                continue
            if command == "carrel_module":
                owner["carrel_" + arguments[0]] = folder
                links += [(name, folder, target) for target in module_links(arguments)]
            elif command in ("add_library", "add_executable"):
                owner[arguments[0]] = folder
            elif command == "target_link_libraries":
                links += [(name, folder, target) for target in arguments[1:]]
    for name, here, target in links:
        there = owner.get(target)
        if there is None:
            if target.startswith("carrel_") and target != "carrel_flags":
                findings.append(f"src/{name}: links to {target}, which no folder defines")
            continue
        wrong = direction(here, there, layers)
        if wrong:
            findings.append(f"src/{name}: {here} links {wrong}: {target}")
    for folder, layer in layers.items():
        if layer.state == "built" and folder not in owner.values():
            findings.append(f"src/{folder}: no CMake target")
    return findings


def check_order(root, layers):
    """The root CMakeLists.txt adds the built folders from the ground up."""
    findings = []
    added = [
        arguments[0][len("src/"):]
        for command, arguments in cmake_commands(root / "CMakeLists.txt")
        if command == "add_subdirectory" and arguments and arguments[0].startswith("src/")
    ]
    known = [folder for folder in added if folder in layers]
    for folder in sorted(set(added) - set(known)):
        findings.append(f"CMakeLists.txt: src/{folder} is not in the table")
    for below, above in zip(known, known[1:]):
        if layers[below].level > layers[above].level:
            findings.append(f"CMakeLists.txt: adds src/{below} before src/{above}")
    for folder, layer in layers.items():
        if layer.state == "built" and folder not in known:
            findings.append(f"CMakeLists.txt: does not add src/{folder}")
    return findings
