// Draws the GPU map: only what is in view, again when something has changed, and by the keyboard too.
// @ts-check

/** A node as the server packs it. @typedef {[string, string, string, string, string, number[], string, number[], number[]]} Packed */
/** A lease as the server packs it. @typedef {[string, string, string, string, string, number|null, number|null, number]} Lease */
/** @typedef {{node: Packed, leases: Lease[]}} Drawn */
const EVERY_MS = 10000;
const ANSWERS_MS = 30000;  // a server that says nothing for longer is away
const REST_MS = 200;  // after the last scrolling
const TERM_S = 1200;
const HOLD_S = 3600;
const HUES = 12;
const CORNERS = { promised: 'P', lent: 'L', rented: 'R', leaving: '!' };

class Look {
  /** Colours of the style sheet, so dark mode is the page's own. @param {HTMLElement} at */
  constructor(at) {
    const style = getComputedStyle(at);
    const of = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    this.ink = of('--ink'); this.paper = of('--paper'); this.line = of('--line'); this.dim = of('--dim');
    this.fill = { u: of('--used'), i: of('--idle'), h: of('--held'), f: this.paper,
      w: of('--withheld'), c: of('--closed') };
    this.text = of('--dim'); this.dark = matchMedia('(prefers-color-scheme: dark)').matches;
  }

  /** @param {string} word */
  hue(word) {
    let sum = 0;
    for (const letter of word) sum = (sum * 31 + letter.charCodeAt(0)) % 9973;
    return `hsl(${(sum % HUES) * (360 / HUES)} 75% ${this.dark ? 65 : 38}%)`;
  }
}

export class GpuMap {
  /** @param {HTMLElement} figure  @param {HTMLElement | null} spot  @param {boolean} named */
  constructor(figure, spot, named) {
    this.figure = figure; this.spot = spot; this.named = named;
    /** @type {Drawn[]} */ this.nodes = [];
    this.now = 0; this.heard = 0; this.at = -1; this.owner = 1;
    /** @type {Record<string, string>} */ this.headers = {};
    /** @type {Map<string, string>} */ this.tags = new Map();
    /** @type {Map<string, {now: number, nodes: Packed[], leases: Lease[], next: string|null}>} */ this.pieces = new Map();
    this.canvas = document.createElement('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'application');
    this.canvas.setAttribute('aria-label', 'Map of GPUs; arrow keys go from one to the next, Enter opens its job');
    this.figure.replaceChildren(this.canvas);
    this.waiting = false;
    this.above = 0; this.below = 0;  // what is drawn, in CSS pixels of the figure
    this.rough = false;  // while it is scrolled far, drawn with one pixel for each of CSS
    this.resting = 0;
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('mousemove', (event) => this.point(event));
    this.canvas.addEventListener('click', (event) => { this.point(event); this.open(); });
    addEventListener('scroll', () => this.moved(), { passive: true });
    addEventListener('resize', () => this.later());
    this.figure.addEventListener('scroll', () => this.moved(), { passive: true });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.later());
  }

