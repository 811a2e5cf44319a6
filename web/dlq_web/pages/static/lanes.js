// Bars in lanes on a canvas: thousands of them are one path for each colour. It knows no server:
// give it a picture, and it draws the part of time and the lanes that are chosen.
// @ts-check

/**
 * A bar: lane, kind, begin, end, earliest and latest start in pixels of the picture, words, job.
 * A run is sure until its `earliest`, and faint from there to its end.
 * @typedef {[number, string, number, number, number, number, string, string]} Bar
 */
/**
 * @typedef {object} Picture
 * @property {number} from seconds since the epoch at the left edge
 * @property {number} span seconds from edge to edge
 * @property {number} pixels from edge to edge
 * @property {number} now in pixels
 * @property {string[]} lanes
 * @property {number} left_out lanes
 * @property {Bar[]} bars
 */
/**
 * @typedef {{ dots: Record<string, number>, ink: string, paper: string, dim: string, line: string, bad: string, good: string, busy: string,
 *   warn: string, starts: string | CanvasPattern, reserved: string | CanvasPattern }} Looks
 */

export const LEAST_SPAN_S = 600;
export const MOST_SPAN_S = 7 * 86400;
const HEAD = 20;  // pixels of the scale
const TALLEST = 40;
const THIN = 6;
const STEPS = 4;  // of a faint edge
const LETTER = 7;  // pixels, nearly
const MOST_WORDS = 300;  // bars that have their words on them
const TICKS_S = [60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400];

