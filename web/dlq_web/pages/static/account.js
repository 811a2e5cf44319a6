// Makes and revokes tokens of programs, and ends all sessions.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';

/** @param {string} text */
function tell(text) {
  const told = document.getElementById('told');
  if (told) told.textContent = text;
}

/** @param {string} path @param {string} method @param {object} [body] */
async function ask(path, method, body) {
  const answer = await fetch(path, {
    method,
    headers: { accept: 'application/json', 'content-type': 'application/json', 'x-dlq-csrf': csrf },
    body: body ? JSON.stringify(body) : undefined,
  });
  const said = await answer.json().catch(() => ({ message: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error([said.message, said.hint].filter(Boolean).join('; '));
  return said;
}

document.getElementById('make-token')?.addEventListener('submit', async (event) => {
  event.preventDefault();
  const fields = new FormData(/** @type {HTMLFormElement} */ (event.target));
  try {
    const made = await ask('/account/tokens', 'POST', {
      label: String(fields.get('label')), scope: String(fields.get('scope')), days: Number(fields.get('days')),
    });
    const secret = document.getElementById('secret');
    if (secret) { secret.textContent = made.token; secret.hidden = false; }
    tell('This is the token. It is shown once: keep it now.');
  } catch (error) { tell(`No token is known to be made: ${/** @type {Error} */ (error).message}`); }
});

document.addEventListener('click', async (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  if (!button) return;
  try {
    if (button.dataset.revoke) {
      await ask(`/account/tokens/${encodeURIComponent(button.dataset.revoke)}`, 'DELETE');
      location.reload();
    } else if (button.id === 'leave-everywhere') {
      await ask('/leave/everywhere', 'POST');
      location.assign('/sign-in');
    }
  } catch (error) { tell(/** @type {Error} */ (error).message); }
});
