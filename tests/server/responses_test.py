"""/v1/responses through the openai client, plain and streamed."""

import json
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


TOOLS = [{"type": "function", "name": name, "description": "The weather of a town.", "strict": True, "parameters": {
    "type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "day": {"enum": ["today"]}}, "required": ["unit", "day"],
    "additionalProperties": False}} for name in ("weather", "forecast")]


def same_calls(got, want):
    assert [(c.type, c.name, json.loads(c.arguments)) for c in got] == [
        ("function_call", c["function"]["name"], json.loads(c["function"]["arguments"])) for c in want]


def test_functions_are_called():
    s = server()
    chat_tools = [{"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in TOOLS]
    ask = dict(model="", input=QUESTION, temperature=0, max_output_tokens=120, tools=TOOLS, parallel_tool_calls=False)
    for choice in ("required", {"type": "function", "name": "forecast"}):
        r = s.client.responses.create(**ask, tool_choice=choice)
        chat_choice = choice if isinstance(choice, str) else {"type": "function", "function": {"name": "forecast"}}
        code, want = s.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 120, "tools": chat_tools,
            "parallel_tool_calls": False, "tool_choice": chat_choice})
        assert code == 200, want
        same_calls(r.output, want["choices"][0]["message"]["tool_calls"])
        call = r.output[0]
        assert r.status == call.status == "completed" and call.id.startswith("fc_") and call.call_id.startswith("call_")
        assert [t.name for t in r.tools] == ["weather", "forecast"] and r.parallel_tool_calls is False
        assert r.output_text == "" and call.name in ("weather", "forecast")

        events = list(s.client.responses.create(**ask, tool_choice=choice, stream=True))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        types = [e.type for e in events]
        deltas = [e for e in events if e.type == "response.function_call_arguments.delta"]
        assert types[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
        assert types[3:3 + len(deltas)] == ["response.function_call_arguments.delta"] * len(deltas) and deltas
        assert types[3 + len(deltas):] == ["response.function_call_arguments.done", "response.output_item.done",
                                           "response.completed"]
        assert events[2].item.arguments == "" and events[2].item.name == call.name
        done, last = events[-3], events[-1].response
        assert "".join(e.delta for e in deltas) == done.arguments == call.arguments == last.output[0].arguments
        assert {e.item_id for e in deltas} == {done.item_id} == {last.output[0].id}
        assert last.usage.total_tokens == r.usage.total_tokens
    # No call is wanted: the tools are not even shown.
    want, _ = chat_text(s, [{"role": "user", "content": QUESTION}], max_tokens=8)
    r = s.client.responses.create(**ask | {"max_output_tokens": 8}, tool_choice="none")
    assert r.output_text == want and r.output[0].type == "message"


def test_what_functions_gave_goes_back():
    s = server()
    first = s.client.responses.create(model="", input=QUESTION, temperature=0, max_output_tokens=120, tools=TOOLS,
                                      tool_choice="required", parallel_tool_calls=False)
    call = first.output[0]
    items = [{"role": "user", "content": QUESTION}, *first.output,
             {"type": "function_call_output", "call_id": call.call_id, "output": "12 C and rain"}]
    second = s.client.responses.create(model="", input=items, temperature=0, max_output_tokens=12, tools=TOOLS)
    as_parts = items[:-1] + [items[-1] | {"output": [{"type": "input_text", "text": "12 C and rain"}]}]
    assert s.client.responses.create(model="", input=as_parts, temperature=0, max_output_tokens=12,
                                     tools=TOOLS).output_text == second.output_text
    messages = [{"role": "user", "content": QUESTION},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}]},
                {"role": "tool", "tool_call_id": call.call_id, "name": call.name, "content": "12 C and rain"}]
    want, usage = chat_text(s, messages, max_tokens=12, tools=[
        {"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in TOOLS])
    assert second.output_text == want and second.usage.input_tokens == usage["prompt_tokens"]


def test_what_is_not_supported_is_named():
    s = server()
    for field, value, param in [
            ("tools", [{"type": "web_search"}], "tools[0].type"), ("tools", [{"type": "function"}], "tools[0].name"),
            ("tools", {"type": "function"}, "tools"), ("tool_choice", "required", "tool_choice"),
            ("tool_choice", {"type": "web_search"}, "tool_choice"), ("store", True, "store"), ("previous_response_id", "resp_1", "previous_response_id"),
            ("background", True, "background"), ("conversation", "c", "conversation"), ("truncation", "auto", "truncation"),
            ("include", ["reasoning.encrypted_content"], "include"), ("n", 2, "n"), ("max_output_tokens", 0, "max_output_tokens"),
            ("max_output_tokens", "5", "max_output_tokens"), ("input", [], "input"), ("input", 7, "input"),
            ("input", [{"type": "function_call_output", "output": "x", "call_id": "1"}], "input[0].call_id"),
            ("input", [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}], "input[0].arguments"),
            ("input", [{"type": "function_call", "call_id": 1, "name": "f", "arguments": "{}"}], "input[0].call_id"),
            ("input", [{"type": "item_reference", "id": "x"}], "input[0].type"),
            ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0]"),
            ("input", [{"role": "nobody", "content": "x"}], "input[0].role"), ("input", ["x"], "input[0]"),
            ("input", None, "input"), ("text", {"format": {"type": "xml"}}, "text.format"), ("stream", "true", "stream"),
            ("temperature", -1, "temperature"), ("instructions", 3, "instructions")]:
        code, answer = s.post("/v1/responses", {"input": "x", "max_output_tokens": 1} | {field: value})
        assert code == 400 and answer["error"]["param"] == param, (field, value, answer)
    # The message that instructions become moves no index.
    code, answer = s.post("/v1/responses", {"instructions": "x", "input": [{"role": "user", "content": "x"}, {"role": "no"}]})
    assert code == 400 and answer["error"]["param"] == "input[1].role", answer
    code, answer = s.post("/v1/embeddings", {"input": "x"})
    assert code == 501 and "Embeddings" in answer["error"]["message"], answer


if __name__ == "__main__":
    harness.run_tests(globals())
