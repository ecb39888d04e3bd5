#!/usr/bin/env python3
"""Writes src/text/jinja/unicode_case.inc: Unicode case mappings as runs, from Python's own Unicode database.

    python3 tools/make_unicode_case.py > src/text/jinja/unicode_case.inc

A run is {first, last, step, delta}: every step-th code point from first to last maps to itself plus delta.
A special is {code, upper, title}: code points whose upper case is more than one code point.
"""
import sys
import unicodedata


def runs(mapping):
    out = []
    for code, target in sorted(mapping.items()):
        delta = target - code
        if out:
            first, last, step, run_delta = out[-1]
            gap = code - last
            if run_delta == delta and gap <= 2 and (first == last or gap == step):
                out[-1] = (first, code, gap, delta)
                continue
        out.append((code, code, 1, delta))
    return out


def literal(text):
    return '"' + "".join(f"\\x{b:02x}" for b in text.encode()) + '"'


def table(name, kind, rows):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) + 2 > 118:
            print(line)
            line = "   "
        line += f" {row},"
    print(line)
    print("};")


def main():
    upper, lower, special = {}, {}, []
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        c = chr(code)
        if len(c.upper()) > 1:
            special.append((code, c.upper(), c.title()))
        elif c.upper() != c:
            upper[code] = ord(c.upper())
        if len(c.lower()) == 1 and c.lower() != c:
            lower[code] = ord(c.lower())
    print(f"// Written by tools/make_unicode_case.py from Unicode {unicodedata.unidata_version}.")
    print("// clang-format off")
    table("kUpperRuns", "CaseRun", ["{0x%x, 0x%x, %d, %d}" % r for r in runs(upper)])
    table("kLowerRuns", "CaseRun", ["{0x%x, 0x%x, %d, %d}" % r for r in runs(lower)])
    table("kSpecials", "CaseSpecial", ["{0x%x, %s, %s}" % (c, literal(u), literal(t)) for c, u, t in special])
    print("// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