  /** Read all pieces; unchanged ones cost a tag. @param {string} source */
  async read(source) {
    const drawn = [];
    let cursor = '';
    let changed = false;
    do {
      const url = source + (source.includes('?') ? '&' : '?') + `cursor=${encodeURIComponent(cursor)}`;
      const tag = this.tags.get(url);
      const headers = { ...this.headers, ...(tag ? { 'if-none-match': tag } : {}) };
      const answer = await fetch(url, { headers, signal: AbortSignal.timeout(ANSWERS_MS) });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(String(answer.status));
        this.pieces.set(url, await answer.json());
        this.tags.set(url, answer.headers.get('etag') ?? '');
        changed = true;
      }
      const piece = this.pieces.get(url);
      if (!piece) break;
      for (const node of piece.nodes) drawn.push({ node, leases: piece.leases });
      if (changed) { this.now = piece.now; this.heard = performance.now(); }
      cursor = piece.next ?? '';
    } while (cursor);
    this.nodes = drawn;
    this.figure.dataset.nodes = String(drawn.length);
    this.later();
  }

  /** Nothing is known any more. */
  forget() {
    this.nodes = []; this.tags.clear(); this.pieces.clear();
    this.figure.dataset.nodes = '0';
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  /** The reader has scrolled: a quarter of a window above and below is drawn already. */
  moved() {
    const box = this.figure.getBoundingClientRect();
    const first = Math.max(0, -box.top);
    const last = Math.min(box.height, innerHeight - box.top);
    if (first < this.above || last > this.below) { this.rough = devicePixelRatio > 1; this.later(); }
    if (!this.rough) return;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.rough = false; this.later(); }, REST_MS);
  }

  /** Where everything is, in CSS pixels. */
  plan() {
    const most = Math.max(1, ...this.nodes.map((one) => one.node[5].length));
    const many = this.nodes.length;
    const cell = many > 128 ? 14 : this.named && many > 16 ? 20 : 32;  // a wall is seen from afar
    const across = Math.min(most, 4);
    const down = Math.ceil(most / across);
    const wide = across * cell + 10;
    const high = down * cell + (this.named ? 18 : 10);
    const columns = Math.max(1, Math.floor((this.figure.clientWidth || 320) / wide));
    return { cell, across, wide, high, columns, rows: Math.ceil(this.nodes.length / columns) };
  }

  draw() {
    if (!this.figure.isConnected) return;
    const began = performance.now();
    const p = this.plan();
    const width = p.columns * p.wide;
    const height = Math.max(1, p.rows * p.high);
    const box = this.figure.getBoundingClientRect();
    const more = Math.max(p.high, Math.round(innerHeight / 4));
    const seen = Math.min(height, innerHeight + 2 * more);
    const above = Math.min(Math.max(0, -box.top - more), Math.max(0, height - seen));
    this.above = above; this.below = above + seen;
    const scale = this.rough ? 1 : devicePixelRatio || 1;
    this.figure.style.height = `${height}px`;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(seen * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(seen * scale);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${seen}px`;
    }
    this.canvas.style.top = `${above}px`;
    const pen = this.canvas.getContext('2d');
    if (!pen) return;
    const look = new Look(this.figure);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, seen);
    pen.translate(0, -above);
    const first = Math.max(0, Math.floor(above / p.high)) * p.columns;
    const last = Math.min(this.nodes.length, (Math.floor((above + seen) / p.high) + 1) * p.columns);
    const now = this.now + (performance.now() - this.heard) / 1000;
    let number = 0;
    for (let i = 0; i < first; i += 1) number += this.nodes[i].node[5].length;
    for (let i = first; i < last; i += 1) {
      const x = (i % p.columns) * p.wide;
      const y = Math.floor(i / p.columns) * p.high;
      number = this.drawNode(pen, look, this.nodes[i], x, y, p, now, number);
    }
    this.figure.dataset.scale = String(scale);
    this.figure.dataset.drawn = String(Math.round(performance.now() - began));
  }

  /**
   * @param {CanvasRenderingContext2D} pen  @param {Look} look  @param {Drawn} drawn
   * @param {number} x  @param {number} y  @param {ReturnType<GpuMap['plan']>} p
   * @param {number} now  @param {number} number
   */
  drawNode(pen, look, drawn, x, y, p, now, number) {
    const [name, state, , mark, , indexes, uses, percents, places] = drawn.node;
    let top = y;
    if (this.named) {
      pen.fillStyle = state === 'up' ? look.text : look.ink;
      pen.font = '10px system-ui, sans-serif';
      pen.fillText(name.length > 9 ? `${name.slice(0, 3)}…${name.slice(-5)}` : name, x, y + 10, p.wide - 4);
      top += 13;
    }
    for (let i = 0; i < indexes.length; i += 1) {
      const left = x + (i % p.across) * p.cell;
      const high = top + Math.floor(i / p.across) * p.cell;
      const lease = places[i] >= 0 ? drawn.leases[places[i]] : null;
      const marks = [mark, ...(lease ? lease[4].split('+') : [])].filter(Boolean);
      this.square(pen, look, left, high, p.cell - 2, uses[i], percents[i], lease, marks, now);
      if (number === this.at) {
        pen.strokeStyle = look.ink; pen.lineWidth = 2;
        pen.strokeRect(left - 1, high - 1, p.cell, p.cell);
      }
      number += 1;
    }
    return number;
  }

  /**
   * @param {CanvasRenderingContext2D} pen  @param {Look} look  @param {number} x  @param {number} y
   * @param {number} size  @param {string} use  @param {number} percent  @param {Lease | null} lease
   * @param {string[]} marks  @param {number} now
   */
  square(pen, look, x, y, size, use, percent, lease, marks, now) {
    const fill = look.fill[/** @type {'u'|'i'|'h'|'f'|'w'|'c'} */ (use)] ?? look.paper;
    if (use === 'u') {
      const part = Math.max(0.12, Math.min(1, percent / 100)) * size;
      pen.fillStyle = fill; pen.fillRect(x, y + size - part, size, part);
    } else if (use === 'i' || use === 'w') {  // stripes up, and a cross
      pen.strokeStyle = fill; pen.lineWidth = 1.5; pen.beginPath();
      pen.moveTo(x, y + size); pen.lineTo(x + size, y);
      if (use === 'w') { pen.moveTo(x, y); pen.lineTo(x + size, y + size); }
      else {
        pen.moveTo(x, y + size / 2); pen.lineTo(x + size / 2, y);
        pen.moveTo(x + size / 2, y + size); pen.lineTo(x + size, y + size / 2);
      }
      pen.stroke();
    } else if (use !== 'f') { pen.fillStyle = fill; pen.fillRect(x, y, size, size); }
    pen.lineWidth = lease ? 2 : 1;
    pen.strokeStyle = lease ? look.hue(lease[this.owner] ? String(lease[this.owner]) : lease[0]) : look.line;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (!lease) { this.corner(pen, look, x, y, size, marks); return; }
    pen.fillStyle = look.ink;
    const term = lease[5] === null ? 0 : Math.max(0, Math.min(1, (lease[5] - now) / TERM_S));
    const hold = lease[6] === null ? 0 : Math.max(0, Math.min(1, (lease[6] - now) / HOLD_S));
    pen.fillRect(x, y + size - 2, size * term, 2);
    pen.fillRect(x, y, size * hold, 1);
    this.corner(pen, look, x, y, size, marks);
  }

  /**
   * @param {CanvasRenderingContext2D} pen  @param {Look} look  @param {number} x  @param {number} y
   * @param {number} size  @param {string[]} marks
   */
  corner(pen, look, x, y, size, marks) {
    const word = marks.find((one) => one in CORNERS);
    if (!word) return;
    if (size < 16) {  // too small for a letter
      pen.fillStyle = look.paper; pen.fillRect(x + size - 6, y + 1, 5, 5);
      pen.fillStyle = look.ink; pen.fillRect(x + size - 5, y + 2, 3, 3);
      return;
    }
    pen.font = `bold ${Math.max(8, size / 2)}px system-ui, sans-serif`;
    pen.lineWidth = 2.5; pen.strokeStyle = look.paper; pen.fillStyle = look.ink;
    const letter = CORNERS[/** @type {keyof typeof CORNERS} */ (word)];
    pen.strokeText(letter, x + size / 2, y + size - 4);
    pen.fillText(letter, x + size / 2, y + size - 4);
  }

  /** The GPU with this number, counted over all nodes. @param {number} number */
  gpu(number) {
    let left = number;
    for (const drawn of this.nodes) {
      const here = drawn.node[5].length;
      if (left < here) return { drawn, place: left };
      left -= here;
    }
    return null;
  }

  /** @param {MouseEvent} event */
  point(event) {
    const p = this.plan();
    const box = this.figure.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / p.wide);
    const row = Math.floor((event.clientY - box.top) / p.high);
    const node = row * p.columns + column;
    if (column >= p.columns || !this.nodes[node]) return;
    const x = Math.floor((event.clientX - box.left - column * p.wide) / p.cell);
    const y = Math.floor((event.clientY - box.top - row * p.high - (this.named ? 13 : 0)) / p.cell);
    const place = y * p.across + x;
    if (x < 0 || y < 0 || x >= p.across || place >= this.nodes[node].node[5].length) return;
    let number = place;
    for (let i = 0; i < node; i += 1) number += this.nodes[i].node[5].length;
    this.go(number);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const p = this.plan();
    const per = this.nodes[0]?.node[5].length ?? 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: p.columns * per, ArrowUp: -p.columns * per };
    if (event.key === 'Enter') { this.open(); return; }
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (step === undefined) return;
    event.preventDefault();
    this.go(Math.max(0, this.at + (this.at < 0 ? Math.max(1, step) : step)));
  }

  /** @param {number} number */
  go(number) {
    const found = this.gpu(number);
    if (!found || number === this.at) return;
    this.at = number;
    if (this.spot) this.spot.textContent = this.words(found.drawn, found.place);
    this.later();
  }

  /** @param {Drawn} drawn  @param {number} place */
  words(drawn, place) {
    const [name, state, flags, mark, types, indexes, uses, percents, places] = drawn.node;
    const uses_ = { u: 'used', i: 'held but idle', h: 'held', f: 'free', w: 'withheld', c: 'closed' };
    const lease = places[place] >= 0 ? drawn.leases[places[place]] : null;
    const told = [`${name} GPU ${indexes[place]}`, types, uses_[/** @type {keyof typeof uses_} */ (uses[place])]];
    if (percents[place] >= 0) told.push(`${percents[place]} % used`);
    if (lease) told.push(`job ${lease[0]}`, lease[1], lease[2] ? `team ${lease[2]}` : '', lease[4].replace('+', ', '), `on ${lease[7]} GPUs`);
    told.push(mark, state === 'up' ? '' : state, flags);
    return told.filter(Boolean).join(', ');
  }

  open() {
    const found = this.gpu(this.at);
    if (!found || !this.named) return;
    const place = found.drawn.node[8][found.place];
    const path = place >= 0 ? `/jobs/${encodeURIComponent(found.drawn.leases[place][0])}` : `/nodes/${encodeURIComponent(found.drawn.node[0])}`;
    location.assign(path);
  }
}

/** Draw what is there, and read again while somebody looks. An empty cluster has no map yet. */
export function begin() {
  const figure = document.getElementById('map');
  if (!figure?.dataset.source) {
    document.addEventListener('dlq:renewed', begin, { once: true });
    return;
  }
  const source = figure.dataset.source;
  const map = new GpuMap(figure, document.getElementById('spot'), true);
  const line = document.getElementById('line');
  const look = async () => {
    if (document.visibilityState !== 'visible') return;
    try {
      await map.read(source);
      if (line && figure.dataset.lost) line.textContent = '';
      figure.dataset.lost = '';
    } catch {
      figure.dataset.lost = 'yes';
      if (line) line.textContent = 'the map is the last one: no newer map comes';
    }
  };
  look();
  setInterval(look, EVERY_MS);
  document.addEventListener('visibilitychange', look);
  document.addEventListener('change', (event) => {
    const chosen = /** @type {HTMLSelectElement} */ (event.target);
    if (chosen.id === 'owner') { map.owner = Number(chosen.value); map.later(); }
  });
  document.addEventListener('dlq:renewed', () => { map.spot = document.getElementById('spot'); });
}

begin();
