// Carries out a plan of taking servers back, by its token. A plan that has changed is shown anew.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';
const RECLAIM = '/api/dlq.v1.LoanService/ReclaimServers';
const STALE = 409;

/** @param {string} text */
function tell(text) {
  const told = document.getElementById('told');
  if (told) told.textContent = text;
}

/** @param {Response} answer */
async function words(answer) {
  const told = await answer.json().catch(() => ({ message: `the server answered ${answer.status}` }));
  return [told.message, told.hint].filter(Boolean).join('; ');
}

/** The same question, asked anew: its plan takes the place of the old one. */
async function planAnew() {
  const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
  if (!answer.ok) return false;
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('plan');
  const old = document.getElementById('plan');
  if (!fresh || !old) return false;
  old.replaceWith(fresh);
  return true;
}

/** @param {HTMLElement} button */
async function reclaim(button) {
  const request = JSON.parse(button.dataset.reclaim ?? '{}');
  if (!confirm(`Take back ${button.dataset.names}?`)) return;
  button.setAttribute('disabled', '');
  tell('asking the master');
  try {
    const answer = await fetch(RECLAIM, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-dlq-csrf': csrf,
        'idempotency-key': `reclaim-${request.token}` },  // done once, however often it is sent
      body: JSON.stringify(request),
    });
    if (answer.ok) { location.assign('/loans'); return; }
    const why = await words(answer);
    if (answer.status === STALE && await planAnew()) {
      tell(`nothing was taken back: ${why}. This is the plan now.`);
    } else { tell(`nothing is known to be taken back: ${why}`); }
  } catch { tell('no line to the server: the same button asks again, and it happens once'); }
  button.removeAttribute('disabled');
}

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button[data-reclaim]');
  if (button instanceof HTMLElement) reclaim(button);
});
