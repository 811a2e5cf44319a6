// Asks the twin without leaving the page, so that the question can be cancelled.
// @ts-check

import { tell } from './answers.js';

let question = /** @type {AbortController | null} */ (null);

/** @param {boolean} can */
function letCancel(can) { document.getElementById('stop')?.toggleAttribute('hidden', !can); }

/** @param {string} url */
async function ask(url) {
  question?.abort();
  const mine = question = new AbortController();
  letCancel(true);
  tell('asking', 'asking the twin, for a minute at most');
  try {
    const answer = await fetch(url, { headers: { accept: 'text/html' }, signal: mine.signal });
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const found = fresh.getElementById('answer') ?? fresh.querySelector('main');
    if (!found) throw new Error('no answer');
    found.id = 'answer';
    document.getElementById('answer')?.replaceWith(found);
    history.replaceState(null, '', url);
    found.focus();
    tell('asking', '');
  } catch { if (question === mine) tell('asking', mine.signal.aborted ? 'cancelled' : 'no line to the server'); }
  if (question === mine) { question = null; letCancel(false); }
}

document.addEventListener('submit', (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== 'what-if') return;
  event.preventDefault();
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) given.append(name, String(value));
  ask(`/what-if?${given}`);
});
document.addEventListener('click', (event) => {
  if (/** @type {HTMLElement} */ (event.target).closest('#stop')) question?.abort();
});
