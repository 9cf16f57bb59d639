// The same prompt answered twice at once, with the full cache and with a policy, and what each of them holds.
import {events} from './api.js';
import {bytes, count, describe} from './format.js';

const $ = id => document.getElementById(id);

class Answer {
  constructor(root) {
    this.root = root;
    this.title = root.querySelector('h2');
    this.bar = root.querySelector('.bar span');
    this.memory = root.querySelector('.memory');
    this.text = root.querySelector('.text');
    this.facts = root.querySelector('.facts');
  }

  clear(title) {
    this.title.textContent = title;
    this.text.textContent = '';
    this.memory.textContent = 'waiting';
    this.id = null;
    this.now = 0;
    this.peak = 0;
    this.usage = null;
    describe(this.facts, []);
  }

  add(piece) {
    const follow = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 40;
    this.text.append(piece);
    if (follow) this.text.scrollTop = this.text.scrollHeight;
  }

  watch(state) {
    if (this.id === null || this.usage) return;
    const mine = state.sequences.find(s => s.id === `${this.id}-0`);
    if (!mine) return;
    this.now = mine.blocks * state.pool.block_bytes;
    this.peak = Math.max(this.peak, mine.peak_blocks * state.pool.block_bytes);
    this.memory.textContent = `${bytes(this.now)} now, ${bytes(this.peak)} at most`;
  }

  async run(path, body, signal) {
    const begin = performance.now();
    let first = 0;
    for await (const event of events(path, body, signal)) {
      this.id ??= event.id;
      const choice = event.choices?.[0];
      const piece = choice?.delta?.content ?? choice?.delta?.reasoning_content ?? choice?.text;
      if (piece) {
        first ||= performance.now();
        this.add(piece);
      }
      if (event.usage) this.usage = event.usage;
    }
    this.finish(first - begin, performance.now() - first);
  }

  finish(wait, decode) {
    const kv = this.usage?.kv;
    if (!kv) return;
    this.now = kv.bytes;
    this.peak = kv.peak_bytes;
    const tokens = this.usage.completion_tokens;
    this.memory.textContent = `${bytes(kv.bytes)} at the end, ${bytes(kv.peak_bytes)} at most`;
    describe(this.facts, [
      ['Tokens', `${count(this.usage.prompt_tokens)} + ${count(tokens)}`],
      ['Kept', `${count(kv.kept_tokens)} tokens, ${count(kv.evicted_tokens)} evicted`],
      ['Blocks', `${count(kv.blocks)}, ${count(kv.freed_blocks)} fewer than a full cache`],
      ['Compactions', count(kv.compactions)],
      ['Speed', `${(1000 * (tokens - 1) / Math.max(1, decode)).toFixed(1)} tokens/s, first after ${(wait / 1000).toFixed(2)} s`],
    ]);
  }
}

export class Compare {
  constructor(policies, chat) {
    this.policies = policies;
    this.chat = chat;
    this.full = new Answer($('answer-full'));
    this.small = new Answer($('answer-small'));
    const select = $('c-policy');
    for (const p of policies) if (p.name !== 'full') select.append(new Option(p.name));
    if (policies.some(p => p.name === 'triattention')) select.value = 'triattention';
    select.addEventListener('change', () => this.note());
    this.note();
    $('compare-form').addEventListener('submit', e => { e.preventDefault(); this.run(); });
    $('c-stop').addEventListener('click', () => this.abort?.abort());
  }

  policy() { return this.policies.find(p => p.name === $('c-policy').value); }

  note() {
    const p = this.policy();
    $('c-policy-note').textContent = p?.summary ?? '';
    $('c-budget').disabled = !p?.budget;
  }

  show(state) {
    this.full.watch(state);
    this.small.watch(state);
    const most = Math.max(this.full.now, this.small.now, this.full.peak, this.small.peak, 1);
    for (const a of [this.full, this.small]) a.bar.style.width = `${100 * (a.now || 0) / most}%`;
    this.bars = most;
  }

  body(kv) {
    const prompt = $('c-prompt').value;
    return {
      ...(this.chat ? {messages: [{role: 'user', content: prompt}]} : {prompt}),
      max_tokens: Number($('c-tokens').value), temperature: 0, ignore_eos: $('c-on').checked,
      stream: true, stream_options: {include_usage: true}, kv,
    };
  }

  async run() {
    const policy = this.policy();
    const kv = {policy: policy.name};
    if (policy.budget) kv.budget = Number($('c-budget').value);
    this.full.clear('Full cache');
    this.small.clear(policy.budget ? `${policy.name}, budget ${count(kv.budget)}` : policy.name);
    $('c-verdict').textContent = '';
    $('c-run').disabled = true;
    $('c-stop').disabled = false;
    this.abort = new AbortController();
    const path = this.chat ? '/v1/chat/completions' : '/v1/completions';
    const results = await Promise.allSettled([
      this.full.run(path, this.body({policy: 'full'}), this.abort.signal),
      this.small.run(path, this.body(kv), this.abort.signal),
    ]);
    $('c-run').disabled = false;
    $('c-stop').disabled = true;
    this.conclude(results);
  }

  conclude(results) {
    const failed = results.find(r => r.status === 'rejected');
    for (const [i, answer] of [this.full, this.small].entries()) {
      if (results[i].status === 'rejected') answer.memory.textContent = 'no answer';
    }
    const verdict = $('c-verdict');
    if (failed) {
      verdict.textContent = failed.reason.name === 'AbortError' ? 'Stopped.' : failed.reason.message;
      return;
    }
    const [a, b] = [this.full.now, this.small.now];
    const most = Math.max(this.full.peak, this.small.peak, 1);
    this.full.bar.style.width = `${100 * a / most}%`;
    this.small.bar.style.width = `${100 * b / most}%`;
    const same = this.full.text.textContent === this.small.text.textContent ? 'The answers are equal.' : 'The answers differ.';
    verdict.textContent = `${bytes(b)} instead of ${bytes(a)} at the end: ${(a / Math.max(1, b)).toFixed(1)} times less. ${same}`;
  }
}
