"""The real openai client against a running server, and that of the Hugging Face hub."""

import concurrent.futures
import json
import sys
import time
from pathlib import Path

import jsonschema
import openai
from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from harness import until  # noqa: E402


class ClientServer(harness.Server):
    def __init__(self):
        super().__init__("--max-model-len", "2048", "--kv-cache-memory-bytes", "512M")
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=600)
        self.model = self.client.models.list().data[0].id

    def complete(self, prompt, **options):
        return self.client.completions.create(model=self.model, prompt=prompt, **options)

    def chat(self, text, **options):
        return self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], **options)


_server = None


def server():
    global _server
    _server = _server or ClientServer()
    return _server


CAPITAL = "The capital of France is"


def test_plain_completion():
    s = server()
    r = s.complete(CAPITAL, max_tokens=16, temperature=0)
    assert "Paris" in r.choices[0].text, r
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.usage.model_extra["kv"]["blocks"] > 0


def test_plain_chat():
    s = server()
    r = s.chat("Name the capital of France.", max_tokens=32, temperature=0)
    assert r.choices[0].message.role == "assistant"
    assert "Paris" in r.choices[0].message.content, r


def test_streams_equal_plain():
    s = server()
    options = dict(max_tokens=40, temperature=0)
    plain = s.chat("Name three fruits.", **options)
    chunks = list(s.chat("Name three fruits.", stream=True,
                         stream_options={"include_usage": True}, **options))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == plain.choices[0].message.content, (text, plain)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == plain.choices[0].finish_reason
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens
    plain = s.complete(CAPITAL, **options)
    chunks = list(s.complete(CAPITAL, stream=True, **options))
    assert "".join(c.choices[0].text for c in chunks) == plain.choices[0].text


def test_stop_strings():
    s = server()
    full = s.complete(CAPITAL, max_tokens=30, temperature=0).choices[0].text
    stop = full[7:11]
    for stream in (False, True):
        r = s.complete(CAPITAL, max_tokens=30, temperature=0, stop=[stop], stream=stream)
        if stream:
            chunks = list(r)
            text, reason = "".join(c.choices[0].text for c in chunks), chunks[-1].choices[0].finish_reason
        else:
            text, reason = r.choices[0].text, r.choices[0].finish_reason
        assert text == full[:full.index(stop)], (text, full)
        assert reason == "stop"


