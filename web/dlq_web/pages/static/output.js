// The output of a rank: it follows the end, and reads a huge output piece by piece by its offsets.
// What a terminal would obey is left out.
// @ts-check

const TAIL_BYTES = 16384;
const PAGE_BYTES = 65536;
const MOST_PIECES = 200;
const BETWEEN_MS = 2000;

/** @typedef {{ attempt: number, offset: number, next_offset: number, text: string, end: boolean, error?: unknown }} Piece */

const place = { attempt: 0, first: 0, next: -TAIL_BYTES, follows: true, turn: 0 };

/** @param {string} id */
function number(id) {
  const input = /** @type {HTMLInputElement | null} */ (document.getElementById(id));
  return Math.max(0, Math.trunc(Number(input?.value ?? 0)) || 0);
}

/**
 * The pieces from an offset on, until `take` wants no more. False: the line broke, or the job said no.
 * @param {string} job @param {number} offset @param {(piece: Piece) => boolean} take
 */
async function pieces(job, offset, take) {
  const url = `/v1/jobs/${encodeURIComponent(job)}/logs?offset=${offset}&attempt=${number('attempt')}&rank=${number('rank')}`;
  const answer = await fetch(url, { headers: { accept: 'application/x-ndjson' } });
  const reader = answer.ok ? answer.body?.getReader() : undefined;
  if (!reader) return false;
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (!line) continue;
      const piece = /** @type {Piece} */ (JSON.parse(line));
      if (piece.error) return false;
      if (!take(piece)) { reader.cancel(); return true; }
    }
    if (done) return true;
  }
}

/** @param {HTMLElement} output @param {string} text */
function append(output, text) {
  const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
  if (text) output.append(document.createTextNode(plain(text)));
  while (output.childNodes.length > MOST_PIECES) output.firstChild?.remove();
  if (atEnd) output.scrollTop = output.scrollHeight;
}

/** Where in the output the reader is. */
function tell() {
  const said = document.getElementById('place');
  if (said) said.textContent = place.follows ? '' : `bytes ${place.first} to ${place.next}`;
}

/** @param {HTMLElement} output */
function fromTheEnd(output) {
  output.replaceChildren();
  Object.assign(place, { attempt: 0, next: -TAIL_BYTES, follows: true });
  tell();
}

async function follow() {
  const output = document.getElementById('output');
  if (!output || output.dataset.begun) return;
  output.dataset.begun = 'yes';
  for (;;) {
    const turn = place.turn;
    let news = true;
    try {
      if (place.follows) {
        news = false;
        const heard = await pieces(output.dataset.job ?? '', place.next, (piece) => {
          if (turn !== place.turn) return false;
          if (place.attempt && piece.attempt !== place.attempt) {  // the offset is that of another output
            fromTheEnd(output);
            news = true;
            return false;
          }
          if (!place.attempt) place.first = piece.offset;
          place.attempt = piece.attempt;
          news ||= piece.text !== '';
          append(output, piece.text);
          place.next = piece.next_offset;
          return true;
        });
        news ||= !heard;
      }
    } catch { /* the line is told of elsewhere */ }
    await new Promise((go) => setTimeout(go, BETWEEN_MS));
    if (!output.isConnected) return;
    // A job that has ended says no more; a reader may still choose another place.
    if (!news && !document.querySelector('.actions')) { output.dataset.begun = ''; return; }
  }
}

/** One page of the output. @param {number} from @param {number} until */
async function show(from, until) {
  const output = document.getElementById('output');
  if (!output) return;
  const turn = ++place.turn;
  place.follows = false;
  output.replaceChildren();
  place.first = place.next = Math.max(0, from);
  try {
    await pieces(output.dataset.job ?? '', place.first, (piece) => {
      if (turn !== place.turn) return false;
      if (place.next === place.first) place.first = piece.offset;
      append(output, piece.text);
      place.next = piece.next_offset;
      return place.next < until;
    });
  } catch { /* the line is told of elsewhere */ }
  output.scrollTop = 0;
  tell();
}

/** Text without what a terminal would obey; of a line that was written over, the last state. @param {string} text */
export function plain(text) {
  return text
    .replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|\x1b[ -/]*[0-~]/g, '')
    .replace(/\r+\n/g, '\n')
    .replace(/[^\n]*\r(?!$)/g, '')
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, '');
}

/** @param {string} what */
function read(what) {
  if (what === 'first') show(0, PAGE_BYTES);
  if (what === 'earlier') show(place.first - PAGE_BYTES, place.first);
  if (what === 'later') show(place.next, place.next + PAGE_BYTES);
  if (what === 'newest') {
    const output = document.getElementById('output');
    place.turn += 1;
    if (output) fromTheEnd(output);
    follow();
  }
}

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  if (button?.dataset.read) read(button.dataset.read);
});
document.addEventListener('change', (event) => {
  const id = /** @type {HTMLElement} */ (event.target).id;
  if (id === 'attempt' || id === 'rank') read('newest');
});
document.addEventListener('dlq:renewed', follow);
follow();
