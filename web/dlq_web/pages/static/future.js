// The picture of the next hours: it reads what the screen shows, and moves by mouse and by keyboard.
// @ts-check

import { Lanes } from './lanes.js';

const BETWEEN_MS = 200;
const ANYWAY_MS = 30000;
const SPAN_S = 13 * 3600;
const BEFORE_S = 3600;

/** @param {HTMLElement} place */
function begin(place) {
  place.dataset.begun = 'yes';
  const canvas = /** @type {HTMLCanvasElement} */ (place.querySelector('canvas'));
  const told = /** @type {HTMLElement} */ (place.querySelector('.told'));
  const lanes = new Lanes(canvas);
  let tag = '';
  let due = 0;
  let ours = '';  // the part of time that has been read

  const now = () => Math.floor(Date.now() / 60000) * 60;
  lanes.move(now() - BEFORE_S, SPAN_S, 0);

  async function read() {
    const [from, span] = [Math.floor(lanes.from / 60) * 60, Math.round(lanes.span)];
    const { user, team, by } = place.dataset;
    const pixels = Math.min(4000, Math.max(100, Math.round(lanes.width)));
    const asked = new URLSearchParams({ as: 'json', by: by ?? '', user: user ?? '', team: team ?? '',
      from: String(from), span: String(Math.max(600, span)), pixels: String(pixels) });
    try {
      const answer = await fetch(`/future?${asked}`, { headers: ours === `${asked}` && tag ? { 'if-none-match': tag } : {} });
      if (!answer.ok) return;
      const picture = /** @type {import('./lanes.js').Picture} */ (await answer.json());
      tag = answer.headers.get('etag') ?? '';
      ours = `${asked}`;
      lanes.show(picture);
      const more = picture.left_out ? `, ${picture.left_out} more lanes are not drawn` : '';
      told.textContent = `${picture.lanes.length} lanes, ${picture.bars.length} bars${more}`;
      place.dataset.drawn = String(picture.bars.length);
    } catch { /* the line is told of elsewhere */ }
  }

  function soon() {
    clearTimeout(due);
    due = setTimeout(read, BETWEEN_MS);
  }

  /** @param {number} part of the screen */
  function shift(part) { lanes.move(lanes.from + part * lanes.span, lanes.span, lanes.top); soon(); }
  /** @param {number} factor @param {number} x */
  function zoom(factor, x) { lanes.zoom(factor, x); soon(); }
  /** @param {number} pixels */
  function scroll(pixels) { lanes.move(lanes.from, lanes.span, lanes.top + pixels); }

  /** @type {Record<string, () => void>} */
  const moves = {
    earlier: () => shift(-0.25), later: () => shift(0.25),
    closer: () => zoom(0.5, lanes.width / 2), wider: () => zoom(2, lanes.width / 2),
    taller: () => lanes.heighten(1.5), flatter: () => lanes.heighten(1 / 1.5),
    now: () => { lanes.move(now() - BEFORE_S, SPAN_S, 0); soon(); },
  };
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowLeft: () => shift(-0.1), ArrowRight: () => shift(0.1), ArrowUp: () => scroll(-lanes.tall),
    ArrowDown: () => scroll(lanes.tall), PageUp: () => scroll(-lanes.height), PageDown: () => scroll(lanes.height),
    '+': moves.closer, '=': moves.closer, '-': moves.wider, Home: moves.now,
  };

  place.addEventListener('click', (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest('button');
    moves[button?.dataset.move ?? '']?.();
  });
  canvas.addEventListener('keydown', (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act();
  });
  canvas.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.shiftKey) {
      event.preventDefault();
      zoom((event.deltaY || event.deltaX) > 0 ? 1.2 : 1 / 1.2, event.offsetX);
      return;
    }
    const before = lanes.top;
    scroll(event.deltaY);
    if (lanes.top !== before) event.preventDefault();  // at its end the page scrolls
  }, { passive: false });

  let held = false;
  let moved = 0;
  canvas.addEventListener('pointerdown', (event) => { held = true; moved = 0; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener('pointermove', (event) => {
    if (!held) {
      const bar = lanes.at(event.offsetX, event.offsetY);
      if (bar) told.textContent = `${bar[1]}: ${bar[6]}`;
      return;
    }
    moved += Math.abs(event.movementX) + Math.abs(event.movementY);
    lanes.move(lanes.from - (event.movementX * lanes.span) / lanes.width, lanes.span, lanes.top - event.movementY);
    soon();
  });
  canvas.addEventListener('pointerup', (event) => {
    held = false;
    const job = moved < 4 ? lanes.at(event.offsetX, event.offsetY)?.[7] : '';
    if (job) location.assign(`/jobs/${encodeURIComponent(job)}`);
  });
  new ResizeObserver(() => lanes.later()).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { lanes.look(); lanes.later(); });
  setInterval(() => { if (document.visibilityState === 'visible' && place.isConnected) read(); }, ANYWAY_MS);
  read();
}

function find() {
  const place = document.getElementById('hours');
  if (place && !place.dataset.begun) begin(place);
}

document.addEventListener('dlq:renewed', find);
find();
