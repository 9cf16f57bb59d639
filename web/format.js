// Numbers for people, and elements without markup: text that comes from models or clients only ever becomes text.

export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; ++u; }
  return u === 0 ? `${n} B` : `${n.toFixed(n < 10 ? 2 : 1)} ${units[u]}`;
}

const grouped = new Intl.NumberFormat('en');
export const count = n => (Number.isFinite(n) ? grouped.format(Math.round(n)) : '–');
export const percent = share => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// "24G", "1.5 TiB", "4096" -> bytes; NaN: none of these.
export function parseBytes(text) {
  const m = /^\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)i?b?\s*$/i.exec(text);
  if (!m) return NaN;
  return Math.round(Number(m[1]) * 1024 ** ' kmgt'.indexOf(m[2].toLowerCase() || ' '));
}

// element('li', {class: 'x', text: 'y'}, child, ...)
export function element(name, options = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === 'text') e.textContent = value;
    else e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}

// Pairs of a description list; nodes stay, so that a selection survives an update.
export function describe(list, pairs, wrap = false) {
  if (list.dataset.names !== pairs.map(p => p[0]).join()) {
    list.dataset.names = pairs.map(p => p[0]).join();
    list.replaceChildren(...pairs.flatMap(([name]) => {
      const both = [element('dt', {text: name}), element('dd')];
      return wrap ? [element('div', {}, ...both)] : both;
    }));
  }
  list.querySelectorAll('dd').forEach((dd, i) => {
    const [, value, more] = pairs[i];
    const text = more === undefined ? value : `${value}\n${more}`;
    if (dd.dataset.shown === text) return;
    dd.dataset.shown = text;
    dd.replaceChildren(value, ...(more === undefined ? [] : [element('small', {text: more})]));
  });
}
