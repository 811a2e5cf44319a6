// Changes that a page asks for: one POST with the token of the session, and its answer in words.
// @ts-check

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';

/** A key by which the server knows a repeat. @returns {string} */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, '0')).join('');
}

/**
 * The answer of the server: its body, and the refusal in words, or '' where there is none.
 * `sure` is false where nobody knows whether it happened.
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<{ body: any, refusal: string, sure: boolean }>}
 */
export async function post(path, body) {
  try {
    const answer = await fetch(path, {
      method: 'POST',
      headers: { accept: 'application/json', 'content-type': 'application/json', 'x-dlq-csrf': csrf },
      body: JSON.stringify(body),
    });
    const told = await answer.json();
    const refusal = answer.ok ? '' : [told.message, told.hint].filter(Boolean).join('; ');
    return { body: told, refusal, sure: answer.status !== 503 && answer.status !== 500 };
  } catch {
    return { body: {}, refusal: 'no line to the server; do it again: it happens once', sure: false };
  }
}

/** @param {string} name @param {string} text @param {string} [kind] @returns {HTMLElement} */
export function element(name, text, kind = '') {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
