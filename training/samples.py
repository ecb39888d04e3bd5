"""Token sequences with loss weights: books with planted facts and questions, short chats, many-shot lists, prose.

The same generator makes training samples and, with another seed and other books, test samples.
"""
import bisect
import random
from dataclasses import dataclass, field

from chats import make_chat
from facts import DONT_KNOW, HARD, KINDS, SINGLE, make_fact
from words import CLASSES, pseudo_word

# Loss weights. The text around the facts has none: there are few books and many passes over them, and what a model learns
# of their wording it learns by heart. Language is taught by rows of prose (train.py).
ANSWER, TURN, QUESTION, TEXT = 8.0, 1.0, 0.5, 0.0


@dataclass
class Sample:
    ids: list = field(default_factory=list)
    weights: list = field(default_factory=list)
    spans: list = field(default_factory=list)  # (start, end, kind): what is graded, from its first token to its last

    def put(self, ids, weight):
        self.ids.extend(ids)
        self.weights.extend([weight] * len(ids))

    def answer(self, ids, kind, weight=ANSWER):
        self.spans.append((len(self.ids), len(self.ids) + len(ids), kind))
        self.put(ids, weight)

    def append(self, other):
        base = len(self.ids)
        self.ids += other.ids
        self.weights += other.weights
        self.spans += [(a + base, b + base, kind) for a, b, kind in other.spans]

    def cut(self, length):
        return Sample(self.ids[:length], self.weights[:length], [s for s in self.spans if s[1] <= length])