export class Lanes {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    /** @type {Picture} */
    this.picture = { from: 0, span: 1, pixels: 1, now: 0, lanes: [], left_out: 0, bars: [] };
    /** @type {Bar[][]} */
    this.byLane = [];
    this.from = 0;
    this.span = MOST_SPAN_S;
    this.top = 0;  // pixels above the first lane that is seen
    this.tall = 18;  // pixels of a lane
    this.due = false;
    /** @type {Looks | undefined} */
    this.looks = undefined;
    /** @type {ImageData | undefined} */
    this.image = undefined;
  }

  get width() { return this.canvas.clientWidth; }

  get height() { return this.canvas.clientHeight; }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    this.byLane = picture.lanes.map(() => []);
    for (const bar of picture.bars) this.byLane[bar[0]]?.push(bar);
    this.move(this.from, this.span, this.top);
  }

  /** @param {number} from @param {number} span @param {number} top */
  move(from, span, top) {
    this.span = Math.min(MOST_SPAN_S, Math.max(LEAST_SPAN_S, span));
    this.from = Math.max(0, from);
    const most = this.picture.lanes.length * this.tall - (this.height - HEAD);
    this.top = Math.max(0, Math.min(top, most));
    this.later();
  }

  /** Keep the instant that stands at `x`. @param {number} factor @param {number} x */
  zoom(factor, x) {
    const at = this.from + this.span * (x / this.width);
    const span = Math.min(MOST_SPAN_S, Math.max(LEAST_SPAN_S, this.span * factor));
    this.move(at - span * (x / this.width), span, this.top);
  }

  /** @param {number} factor */
  heighten(factor) {
    const lane = this.top / this.tall;
    this.tall = Math.min(TALLEST, Math.max(1, this.tall * factor));
    this.move(this.from, this.span, lane * this.tall);
  }

  /** Draw once before the browser paints, however often it is asked for. */
  later() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.draw(); });
  }

  /** Pixels on the screen of a pixel of the picture. @param {number} pixel */
  x(pixel) {
    const at = this.picture.from + (pixel * this.picture.span) / this.picture.pixels;
    return ((at - this.from) * this.width) / this.span;
  }

  /** The lanes on the screen. */
  seen() {
    const first = Math.floor(this.top / this.tall);
    const last = Math.ceil((this.top + this.height - HEAD) / this.tall);
    return { first, last: Math.min(last, this.byLane.length) };
  }

  /** @param {number} lane */
  y(lane) { return HEAD + lane * this.tall - this.top; }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const pen = this.pen;
    const looks = this.looks ?? this.look();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = '12px system-ui, sans-serif';
    if (this.tall < THIN) this.pixels(looks, ratio);
    this.lines(looks);
    if (this.tall >= THIN) this.bars(looks);
    this.words(looks);
    this.head(looks);
    pen.fillStyle = looks.bad;
    pen.fillRect(this.x(this.picture.now), 0, 1.5, this.height);
  }

  /** The colours of the page, read again after it has changed them. @returns {Looks} */
  look() {
    const style = getComputedStyle(this.canvas);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim() || style.color;
    const [busy, warn] = [colour('--busy'), colour('--warn')];
    const dot = (/** @type {string} */ name, /** @type {number} */ alpha) => asDot(this.pen, colour(name), alpha);
    this.looks = {
      dots: { runs: dot('--busy', 255), starts: dot('--busy', 140), promised: dot('--good', 255), reserved: dot('--warn', 200) },
      ink: colour('--ink'), paper: colour('--paper'), dim: colour('--dim'), line: colour('--line'),
      bad: colour('--bad'), good: colour('--good'), busy, warn,
      starts: hatched(this.pen, busy, 1), reserved: hatched(this.pen, warn, -1),
    };
    return this.looks;
  }

  /**
   * Lanes too thin for a pattern, thousands of bars at once: a plain colour for each kind, written
   * into the pixels themselves. One call for each bar would take ten times as long.
   * @param {Looks} looks @param {number} ratio
   */
  pixels(looks, ratio) {
    const { width, height } = this.canvas;
    if (this.image?.width !== width || this.image.height !== height) this.image = this.pen.createImageData(width, height);
    const image = this.image;
    const dots = new Uint32Array(image.data.buffer);
    dots.fill(0);
    const thick = Math.max(1, Math.floor((this.tall - (this.tall > 2 ? 1 : 0)) * ratio));
    const { first, last } = this.seen();
    const scale = (this.picture.span / this.picture.pixels) * (this.width / this.span) * ratio;
    const offset = this.x(0) * ratio;
    for (let lane = first; lane < last; lane += 1) {
      const top = Math.round(this.y(lane) * ratio);
      for (const [, kind, begin, end, early] of this.byLane[lane]) {
        const left = Math.max(0, Math.round(Math.min(begin, early) * scale + offset));
        const right = Math.min(width, Math.max(left + 1, Math.round(end * scale + offset)));
        const dot = looks.dots[kind] ?? 0;
        for (let y = Math.max(0, top); y < Math.min(height, top + thick); y += 1) {
          dots.fill(dot, y * width + left, y * width + Math.max(left, right));
        }
      }
    }
    this.pen.putImageData(image, 0, 0);
  }

  /**
   * One colour after the other: a change of colour costs more than a rectangle.
   * @param {Looks} looks
   */
  bars(looks) {
    const pen = this.pen;
    const { first, last } = this.seen();
    const thick = Math.max(1, Math.floor(this.tall - (this.tall > 6 ? 3 : this.tall > 2 ? 1 : 0)));
    /** @type {Record<string, number[]>} */
    const found = { runs: [], starts: [], promised: [], reserved: [], faint: [], fading: [] };
    for (let lane = first; lane < last; lane += 1) {
      const y = Math.round(this.y(lane));
      for (const [, kind, begin, end, early, late] of this.byLane[lane]) {
        const left = Math.round(Math.max(-3, this.x(begin)));
        const right = Math.round(Math.min(this.width + 3, this.x(end)));
        if (right < 0 || left > this.width) continue;
        const sure = kind === 'starts' ? Math.round(Math.min(right, Math.max(left, this.x(late)))) : left;
        if (kind === 'runs') {
          const until = Math.round(Math.min(right, Math.max(left, this.x(early))));
          found.runs.push(left, y, Math.max(1, until - left));
          if (right > until) found.fading.push(until, y, right - until);
          continue;
        }
        found[kind]?.push(sure, y, Math.max(1, right - sure));
        if (kind !== 'starts') continue;
        const edge = Math.round(Math.max(-3, this.x(early)));
        if (sure > edge) found.faint.push(edge, y, sure - edge);
      }
    }
    const fill = (/** @type {number[]} */ spans, /** @type {string | CanvasPattern} */ style, alpha = 1) => {
      pen.fillStyle = style;
      pen.globalAlpha = alpha;
      for (let at = 0; at < spans.length; at += 3) pen.fillRect(spans[at], spans[at + 1], spans[at + 2], thick);
    };
    fill(found.runs, looks.busy);
    fill(found.starts, looks.starts);
    fill(found.reserved, looks.reserved);
    for (let step = 0; step < STEPS; step += 1) {
      fill(stepped(found.faint, step), looks.busy, (step + 1) / (2 * STEPS + 2));
      fill(stepped(found.fading, step), looks.busy, (STEPS - step) / (2 * STEPS + 2));
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = looks.good;
    pen.lineWidth = 2;
    for (let at = 0; at < found.promised.length; at += 3) {
      pen.strokeRect(found.promised[at] + 1, found.promised[at + 1] + 1, Math.max(1, found.promised[at + 2] - 2), thick - 2);
    }
  }

  /** @param {Looks} looks */
  words({ ink, paper }) {
    if (this.tall < 13) return;
    const pen = this.pen;
    const { first, last } = this.seen();
    let left = MOST_WORDS;
    pen.textBaseline = 'middle';
    for (let lane = first; lane < last && left > 0; lane += 1) {
      for (const [, kind, begin, end, early, , text] of this.byLane[lane]) {
        const [from, until] = [Math.max(2, this.x(begin) + 3), Math.min(this.width, this.x(end))];
        if (until - from < 40 || left <= 0) continue;
        const fits = text.slice(0, Math.floor((until - from) / LETTER));
        const wide = pen.measureText(fits).width;
        const solid = kind === 'runs' && this.x(early) >= from + wide;  // dark enough to write on it
        if (!solid && kind !== 'promised') {
          pen.fillStyle = paper;
          pen.fillRect(from - 2, this.y(lane) + 2, wide + 4, this.tall - 7);
        }
        pen.fillStyle = solid ? paper : ink;
        pen.fillText(fits, from, this.y(lane) + this.tall / 2 - 1, until - from);
        left -= 1;
      }
    }
  }

  /** The instants of the scale with their places: whole hours of the reader's zone. */
  ticks() {
    const tick = TICKS_S.find((one) => (one * this.width) / this.span >= 70) ?? 86400;
    const offset = new Date(this.from * 1000).getTimezoneOffset() * 60;
    const found = [];
    for (let at = Math.ceil((this.from - offset) / tick) * tick + offset; at < this.from + this.span; at += tick) {
      const when = new Date(at * 1000);
      const text = tick < 86400 ? when.toTimeString().slice(0, 5) : when.toDateString().slice(4, 10);
      found.push({ x: ((at - this.from) * this.width) / this.span, text });
    }
    return found;
  }

  /** @param {Looks} looks */
  lines({ line }) {
    this.pen.fillStyle = line;
    for (const { x } of this.ticks()) this.pen.fillRect(x, HEAD - 4, 1, this.height);
  }

  /** Above the lanes, also where one is scrolled halfway out. @param {Looks} looks */
  head({ dim, paper }) {
    const pen = this.pen;
    pen.fillStyle = paper;
    pen.fillRect(0, 0, this.width, HEAD - 2);
    pen.textBaseline = 'top';
    pen.fillStyle = dim;
    for (const { x, text } of this.ticks()) pen.fillText(text, x + 3, 3);
  }

  /** The bar at a place on the canvas. @param {number} x @param {number} y @returns {Bar | undefined} */
  at(x, y) {
    if (y < HEAD) return undefined;
    const lane = this.byLane[Math.floor((y - HEAD + this.top) / this.tall)] ?? [];
    return lane.find(([, , begin, end, early]) => this.x(Math.min(begin, early)) <= x && x <= this.x(end) + 2);
  }
}

