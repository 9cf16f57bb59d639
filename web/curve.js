// Bytes over the last two minutes as SVG: what the kept slots need, what their blocks take, what a full cache would take.
import {bytes, element} from './format.js';

const kSeconds = 120, kLeast = 20, kNs = 'http://www.w3.org/2000/svg';
const kSeries = [
  ['full', 'a full cache would hold', 'dash', '--full'],
  ['physical', 'blocks held', 'line', '--accent'],
  ['logical', 'kept slots', 'line', '--good'],
];

function shape(name, attributes, text) {
  const e = document.createElementNS(kNs, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// The next 1, 2, 4 or 8 times a power of 1024.
function roundUp(n) {
  let top = 1024;
  while (top < n) top *= 2;
  return top;
}

export class MemoryCurve {
  constructor(svg, text, legend) {
    Object.assign(this, {svg, text, legend});
    this.points = [];
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  show(state) {
    const m = state.memory;
    this.points.push({t: state.time_s, full: m.full_bytes, physical: m.physical_bytes, logical: m.logical_bytes});
    while (this.points.length > 0 && this.points[0].t < state.time_s - kSeconds) this.points.shift();
    const last = this.points.at(-1);
    this.text.textContent = kSeries.map(([key, name]) => `${name} ${bytes(last[key])}`).join(', ');
    this.legend.replaceChildren(...kSeries.map(([key, name, style, variable]) => {
      const swatch = element('span', {class: `swatch ${style}`});
      swatch.style.borderColor = `var(${variable})`;
      return element('li', {}, swatch, `${name} ${bytes(last[key])}`);
    }));
    this.draw();
  }

  draw() {
    const w = this.svg.clientWidth || 600, h = this.svg.clientHeight || 260;
    if (this.points.length === 0) return;
    this.svg.setAttribute('viewBox', `0 0 ${w} ${h}`);
    const left = 64, right = 8, top = 8, bottom = 22;
    const end = this.points.at(-1).t;
    const span = Math.min(kSeconds, Math.max(kLeast, end - this.points[0].t));
    const peak = roundUp(Math.max(...this.points.map(p => Math.max(p.full, p.physical))) * 1.02);
    const x = t => left + (w - left - right) * (1 - (end - t) / span);
    const y = v => top + (h - top - bottom) * (1 - v / peak);
    const parts = [];
    for (let i = 0; i <= 4; ++i) {
      const v = peak * i / 4;
      parts.push(shape('line', {class: 'grid', x1: left, x2: w - right, y1: y(v), y2: y(v)}));
      parts.push(shape('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, bytes(v)));
    }
    for (const s of [span, span / 2, 0]) {
      const label = s === 0 ? 'now' : `−${Math.round(s)} s`;
      const anchor = s === 0 ? 'end' : s === span ? 'start' : 'middle';
      parts.push(shape('text', {x: x(end - s), y: h - 5, 'text-anchor': anchor}, label));
    }
    const path = key => this.points.map((p, i) => `${i ? 'L' : 'M'}${x(p.t).toFixed(1)} ${y(p[key]).toFixed(1)}`).join('');
    const first = x(this.points[0].t).toFixed(1);
    parts.push(shape('path', {class: 'area', d: `${path('physical')}L${x(end)} ${y(0)}L${first} ${y(0)}Z`}));
    for (const [key] of kSeries) parts.push(shape('path', {class: key, d: path(key)}));
    this.svg.replaceChildren(...parts);
  }
}
