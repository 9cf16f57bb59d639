"""The dashboard in a real browser: the map changes while a cache is compressed, both answers come, the calculator calculates;
nothing is complained about, nothing leaves the host. At the width of a desk and of a phone, light and dark.

  python tests/web/dashboard_test.py --binary build/release/bin/pagefold --model MODEL      (as tests/server/*)
With PAGEFOLD_SCREENSHOTS=FOLDER it leaves pictures there to look at.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))
from chromium import Browser, find  # noqa: E402
from harness import BINARY, Server, run_tests  # noqa: E402

TILE = "document.querySelector('#tiles').textContent"
FREED = f"Number((/Freed by compaction([0-9,]+) blocks/.exec({TILE})?.[1] ?? '0').replaceAll(',', ''))"
MAP = "document.querySelector('#map').toDataURL()"
shared = {}


def setup():
    if not find():
        raise unittest.SkipTest("there is no chromium")
    if not shared:
        shared["server"] = Server("--log-level", "warn", "--kv-cache-memory-bytes", "100M", "--max-model-len", "2048")
        shared["browser"] = Browser()
    return shared["server"], shared["browser"]


def teardown_module():
    for name in ("browser", "server"):
        if name in shared:
            shared.pop(name).close()


def shot(page, name):
    if folder := os.environ.get("PAGEFOLD_SCREENSHOTS"):
        page.run("scrollTo(0, 0)")
        page.screenshot(os.path.join(folder, name + ".png"))


def open_page(browser, url, width, height, dark=False):
    page = browser.page()
    page.view(width, height, dark)
    page.open(url + "/")
    page.until("document.querySelector('#link').textContent === 'live'")
    page.until("document.querySelector('#c-policy').options.length > 5 && document.querySelector('#k-models').options.length > 30")
    return page


def check_quiet(page, url):
    assert page.complaints() == [], page.complaints()
    strangers = [r for r in page.requests() if not r.startswith(url + "/") and not r.startswith("data:")]
    assert strangers == [], strangers
    assert page.run("performance.getEntriesByType('resource').every(r => r.name.startsWith(location.origin))")
    width, seen = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= seen, f"the page is {width} wide in a view of {seen}"


def compare(page, tokens, budget):
    page.type("#c-prompt", "Tell me about the sea.")
    page.type("#c-tokens", str(tokens))
    page.type("#c-budget", str(budget))
    page.run("document.querySelector('#c-policy').value = 'streaming'")
    page.run("document.querySelector('#c-policy').dispatchEvent(new Event('change'))")
    if not page.run("document.querySelector('#c-on').checked"):
        page.click("#c-on")
    page.click("#c-run")


def calculated(page, *flags):
    """Presses the button; what the page says is what the command line says."""
    page.run("document.querySelector('#calc-result').replaceChildren()")
    page.click("#calc-form button")
    page.until("document.querySelector('#calc-result h2')")
    text = page.run("document.querySelector('#calc-result').textContent")
    cli = json.loads(subprocess.run([BINARY, "calc", *flags, "--json"], capture_output=True, text=True, check=True, timeout=60).stdout)
    assert page.run("document.querySelector('#calc-result .formula').textContent") == cli["formula"]
    assert page.run("[...document.querySelectorAll('#calc-result li')].map(e => e.textContent)") == cli["notes"]
    for value in (cli["fits"] or {}).values():
        assert isinstance(value, bool) or f"{value:,}" in text, (value, text)
    return text


def calculate(page, name):
    page.type("#k-model", "qwen3-8b")
    page.type("#k-tokens", "32768")
    page.type("#k-memory", "24G")
    text = calculated(page, "qwen3-8b", "--tokens", "32768", "--memory", "24G")
    # 36 layers x 8 heads x 2 x 128 x 2 bytes x 32768 tokens
    assert "4.50 GiB at most" in text, text
    assert "Fits: longest context" in text, text
    page.run("document.querySelector('#k-more').open = true")
    page.type("#k-lengths", "4096, 8192")
    page.type("#k-shared", "1024")
    page.type("#k-ranks", "2")
    page.run("document.querySelector('#k-dtype-v').value = 'int8'")
    # Of one of two devices: 4 heads x (256 + 130) bytes, 12,288 tokens of which 1,024 are shared.
    text = calculated(page, "qwen3-8b", "--lengths", "4096,8192", "--shared-prefix", "1024", "--tp", "2", "--kv-cache-dtype-v", "int8",
                      "--memory", "24G")
    assert f"{36 * 4 * 386 * (12288 - 1024) / 2**20:.1f} MiB" in text, text
    by_hand(page, name)


def choose(page, name, value):
    page.run(f"document.querySelector('[data-choice={name}]').value = {value!r}")


def by_hand(page, name):
    """A shape in place of a model, and what only some models have; then everything as it was."""
    page.click("#calc-form button[type=reset]")
    page.until("document.querySelector('#k-lengths').value === '' && document.querySelector('#k-model').value")
    page.run("document.querySelector('#k-hand').open = document.querySelector('#k-more').open = true")
    page.type("#k-tokens", "10000")
    for field, value in (("layers", 32), ("kv_heads", 8), ("head_dim", 128), ("window", 1024), ("window_layers", 16), ("shared_layers", 15)):
        page.type(f"[data-shape={field}]", str(value))
    # 16 layers with windows and one for the 15 that read it.
    text = calculated(page, "--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--window", "1024", "--window-layers", "16",
                      "--shared-layers", "15", "--tokens", "10000")
    assert f"{4096 * (16 * 1024 + 10000) / 2**20:.1f} MiB" in text and "by hand" in text, text
    shot(page, f"{name}-hand")
    page.click("#calc-form button[type=reset]")
    page.until("document.querySelector('[data-shape=layers]').value === ''")
    page.run("document.querySelector('#k-hand').open = false")
    page.type("#k-model", "deepseek-v3.2")
    page.type("#k-tokens", "1000")
    choose(page, "mla", "packed_fp8")
    choose(page, "index_dtype", "int8")
    choose(page, "kv_cache_group", "32")
    page.click("#k-draft")
    page.type("[data-number=max_num_seqs]", "8")
    page.type("#k-cache-memory", "2G")
    # 656 bytes and an indexer's 128, with a scale of 2 for 32.
    calculated(page, "deepseek-v3.2", "--tokens", "1000", "--mla", "packed_fp8", "--index-dtype", "int8", "--kv-cache-group", "32",
               "--draft-layers", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "2G")
    page.click("#calc-form button[type=reset]")
    page.until("!document.querySelector('#k-draft').checked")
    page.type("#k-model", "qwen3-next-80b-a3b-instruct")
    page.type("#k-tokens", "4096")
    choose(page, "state_dtype", "bfloat16")
    page.type("[data-number=state_snapshots]", "3")
    page.run("document.querySelector('#k-policy').value = 'snapkv-d'")
    page.run("document.querySelector('#k-policy').dispatchEvent(new Event('change'))")
    page.type("#k-budget", "512")
    page.type("#k-words", "recent=16, packing=fill")
    calculated(page, "qwen3-next-80b-a3b-instruct", "--tokens", "4096", "--state-dtype", "bfloat16", "--state-snapshots", "3",
               "--kv-policy", "snapkv-d", "--kv-budget", "512", "--kv-recent", "16", "--kv-packing", "fill")
    # Words that are none, and a number that the browser refuses in a part that is folded up.
    page.type("#k-words", "recent")
    page.click("#calc-form button")
    page.until("/not NAME=VALUE/.test(document.querySelector('#calc-result .error')?.textContent)")
    page.type("#k-words", " ")
    page.type("[data-number=block_size]", "-4")
    page.run("document.querySelector('#k-more').open = false")
    page.click("#calc-form button")
    page.until("document.querySelector('#k-more').open")
    page.type("[data-number=block_size]", "32")
    calculated(page, "qwen3-next-80b-a3b-instruct", "--tokens", "4096", "--state-dtype", "bfloat16", "--state-snapshots", "3",
               "--kv-policy", "snapkv-d", "--kv-budget", "512", "--block-size", "32")


def walk(width, height, name):
    server, browser = setup()
    page = open_page(browser, server.url, width, height)
    before = page.run(FREED)
    empty = page.run(MAP)
    compare(page, 200, 64)
    page.until(f"document.querySelectorAll('#sequences tbody tr').length === 2 && {MAP} !== {empty!r}")
    first = hashlib.sha256(page.run(MAP).encode()).digest()
    page.until(f"{FREED} > {before}")
    assert hashlib.sha256(page.run(MAP).encode()).digest() != first, "the map stood still"
    shot(page, f"{name}-running")
    page.until("document.querySelector('#c-verdict').textContent.includes('times less')", 20)
    full = page.run("document.querySelector('#answer-full .text').textContent")
    small = page.run("document.querySelector('#answer-small .text').textContent")
    assert len(full) > 100 and len(small) > 100 and full[:20] == small[:20], (full, small)
    kept = page.run("document.querySelector('#answer-small .facts').textContent")
    assert "Compactions0" not in kept and "evicted" in kept, kept
    calculate(page, name)
    shot(page, f"{name}-end")
    check_quiet(page, server.url)
    page.view(width, height, dark=True)
    shot(page, f"{name}-dark")
    page.close()


def test_at_a_desk():
    walk(1280, 900, "desk")


def test_on_a_phone():
    walk(390, 844, "phone")


def test_keys_walk_over_the_map():
    server, browser = setup()
    server.complete("A story about the sea and its ships.", max_tokens=20)
    page = open_page(browser, server.url, 1280, 900)
    page.until("/blocks in use/.test(document.querySelector('#map').getAttribute('aria-label'))")
    page.run("document.querySelector('#map').focus()")
    page.key("ArrowRight")
    first = page.until("document.querySelector('#map-cell').textContent.trim()")
    page.key("ArrowRight")
    page.until(f"document.querySelector('#map-cell').textContent !== {first!r}")
    assert re.match(r"Blocks? 0[ :]", first), first
    # Every control can be reached and has a name.
    nameless = page.run("""[...document.querySelectorAll('button, input, select, textarea, a, canvas')].filter(e =>
      e.tabIndex < 0 || !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label'))).map(e => e.outerHTML)""")
    assert nameless == [], nameless
    check_quiet(page, server.url)
    page.close()


def test_text_is_never_markup():
    """A prompt that the model repeats, and an error that quotes the form's words."""
    server, browser = setup()
    page = open_page(browser, server.url, 1280, 900)
    hostile = "<img src=x onerror=alert(1)><b>"
    page.run(f"document.querySelector('#answer-full .text').append({hostile!r})")
    page.type("#k-model", hostile)
    page.click("#calc-form button")
    page.until("document.querySelector('#calc-result .error')")
    assert page.run("document.querySelectorAll('main img, main b').length") == 0
    check = [c for c in page.complaints() if "400" not in c]  # the refused calculation itself
    assert check == [], check
    page.close()


def test_asks_for_the_key():
    _, browser = setup()
    with Server("--log-level", "warn", "--kv-cache-memory-bytes", "50M", "--max-model-len", "1024", "--api-key", "open sesame") as server:
        page = browser.page()
        page.view(390, 844)
        page.open(server.url + "/")
        page.until("document.querySelector('#key').open")
        page.type("#key-value", "wrong")
        page.click("#key-form button")
        page.until("document.querySelector('#key').open && /did not take/.test(document.querySelector('#key-note').textContent)")
        shot(page, "phone-key")
        page.type("#key-value", "open sesame")
        page.click("#key-form button")
        page.until("document.querySelector('#link').textContent === 'live'")
        page.until("document.querySelector('#c-policy').options.length > 5")
        page.close()


if __name__ == "__main__":
    try:
        run_tests(globals())
    finally:
        teardown_module()
