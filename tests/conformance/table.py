"""The tables of docs/backends.md that the suite itself fills.

usage: table.py [--check]

Reads what the last runs with each backend found (results/BACKEND.json, which `./dev conformance`
writes) and the differences with their reasons, and puts the tables between the two marks of
docs/backends.md. With --check nothing is written; the exit status says whether they are the same.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs/backends.md"
BEGIN = "<!-- conformance: begin -->"
END = "<!-- conformance: end -->"


def read_differences(path=HERE / "differences.txt"):
    """[(backend, tests, reason)] in the order of the file; "the same" is what stood before."""
    rows = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            backends, tests, reason = (part.strip() for part in line.split("|", 2))
            if reason == "the same" and rows:
                reason = rows[-1][2]
            rows += [(backend.strip(), tests, reason) for backend in backends.split(",")]
    return rows


def read_results(folder=HERE / "results"):
    """{backend: what its run found}"""
    found = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {one["backend"]: one for one in found}


def counts(differences, results):
    """A row for each backend that is in one of the two."""
    backends = list(dict.fromkeys([row[0] for row in differences] + list(results)))
    lines = ["| backend | run | held | of these the second time | failed | skipped | differences |",
             "|---|---|---|---|---|---|---|"]
    for backend in backends:
        one = results.get(backend)
        listed = sum(row[0] == backend for row in differences)
        if one is None:
            lines.append(f"| `{backend}` | not yet | | | | | {listed} |")
        else:
            lines.append(f"| `{backend}` | {one['run']} | {one['passed']} | {len(one.get('again', []))} | "
                         f"{len(one['failed'])} | {one['skipped']} | {listed} |")
    return lines


def reasons(differences):
    """What differs and why, with the tests that tell."""
    lines = ["| backend | what is not as with `native` | tests |", "|---|---|---|"]
    together = {}
    for backend, tests, reason in differences:
        together.setdefault(reason, {}).setdefault(tests, []).append(backend)
    for reason, tests in together.items():
        apart = {}
        for name, backends in tests.items():
            apart.setdefault(", ".join(f"`{one}`" for one in backends), []).append(f"`{name}`")
        lines += [f"| {backends} | {reason} | {', '.join(names)} |"
                  for backends, names in apart.items()]
    return lines


def tables(differences, results):
    return "\n".join(counts(differences, results) + [""] + reasons(differences)) + "\n"


def replaced(page, text):
    """The page with these tables. ValueError: it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/backends.md has no {BEGIN} or no {END}")
    return f"{before}{BEGIN}\n{text}{END}{after}"


def main():
    page = PAGE.read_text()
    wanted = replaced(page, tables(read_differences(), read_results()))
    if "--check" in sys.argv[1:]:
        if page != wanted:
            print("docs/backends.md is not what the results say: run tests/conformance/table.py")
        return 0 if page == wanted else 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
