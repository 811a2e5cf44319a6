// Changes that a page asks for: one request with the token of the session, and its answer in words.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';

/** A key by which the server knows a repeat. @returns {string} */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, '0')).join('');
}

/**
 * The answer of the server: its status, its body, and the refusal in words, or '' where there is none.
 * The status is 0 where no answer came. `sure` is false where nobody knows whether it happened: then
 * the page keeps its key.
 * @param {string} path
 * @param {any} [body]  a `key` in it is an idempotency key
 * @param {{ method?: string, key?: string }} [how]  `key`: an idempotency key, as a header
 * @returns {Promise<{ status: number, body: any, refusal: string, sure: boolean }>}
 */
export async function send(path, body, { method = 'POST', key = '' } = {}) {
  try {
    const answer = await fetch(path, {
      method,
      headers: { accept: 'application/json', 'content-type': 'application/json', 'x-dlq-csrf': csrf,
        ...(key ? { 'idempotency-key': key } : {}) },
      body: JSON.stringify(body),
    });
    if (answer.ok) return { status: answer.status, body: await answer.json(), refusal: '', sure: true };
    const told = await answer.json().catch(() => ({ message: `the server answered ${answer.status}` }));
    const refusal = [told.message, told.hint].filter(Boolean).join('; ');
    return { status: answer.status, body: told, refusal, sure: answer.status < 500 && answer.status !== 429 };
  } catch {
    const again = key || body?.key ? '; do it again: it happens once' : '';
    return { status: 0, body: {}, refusal: `no line to the server${again}`, sure: false };
  }
}

/** Words for the reader in the place with this id. @param {string} id @param {string} text */
export function tell(id, text) {
  const told = document.getElementById(id);
  if (told) told.textContent = text;
}

/** @param {string} name @param {string} text @param {string} [kind] @returns {HTMLElement} */
export function element(name, text, kind = '') {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
