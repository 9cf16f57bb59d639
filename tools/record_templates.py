#!/usr/bin/env python3
"""Records tests/text/golden/templates.json: what real Jinja2, set up as Hugging Face tokenizers set
it up, makes of our templates, conversations and snippets. Needs jinja2.

  python3 tools/record_templates.py
"""
import datetime
import itertools
import json
import pathlib

import jinja2
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26)
OUT = pathlib.Path(__file__).parent.parent / "tests/text/golden/templates.json"


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


ENV = environment()


def render(source, context):
    try:
        return ENV.from_string(source).render(**context)
    except Raised as e:
        return {"raised": str(e)}
    except Exception:
        return {"error": True}


# Written for these tests, with the language features that templates of each family use.
FAMILIES = {
    "chatml": """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{- '<|im_start|>system\\nYou answer briefly.<|im_end|>\\n' }}
{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}
{% for m in rest %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns: user, assistant, user ...') }}{% endif %}
{% if loop.index0 == 0 and system != false %}{% set text = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}{% else %}{% set text = m['content'] %}{% endif %}
{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}""",
    "llama3": """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none and tools is defined %}{{- 'Environment: ipython\\n' }}{% endif %}
{{- 'Today Date: ' + date_string + '\\n\\n' }}
{%- if tools %}
    {{- 'Functions you may call:\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- '\\n\\n' }}
    {%- endfor %}
{%- endif %}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {%- if message.content is string %}{{- message['content'] | trim }}
        {%- else %}{%- for part in message.content %}{{- part.text if part.type == 'text' else '[' ~ part.type ~ ']' }}{%- endfor %}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('Only one tool call at a time') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set users = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for m in turns %}
    {%- if not (m.role == "tool" or (m.tool_calls is defined and m.tool_calls is not none)) %}
        {%- if (m["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After an optional system message, turns must alternate; turn " ~ ns.index ~ " does not") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in turns %}
    {%- if m["role"] == "user" %}
        {%- if tools is defined and tools and (m == users[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system is defined %}{{- "[INST] " + system + "\\n\\n" + m["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " ~ m["content"] ~ "[/INST]" }}{%- endif %}
    {%- elif m.tool_calls is defined and m.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in m.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}, "id": "{{ call.id | default('none') }}"}{{ "]" ~ eos_token if loop.last else ", " }}
        {%- endfor %}
    {%- elif m["role"] == "assistant" %}{{- " " + m["content"] | trim + eos_token }}
    {%- elif m["role"] in ["tool", "tool_results"] %}
        {%- set content = m.content if m.content.content is not defined else m.content.content %}
        {{- '[TOOL_RESULTS] {"content": ' ~ content | string ~ '}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Unknown role: " + m.role) }}
    {%- endif %}
{%- endfor %}
""",
    "qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\nSignatures within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "gemma": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] + '\\n\\n' -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set prefix = "" -%}{%- set turns = messages -%}{%- endif -%}
{%- for m in turns -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Turns must go user/model/user/model") }}{%- endif -%}
    {%- set role = "model" if m['role'] == 'assistant' else m['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else "") }}
    {%- if m['content'] is string -%}{{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for item in m['content'] -%}{%- if item['type'] == 'image' -%}{{ '<image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content") }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
""",
}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Weather in a <city> & \"more\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
        "required": ["city"]}, "return": "str"}}]
CALL = [{"id": "abc123", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2, "x": 1.5, "y": None, "z": True}}}]
CONVERSATIONS = [
    ([say("user", "Hello")], True, {}),
    ([say("system", "Be kind."), say("user", " Hi there ")], True, {}),
    ([say("system", "S"), say("user", "a"), say("assistant", "b"), say("user", "c"), say("assistant", " d ")], False, {}),
    ([say("user", "naïve 日本語 🙂\n\t\"q\" <b> & 'x'"), say("assistant", "Ünïcode ✓"), say("user", "Ω≈ç")], True, {}),
    ([say("user", ""), say("assistant", ""), say("user", "")], False, {}),
    ([say("user", "Weather?")], True, {"tools": TOOLS}),
    ([say("system", "Use tools"), say("user", "Weather?"), say("assistant", "", tool_calls=CALL), say("tool", "{\"t\": 21}", name="weather"), say("tool", "cloudy"), say("assistant", "21 degrees"), say("user", "Thanks")], True, {"tools": TOOLS}),
    ([say("user", [{"type": "text", "text": " Look "}, {"type": "image"}, {"type": "text", "text": "here"}])], True, {}),
    ([say("user", "a"), say("user", "b")], True, {}),
    ([say("user", "2+2?"), say("assistant", "<think>\nadd them\n</think>\n\n4"), say("user", "sure?"), say("assistant", "<think>\nyes\n</think>\n\nYes")], True, {"enable_thinking": False}),
]

CONTEXT = {"s": "Hello World", "u": "straße Ünï 日本", "n": -7, "k": 3, "f": 2.5, "t": True, "z": None, "e": "",
           "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, "x"], "items": 5},
           "o": [{"n": "x", "v": 2}, {"n": "Y", "v": 1}, {"n": "x", "v": 3}], "m": "a\nb\n\nc", "p": "  pad\t\n"}


def expressions():
    values = ["s", "u", "n", "k", "f", "t", "z", "e", "l", "d", "m", "missing"]
    for v in values:
        yield "{{ %s }}|{{ [%s] }}|{{ %s|string|length }}" % (v, v, v)
        yield "{{ %s|default('D') }}|{{ %s|d('D', true) }}" % (v, v)
        yield "{{ %s|tojson }}" % v
        yield "{{ %s|length }}" % v
        yield "{{ %s|list }}" % v
        yield "{{ %s|upper }}|{{ %s|lower }}|{{ %s|capitalize }}|{{ %s|title }}|{{ %s|trim }}" % ((v,) * 5)
        yield "{{ %s|int }}|{{ %s|int(9) }}" % (v, v)
        yield "{{ %s|float }}" % v
        yield "{{ %s is defined }}{{ %s is none }}{{ %s is string }}{{ %s is number }}{{ %s is integer }}{{ %s is float }}{{ %s is boolean }}{{ %s is mapping }}{{ %s is iterable }}{{ %s is sequence }}{{ %s is true }}{{ %s is false }}{{ %s is callable }}{{ %s is lower }}{{ %s is upper }}" % ((v,) * 15)
        yield "{{ 'y' if %s else 'n' }}{{ not %s }}{{ %s and 1 }}{{ %s or 2 }}" % ((v,) * 4)
    for a, b in itertools.product(["n", "f", "t", "s", "l", "z"], ["k", "-2", "0", "0.5", "'x'"]):
        yield "{{ %s + %s }}" % (a, b)
        yield "{{ %s * %s }}" % (a, b)
        yield "{{ %s == %s }}{{ %s != %s }}{{ %s ~ %s }}" % ((a, b) * 3)
    for a, b, op in itertools.product(["n", "7.5", "t"], ["k", "-2", "0", "0.5"], ["/", "//", "%", "**", "-", "<", ">="]):
        if (a, op, b) != ("n", "**", "0.5"):  # a complex number
            yield "{{ %s %s %s }}" % (a, op, b)
    for a, b, c in itertools.product(["", "1", "-2"], ["", "0", "9", "-1"], ["", ":-1", ":2"]):
        yield "{{ l[%s:%s%s] }}|{{ u[%s:%s%s] }}" % (a, b, c, a, b, c)


def whitespace():
    for a, b, c, d in itertools.product(["", "-", "+"], repeat=4):
        yield "x \n  {%%%s if 1 %s%%}\n y \n  {%%%s endif %s%%} \n z\n" % (a, b, c, d)
    for a, b in itertools.product(["", "-"], repeat=2):
        yield " a \n {{%s 1 %s}} \n b {#%s c %s#} \n  {#%s c %s#}\nd" % (a, b, a, b, a, b)
        yield "a\n {%%%s raw %s%%} \n{{ x }} {%% y\n  {%%%s endraw %s%%}\n b" % (a, b, a, b)


STATEMENTS = r"""
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(i > 1) }};{% endfor %}
{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}
{% for i in l if i > 9 %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}
{% for k in d %}{{ k }}{% endfor %}{% for c in u %}[{{ c }}]{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [[1]] %}x{% endfor %}
{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in n %}x{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y is defined }}
{% set ns = namespace(stop=false) %}{% for i in range(5) if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}
{% if true %}{% set y = 5 %}{% endif %}{{ y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}
{% set d.x = 1 %}
{% set x %}a{{ k }}b{% endset %}[{{ x }}]{% set x | upper | trim %} q {% endset %}[{{ x }}]
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=5, a=4) }}|{{ m() }}|{{ m.name }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}
{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(4) %}in {{ y }}{% endcall %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro g() %}{{ late }}{% endmacro %}{% set late = 3 %}{{ g() }}
{% with q = 1, r = k %}{{ q }}{{ r }}{% set q = 9 %}{% endwith %}{{ q }}
{% filter upper | replace('A', 'b') %}a{{ s }}{% endfilter %}
{% raw %}{{ x }}{% endraw %}
{{ missing.x }}
{{ missing }}{{ d.nope }}{{ l[99] }}
{{ d.nope.more }}
{{ d.items is callable }}x
{{ d['items'] }}{{ d.a[1] }}{{ d['a'].0 }}{{ l.0 }}{{ l[-1] }}{{ s[0] }}{{ s[-1] }}
{{ d.get('b') }}{{ d.get('q') }}{{ d.get('q', 3) }}{{ d.keys()|list }}{{ d.values()|list }}{{ 'a' in d }}{{ 'q' not in d }}
{{ d.update({'c': 1}) }}
{{ l.append(1) }}
{{ l.index(2) }}{{ l.count(1) }}{{ (1, 2).index(2) }}
{{ s.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.split() }}{{ ' a  b c'.split(none, 1) }}{{ 'a b c'.rsplit(maxsplit=1) }}
{{ 'abc'.split('') }}
{{ p.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xyaxy'.rstrip('yx') }}
{{ s.startswith('He') }}{{ s.endswith(('x', 'ld')) }}{{ s.startswith(1) }}
{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}
{{ s.upper() }}{{ u.upper() }}{{ u.lower() }}{{ "it's a dog-day".title() }}{{ u.capitalize() }}{{ "it's a dog-day"|title }}
{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('zz') }}{{ u.find('日') }}{{ s.count('l') }}{{ s.find('o', 5) }}{{ 'aaa'.count('') }}
{{ ', '.join(w) }}{{ ','.join(l) }}
{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ ''.isdigit() }}{{ 'Ab'.isupper() }}{{ 'ab1'.islower() }}
{{ m.splitlines() }}{{ m.splitlines(true) }}{{ 'xay'.removeprefix('x').removesuffix('y') }}{{ '-5'.zfill(4) }}
{{ '{} {1}'.format(1, 2) }}
{{ '{} {}'.format(1, s) }}{{ '{0}{0}{a}{{}}'.format(1, a=2) }}{{ '%s-%d-%.2f-%5s|%-4d|%x'|format(s, 3, f, 'a', 7, 255) }}
{{ l|sort }}{{ l|sort(reverse=true) }}{{ w|sort }}{{ w|sort(case_sensitive=true) }}{{ o|sort(attribute='v')|map(attribute='n')|list }}{{ o|sort(attribute='n,v')|map(attribute='v')|list }}
{{ ['a', 1]|sort }}
{{ l|first }}{{ l|last }}{{ []|first }}{{ l|min }}{{ l|max }}{{ w|min }}{{ w|max }}{{ l|sum }}{{ o|sum('v') }}{{ o|sum(attribute='v', start=10) }}{{ []|max }}
{{ l|join('-') }}{{ o|join(', ', attribute='n') }}{{ l|join }}{{ l|reverse|list }}{{ s|reverse }}{{ w|unique|list }}{{ [1, 1.0, true, 2]|unique|list }}
{{ w|map('upper')|list }}{{ l|map('string')|join('/') }}{{ o|map(attribute='q', default='z')|list }}{{ w|map('replace', 'a', 'q')|list }}
{{ l|select('odd')|list }}{{ l|reject('odd')|list }}{{ [0, 1, '', 'a']|select|list }}{{ o|selectattr('v', 'gt', 1)|map(attribute='v')|list }}{{ o|rejectattr('n', 'equalto', 'x')|list }}{{ o|selectattr('q')|list }}{{ l|select('in', [1, 2])|list }}
{{ l|map('nope')|list }}
{% for k, v in d|dictsort %}{{ k }}{% endfor %}{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{{ {'b': 1, 'A': 2}|dictsort }}{{ {'b': 1, 'A': 2}|dictsort(true) }}{{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }}
{% for g in o|groupby('n') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}{% for k, v in o|groupby('v') %}{{ k }}{{ v }}{% endfor %}
{{ m|indent }}|{{ m|indent(2, true) }}|{{ m|indent('> ', blank=true) }}|{{ ''|indent }}
{{ '<a href="x">\'&'|e }}{{ 'a'|safe }}{{ s|truncate(8) }}{{ s|truncate(8, leeway=0) }}{{ s|truncate(7, true, '!', 0) }}{{ 'a b_c, d'|wordcount }}{{ 'ab'|center(7) }}|
{{ [1,2,3,4,5]|batch(2)|list }}{{ [1,2,3,4,5]|batch(2, 0)|list }}{{ [1,2,3,4,5]|slice(2)|list }}{{ [1,2,3,4,5]|slice(3, 0)|list }}{{ [1,2,3,4]|slice(2, 0)|list }}
{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 2.1|round(0, 'ceil') }}{{ -2.1|round(method='floor') }}{{ 7|round }}{{ 1234|round(-2) }}{{ -3|abs }}{{ n|abs }}{{ -2.5|abs }}
{{ '12'|int }}{{ 'x'|int(5) }}{{ '0x1f'|int(base=16) }}{{ '3.9'|int }}{{ '1e3'|float }}{{ 'inf'|float }}{{ ' 4 '|int }}{{ '1_000'|int }}{{ 'nan'|int(2) }}{{ 3.99|int }}{{ -3.99|int }}
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e-7 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 1e300 * 1e10 }} {{ -0.0 }} {{ 1/3 }}
{{ d|tojson(indent=2) }}{{ [[], {}]|tojson(indent=2) }}{{ d|tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}{{ u|tojson(ensure_ascii=true) }}{{ [1.0, none, true, 1e20, "a\"\\\n\x01é"]|tojson }}{{ {1: 2, none: 3, true: 4}|tojson }}{{ (1, 2)|tojson }}{{ '<&>'|tojson }}
{{ missing|tojson }}
{{ ["a'b", 'a"b', "a'b\"c", 'n\n\t\\', 'é', '\x01', '\u200b'] }}{{ (1,) }}{{ () }}{{ {'a': none} }}{{ {} }}{{ 'a' 'b' "c" }}
{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 in l }}{{ 9 not in l }}{{ 'ell' in s }}{{ [1] == [1.0] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': 1} }}{{ [1, 2] < [1, 3] }}{{ 'a' < 'b' }}
{{ 1 < 'a' }}
{{ 1 in s }}
{{ 'x' in missing }}{{ missing == missing2 }}{{ missing == none }}
{{ missing + 1 }}
{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 2 + 3 * 4 }}{{ (2 + 3) * 4 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 2 ** -1 }}{{ 1 ~ 2 + 3 }}{{ 'a' ~ 1 ~ none }}{{ not 1 == 2 }}{{ -1|abs }}{{ 'a' * 3 }}{{ 2 * [1] }}{{ -1 * 'a' }}
{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1_000 }}{{ 1_0.5 }}{{ 1e3 }}{{ "\x41\u00e9\n\101\q" }}
{{ 1 if false }}|{{ 1 if true else 2 }}|{{ 1 if 0 else 2 if 0 else 3 }}|{{ (1 if false) is defined }}
{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ 3 is odd }}{{ 3 is not even }}{{ 3 is eq 3 }}{{ 3 is in l }}{{ 'a' is sameas 'a' }}{{ 5 is gt(3) }}{{ missing is undefined }}{{ 'upper' is filter }}
{{ 1 is nope }}
{{ 1|nope }}
{{ range(3)|list }}{{ range(1, 9, 3)|list }}{{ range(3, 0, -1)|list }}{{ range(3) }}{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)]) }}
{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ strftime_now('%d %b %Y %H:%M') }}{{ strftime_now('%-d %B') }}
{{ raise_exception('stop ' ~ k) }}
{{ s.__class__ }}|{{ s.__class__ is defined }}
{{ [1, 2, 3][::-1] }}{{ 'abc'[::-1] }}{{ l[1:] }}{{ l[5:] }}{{ (1,2,3)[1:] }}
{{ l[::0] }}
{{ 1 / 0 }}
{{ {[]: 1} }}
{{ 'a' + 1 }}
{{ 5() }}
{{ s.nope() }}
{{ 1, 2 }}{{ (1, 2)[0] }}
{% if 1 %}
{% endfor %}
{{ 1 +
{{ 'abc }}
{% nope %}
{# open
{{ a b }}
{{ [1, 2 }}
{% for in l %}{% endfor %}
{% set 1 = 2 %}
{% set true = 2 %}
""".strip().split("\n")


def main():
    shared = {"bos_token": "<s>", "eos_token": "</s>"}
    conversations = [dict(shared, messages=m, add_generation_prompt=g, **more) for m, g, more in CONVERSATIONS]
    families = {name: {"template": t, "expected": [render(t, c) for c in conversations]} for name, t in FAMILIES.items()}
    snippets = [[s, render(s, CONTEXT)] for s in itertools.chain(STATEMENTS, expressions(), whitespace())]
    text = json.dumps({"conversations": conversations, "families": families, "context": CONTEXT, "snippets": snippets},
                      ensure_ascii=False, separators=(",", ":"))
    assert len(text.encode()) < 150_000, len(text)
    OUT.write_text(text.replace('],["', '],\n["') + "\n")
    assert " at 0x" not in text
    errors = sum(isinstance(r, dict) for _, r in snippets)
    print(f"{len(families) * len(conversations)} conversations, {len(snippets)} snippets ({errors} errors), {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
