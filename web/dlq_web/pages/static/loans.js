// Carries out a plan of taking servers back, by its token. A plan that has changed is shown anew.
// @ts-check

import { send, tell } from './answers.js';

const RECLAIM = '/api/dlq.v1.LoanService/ReclaimServers';
const STALE = 409;

/** The same question, asked anew: its plan takes the place of the old one. Whether there is one. */
async function planAnew() {
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
    if (!answer.ok) return false;
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('plan');
    const old = document.getElementById('plan');
    if (!fresh || !old) return false;
    old.replaceWith(fresh);
    return true;
  } catch { return false; }
}

/** @param {HTMLElement} button */
async function reclaim(button) {
  const request = JSON.parse(button.dataset.reclaim ?? '{}');
  if (!confirm(`Take back ${button.dataset.names}?`)) return;
  button.setAttribute('disabled', '');
  tell('told', 'asking the master');
  const { status, refusal } = await send(RECLAIM, request, { key: `reclaim-${request.token}` });
  if (!refusal) { location.assign('/loans'); return; }
  if (status === STALE && await planAnew()) {
    tell('told', `nothing was taken back: ${refusal}. This is the plan now.`);
  } else { tell('told', `nothing is known to be taken back: ${refusal}`); }
  button.removeAttribute('disabled');
}

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button[data-reclaim]');
  if (button instanceof HTMLElement) reclaim(button);
});
