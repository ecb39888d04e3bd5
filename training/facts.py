"""Facts to plant in a text and to ask for.

A fact is the sentences that state it, in the order in which they must stand in the text, a question, how the answer
begins, and the value that the answer must give. The kinds:

    number     the special magic number for amber-otter is 1234567
    hex        the record "0a1b2c3d" holds "4e5f6071"
    lives      Ada Abbot lives in Riga
    keeps      Ada Abbot keeps the torn map in the attic
    reverse    1234567 is the special magic number for amber-otter: from the value to the key
    multi      2-4 numbers for one key, listed in the order of the text
    chain      VAR C = VAR B, VAR B = VAR A, VAR A = 5: what is VAR C? The answer walks forward
    variables  the same chain: which variables hold 5? All of them must be named, from the value back to the names
    names      the same with words for names, which are single tokens: a step towards variables
    sum        a counter that starts at 17 and goes up by small steps; the answer adds them one by one
"""
from dataclasses import dataclass

from words import (ADJECTIVES, CITIES, FIRST_NAMES, NOUNS, PLACES, SURNAMES, THINGS, hex_digits, variable)

SINGLE = ("number", "hex", "lives", "keeps")
HARD = {"reverse": 2, "multi": 2, "chain": 1, "variables": 3, "names": 2, "sum": 1}  # kind -> how often training asks for it
KINDS = SINGLE + tuple(HARD)
DONT_KNOW = "I don't know. It was not mentioned."


@dataclass
class Fact:
    kind: str
    sentences: list
    question: str
    lead: str
    value: str


def _key(r, kind):
    if kind in ("number", "reverse"): return f"{r.choice(ADJECTIVES)}-{r.choice(NOUNS)}"
    if kind == "multi": return f"{r.choice(ADJECTIVES)}-{r.choice(ADJECTIVES)}-{r.choice(NOUNS)}"
    if kind == "sum": return f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}"
    if kind in ("lives", "keeps"): return f"{r.choice(FIRST_NAMES)} {r.choice(SURNAMES)}"
    if kind == "hex": return hex_digits(r)
    if kind == "names": return r.choice(NOUNS) if r.random() < 0.9 else f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}"
    return variable(r)


def make_fact(r, kind, used, hops=None):
    """A fact whose keys are not in `used`, which they join. `hops`: the number of copies in a chain (0-4)."""
    def fresh():
        while (k := _key(r, kind)) in used: pass
        used.add(k)
        return k
    k = fresh()
    if kind == "number":
        v = r.randint(1000000, 9999999)
        return Fact(kind, [f"The special magic number for {k} is {v}."], f"What is the special magic number for {k}?",
                    f"The special magic number for {k} is", f" {v}.")
    if kind == "reverse":
        v = r.randint(1000000, 9999999)
        return Fact(kind, [f"The special magic number for {k} is {v}."], f"For what is {v} the special magic number?",
                    f"{v} is the special magic number for", f" {k}.")
    if kind == "hex":
        v = hex_digits(r)
        return Fact(kind, [f'The record "{k}" holds "{v}".'], f'What does the record "{k}" hold?',
                    f'The record "{k}" holds', f' "{v}".')
    if kind == "lives":
        v = r.choice(CITIES)
        return Fact(kind, [f"{k} lives in {v}."], f"Where does {k} live?", f"{k} lives in", f" {v}.")
    if kind == "keeps":
        o, p = r.choice(THINGS), r.choice(PLACES)
        return Fact(kind, [f"{k} keeps the {o} in the {p}."], f"What does {k} keep, and where?", f"{k} keeps",
                    f" the {o} in the {p}.")
    if kind == "multi":
        vs = [str(v) for v in r.sample(range(10000, 100000), r.randint(2, 4))]
        return Fact(kind, [f"One of the special magic numbers for {k} is {v}." for v in vs],
                    f"What are all the special magic numbers for {k}?", f"The special magic numbers for {k} are",
                    " " + ", ".join(vs) + ".")
    if kind == "sum":
        total, steps = r.randint(1, 60), [r.randint(1, 9) for _ in range(hops or r.randint(1, 4))]
        sentences, value = [f"The {k} counter starts at {total}."], f" {total}"
        for s in steps:
            sentences.append(f"The {k} counter goes up by {s}.")
            total += s
            value += f", plus {s} is {total}"
        return Fact(kind, sentences, f"What does the {k} counter show?", f"The {k} counter shows", value + ".")
    names = [k] + [fresh() for _ in range(r.choice((1, 1, 2, 2, 2, 3, 4) if kind == "chain" else (0, 1, 1, 2, 2, 2, 3, 4)) if hops is None else hops)]
    v = r.randint(10000, 99999)
    sentences = [f"VAR {names[0]} = {v}."] + [f"VAR {b} = VAR {a}." for a, b in zip(names, names[1:])]
    if kind == "chain":
        walk = "".join(f" = VAR {n}" for n in reversed(names[:-1])) + f" = {v}."
        return Fact(kind, sentences, f"What is the value of VAR {names[-1]}?", f"VAR {names[-1]}", walk)
    return Fact(kind, sentences, f"Which variables hold the value {v}?", f"The variables that hold the value {v} are",
                " " + ", ".join(names) + ".")
