// `pagefold calc` as a form.
import {get, post} from './api.js';
import {bytes, count, describe, element, parseBytes} from './format.js';

const $ = id => document.getElementById(id);
const kTypes = ['auto', 'float32', 'float16', 'bfloat16', 'fp8_e4m3', 'fp8_e5m2', 'int8', 'int4'];

const kGgmlTypes = ['auto', 'f32', 'f16', 'bf16', 'q8_0', 'q5_1', 'q5_0', 'q4_1', 'q4_0', 'iq4_nl'];

// The types of the chosen engine; the choice stays where it is among them.
function offerTypes(engine) {
  const types = engine === 'llama.cpp' ? kGgmlTypes : kTypes;
  for (const [id, first] of [['k-dtype', 'auto'], ['k-dtype-v', 'as keys']]) {
    const chosen = $(id).value;
    $(id).replaceChildren(...types.map(t => new Option(t === 'auto' ? first : t)));
    if (types.includes(chosen)) $(id).value = chosen;
  }
}

// Fields that are left to the calculator where they are empty.
const kNumbers = {'k-shared': 'shared_prefix', 'k-block': 'block_size', 'k-chunk': 'max_num_batched_tokens', 'k-ranks': 'tensor_parallel_size'};

function request() {
  const body = {prompt_tokens: Number($('k-prompt').value), engine: $('k-engine').value};
  const lengths = $('k-lengths').value.split(/[\s,]+/).filter(Boolean).map(Number);
  if (lengths.length) {
    body.lengths = lengths;
  } else {
    body.tokens = Number($('k-tokens').value);
    body.sequences = Number($('k-sequences').value);
  }
  for (const [id, name] of Object.entries(kNumbers)) {
    if ($(id).value !== '') body[name] = Number($(id).value);
  }
  if ($('k-weights').value.trim()) body.weight_format = $('k-weights').value.trim();
  if ($('k-dtype-v').value !== 'as keys') body.kv_cache_dtype_v = $('k-dtype-v').value;
  const config = $('k-config').value.trim();
  if (config) {
    try {
      body.config = JSON.parse(config);
    } catch (e) {
      throw new Error(`config.json: ${e.message}`);
    }
  } else if ($('k-model').value.trim()) {
    body.model = $('k-model').value.trim();
  }
  if ($('k-dtype').value !== 'auto') body.kv_cache_dtype = $('k-dtype').value;
  if (body.engine === 'pagefold' && $('k-policy').value !== 'full') {
    body.kv = {policy: $('k-policy').value};
    if (!$('k-budget').disabled) body.kv.budget = Number($('k-budget').value);
    if ($('k-interval').value !== '') body.kv.interval = Number($('k-interval').value);
  }
  if ($('k-memory').value.trim()) {
    body.memory_bytes = parseBytes($('k-memory').value);
    if (!(body.memory_bytes > 0)) throw new Error('memory: a size such as 24G');
  }
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

export async function startCalculator(policies) {
  offerTypes('pagefold');
  for (const p of policies) $('k-policy').append(new Option(p.name));
  const refresh = () => {
    const own = $('k-engine').value === 'pagefold';
    $('k-policy').disabled = !own;
    $('k-interval').disabled = !own || $('k-policy').value === 'full';
    $('k-budget').disabled = !own || !policies.find(p => p.name === $('k-policy').value)?.budget;
  };
  $('k-policy').addEventListener('change', refresh);
  $('k-engine').addEventListener('change', () => { offerTypes($('k-engine').value); refresh(); });
  refresh();
  $('calc-form').addEventListener('submit', async e => {
    e.preventDefault();
    const out = $('calc-result');
    try {
      const r = await post('/api/calc', request());
      const list = element('dl', {class: 'facts'});
      describe(list, facts(r));
      out.replaceChildren(element('h2', {text: `${bytes(r.kv.peak_bytes)} at most`}), list,
        element('p', {class: 'formula', text: r.formula}),
        ...(r.notes.length ? [element('ul', {}, ...r.notes.map(text => element('li', {text})))] : []));
    } catch (error) {
      out.replaceChildren(element('p', {class: 'error', text: error.message}));
    }
  });
  const choices = await get('/api/calc');
  const names = choices.served ? [choices.served, ...choices.presets] : choices.presets;
  $('k-models').replaceChildren(...names.map(value => element('option', {value})));
  if (!$('k-model').value) $('k-model').value = names[0] ?? '';
}
