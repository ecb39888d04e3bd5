#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small tokenizers of every kind that real models ship, and what the `tokenizers` library
does with thousands of hard strings.

Run (Python with tokenizers and sentencepiece installed; the corpus is any English text of a few hundred KB):
    python tests/golden/make_tokenizer_data.py BOOK.txt

Writes, deterministically for a given version of the libraries:
    strings.txt    one JSON string per line
    NAME.json      a tokenizer.json
    NAME.ids       one line per string: the ids without special tokens parsed, a tab, and the ids with special tokens
                   parsed and BOS/EOS added, or '=' when only the BOS/EOS differ. Most lists of ids are kept as '#' and
                   the FNV-1a hash of their 32-bit words. '-' where godwit differs by intention: plain text never
                   becomes a special token, which the library's Unigram allows; and normal forms are those of
                   Unicode 14 or later, the library's of a version before 12.
    NAME.txt       one line per string whose decoding differs from the string itself: its number, a tab, the hash of
                   its bytes
"""

import io
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizers"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}" + TAIL
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}"
    + TAIL
)
DEEPSEEK3 = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

EXOTIC = [
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Ὀδυσσεύς — ἄνδρα μοι ἔννεπε",
    "Съешь же ещё этих мягких французских булок",
    "שלום עולם, מה שלומך?",
    "السلام عليكم ورحمة الله وبركاته",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง",
    "你好，世界！今天天气怎么样？",
    "吾輩は猫である。名前はまだ無い。",
    "カタカナ ひらがな 漢字 まじり",
    "안녕하세요 세계 여러분",
    "Zażółć gęślą jaźń",
    "İstanbul'da ıssız ığdır",
    "ﬁ ﬂ ﬀ ﬃ ligatures ﷺ",
    "①②③ ⅣⅧ ½¼¾ ²³¹ ٣٤٥ १२३ 𝟘𝟙𝟚",
    "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 🇩🇪🇫🇷 👍🏿 ☕️",
    "e\u0301 a\u0308 n\u0303 o\u0302\u0323 \u1112\u1161\u11ab \u0344 \u212b \u2126",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "\u200b\u200c\u200d\ufeff\u2060\u00ad",
    "\u0000 nul \u0001\u0002\u001f\u007f\u0085\u00a0\u1680\u180e\u2000\u2028\u2029\u202f\u205f\u3000 end",
    "don't DON'T Don'T we'll WE'LL they're I'M he'd it'S 'twas 'Ve 'ſ K'",
    'def f(x: int) -> str:\n\treturn f"{x!r}"  # done\n',
    "for (int i = 0; i < n; ++i) {\r\n    a[i] += b[i] * 3.14159e-10f;\r\n}\r\n",
    '<div class="x">&nbsp;</div>',
    "$100,000.00 €5 £3 ¥7 100% #1 @me",
    "1234567890 12 345 6789 0x1F 1e10 3.14 1,000,000 ١٢٣٤",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case HTTPServer2XX",
    "https://example.org/a?b=c&d=%20e#f",
    "   leading",
    "trailing   ",
    " a  b   c    d     e ",
    "\n\n\n",
    "\t\ttabs\t\t",
    " \n \n x",
    "x\n\n\n\ny",
    "\r\n\r\nfoo\r\nbar\r\n",
    "▁ already ▁▁ there ▁",
    "<0x41> <0x0A> <unk> <s> </s>",
    "a▁b",
    "Ġ Ċ âĢĻ",
    "¡¢£¤¥¦§¨©ª«¬®¯°±´µ¶·¸º»¿ÀÁ",
    "…—–‘’“”•‰′″",
    "\U00020000\U0002a6d6\U0001f600\U0010ffff\U000e0001",
    "\ufffd \ufffe \uffff \ue000",
    "ÀÈÌ ÑÕÜ ŠŽ ĲǄǅǆ ǈ ᾈ",
    "ΣΑΣ σας ς",
    "ªº ʰʲ ـ ゛",
    "_ __ ___ ‿ ⁀",
]
FORMS = {"qwen2": ("NFC", normalizers.NFC()), "unigram_nfkc": ("NFKC", normalizers.NFKC())}
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|user|>",
    "<s>",
    "</s>",
    "<unk>",
    "<mask>",
    "<start_of_turn>",
    "toolcall",
]


def hard_strings(book):
    rng = random.Random(7)
    out = ["", " ", "  ", "a", "\n", "\x00", "é", "e\u0301", "😀"] + EXOTIC
    out += (
        [" " + s for s in EXOTIC[:20]]
        + [s + " " for s in EXOTIC[:20]]
        + [s.upper() for s in EXOTIC[:3] + EXOTIC[20:21]]
    )
    for c in "a 0\n\t.▁é的😀'":
        out += [c * n for n in (2, 3, 4, 7, 16, 33, 100)]
    out += [
        "a" * 3000,
        "ab" * 1500,
        " " * 2000 + "x",
        "9" * 1000,
        "的" * 500,
        "x" * 25 + " " + "y" * 70,
        "\n" * 500 + " z",
    ]
    for s in SPECIALS:
        out += [
            s,
            f"a{s}b",
            f"a {s} b",
            f" {s}",
            f"{s} ",
            f"{s}{s}",
            f"\n{s}\n",
            f"x\t {s} \ty",
            f"{s[:-1]}",
            f"{s[1:]}",
            f"{s}>",
            f"{s.upper()}",
        ]
    # Every assigned character of the planes that matter, in lines of neighbours.
    chars = [
        chr(c)
        for r in (
            (0, 0x3400),
            (0x4E00, 0x4F00),
            (0xA000, 0xA4D0),
            (0xA640, 0xAC10),
            (0xF900, 0xFB50),
            (0xFE00, 0x10200),
            (0x1D400, 0x1D500),
            (0x1F300, 0x1F6FF),
        )
        for c in range(*r)
        if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"
    ]
    out += ["".join(chars[i : i + 24]) for i in range(0, len(chars), 24)]
    lines = [line for line in book.split("\n") if line.strip()]
    out += rng.sample(lines, 150)
    out += ["\n".join(lines[k : k + 6]) for k in rng.sample(range(len(lines) - 6), 12)]
    atoms = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "the",
        "The",
        "ING",
        "x1",
        "42",
        "2024",
        ".",
        "...",
        "!?",
        "—",
        "é",
        "e\u0301",
        "ß",
        "的",
        "ひ",
        "한",
        "я",
        "ع",
        "ा",
        "😀",
        "👍🏽",
        "\u200d",
        "\u00a0",
        "\u3000",
        "▁",
        "_",
        "-",
        "(",
        "}",
        "\\n",
        "²",
        "½",
        "٣",
        "\x00",
        "\ufeff",
        "<s>",
        "<|im_end|>",
        "ſ",
        "K",
        "ǅ",
        "ʰ",
    ]
    for _ in range(1500):
        out.append("".join(rng.choice(atoms) for _ in range(rng.randint(2, 12))))
    pool = [c for c in chars if ord(c) > 32]
    for _ in range(250):
        out.append("".join(rng.choice(pool if rng.random() < 0.6 else atoms) for _ in range(rng.randint(1, 15))))
    return list(dict.fromkeys(out))


def training_text(book):
    rng = random.Random(3)
    return (
        [line for line in book.split("\n") if line.strip()][:4000]
        + [s for s in EXOTIC for _ in range(6)]
        + ["".join(rng.choice("0123456789") for _ in range(rng.randint(1, 6))) for _ in range(300)]
    )


def byte_bpe(
    text, pre, size=900, normalizer=None, specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), ignore_merges=False
):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(specials),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tok.train_from_iterator(text, trainer)
    return tok


def splits(*patterns):
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(tok, bos=None, eos=None):
    single = (f"{bos} " if bos else "") + "$A" + (f" {eos}" if eos else "")
    return processors.TemplateProcessing(
        single=single, special_tokens=[(t, tok.token_to_id(t)) for t in (bos, eos) if t]
    )


def sentencepiece_model(text, kind, size, **options):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.995,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
        **options,
    )
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    return [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]


def spm_bpe(pieces):
    """A BPE with the merges that the scores of SentencePiece imply, the way published conversions of Llama 2 have it."""
    vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        if piece.startswith("<"):
            continue
        local = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        merges += [(-score, vocab[a], vocab[b], a, b) for a, b in local]
    merges.sort()
    tok = Tokenizer(
        models.BPE(vocab, [(a, b) for *_, a, b in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    tok.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tok.post_processor = template(tok, "<s>")
    return tok


def make_all(text):
    digits = pre_tokenizers.Digits(individual_digits=True)
    gpt2_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt2", byte_bpe(text, gpt2_bytes)
    prefixed = byte_bpe(text, pre_tokenizers.ByteLevel(add_prefix_space=True), specials=("<s>", "</s>", "<mask>"))
    prefixed.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    prefixed.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=True)
    yield "roberta", prefixed
    llama3 = byte_bpe(text, splits(LLAMA3), ignore_merges=True)
    llama3.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(llama3, "<|endoftext|>")]
    )
    yield "llama3", llama3
    yield "qwen2", byte_bpe(text, splits(QWEN2), normalizer=normalizers.NFC())
    deepseek = byte_bpe(text, splits(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3))
    deepseek.add_tokens(
        [AddedToken("<｜User｜>", normalized=False), AddedToken("toolcall", normalized=True, single_word=True)]
    )
    yield "deepseek3", deepseek
    yield "deepseek_coder", byte_bpe(
        text,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(p), "isolated")
                for p in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")
            ]
            + [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    )
    yield "tekken", byte_bpe(text, splits(TEKKEN), ignore_merges=True)
    yield "gpt4o", byte_bpe(text, splits(GPT4O))
    yield "starcoder", byte_bpe(text, pre_tokenizers.Sequence([digits, gpt2_bytes]))
    yield "falcon", byte_bpe(
        text,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                gpt2_bytes,
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
    )
    bpe_pieces = sentencepiece_model(text, "bpe", 1200)
    llama2 = spm_bpe(bpe_pieces)
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "llama2", llama2
    mistral = spm_bpe(bpe_pieces)
    mistral.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    yield "mistral", mistral
    phi3 = spm_bpe(bpe_pieces)
    phi3.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    phi3.add_special_tokens(
        [AddedToken(t, normalized=False, rstrip=True, special=True) for t in ("<|user|>", "<|im_end|>")]
    )
    phi3.add_tokens([AddedToken("<|im_start|>", normalized=False, lstrip=True)])
    yield "phi3", phi3
    gemma = spm_bpe(
        sentencepiece_model(
            text, "bpe", 1200, add_dummy_prefix=False, user_defined_symbols=["<mask>", "<start_of_turn>"]
        )
    )
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.add_tokens([AddedToken("<mask>", normalized=False)])
    gemma.add_special_tokens([AddedToken("<start_of_turn>", normalized=False, special=True)])
    gemma.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma", gemma
    # As trained by the library itself: merges that no scores could express.
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trained.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=1100,
            special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)],
            show_progress=False,
            limit_alphabet=150,
            max_token_length=12,
        ),
    )
    fixed = json.loads(trained.to_str())
    fixed["added_tokens"] = fixed["added_tokens"][:3]
    trained = Tokenizer.from_str(json.dumps(fixed))
    trained.post_processor = template(trained, "<s>")
    yield "spm_trained", trained
    pieces = sentencepiece_model(text, "unigram", 1100)
    unigram = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    unigram.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    unigram.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    unigram.post_processor = template(unigram, None, "</s>")
    yield "unigram_bytes", unigram
    plain = [(p, s) for p, s in pieces if not p.startswith("<0x")]
    unigram = Tokenizer(models.Unigram(plain, unk_id=0))
    unigram.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    unigram.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Lowercase()]
    )
    unigram.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]
    )
    unigram.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    unigram.post_processor = template(unigram, None, "</s>")
    yield "unigram_nfkc", unigram


def fnv1a(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def pack(ids, number):
    if number % 16 == 0 and len(ids) < 60:
        return " ".join(map(str, ids))
    return "#" + fnv1a(b"".join(i.to_bytes(4, "little") for i in ids))


def main():
    book = open(sys.argv[1], encoding="utf-8").read()
    OUT.mkdir(parents=True, exist_ok=True)
    strings = hard_strings(book)
    (OUT / "strings.txt").write_text(
        "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in strings), encoding="utf-8"
    )
    text = training_text(book)
    for name, tok in make_all(text):
        data = json.loads(tok.to_str())
        compact = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        (OUT / f"{name}.json").write_text(compact + "\n")
        tok = Tokenizer.from_str(compact)
        ids, decoded = [], []
        for number, s in enumerate(strings):
            tok.encode_special_tokens = True
            plain = tok.encode(s, add_special_tokens=False).ids
            tok.encode_special_tokens = False
            parsed = tok.encode(s, add_special_tokens=True).ids
            bare = tok.encode(s, add_special_tokens=False).ids
            normal = tok.normalizer.normalize_str(s) if tok.normalizer else s
            old_unicode = name in FORMS and FORMS[name][1].normalize_str(s) != unicodedata.normalize(FORMS[name][0], s)
            unigram = data["model"]["type"] == "Unigram"
            made, given = (
                [t["content"] for t in data["added_tokens"] if unigram and t["special"] and t["content"] in x]
                for x in (normal, s)
            )
            differs = old_unicode or made or given
            same = (
                "-" if old_unicode or made != given else "=" if bare == plain and not differs else pack(parsed, number)
            )
            ids.append(("-" if differs else pack(plain, number)) + "\t" + same)
            back = tok.decode(plain, skip_special_tokens=True)
            if back != s and not differs:
                decoded.append(f"{number}\t{fnv1a(back.encode())}")
        (OUT / f"{name}.ids").write_text("\n".join(ids) + "\n")
        (OUT / f"{name}.txt").write_text("".join(line + "\n" for line in decoded))
        print(name, len(data["model"]["vocab"]), len(compact), sum(map(len, ids)), len(decoded))


if __name__ == "__main__":
    main()
