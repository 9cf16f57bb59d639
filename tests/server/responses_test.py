"""/v1/responses through the openai client, plain and streamed."""

import sys
from pathlib import Path

import openai

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

_server = None


def server():
    global _server
    if _server is None:
        _server = harness.Server("--max-model-len", "1024", "--kv-cache-memory-bytes", "256M")
        _server.client = openai.OpenAI(base_url=_server.url + "/v1", api_key="none", max_retries=0)
    return _server


QUESTION = "Name the capital of France."


def chat_text(s, messages, **options):
    code, answer = s.post("/v1/chat/completions", {"messages": messages, "temperature": 0} | options)
    assert code == 200, answer
    return answer["choices"][0]["message"]["content"], answer["usage"]


def test_plain():
    s = server()
    want, usage = chat_text(s, [{"role": "user", "content": QUESTION}], max_tokens=12)
    r = s.client.responses.create(model="", input=QUESTION, temperature=0, max_output_tokens=12, metadata={"a": "b"})
    assert r.output_text == want and r.object == "response" and r.id.startswith("resp_")
    assert r.usage.input_tokens == usage["prompt_tokens"] and r.usage.output_tokens == usage["completion_tokens"]
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
    assert r.metadata == {"a": "b"} and r.temperature == 0 and r.max_output_tokens == 12 and not r.tools
    cut = r.status == "incomplete"
    assert cut == (usage["completion_tokens"] == 12) and (r.incomplete_details is not None) == cut
    assert r.output[0].type == "message" and r.output[0].role == "assistant" and r.output[0].content[0].type == "output_text"


def test_messages_and_instructions():
    s = server()
    messages = [{"role": "user", "content": "Say one."}, {"role": "assistant", "content": "One."},
                {"role": "user", "content": "Say two."}]
    want, _ = chat_text(s, [{"role": "system", "content": "Be brief."}] + messages, max_tokens=8)
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Say one."}], "type": "message"},
             {"role": "assistant", "content": [{"type": "output_text", "text": "One."}]}, messages[2]]
    r = s.client.responses.create(model="", input=parts, instructions="Be brief.", temperature=0, max_output_tokens=8)
    assert r.output_text == want and r.instructions == "Be brief."


def test_streams():
    s = server()
    plain = s.client.responses.create(model="", input=QUESTION, temperature=0, max_output_tokens=12)
    events = list(s.client.responses.create(model="", input=QUESTION, temperature=0, max_output_tokens=12, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    types = [e.type for e in events]
    deltas = [e for e in events if e.type == "response.output_text.delta"]
    assert types[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    assert types[4:4 + len(deltas)] == ["response.output_text.delta"] * len(deltas)
    assert types[4 + len(deltas):] == ["response.output_text.done", "response.content_part.done",
                                       "response.output_item.done", "response." + plain.status]
    assert "".join(e.delta for e in deltas) == plain.output_text == events[-1].response.output_text
    assert events[-1].response.usage == plain.usage and events[-4].text == plain.output_text
    assert {e.item_id for e in deltas} == {events[-1].response.output[0].id}
    with s.client.responses.stream(model="", input=QUESTION, temperature=0, max_output_tokens=12) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == plain.output_text


def test_a_schema():
    s = server()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    r = s.client.responses.create(model="", input="A number.", temperature=0, max_output_tokens=40, extra_body={
        "text": {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}})
    assert r.output_text.lstrip().startswith("{"), r.output_text
    assert r.text.format.type == "json_schema"


def test_what_is_not_supported_is_named():
    s = server()
    for field, value, param in [
            ("tools", [{"type": "web_search"}], "tools"), ("previous_response_id", "resp_1", "previous_response_id"),
            ("background", True, "background"), ("conversation", "c", "conversation"), ("truncation", "auto", "truncation"),
            ("include", ["reasoning.encrypted_content"], "include"), ("n", 2, "n"), ("max_output_tokens", 0, "max_output_tokens"),
            ("max_output_tokens", "5", "max_output_tokens"), ("input", [], "input"), ("input", 7, "input"),
            ("input", [{"type": "function_call_output", "output": "x", "call_id": "1"}], "input[0].type"),
            ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0]"),
            ("input", [{"role": "nobody", "content": "x"}], "input[0].role"), ("input", ["x"], "input[0]"),
            ("input", None, "input"), ("text", {"format": {"type": "xml"}}, "text.format"), ("stream", "true", "stream"),
            ("temperature", -1, "temperature"), ("instructions", 3, "instructions")]:
        code, answer = s.post("/v1/responses", {"input": "x", "max_output_tokens": 1} | {field: value})
        assert code == 400 and answer["error"]["param"] == param, (field, value, answer)
    code, answer = s.post("/v1/embeddings", {"input": "x"})
    assert code == 501 and "Embeddings" in answer["error"]["message"], answer


if __name__ == "__main__":
    harness.run_tests(globals())
