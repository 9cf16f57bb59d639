// The map of the pool's blocks on a canvas: colour says whose, the filled part of a cell how many of its slots are used.
import {bytes, count, element} from './format.js';

const kColours = ['#3b7dd8', '#e07b1a', '#2f9e5f', '#c9468f', '#8461d1', '#148f9c', '#cf4436', '#9a8a16'];
const colourOf = new Map();  // request id -> index

// Colours stay with their sequence while others come and go.
export function assignColours(sequences) {
  const ids = new Set(sequences.map(s => s.id));
  for (const id of colourOf.keys()) if (!ids.has(id)) colourOf.delete(id);
  for (const id of ids) {
    if (colourOf.has(id)) continue;
    const used = [...colourOf.values()];
    let pick = 0;
    while (used.includes(pick)) ++pick;
    colourOf.set(id, pick);
  }
}
export const colour = id => kColours[(colourOf.get(id) ?? 0) % kColours.length];

export class BlockMap {
  constructor(canvas, {caption, cell, legend}) {
    Object.assign(this, {canvas, caption, cell, legend});
    this.cells = [];
    this.cursor = -1;
    canvas.addEventListener('pointermove', e => this.point(e));
    canvas.addEventListener('pointerdown', e => this.point(e));
    canvas.addEventListener('pointerleave', () => this.select(-1));
    canvas.addEventListener('blur', () => this.select(-1));
    canvas.addEventListener('keydown', e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  show(state) {
    this.state = state;
    const runs = state.map.cells;
    this.cells = [];
    for (let i = 0; i < runs.length; i += 3) {
      for (let k = 0; k < runs[i + 2]; ++k) this.cells.push([runs[i], runs[i + 1]]);
    }
    this.describe();
    this.draw();
    if (this.cursor >= 0) this.tell();
  }

  describe() {
    const {pool, map, memory} = this.state;
    const covered = Math.min(pool.blocks, map.n * map.blocks_per_cell);
    const per = map.blocks_per_cell === 1 ? 'one block' : `${map.blocks_per_cell} blocks`;
    const filled = memory.filled === null ? '' : `, their slots ${Math.round(100 * memory.filled)} % filled`;
    this.text = map.n === 0 ? 'No block was used yet.'
      : `${count(pool.used)} of ${count(pool.blocks)} blocks in use${filled}. A cell is ${per}; the first ${count(covered)} blocks are shown.`;
    this.caption.textContent = this.text;
    this.canvas.setAttribute('aria-label', `Block map: ${this.text}`);
    const items = this.state.sequences.filter(s => s.blocks > 0).slice(0, 12)
      .map(s => [colour(s.id), `${s.policy}, ${bytes(s.blocks * pool.block_bytes)}`]);
    if (pool.cached > 0) items.push([this.css('--prefix'), `prefix cache, ${bytes(pool.cached * pool.block_bytes)}`]);
    this.legend.replaceChildren(...items.map(([c, text]) => {
      const swatch = element('span', {class: 'swatch'});
      swatch.style.background = c;
      return element('li', {}, swatch, text);
    }), element('li', {}, element('span', {class: 'swatch free'}), 'free'));
  }

  css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  // Cells as large as fit, stretched to fill the width; edges fall on whole pixels.
  layout() {
    const {clientWidth: w, clientHeight: h} = this.canvas;
    const n = Math.max(1, this.cells.length), most = 18;
    const columns = Math.max(1, Math.ceil(w / Math.min(most, Math.sqrt(w * h / n))));
    const rows = Math.ceil(n / columns);
    return {w, h, columns, dx: w / columns, dy: Math.min(most, h / rows)};
  }

  draw() {
    const {w, h, columns, dx, dy} = this.layout();
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(w * scale)) this.canvas.width = Math.round(w * scale);
    if (this.canvas.height !== Math.round(h * scale)) this.canvas.height = Math.round(h * scale);
    const g = this.canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, w, h);
    const free = this.css('--free'), prefix = this.css('--prefix');
    const gap = Math.min(dx, dy) >= 4 ? 1 : 0;
    this.cells.forEach(([owner, fill], i) => {
      const column = i % columns, row = Math.floor(i / columns);
      const x = Math.round(column * dx), y = Math.round(row * dy);
      const width = Math.round((column + 1) * dx) - x - gap, height = Math.round((row + 1) * dy) - y - gap;
      g.globalAlpha = 1;
      g.fillStyle = free;
      g.fillRect(x, y, width, height);
      if (owner !== 0) {
        g.fillStyle = owner === 1 ? prefix : colour(this.state.sequences[owner - 2]?.id);
        g.globalAlpha = 0.3;
        g.fillRect(x, y, width, height);
        g.globalAlpha = 1;
        const part = height * fill / 100;
        g.fillRect(x, y + height - part, width, part);
      }
      if (i === this.cursor) {
        g.strokeStyle = this.css('--text');
        g.lineWidth = 2;
        g.strokeRect(x, y, width, height);
      }
    });
  }

  point(event) {
    const {columns, dx, dy} = this.layout();
    const column = Math.floor(event.offsetX / dx);
    const i = Math.floor(event.offsetY / dy) * columns + column;
    this.select(column < columns && i < this.cells.length ? i : -1);
  }

  key(event) {
    const {columns} = this.layout();
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns}[event.key];
    if (step === undefined || this.cells.length === 0) return;
    event.preventDefault();
    this.select(Math.max(0, Math.min(this.cells.length - 1, Math.max(0, this.cursor) + (this.cursor < 0 ? 0 : step))));
  }

  select(i) {
    if (i === this.cursor) return;
    this.cursor = i;
    this.draw();
    this.tell();
  }

  tell() {
    if (this.cursor < 0 || this.cursor >= this.cells.length) {
      this.cell.textContent = '\u00a0';
      return;
    }
    const per = this.state.map.blocks_per_cell, first = this.cursor * per;
    const [owner, fill] = this.cells[this.cursor];
    const who = owner === 0 ? 'free' : owner === 1 ? 'prefix cache' : this.state.sequences[owner - 2]?.id ?? '';
    const where = per === 1 ? `Block ${count(first)}` : `Blocks ${count(first)} to ${count(first + per - 1)}`;
    const text = `${where}: ${who}${owner === 0 ? '' : `, ${fill} % filled`}`;
    if (this.cell.textContent !== text) this.cell.textContent = text;
  }
}
