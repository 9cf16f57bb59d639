#!/usr/bin/env python3
"""Writes tests/text/data: 2,000 lines of text and the ids that other tokenizers give for them.

Needs: tokenizers, sentencepiece, gguf, numpy. Everything is seeded, so a second run changes nothing.
  tools/record_tokenizers.py --model SmolLM2-135M-Instruct.Q4_1.gguf --corpus wikitext2_test.txt
"""
import argparse
import io
import json
import pathlib
import random
import unicodedata

import gguf
import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/text/data"
FULL_LINES = 20  # lines whose ids are stored in full; the others as a hash

WORDS = {
    "latin": "the quick brown fox jumps over lazy dogs while Mr Smith's cat wouldn't've cared I'LL we'd".split(),
    "accents": "café naïve Ünïcödé façade Ångström señor Việt Đặng ệ ẫ Zażółć gęślą jaźń über straße İstanbul ſtop".split(),
    "marks": ["e\u0301", "a\u0308", "o\u0302\u0301", "n\u0303", "Vie\u0302\u0323t", "\u0301x", "क्षि", "เป็น", "שָׁלוֹם", "ﬁ", "ﬀ", "Ⅷ", "①", "㎏", "ｱ", "Ａ１"],
    "cjk": ["你好", "世界", "漢字", "東京", "日本語の", "カタカナ", "ひらがな", "，", "。", "「引用」", "𠀀𠮷", "１２３", "北京大学"],
    "hangul": ["안녕하세요", "한국어", "세계", "\u1112\u1161\u11ab", "ㄱㄴ", "서울"],
    "rtl": ["مرحبا", "العالم", "السَّلَامُ", "שלום", "عدد", "١٢٣", "،", "۴۵۶"],
    "cyrillic": "привет мир Ёлка ещё Україна Ελλάδα λόγος ქართული Հայերեն".split(),
    "digits": ["0", "7", "42", "123", "2024", "12345", "1234567890", "3.14159", "1,000,000", "-17", "0x1F", "1e-9", "½", "²", "Ⅻ", "٣"],
    "emoji": ["😀", "🎉", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "☕", "1️⃣", "🧑🏿‍🚀", "\u200d", "\ufe0f"],
    "code": ["def f(x):", "return x**2", "for (int i=0;i<n;++i)", "std::vector<int>", "#include <a.h>", "if(a&&b||!c)", "{}[]();", "a_b_c", "camelCaseName", "\"str\\n\"", "<div class='x'>", "/* c */", "//", "=>", "!=", "$x = @y;", "`cmd`", "\\begin{x}"],
    "marks2": ["...", "!!!", "?!", "—", "–", "“q”", "‘s’", "'s", "'LL", "'Re", "’s", "…", "(a)", "[b]", "#1", "@me", "50%", "$5", "€9", "~", "^", "|", "\\", "_", "__", "==="],
    "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>user", "<s>", "</s>", "<unk>", "<0x0A>", "[INST]", "<|eot_id|>", "<repo_name>", "<pad>", "▁", "Ġ", "<mask>", "<|tool|>", "[X]", " [X] ", "<|tool|>  x", "a[X]b"],
    "odd": ["\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\u0085", "\u2028", "\u180e", "\x00", "\x07", "\x7f", "\u00ad", "\ufffd", "\u202e", "\U000e0041", "\U0010ffff", "\u1680"],
}
GAPS = [" "] * 14 + ["", "", "", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\t\t", "        ", "\u00a0", "\u3000", " \t ", "\r"]


def known_to_all(c):
    """Assigned in Unicode 3.2, or an emoji: tokenizers itself mixes tables of Unicode 8, 9 and 16."""
    old = unicodedata.ucd_3_2_0.category(c) != "Cn"
    return old or (ord(c) >= 0x1f300 and unicodedata.category(c) == "So")


def make_lines(corpus):
    rng = random.Random(20240601)
    lines = ["", " ", "  ", "\n", "\t", "a", " a", "a ", " Việt", "Việt", "hello world", "<|im_start|>user\nHi<|im_end|>"]
    plain = [line.strip() for line in corpus if len(line.strip()) > 20]
    while len(lines) < 2000:
        kind = rng.random()
        if kind < 0.12:
            text = rng.choice(plain)
            start = rng.randrange(len(text))
            lines.append(text[start:start + rng.randrange(5, 120)])
        elif kind < 0.24:  # any characters at all
            count = rng.randrange(1, 10)
            planes = [(0x20, 0x7f), (0x80, 0x250), (0x300, 0x600), (0x600, 0xe00), (0xe00, 0x2000), (0x2000, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfdd0), (0x1f300, 0x1fa00)]
            chars = [chr(rng.randrange(*rng.choice(planes))) for _ in range(count)]
            lines.append("".join(c for c in chars if known_to_all(c)))
        elif kind < 0.30:  # runs
            lines.append("".join(rng.choice(["a", " ", "=", "\n", "1", "ab", "ha", "é", "你", "😀", "\t", "-"]) * rng.randrange(1, 20) for _ in range(3)))
        else:
            names = rng.sample(sorted(WORDS), rng.randrange(1, 4))
            out = rng.choice(["", "", "", " ", "\n", "\t"])
            for _ in range(rng.randrange(1, 9)):
                out += rng.choice(WORDS[rng.choice(names)]) + rng.choice(GAPS)
            lines.append(out)
    return lines


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")


def fnv(ids):
    value = 0x811c9dc5
    for token in ids:
        for byte in int(token).to_bytes(4, "little"):
            value = ((value ^ byte) * 0x01000193) & 0xffffffff
    return value


def record(name, lines, encode):
    """One line a text: the hash of its ids, and for the first ones (spread) the ids themselves."""
    out = []
    step = len(lines) // FULL_LINES
    for i, line in enumerate(lines):
        ids = encode(line)
        full = " " + ",".join(map(str, ids)) if i % step == 8 else ""
        out.append(f"{fnv(ids) >> 8:06x}{full}\n")
    (OUT / f"{name}.ids").write_text("".join(out))


def from_gguf(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == 3])
    return tokenizer