class SampleMaker:
    """`book(n)` gives n tokens of running prose."""

    def __init__(self, tokenizer, seed, book):
        self.tokenizer, self.r, self.book, self.memo = tokenizer, random.Random(seed), book, {}
        self.bos, self.start, self.end = (tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
        self.stops = {i for s in (".", ".\n\n", "!", "?", '."', '."\n\n') for i in self.encode(s)[-1:]}

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def fixed(self, text):
        if text not in self.memo: self.memo[text] = self.encode(text)
        return self.memo[text]

    def open_turn(self, s, role, weight=TURN):
        s.put([self.start], weight)
        s.put(self.fixed(role + "\n"), weight)

    def close_turn(self, s):
        s.put([self.end], TURN)
        s.put(self.fixed("\n"), TURN)

    # ------------------------------------------------------------------ books with facts
    def retrieval(self, length, kinds=None, n_facts=None, n_questions=None, chat=None, depth=None, unknown=None, hops=None):
        """A text of about `length` tokens with facts planted after its sentences, then questions, at most `length` in all.

        `depth` in [0, 1] plants one fact at that fraction of the text; `unknown` is the share of questions about facts
        that the text does not hold."""
        r = self.r
        if kinds is None:
            hard = 0.65 if length <= 8192 else 0.5
            kinds = r.choices(list(HARD), HARD.values()) if r.random() < hard else [r.choice(SINGLE)] if r.random() < 0.7 else list(KINDS)
        chat = r.random() < 0.7 if chat is None else chat
        unknown = r.choice((0, 0, 0.2)) if unknown is None else unknown
        most = max(1, length // 96)
        n = n_facts or max(1, min(most, int(2 ** r.uniform(0, 1 + most.bit_length()))))
        used = set()
        facts = [make_fact(r, r.choice(kinds), used, hops) for _ in range(n)]
        order = r.sample(range(n), min(n, n_questions or max(1, min(length // 80, 64))))
        asked = []
        for i in order:
            if r.random() < unknown: asked.append((make_fact(r, r.choice(kinds), used, hops), "unknown"))
            else: asked.append((facts[i], facts[i].kind))
        turns = [(f, kind, self.encode(f.question), *self.answer_ids(f, kind)) for f, kind in asked]
        planted = {i: [self.encode(" " + x) for x in f.sentences] for i, f in enumerate(facts)}
        needed = {id(f) for f, _ in asked}
        room = length - sum(len(q) + len(a) + len(v) + 12 for *_, q, a, v in turns) - sum(len(x) for p in planted.values() for x in p) - 40
        while room < 16 and len(turns) > 1:
            f, _, q, a, v = turns.pop()
            needed.discard(id(f))
            room += len(q) + len(a) + len(v) + 12
        for i in range(n - 1, -1, -1):
            if room >= 16: break
            if id(facts[i]) not in needed: room += sum(len(x) for x in planted.pop(i))
        doc = self.plant(self.book(max(0, room)), list(planted.values()), depth)

        s = Sample([self.bos], [0.0])
        first = r.random() < 0.15  # the question also stands before the text
        read_first = chat and not first and r.random() < 0.15
        for i, (f, kind, q, a, v) in enumerate(turns):
            if chat: self.open_turn(s, "user")
            if i == 0:
                if first and len(q) + 2 < 40: s.put(q, QUESTION); s.put(self.fixed("\n\n"), TEXT)
                s.put(doc, TEXT)
                if read_first:
                    self.close_turn(s); self.open_turn(s, "assistant")
                    s.put(self.fixed("I will remember that."), TURN)
                    self.close_turn(s); self.open_turn(s, "user")
                else: s.put(self.fixed("\n\n"), TEXT)
            if not chat: s.put(self.fixed("Question: "), QUESTION)
            s.put(q, QUESTION)
            if chat: self.close_turn(s); self.open_turn(s, "assistant")
            else: s.put(self.fixed("\nAnswer: "), TURN)
            s.put(a, TURN)
            s.answer(v, kind)
            if chat: self.close_turn(s)
            else: s.put(self.fixed("\n"), TURN)
        return s.cut(length)

    def answer_ids(self, fact, kind):
        if kind == "unknown": return [], self.fixed(DONT_KNOW)
        return self.encode(fact.lead), self.encode(fact.value)

    def plant(self, hay, planted, depth=None):
        """The sentences of each fact, in their order, after sentences of the text."""
        stops = [i + 1 for i, t in enumerate(hay) if t in self.stops] or [0, len(hay) // 2, len(hay)]
        slots = []
        for p in planted:
            if depth is not None:
                at = bisect.bisect(stops, depth * len(hay))
                places = [stops[min(at, len(stops) - 1)]] * len(p)
            else: places = sorted(self.r.choice(stops) for _ in p)
            slots += zip(places, p)
        slots.sort(key=lambda x: x[0])
        doc, last = [], 0
        for at, sentence in slots:
            doc += hay[last:at] + sentence
            last = at
        return doc + hay[last:]

    # ------------------------------------------------------------------ short ones
    def chat(self, length, held=False):
        """One chat of at most `length` tokens, half of them with a piece of a book in it when there is room."""
        prose = None
        if length >= 256 and self.r.random() < 0.5:
            n = int(2 ** self.r.uniform(5, min(length - 150, 1800).bit_length() - 0.5))
            prose = self.tokenizer.decode(self.book(n)).strip().replace("\ufffd", "")
        return self.chat_sample(make_chat(self.r, prose, held))

    def chat_sample(self, turns):
        s = Sample([self.bos], [0.0])
        for role, text, kind in turns:
            self.open_turn(s, role)
            ids = self.encode(text)
            if kind is None: s.put(ids, QUESTION if len(ids) < 64 else TEXT)
            else: s.answer(ids + [self.end], kind, 4.0 if kind == "fact" else 2.0)
            if kind is None: self.close_turn(s)
            else: s.put(self.fixed("\n"), TURN)
        return s

    def shots(self, length):
        """Lines 'word -> label': labels by the class of the word, or one for each word. A label is graded from the
        second time on that it can be known."""
        r, s, seen = self.r, Sample([self.bos], [0.0]), set()
        arrow = r.choice((" -> ", ": ", " = ", " is "))
        if r.random() < 0.5:
            classes = r.sample(CLASSES, r.randint(2, 4))
            labels = [r.choice((pseudo_word(r), w)) for w in (pseudo_word(r) for _ in classes)]
            draw = lambda: (lambda i: (r.choice(classes[i]), labels[i], i))(r.randrange(len(classes)))
        else:
            words = {pseudo_word(r): pseudo_word(r) for _ in range(r.randint(2, max(3, min(64, length // 40))))}
            keys = list(words)
            draw = lambda: (lambda w: (w, words[w], w))(r.choice(keys))
        while True:
            word, label, what = draw()
            a, b = self.encode(word + arrow.rstrip()), self.encode(" " + label)
            if len(s.ids) + len(a) + len(b) + 1 > length: return s
            s.put(a, 0.0)
            if what in seen: s.answer(b, "shots", TURN)
            else: s.put(b, 0.0)
            seen.add(what)
            s.put(self.fixed("\n"), TURN)

    def prose(self, length):
        s = Sample([self.bos], [0.0])
        s.put(self.book(length - 1), 1.0)
        return s

    # ------------------------------------------------------------------ rows for training
    def row(self, length, shares):
        """Exactly `length` tokens: one sample, or several where they are short. `shares`: kind of sample -> weight."""
        s = Sample()
        while len(s.ids) < length:
            room = length - len(s.ids)
            kind = self.r.choices(list(shares), shares.values())[0] if room >= 48 else "prose"
            n = room
            if kind == "prose" and length <= 512 and s.ids == []: n = max(24, int(room * self.r.random()))
            if kind == "chat": piece = self.chat(room)
            elif kind == "retrieval":
                if room > 256 and self.r.random() < 0.2: n = self.r.randint(128, room)
                piece = self.retrieval(n)
            elif kind == "shots": piece = self.shots(min(n, self.r.randint(64, 2048)))
            else: piece = self.prose(n)
            s.append(piece)
        return s.cut(length)