/** A colour as a pixel of an image. @param {CanvasRenderingContext2D} pen @param {string} colour @param {number} alpha */
function asDot(pen, colour, alpha) {
  pen.fillStyle = '#808080';
  pen.fillStyle = colour;  // the canvas tells it back as #rrggbb
  const rgb = String(pen.fillStyle);
  const part = (/** @type {number} */ at) => Number.parseInt(rgb.slice(at, at + 2), 16) || 0;
  return new Uint32Array(new Uint8ClampedArray([part(1), part(3), part(5), alpha]).buffer)[0];
}

/** One part of each faint edge. @param {number[]} spans @param {number} step */
function stepped(spans, step) {
  const parts = [];
  for (let at = 0; at < spans.length; at += 3) {
    const wide = spans[at + 2] / STEPS;
    const left = Math.round(spans[at] + step * wide);
    parts.push(left, spans[at + 1], Math.round(spans[at] + (step + 1) * wide) - left);
  }
  return parts;
}

/** @param {CanvasRenderingContext2D} pen @param {string} colour @param {number} way */
function hatched(pen, colour, way) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const small = /** @type {CanvasRenderingContext2D} */ (tile.getContext('2d'));
  small.strokeStyle = colour;
  small.lineWidth = 1.5;
  for (const at of [-6, 0, 6]) {
    small.moveTo(at, way > 0 ? 6 : 0);
    small.lineTo(at + 6, way > 0 ? 0 : 6);
  }
  small.stroke();
  return pen.createPattern(tile, 'repeat') ?? colour;
}
