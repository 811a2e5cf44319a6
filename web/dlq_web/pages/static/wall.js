// Keeps the map of a screen on the wall fresh, for months. The token is behind the # of its address.
// @ts-check

import { GpuMap } from './gpus.js';

const EVERY_MS = 10000;
const SOURCE = '/wall/map.json';
const figure = document.getElementById('wall');
const line = document.getElementById('line');
let since = '';

/** @param {string} text */
function say(text) { if (line) line.textContent = text; }

/** @param {GpuMap} map */
function count(map) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { node } of map.nodes) for (const use of node[6]) counts[use] = (counts[use] ?? 0) + 1;
  for (const place of document.querySelectorAll('[data-use]')) {
    if (place instanceof HTMLElement) place.textContent = String(counts[place.dataset.use ?? ''] ?? 0);
  }
}

/** @param {GpuMap} map */
async function look(map) {
  const token = location.hash.slice(1);
  if (!token) { say('this address lacks its token, which stands behind a #'); return; }
  map.headers = { authorization: `Bearer ${token}` };
  try {
    await map.read(SOURCE);
    count(map);
    since = new Date().toLocaleTimeString();
    say(map.nodes.length ? '' : 'no node has joined');
  } catch (error) {
    const refused = error instanceof Error && error.message === '401';
    if (refused) map.forget();
    if (refused) count(map);
    say(refused ? 'this wall is not open any more' : `no newer map${since ? ` since ${since}` : ''}`);
  }
}

if (figure) {
  const map = new GpuMap(figure, null, false);
  map.owner = 0;
  look(map);
  setInterval(() => look(map), EVERY_MS);
  addEventListener('hashchange', () => look(map));
}