def training_text(corpus):
    """English, and enough of the other scripts that their characters become pieces (or bytes)."""
    rng = random.Random(7)
    text = [line for line in corpus if len(line) > 40][:400]
    for name in sorted(WORDS):
        if name in ("odd", "special"):
            continue
        for _ in range(40):
            text.append(" ".join(rng.choice(WORDS[name]) for _ in range(12)))
    return text


def train_sentencepiece(kind, text, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, model_type=kind, num_threads=1,
        byte_fallback=True, minloglevel=2, hard_vocab_limit=False, user_defined_symbols=["<|tool|>", "[X]"],
        **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), model.getvalue()


def proto_field(blob, wanted):
    """The bytes of one length-delimited field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = blob[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(blob):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            if tag >> 3 == wanted:
                return blob[at:at + size]
            at += size
        elif tag & 7 == 0:
            varint()
        else:
            at += 4 if tag & 7 == 5 else 8
    return b""


def charsmap_of(proto):
    return proto_field(proto_field(proto, 3), 2)  # normalizer_spec.precompiled_charsmap


def write_pieces(name, sp, charsmap):
    """What a GGUF file would hold: kind, score and piece of each id, then the charsmap in hex."""
    out = []
    for i in range(sp.get_piece_size()):
        kind = "unknown" if sp.is_unknown(i) else "control" if sp.is_control(i) else "byte" if sp.is_byte(i) else "unused" if sp.is_unused(i) else "user_defined" if sp.id_to_piece(i) in ("<|tool|>", "[X]") else "normal"
        out.append(f"{kind[:2]} {sp.get_score(i)!r} {sp.id_to_piece(i)}\n")
    out.append(f"charsmap {charsmap.hex()}\n")
    (OUT / f"{name}.pieces").write_text("".join(out), newline="")


def write_json(name, tokenizer):
    state = json.loads(tokenizer.to_str())
    (OUT / f"{name}.json").write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")


def sentencepiece_as_json(sp, normalizer):
    """Llama 2's shape: BPE over the whole text, spaces escaped by the normaliser."""
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    merges = []
    for piece, i in vocab.items():
        if sp.is_byte(i) or sp.is_control(i) or sp.is_unknown(i) or piece in ("<|tool|>", "[X]"):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                merges.append((sp.get_score(i), vocab[left], vocab[right], left, right))
    merges.sort(key=lambda m: (-m[0], m[1], m[2]))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[(m[3], m[4]) for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("<|tool|>", normalized=False, rstrip=True), AddedToken("[X]", normalized=True, single_word=True, lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return tokenizer


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")


def train_byte_level(pattern, text, normalizer, specials, size=700):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def train_unigram(text, charsmap):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=False, right=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="first")
    trainer = trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


# Replacements in the spirit of NFKC, and one that a longer rule hides ("f" "fi").
RULES = {"ﬁ": "fi", "ﬀ": "ff", "①": "1", "Ⅷ": "VIII", "㎏": "kg", "ｱ": "ア", "Ａ": "A", "１": "1", "\u00a0": " ", "\u3000": " ", "\t": " ", "e\u0301": "é", "a\u0308": "ä", "…": "...", "\u200b": " ", "\u00ad": "", "½": "1/2", "n\u0303": "ñ"}


def record_sentencepiece(lines, text):
    rules = OUT / "rules.tsv"
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in k) + "\t" + " ".join(f"{ord(c):X}" for c in v) + "\n" for k, v in RULES.items()))
    bpe, proto = train_sentencepiece("bpe", text, vocab_size=1400, normalization_rule_name="identity", remove_extra_whitespaces=False)
    write_pieces("sp_bpe", bpe, charsmap_of(proto))
    record("sp_bpe", lines, bpe.encode)
    unigram, proto = train_sentencepiece("unigram", text, vocab_size=1100, normalization_rule_tsv=str(rules))
    rules.unlink()
    write_pieces("sp_unigram", unigram, charsmap_of(proto))
    record("sp_unigram", lines, unigram.encode)
    legacy = sentencepiece_as_json(bpe, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    write_json("llama2", legacy)
    record("llama2", lines, lambda line: legacy.encode(line).ids)
    return charsmap_of(proto)


def record_hugging_face(lines, text, charsmap):
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    llama3 = train_byte_level(LLAMA3, text, None, specials)
    state = json.loads(llama3.to_str())
    state["model"]["ignore_merges"] = True
    state["model"]["vocab"].update({"ĠViá»ĩt": 700, "Ġhello!": 701})  # whole words no merge makes
    llama3 = Tokenizer.from_str(json.dumps(state))
    write_json("llama3", llama3)
    record("llama3", lines, lambda line: llama3.encode(line).ids)
    qwen2 = train_byte_level(QWEN2, text, normalizers.NFC(), specials)
    write_json("qwen2", qwen2)
    record("qwen2", lines, lambda line: qwen2.encode(line).ids)
    unigram = train_unigram(text, charsmap)
    write_json("unigram", unigram)
    record("unigram", lines, lambda line: unigram.encode(line).ids)


def step_cases(charsmap):
    """Normalisers and pre-tokenizers, each alone and in the combinations models use."""
    n, p = normalizers, pre_tokenizers
    cases = {
        "nfc": (n.NFC(), []), "nfd": (n.NFD(), []), "nfkc": (n.NFKC(), []), "nfkd": (n.NFKD(), []),
        "lowercase": (n.Lowercase(), []), "accents": (n.Sequence([n.NFD(), n.StripAccents()]), []),
        "strip": (n.Strip(), []), "strip_left": (n.Strip(right=False), []), "nmt": (n.Nmt(), []),
        "bert": (n.BertNormalizer(), [p.BertPreTokenizer()]),
        "bert_cased": (n.BertNormalizer(lowercase=False, strip_accents=False, clean_text=False), []),
        "replace": (n.Sequence([n.Replace("ab", "X"), n.Replace(Regex(r"\s+"), "_"), n.Prepend("^")]), []),
        "precompiled": (n.Precompiled(charsmap), []),
        "byte_level_normalizer": (n.ByteLevel(), []),
        "digits": (None, [p.Digits()]), "digits_each": (None, [p.Digits(individual_digits=True)]),
        "whitespace": (None, [p.Whitespace()]), "whitespace_split": (None, [p.WhitespaceSplit()]),
        "punctuation": (None, [p.Punctuation()]), "char_delimiter": (None, [p.CharDelimiterSplit("a")]),
        "gpt2": (None, [p.ByteLevel(add_prefix_space=True)]),
        "metaspace": (None, [p.Metaspace()]), "metaspace_first": (None, [p.Metaspace(prepend_scheme="first")]),
        "metaspace_whole": (None, [p.Metaspace(prepend_scheme="never", split=False)]),
        "deepseek": (None, [p.Split(Regex(r"[\r\n]"), "isolated"), p.Split(Regex(r"\s?\p{L}+"), "isolated"), p.Split(Regex(r"\s?\p{P}+"), "isolated"), p.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "isolated"), p.Digits(individual_digits=True)]),
        "class_intersection": (None, [p.Split(Regex(r"[\p{Han}]+|[\p{L}&&[^\p{Han}]]+|\p{N}{1,3}"), "isolated")]),
        "line_ends": (None, [p.Split(Regex(r"\s+$"), "isolated")]),
        "gpt4o": (None, [p.Split(Regex(GPT4O), "removed", invert=True)]),
    }
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        cases[f"split_{behavior}"] = (None, [p.Split(" ", behavior)])
        cases[f"invert_{behavior}"] = (None, [p.Split(Regex("[a-z]+"), behavior, invert=True)])
    return cases


