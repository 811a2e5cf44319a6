// Keeps a page fresh: an event of the master has the page read anew, and again 0.7 s later at the earliest.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';
const line = document.getElementById('line');
const BETWEEN_MS = 700;
const ANSWERS_MS = 30000;  // a server that says nothing for longer is away
const RETRY_MS = 3000;
const POINTS_MS = 2000;
const ANYWAY_MS = 30000;  // what happens to others is no event of ours, and ages grow
let due = false;
let pointed = -Infinity;  // when the pointer last moved over a row
let busy = false;
let again = false;  // something happened since the page was asked for
let shown = document.getElementById('main')?.innerHTML ?? '';  // as the server sent it

/** @param {string} text */
function say(text) { if (line) line.textContent = text; }

/** Whether the reader is in the middle of something that a new page would take away. */
function inUse() {
  const at = document.activeElement;
  if (Date.now() - pointed < POINTS_MS) return true;  // no row moves away under the pointer
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
  if (inUse()) { renewLater(BETWEEN_MS); return; }
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' }, signal: AbortSignal.timeout(ANSWERS_MS) });
    if (answer.status === 429 || answer.status >= 500) {
      say(answer.status === 429 ? 'too many requests at once' : 'the master does not answer');
      renewLater(RETRY_MS);
      return;
    }
    if (!answer.ok || answer.redirected) { location.reload(); return; }  // or led to the sign-in page
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    replace(fresh.getElementById('main'));
    say('');
  } catch { say('no line to the server'); renewLater(RETRY_MS); } finally {
    setTimeout(() => {
      busy = false;
      if (again) { again = false; renew(); }
    }, BETWEEN_MS);
  }
}

/**
 * What is marked as kept stays as it is: output, a picture, the answer to an order.
 * @param {HTMLElement | null} fresh
 */
function replace(fresh) {
  const old = document.getElementById('main');
  if (!old || !fresh || shown === fresh.innerHTML) return;
  shown = fresh.innerHTML;
  const focus = focused();
  const kept = [...old.querySelectorAll('[data-keep]')].map((one) => ({ one, top: one.scrollTop }));
  for (const { one } of kept) fresh.querySelector(`#${one.id}`)?.replaceWith(one);
  old.replaceChildren(...fresh.childNodes);
  for (const { one, top } of kept) one.scrollTop = top;
  if (focus) /** @type {HTMLElement | null} */ (old.querySelector(focus))?.focus();
  document.dispatchEvent(new Event('dlq:renewed'));
}

/** Where the focus is, as a selector that finds the same place in a new page. */
function focused() {
  const at = document.activeElement;
  const href = at?.getAttribute('href');
  const value = at instanceof HTMLInputElement && at.name === 'job' ? at.value : '';
  if (value) return `input[name="job"][value="${CSS.escape(value)}"]`;
  return href ? `a[href="${CSS.escape(href)}"]` : at?.id ? `#${CSS.escape(at.id)}` : '';
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
    if (source.readyState !== EventSource.CLOSED) return;
    happened();  // where the session is over, every tab hears it now
    // A reload would take away what is being written.
    setTimeout(() => { if (inUse()) watch(happened); else location.reload(); }, 5000);
  };
}

/** A browser opens six streams to a server at most, so one tab watches and tells the others. */
function share() {
  const tabs = new BroadcastChannel('dlq');
  tabs.onmessage = () => { renew(); };
  const tell = () => { tabs.postMessage(''); renew(); };
  navigator.locks.request('dlq-events', () => new Promise(() => { watch(tell); }));
}

document.addEventListener('click', async (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  if (!button) return;
  if (button.id === 'leave') {
    await fetch('/leave', { method: 'POST', headers: { 'x-dlq-csrf': csrf } });
    location.assign('/');
  }
});

document.addEventListener('pointermove', (event) => {
  if (/** @type {HTMLElement} */ (event.target).closest('main tbody')) pointed = Date.now();
});
document.addEventListener('dlq:renew', () => { renew(); });
setInterval(() => { if (document.visibilityState === 'visible') renew(); }, ANYWAY_MS);
share();
