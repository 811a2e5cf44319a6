// Makes and revokes tokens of programs, and ends all sessions.
// @ts-check

import { send, tell } from './answers.js';

document.addEventListener('submit', async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== 'make-token') return;
  event.preventDefault();
  const fields = new FormData(form);
  const made = await send('/account/tokens', {
    label: String(fields.get('label')), scope: String(fields.get('scope')), days: Number(fields.get('days')),
  });
  if (made.refusal) { tell('told', `No token is known to be made: ${made.refusal}`); return; }
  const secret = document.getElementById('secret');
  if (secret) { secret.textContent = made.body.token; secret.hidden = false; }
  tell('told', 'This is the token. It is shown once: keep it now.');
});

/** @param {string} path @param {string} method @param {() => void} then */
async function end(path, method, then) {
  const { refusal } = await send(path, undefined, { method });
  if (refusal) tell('told', refusal); else then();
}

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  if (button?.dataset.revoke) {
    end(`/account/tokens/${encodeURIComponent(button.dataset.revoke)}`, 'DELETE', () => location.reload());
  } else if (button?.id === 'leave-everywhere') {
    end('/leave/everywhere', 'POST', () => location.assign('/sign-in'));
  }
});
