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

import gguf
import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/text/data"
FULL_LINES = 25  # lines whose ids are stored in full; the others as a hash

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
    "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>user", "<s>", "</s>", "<unk>", "<0x0A>", "[INST]", "<|eot_id|>", "<repo_name>", "<pad>", "▁", "Ġ", "<mask>"],
    "odd": ["\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\u0085", "\u2028", "\u180e", "\x00", "\x07", "\x7f", "\u00ad", "\ufffd", "\u202e", "\U000e0041", "\U0010ffff", "\u1680"],
}
GAPS = [" "] * 14 + ["", "", "", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\t\t", "        ", "\u00a0", "\u3000", " \t ", "\r"]


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
            lines.append("".join(chr(rng.randrange(*rng.choice(planes))) for _ in range(count)))
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
        out.append(f"{fnv(ids):08x}{full}\n")
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


if __name__ == "__main__":
    main()
