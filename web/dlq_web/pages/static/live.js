// Keeps a page fresh: an event of the master has the page read anew, once a second at most.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';
const line = document.getElementById('line');
const BETWEEN_MS = 1000;
const RETRY_MS = 3000;
const ANYWAY_MS = 30000;  // what happens to others is no event of ours, and ages grow
const TAIL_BYTES = 16384;
const MOST_PIECES = 200;
const METHODS = { hold: 'HoldJob', release: 'ReleaseJob', pause: 'PauseJob', resume: 'ResumeJob',
  requeue: 'RequeueJob', cancel: 'CancelJob' };
let due = false;
let busy = false;

/** @param {string} text */
function say(text) { if (line) line.textContent = text; }

/** Whether the reader is in the middle of something that a new page would take away. */
function inUse() {
  const at = document.activeElement;
  const selected = String(getSelection() ?? '') !== '';
  const still = document.querySelector('main [data-still]') !== null;  // an answer to a question
  return still || selected || (at !== null && at.closest('main form') !== null);
}

/** @param {number} ms */
function renewLater(ms) {
  if (due) return;
  due = true;
  setTimeout(() => { due = false; renew(); }, ms);
}

async function renew() {
  if (busy || inUse()) { renewLater(BETWEEN_MS); return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
    if (answer.status === 429 || answer.status >= 500) {
      say(answer.status === 429 ? 'too many requests at once' : 'the master does not answer');
      renewLater(RETRY_MS);
      return;
    }
    if (!answer.ok) { location.reload(); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    replace(fresh.getElementById('main'));
    say('');
  } catch { say('no line to the server'); renewLater(RETRY_MS); } finally {
    setTimeout(() => { busy = false; }, BETWEEN_MS);
  }
}

/** @param {HTMLElement | null} fresh */
function replace(fresh) {
  const old = document.getElementById('main');
  if (!old || !fresh || old.innerHTML === fresh.innerHTML) return;
  const kept = old.querySelector('#output');
  const place = fresh.querySelector('#output');
  if (kept && place) place.replaceWith(kept);
  const focus = document.activeElement?.getAttribute('href');
  old.replaceChildren(...fresh.childNodes);
  if (focus) /** @type {HTMLElement | null} */ (old.querySelector(`a[href="${CSS.escape(focus)}"]`))?.focus();
  if (!kept) follow();
}

/** @param {() => void} happened */
function watch(happened) {
  const after = document.getElementById('main')?.dataset.after ?? '-1';
  const source = new EventSource(`/v1/events?after=${encodeURIComponent(after)}`);
  source.onmessage = happened;
  source.addEventListener('away', happened);  // the page asks, and says what it hears
  source.onopen = () => { say(''); };
  source.onerror = () => {
    say('no line to the server, trying again');
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
  };
}

/** A browser opens six streams to a server at most, so one tab watches and tells the others. */
function share() {
  const tabs = new BroadcastChannel('dlq');
  tabs.onmessage = () => { renew(); };
  const tell = () => { tabs.postMessage(''); renew(); };
  navigator.locks.request('dlq-events', () => new Promise(() => { watch(tell); }));
}

async function follow() {
  const output = document.getElementById('output');
  if (!output) return;
  let offset = -TAIL_BYTES;
  let attempt = 0;
  for (;;) {
    let news = true;
    const url = `/v1/jobs/${encodeURIComponent(output.dataset.job ?? '')}/logs?offset=${offset}`;
    try {
      const answer = await fetch(url, { headers: { accept: 'application/x-ndjson' } });
      const lines = answer.ok ? (await answer.text()).split('\n').filter(Boolean) : [];
      if (answer.ok) news = false;
      for (const text of lines) {
        const piece = JSON.parse(text);
        if (piece.error) { news = true; break; }
        if (attempt && piece.attempt !== attempt) {  // the offset is that of another output
          output.replaceChildren();
          offset = -TAIL_BYTES; attempt = 0; news = true;
          break;
        }
        attempt = piece.attempt;
        news ||= piece.text !== '';
        const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
        if (piece.text) output.append(document.createTextNode(plain(piece.text)));
        while (output.childNodes.length > MOST_PIECES) output.firstChild?.remove();
        if (atEnd) output.scrollTop = output.scrollHeight;
        offset = piece.next_offset;
      }
    } catch { /* the line is told of elsewhere */ }
    await new Promise((go) => setTimeout(go, 2 * BETWEEN_MS));
    if (!output.isConnected) return;
    if (!news && !document.querySelector('.actions')) return;  // the job has ended
  }
}

/** Text without what a terminal would obey. @param {string} text */
function plain(text) {
  return text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*(\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

document.addEventListener('click', async (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  if (!button) return;
  if (button.id === 'leave') {
    await fetch('/leave', { method: 'POST', headers: { 'x-dlq-csrf': csrf } });
    location.assign('/');
  }
  const method = METHODS[/** @type {keyof typeof METHODS} */ (button.dataset.action ?? '')];
  const job = button.closest('[data-job]')?.getAttribute('data-job');
  if (!method || !job || !confirm(`${button.textContent} job ${job}?`)) return;
  const answer = await fetch(`/api/dlq.v1.JobService/${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-dlq-csrf': csrf },
    body: JSON.stringify({ jobId: job }),
  });
  const said = document.getElementById('said');
  const told = answer.ok ? 'done' : await answer.json();
  if (said) said.textContent = answer.ok ? 'done' : [told.message, told.hint].filter(Boolean).join('; ');
  renew();
});

setInterval(() => { if (document.visibilityState === 'visible') renew(); }, ANYWAY_MS);
share();
follow();