def test_logprobs():
    s = server()
    r = s.chat("Say yes.", max_tokens=5, temperature=0, logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for t in content:
        assert len(t.top_logprobs) == 3 and t.logprob <= 0
        assert abs(t.top_logprobs[0].logprob - t.logprob) < 1e-6  # greedy: the chosen is the best
    r = s.complete(CAPITAL, max_tokens=4, temperature=0, logprobs=2, echo=True)
    lp = r.choices[0].logprobs
    assert lp.token_logprobs[0] is None and all(x <= 0 for x in lp.token_logprobs[1:])
    assert len(lp.tokens) == r.usage.total_tokens
    assert r.choices[0].text.startswith(CAPITAL)
    assert lp.text_offset == sorted(lp.text_offset)


def test_several_choices():
    s = server()
    r = s.complete("Once upon a time", max_tokens=12, n=2, seed=5, temperature=1.0)
    assert [c.index for c in r.choices] == [0, 1]
    assert r.choices[0].text != r.choices[1].text
    second = s.complete("Once upon a time", max_tokens=12, seed=6, temperature=1.0)
    assert r.choices[1].text == second.choices[0].text  # choice i draws with seed + i
    r = s.complete(["One two", "Red green"], max_tokens=4, temperature=0)
    assert len(r.choices) == 2


def test_only_allowed_tokens_and_no_bad_words():
    s = server()
    allowed = s.post("/tokenize", {"prompt": " river stone blue"})[1]["tokens"]
    r = s.complete(CAPITAL, max_tokens=20, temperature=1, seed=1,
                   extra_body={"allowed_token_ids": allowed, "return_token_ids": True})
    assert set(r.choices[0].model_extra["token_ids"]) <= set(allowed) and r.usage.completion_tokens == 20, r
    free = s.complete(CAPITAL, max_tokens=20, temperature=0).choices[0].text
    words = [w for w in free.replace(".", " ").split() if w.isalpha()]
    assert "Paris" in words, free
    r = s.complete(CAPITAL, max_tokens=20, temperature=0, extra_body={"bad_words": words})
    assert not {" " + w for w in words} & {" " + w for w in r.choices[0].text.replace(".", " ").split()}, (free, r)
    # A bound answer is written all the same where nothing else may come.
    r = s.complete(CAPITAL, max_tokens=5, temperature=0,
                   extra_body={"bad_words": ["yes", "y", "ye"], "guided_choice": ["yes"]})
    assert r.choices[0].text == "yes", r


def test_seeds_repeat():
    s = server()
    ask = lambda seed: s.complete("My favourite", max_tokens=16, seed=seed, temperature=1.0).choices[0].text
    assert ask(1) == ask(1)
    assert len({ask(i) for i in range(4)}) > 1


def test_tokens_both_ways():
    s = server()
    status, r = s.post("/tokenize", {"prompt": "Héllo, wörld 🙂"})
    assert status == 200 and r["count"] == len(r["tokens"])
    status, back = s.post("/detokenize", {"tokens": r["tokens"]})
    assert status == 200 and back["prompt"].endswith("Héllo, wörld 🙂")
    ids = s.complete(r["tokens"], max_tokens=1, temperature=0)
    assert ids.usage.prompt_tokens == r["count"]


def test_errors_name_the_field():
    s = server()
    chat = "/v1/chat/completions"
    good = {"messages": [{"role": "user", "content": "hi"}]}
    for path, body, param in [
            (chat, b"{:", None), (chat, b"", None), (chat, b"[]", None),
            (chat, b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', None),
            (chat, {**good, "stream": "true"}, "stream"), (chat, {"messages": "hi"}, "messages"),
            (chat, {**good, "max_tokens": "5"}, "max_tokens"), (chat, {**good, "stop": 7}, "stop"),
            (chat, {"messages": []}, "messages"), (chat, {**good, "temperature": -1}, "temperature"),
            (chat, {**good, "n": 100000}, "n"), (chat, {**good, "logit_bias": {"abc": 1}}, "logit_bias"),
            (chat, {**good, "max_tokens": 10**9}, "max_tokens"),
            ("/v1/completions", {"prompt": []}, "prompt"),
            ("/v1/completions", {"prompt": "x", "logit_bias": {"2147483648": 1}}, "logit_bias")]:
        begin = time.monotonic()
        status, r = s.post(path, body)
        assert status == 400 and r["error"]["param"] == param and r["error"]["code"] == 400, (body, r)
        assert time.monotonic() - begin < 1
    try:
        s.client.completions.create(model="no-such-model", prompt="x")
        raise AssertionError("an unknown model was accepted")
    except openai.NotFoundError as e:
        assert e.body["param"] == "model"
    assert s.get("/health")[0] == 200


def test_tiny_temperatures_are_greedy():
    s = server()
    want = s.complete(CAPITAL, max_tokens=8, temperature=0).choices[0].text
    for t in (1e-5, 1e-30, 5e-324):
        assert s.complete(CAPITAL, max_tokens=8, temperature=t).choices[0].text == want


def test_a_leaving_client_frees_its_blocks():
    s = server()
    for stream in (True, False):
        body = {"prompt": "Count: 1 2 3", "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "stream": stream}
        c = s.socket()
        c.sendall(harness.raw_post("/v1/completions", body))
        until(lambda: s.metric("vllm:num_requests_running") == 1)
        c.close()
        begin = time.monotonic()
        until(lambda: s.metric("pagefold_kv_blocks_used") == 0)
        assert time.monotonic() - begin < 2
        tokens = s.metric("vllm:generation_tokens_total")
        assert tokens < 1500 * (1 if stream else 2), tokens


def test_many_clients_get_their_solo_text():
    s = server()
    prompts = [f"{i} and {i + 1} are" for i in range(8)]
    ask = lambda p: s.complete(p, max_tokens=12, temperature=0).choices[0].text
    solo = [ask(p) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, prompts)) == solo


def test_another_client_library():
    """The client of the Hugging Face hub, which sends a schema as response_format.value."""
    s = server()
    client = InferenceClient(base_url=s.url + "/v1", api_key="none", timeout=600)
    ask = {"model": s.model, "messages": [{"role": "user", "content": "Name the capital of France."}], "temperature": 0}
    plain = client.chat_completion(**ask, max_tokens=16)
    assert "Paris" in plain.choices[0].message.content and plain.usage.prompt_tokens > 0, plain
    parts = client.chat_completion(**ask, max_tokens=16, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in parts if c.choices) == plain.choices[0].message.content
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}
    bound = client.chat_completion(**ask, max_tokens=60, response_format={
        "type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
    jsonschema.validate(json.loads(bound.choices[0].message.content), schema)
    tool = {"type": "function", "function": {"name": "look_up", "description": "Looks up a city.", "parameters": schema}}
    called = client.chat_completion(**ask, max_tokens=80, tools=[tool], tool_choice="required")
    call = called.choices[0].message.tool_calls[0].function
    assert call.name == "look_up" and set(json.loads(call.arguments)) == {"city"}, called
    try:
        client.chat_completion(**ask | {"temperature": -1})
        raise AssertionError("a wrong temperature was accepted")
    except BadRequestError as e:
        assert "temperature" in str(e)


def test_stops_gracefully():
    global _server
    s, _server = server(), None
    s.process.terminate()
    assert s.process.wait(timeout=60) == 0


if __name__ == "__main__":
    harness.run_tests(globals())
