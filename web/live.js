// Pictures of the engine, four a second while the page is seen: tiles, map, curve, sequences.
import {get} from './api.js';
import {assignColours, BlockMap, colour} from './blockmap.js';
import {MemoryCurve} from './curve.js';
import {bytes, count, describe, element, percent} from './format.js';

const kPause = 250, kRetry = 1500, kRateSeconds = 2;
const $ = id => document.getElementById(id);
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export class Live {
  constructor() {
    this.map = new BlockMap($('map'), {caption: $('map-caption'), cell: $('map-cell'), legend: $('map-legend')});
    this.curve = new MemoryCurve($('curve'), $('curve-text'), $('curve-legend'));
    this.recent = [];
    this.listeners = [];
  }

  onState(listener) { this.listeners.push(listener); }

  async run() {
    for (;;) {
      if (document.hidden) {
        await new Promise(resolve => document.addEventListener('visibilitychange', resolve, {once: true}));
        continue;
      }
      try {
        this.show(await get('/api/state'));
        this.link('on', 'live');
        await sleep(kPause);
      } catch (error) {
        this.link('off', error instanceof TypeError ? 'no connection' : error.message);
        this.recent = [];
        await sleep(kRetry);
      }
    }
  }

  link(kind, text) {
    const e = $('link');
    e.className = `link ${kind}`;
    if (e.textContent !== text) e.textContent = text;
  }

  show(state) {
    $('model').textContent = state.model;
    assignColours(state.sequences);
    this.tiles(state);
    this.map.show(state);
    this.curve.show(state);
    this.sequences(state);
    for (const listener of this.listeners) listener(state);
  }

  rate(state, key) {
    const first = this.recent[0];
    const seconds = state.time_s - first.time_s;
    return seconds > 0.2 ? (state.counters[key] - first.counters[key]) / seconds : 0;
  }

  tiles(state) {
    const c = state.counters, pool = state.pool;
    if (this.recent.length > 0 && this.recent.at(-1).serial > state.serial) this.recent = [];  // another server
    this.recent.push({serial: state.serial, time_s: state.time_s, counters: c});
    while (this.recent.length > 2 && this.recent[1].time_s < state.time_s - kRateSeconds) this.recent.shift();
    describe($('tiles'), [
      ['Tokens a second', this.rate(state, 'generation_tokens').toFixed(1),
        `${count(this.rate(state, 'prompt_tokens'))} of prompts, ${count(c.generation_tokens)} in all`],
      ['Requests', `${c.running} running`, `${c.waiting - c.paused} waiting, ${c.paused} paused, ${c.pauses} pauses so far`],
      ['Cache in use', bytes(pool.used * pool.block_bytes), `of ${bytes(pool.blocks * pool.block_bytes)}, ${pool.kv_cache_dtype}`],
      ['Cache memory held', bytes(pool.resident_bytes), `${bytes(pool.released_bytes)} given back so far`],
      ['Freed by compaction', `${count(c.freed_blocks)} blocks`, `${bytes(c.freed_blocks * pool.block_bytes)} in ${count(c.compactions)} compaction${c.compactions === 1 ? '' : 's'}`],
      ['Prefix hits', c.prefix_queries > 0 ? percent(c.prefix_hits / c.prefix_queries) : '–',
        `${count(c.prefix_hits)} of ${count(c.prefix_queries)} tokens`],
    ], true);
  }

  sequences(state) {
    const body = $('sequences').tBodies[0];
    const block = state.pool.block_bytes;
    $('seq-none').hidden = state.sequences.length > 0;
    $('sequences').hidden = state.sequences.length === 0;
    const rows = state.sequences.slice(0, 64).map(s => {
      const freed = Math.max(0, s.full_blocks - s.blocks);
      const tables = s.full_blocks / Math.max(1, Math.ceil(s.computed_tokens / state.pool.block_size));
      const kept = tables > 0 ? s.kept_slots / (s.computed_tokens * tables) : 0;
      const swatch = element('span', {class: 'swatch'});
      swatch.style.background = colour(s.id);
      const cells = [
        ['State', s.phase], ['Policy', s.policy], ['Budget', s.budget === null ? '–' : count(s.budget), 'n'],
        ['Tokens', `${count(s.prompt_tokens)} + ${count(s.generated_tokens)}`, 'n'],
        ['Kept', s.computed_tokens > 0 ? percent(Math.min(1, kept)) : '–', 'n'], ['Freed blocks', count(freed), 'n'],
        ['Memory', bytes(s.blocks * block), 'n'], ['Full cache', bytes(s.full_blocks * block), 'n'],
      ].map(([label, text, kind]) => element('td', {text, 'data-label': label, ...(kind ? {class: kind} : {})}));
      return element('tr', {}, element('td', {class: 'id', title: s.id}, swatch, s.id), ...cells);
    });
    body.replaceChildren(...rows);
  }
}
