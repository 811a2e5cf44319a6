// Asks the twin without leaving the page, so that the question can be cancelled.
// @ts-check

const form = /** @type {HTMLFormElement | null} */ (document.getElementById('what-if'));
const stop = document.getElementById('stop');
const asking = document.getElementById('asking');
let question = /** @type {AbortController | null} */ (null);

/** @param {string} text */
function tell(text) { if (asking) asking.textContent = text; }

/** @param {string} url */
async function ask(url) {
  question?.abort();
  const mine = question = new AbortController();
  stop?.removeAttribute('hidden');
  tell('asking the twin, for a minute at most');
  try {
    const answer = await fetch(url, { headers: { accept: 'text/html' }, signal: mine.signal });
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const found = fresh.getElementById('answer') ?? fresh.querySelector('main');
    if (!found) throw new Error('no answer');
    found.id = 'answer';
    document.getElementById('answer')?.replaceWith(found);
    history.replaceState(null, '', url);
    found.focus();
    tell('');
  } catch { tell(mine.signal.aborted ? 'cancelled' : 'no line to the server'); }
  if (question === mine) { question = null; stop?.setAttribute('hidden', ''); }
}

form?.addEventListener('submit', (event) => {
  event.preventDefault();
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) given.append(name, String(value));
  ask(`/what-if?${given}`);
});
stop?.addEventListener('click', () => { question?.abort(); });