GPT4O = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def record_steps(lines, charsmap):
    """Bytes as ids, a space before every piece that has none: so the ids show where pieces begin.
    A hash for every forty lines."""
    out = []
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    for name, (normalizer, steps) in step_cases(charsmap).items():
        tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
        hashes = [fnv(i for line in lines[at:at + 40] for i in tokenizer.encode(line).ids) >> 8 for at in range(0, len(lines), 40)]
        state = json.loads(tokenizer.to_str())
        out.append({"name": name, "hashes": " ".join(f"{h:06x}" for h in hashes), "normalizer": state["normalizer"], "pre_tokenizer": state["pre_tokenizer"]})
    text = ",\n".join(json.dumps(case, ensure_ascii=False) for case in out)
    (OUT / "steps.json").write_text(f"[{text}]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    corpus = pathlib.Path(args.corpus).read_text().splitlines()
    lines = make_lines(corpus)
    (OUT / "lines.txt").write_text("".join(escape(line) + "\n" for line in lines), newline="")
    default = from_gguf(args.model)
    record("smollm2", lines, lambda text: default.encode(text, add_special_tokens=False).ids)
    default.encode_special_tokens = True
    record("smollm2_plain", lines, lambda text: default.encode(text, add_special_tokens=False).ids)
    text = training_text(corpus)
    charsmap = record_sentencepiece(lines, text)
    record_hugging_face(lines, text, charsmap)
    record_steps(lines, charsmap)


if __name__ == "__main__":
    main()