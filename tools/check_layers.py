#!/usr/bin/env python3
"""Checks that includes point downwards.

Each folder of src/ names the folders it may include in `godwit_library(NAME DEPS …)`. A folder may depend on lower layers
and, without cycles, on folders of its own layer. Exits 1 and lists every offending include.
"""
import pathlib
import re
import sys

LAYERS = [
    ["base"],
    ["tensor", "io", "text"],
    ["backend"],
    ["kv", "attn", "dist"],
    ["sched", "model", "spec"],
    ["engine"],
    ["server", "eval", "plan"],
]
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}


def declared_deps(src):
    deps = {}
    for cmake in sorted(src.glob("*/CMakeLists.txt")):
        match = re.search(r"godwit_library\((\w+)([^)]*)\)", cmake.read_text())
        if match:
            words = match.group(2).split()
            start = words.index("DEPS") + 1 if "DEPS" in words else len(words)
            stop = next((i for i in range(start, len(words)) if words[i].isupper()), len(words))
            deps[match.group(1)] = words[start:stop]
    return deps


def main():
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    deps, problems = declared_deps(src), []
    for name, wanted in deps.items():
        if name not in LAYER:
            problems.append(f"src/{name}: not in the table of layers")
        for dep in wanted:
            if LAYER.get(dep, 99) > LAYER.get(name, -1):
                problems.append(f"src/{name}: depends on {dep}, which is a higher layer")
    done = set()

    def visit(name, path):
        if name in path:
            problems.append("cycle: " + " -> ".join(path + [name]))
        elif name not in done:
            for dep in deps.get(name, []):
                visit(dep, path + [name])
            done.add(name)

    for name in deps:
        visit(name, [])
    for file in sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")):
        folder = file.relative_to(src).parts[0]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([\w-]+)/', line)
            if match and match.group(1) != folder and match.group(1) not in deps.get(folder, []):
                problems.append(f"{file.relative_to(src.parent)}:{number}: {folder} may not include {match.group(1)}")
    print("\n".join(problems) or f"layers: {len(deps)} folders, includes point downwards")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
