"""The picture of docs/methods.md: late answers against bytes per token, for every method measured at one length."""

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 430, 60, 48, 20, 56
LEAST, MOST = 200, 6000  # bytes per token
KINDS = {  # colours that light and dark pages both carry
    "everything in f16": "#7a7a7a",
    "a codec": "#2a7ab9",
    "a policy": "#d9822b",
    "a policy over a codec": "#3a9a4b",
    "streaming, random": "#c23b3b",
}


def kind_of(row):
    if row["policy"].split(":")[0] in ("streaming", "random"):
        return "streaming, random"
    if row["policy"]:
        return "a policy over a codec" if row["codec"] != "f16" else "a policy"
    return "a codec" if row["codec"] != "f16" else "everything in f16"


def name_of(row):
    parts = [row["policy"].split(":")[0], row["budget"], row["codec"].split(":")[0] if row["codec"] != "f16" else ""]
    return " ".join(part for part in parts if part)


def picture(rows, length, labelled):
    """An SVG. `labelled(row)`: whether its name stands beside it; hovering tells every name."""
    from math import log

    def x_of(size):
        return LEFT + (WIDTH - LEFT - RIGHT) * log(size / LEAST) / log(MOST / LEAST)

    def y_of(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        "<style>text{fill:#222}.axis{stroke:#bbb}.note{fill:#777}@media(prefers-color-scheme:dark){text{fill:#ddd}"
        ".axis{stroke:#555}.note{fill:#999}}</style>",
        f'<text x="{LEFT}" y="20" font-size="14">Late questions answered, by what the KV cache takes: {length:,} tokens, '
        "built-in model</text>",
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = y_of(share)
        out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for size in (250, 500, 1000, 2000, 5000):
        x = x_of(size)
        out.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{size:,}</text>')
    out.append(f'<text class="note" x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM + 32}" text-anchor="end">bytes per token</text>')
    for row in rows:
        if row["length"] != length or row["plan"]:
            continue
        share = row["late"]["right"] / row["late"]["asked"]
        x, y = x_of(row["kv_bytes_per_token"]), y_of(share)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{KINDS[kind_of(row)]}" fill-opacity="0.75">'
                   f'<title>{name_of(row)}: {row["late"]["right"]} of {row["late"]["asked"]}</title></circle>')
        if labelled(row):
            place = f'x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle"' if share > 0.98 else f'x="{x + 8:.1f}" y="{y + 4:.1f}"'
            out.append(f'<text {place} font-size="11">{name_of(row)}</text>')
    x = LEFT
    for kind, colour in KINDS.items():
        out.append(f'<circle cx="{x + 5}" cy="{HEIGHT - 10}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{x + 13}" y="{HEIGHT - 6}">{kind}</text>')
        x += 26 + 6.6 * len(kind)
    return "\n".join([*out, "</svg>", ""])
