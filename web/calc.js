// `pagefold calc` as a form.
import {get, post} from './api.js';
import {bytes, count, describe, element, parseBytes} from './format.js';

const $ = id => document.getElementById(id);
const kTypes = ['auto', 'float32', 'float16', 'bfloat16', 'fp8_e4m3', 'fp8_e5m2', 'int8', 'int4'];

const kGgmlTypes = ['auto', 'f32', 'f16', 'bf16', 'q8_0', 'q5_1', 'q5_0', 'q4_1', 'q4_0', 'iq4_nl'];

// The types of the chosen engine; the choice stays where it is among them.
function offerTypes(engine) {
  const types = engine === 'llama.cpp' ? kGgmlTypes : kTypes;
  for (const [id, first] of [['k-dtype', 'auto'], ['k-dtype-v', 'as keys'], ['k-index-dtype', 'as keys']]) {
    const chosen = $(id).value;
    $(id).replaceChildren(...types.map(t => (t === 'auto' ? new Option(first, '') : new Option(t))));
    if (types.includes(chosen)) $(id).value = chosen;
  }
}

// Fields that are left to the calculator where they are empty, by their names there.
function named(attribute, convert) {
  const out = {};
  for (const field of $('calc-form').querySelectorAll(`[data-${attribute}]`)) {
    if (field.value.trim()) out[field.dataset[attribute]] = convert(field.value.trim());
  }
  return out;
}

function size(id, what) {
  const n = parseBytes($(id).value);
  if (!(n > 0)) throw new Error(`${what}: a size such as 24G`);
  return n;
}

// "recent=32, packing=fill" -> {recent: '32', packing: 'fill'}
function words(text) {
  const out = {};
  for (const word of text.split(/[\s,]+/).filter(Boolean)) {
    const at = word.indexOf('=');
    if (at < 1) throw new Error(`words of the policy: "${word}" is not NAME=VALUE`);
    out[word.slice(0, at)] = word.slice(at + 1);
  }
  return out;
}

function request() {
  const body = {prompt_tokens: Number($('k-prompt').value), engine: $('k-engine').value};
  const lengths = $('k-lengths').value.split(/[\s,]+/).filter(Boolean).map(Number);
  if (lengths.length) {
    body.lengths = lengths;
  } else {
    body.tokens = Number($('k-tokens').value);
    body.sequences = Number($('k-sequences').value);
  }
  Object.assign(body, named('number', Number), named('text', String), named('choice', String));
  if (body.kv_cache_group) body.kv_cache_group = Number(body.kv_cache_group);
  if ($('k-draft').checked) body.draft_layers = true;
  if ($('k-dtype-v').value) body.kv_cache_dtype_v = $('k-dtype-v').value;
  const shape = named('shape', Number);
  const byHand = Object.keys(shape).length > 0;
  if (byHand) body.shape = shape;
  const config = $('k-config').value.trim();
  if (config) {
    try {
      body.config = JSON.parse(config);
    } catch (e) {
      throw new Error(`config.json: ${e.message}`);
    }
  } else if (!byHand && $('k-model').value.trim()) {
    body.model = $('k-model').value.trim();
  }
  if ($('k-dtype').value) body.kv_cache_dtype = $('k-dtype').value;
  // Said for `full`, too: the server may compress where nothing is said.
  if (body.engine === 'pagefold') body.kv = {policy: $('k-policy').value};
  if (body.kv && body.kv.policy !== 'full') {
    if (!$('k-budget').disabled) body.kv.budget = Number($('k-budget').value);
    if ($('k-interval').value !== '') body.kv.interval = Number($('k-interval').value);
    Object.assign(body.kv, words($('k-words').value));
  }
  if ($('k-memory').value.trim()) body.memory_bytes = size('k-memory', 'memory');
  if ($('k-cache-memory').value.trim()) body.kv_cache_memory_bytes = size('k-cache-memory', 'memory for the cache');
  return body;
}

