"""Tiny tokenizers for the tiny golden models: byte-level BPE and SentencePiece-style BPE with byte fallback.

Each `make_*` function returns a `TinyTokenizer`, the text of tokenizer.json and tokenizer_config.json. Both kinds are
trained on the paragraph below, so the result depends only on this file and the versions of the two libraries.
"""

import dataclasses
import io
import json

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import generate_merges

BYTE_LEVEL_VOCAB = 320
SENTENCEPIECE_VOCAB = 352

TEXT = """
The bird leaves the northern coast in the autumn and does not come down to the land or the water until it has crossed
the whole of the ocean. It flies for nine days and nine nights. It does not eat, it does not drink, and it sleeps, if it
sleeps at all, with one half of the brain while the other half keeps the course. Before the journey it eats until it has
doubled its weight, and then the parts of the body that are of no use in the air become small, for there is no reason to
carry what one does not need. When the wind is with it the way is short; when the wind is against it the bird waits on the
shore, and it knows how to wait. Nobody has shown it the way. The young ones set out weeks after the old ones have gone, and
they arrive at the same islands, on the same mud, within the same few days. In the spring they go back by another road, over
the yellow sea, where they rest and feed, and where the mud is getting smaller each year. There were 11000 kilometres between
the first shore and the last, and 264 hours. A traveller who asks how this can be done is told that it has been done, and that
it will be done again next year, and the year after that, for as long as there is a shore on either side.
"""

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SPLIT_PATTERNS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}


@dataclasses.dataclass
class TinyTokenizer:
    vocab_size: int
    bos: int | None
    eos: int
    pad: int | None
    specials: list[int]  # ids that a golden continuation must not contain
    tokenizer_json: str
    tokenizer_config: dict
    sentencepiece_model: bytes | None = None  # what a converter to GGUF reads; not part of the committed folders


def _finish(tokenizer: tokenizers.Tokenizer) -> str:
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"


def make_byte_level(split: str, add_bos: bool) -> TinyTokenizer:
    """The byte-level kind; `split` names the split pattern, as GGUF's tokenizer.ggml.pre does."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(SPLIT_PATTERNS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special_tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=BYTE_LEVEL_VOCAB - len(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    first = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in special_tokens])
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A $B", special_tokens=[("<|endoftext|>", first)]
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    assert tokenizer.get_vocab_size() == BYTE_LEVEL_VOCAB
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>" if add_bos else None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHATML,
    }
    return TinyTokenizer(
        BYTE_LEVEL_VOCAB, first if add_bos else None, first + 2, first, [first, first + 1, first + 2],
        _finish(tokenizer), config,
    )  # fmt: skip


def make_sentencepiece(style: str) -> TinyTokenizer:
    """`style`: llama (prefix and spaces by normalizers), mistral (by Metaspace), gemma (no prefix, other ids)."""
    gemma = style == "gemma"
    ids = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3} if gemma else {"unk_id": 0, "bos_id": 1, "eos_id": 2}
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.strip().split("\n")), model_writer=trained, model_type="bpe", byte_fallback=True,
        vocab_size=SENTENCEPIECE_VOCAB - 2, character_coverage=0.999, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=not gemma, bos_piece="<bos>" if gemma else "<s>",
        eos_piece="<eos>" if gemma else "</s>", minloglevel=2, num_threads=1, **ids,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    scores = {piece: pieces.get_score(i) for piece, i in vocab.items()}
    merges = generate_merges({piece: i for piece, i in vocab.items() if not pieces.is_byte(i)}, scores)
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, dropout=None)
    )
    strip = [decoders.Strip(" ", 1, 0)]
    if style == "llama":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "mistral":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        strip = []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + strip
    )
    bos, eos = pieces.id_to_piece(pieces.bos_id()), pieces.id_to_piece(pieces.eos_id())
    control = sorted((i for piece, i in vocab.items() if pieces.is_control(i) or pieces.is_unknown(i)))
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(pieces.id_to_piece(i), special=True, normalized=False) for i in control]
        + [tokenizers.AddedToken(token, special=True, normalized=False) for token in ("<|im_start|>", "<|im_end|>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, pieces.bos_id())]
    )
    assert tokenizer.get_vocab_size() == SENTENCEPIECE_VOCAB
    config = {
        "tokenizer_class": "GemmaTokenizer" if gemma else "LlamaTokenizer",
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": "<unk>",
        "pad_token": "<pad>" if gemma else None,
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "legacy": style != "mistral",
        "sp_model_kwargs": {},
        "model_max_length": 4096,
        "chat_template": "{{ bos_token }}" + CHATML,
    }
    specials = control + [SENTENCEPIECE_VOCAB - 2, SENTENCEPIECE_VOCAB - 1]
    return TinyTokenizer(
        SENTENCEPIECE_VOCAB, pieces.bos_id(), pieces.eos_id(), pieces.pad_id() if gemma else None, specials,
        _finish(tokenizer), config, trained.getvalue(),
    )  # fmt: skip