function facts(r) {
  const most = r.kv.exact ? '' : 'at most ';
  const types = r.kv_cache_dtype === r.kv_cache_dtype_v ? r.kv_cache_dtype : `keys ${r.kv_cache_dtype}, values ${r.kv_cache_dtype_v}`;
  const rows = [
    ['Model', `${r.model} (${r.architecture}), ${r.layers} layers`],
    ['Cache', `${types}, policy ${r.policy}, rules of ${r.engine}`],
    ['A token', bytes(r.kv.bytes_per_token)],
    ['Needed', bytes(r.kv.ideal_bytes)],
    ['Allocated, nothing evicted', bytes(r.kv.allocated_bytes)],
    ['Steady', most + bytes(r.kv.steady_bytes)],
    ['Peak', most + bytes(r.kv.peak_bytes)],
  ];
  if (r.kv.state_bytes > 0) rows.push(['States', bytes(r.kv.state_bytes)]);
  if (r.kv.draft_bytes_per_token > 0) rows.push(['Draft heads, a token', bytes(r.kv.draft_bytes_per_token)]);
  if (r.weights_bytes !== null) rows.push(['Weights', `${bytes(r.weights_bytes)}${r.weights_exact ? '' : ', estimated'}`]);
  if (r.activations_bytes !== null) rows.push(['Activations', `about ${bytes(r.activations_bytes)}`]);
  if (r.fits) {
    rows.push(['Fits: tokens in all', count(r.fits.max_tokens)], ['Fits: such sequences', count(r.fits.max_sequences)],
      ['Fits: longest context', count(r.fits.max_context)]);
  }
  if (!r.runs_here) rows.push(['Not run here', r.not_run_because]);
  return rows;
}

// What the browser refuses may lie in a part that is folded up, where nobody would see its message.
function showRefused(form) {
  form.addEventListener('invalid', e => e.target.closest('details')?.setAttribute('open', ''), true);
}

export async function startCalculator(policies) {
  offerTypes('pagefold');
  for (const field of $('calc-form').querySelectorAll('[data-number], [data-shape]')) {
    field.type = 'number';
    field.step = 1;
    field.min ||= 1;
  }
  for (const p of policies) $('k-policy').append(new Option(p.name));
  const refresh = () => {
    const own = $('k-engine').value === 'pagefold';
    $('k-policy').disabled = !own;
    $('k-interval').disabled = $('k-words').disabled = !own || $('k-policy').value === 'full';
    $('k-budget').disabled = !own || !policies.find(p => p.name === $('k-policy').value)?.budget;
  };
  $('k-policy').addEventListener('change', refresh);
  $('k-engine').addEventListener('change', () => { offerTypes($('k-engine').value); refresh(); });
  refresh();
  showRefused($('calc-form'));
  $('calc-form').addEventListener('reset', () => setTimeout(() => { offerTypes('pagefold'); refresh(); }));
  $('calc-form').addEventListener('submit', async e => {
    e.preventDefault();
    const out = $('calc-result');
    try {
      const r = await post('/api/calc', request());
      const list = element('dl', {class: 'facts'});
      describe(list, facts(r));
      out.replaceChildren(element('h2', {text: `${bytes(r.kv.peak_bytes)} at most${r.kv.state_bytes > 0 ? `, and ${bytes(r.kv.state_bytes)} of states` : ''}`}), list,
        element('p', {class: 'formula', text: r.formula}),
        ...(r.notes.length ? [element('ul', {}, ...r.notes.map(text => element('li', {text})))] : []));
    } catch (error) {
      out.replaceChildren(element('p', {class: 'error', text: error.message}));
    }
  });
  const choices = await get('/api/calc');
  const names = choices.served ? [choices.served, ...choices.presets] : choices.presets;
  $('k-models').replaceChildren(...names.map(value => element('option', {value})));
  $('k-model').defaultValue = names[0] ?? '';  // shows unless something was typed, and after a reset
}
