// Requests to this server, with the key that the user gave, and the dialog that asks for it.

const kKey = 'pagefold-key';
let asking = null;

export class ApiError extends Error {}

function headers(body) {
  const h = {};
  if (body !== undefined) h['Content-Type'] = 'application/json';
  const key = sessionStorage.getItem(kKey);
  if (key) h.Authorization = `Bearer ${key}`;
  return h;
}

function askForKey() {
  asking ??= new Promise(resolve => {
    const dialog = document.getElementById('key');
    const value = document.getElementById('key-value');
    if (sessionStorage.getItem(kKey)) {
      document.getElementById('key-note').textContent = 'The server did not take that key.';
    }
    sessionStorage.removeItem(kKey);
    value.value = '';
    dialog.showModal();
    dialog.addEventListener('cancel', e => e.preventDefault());
    document.getElementById('key-form').addEventListener('submit', e => {
      e.preventDefault();
      sessionStorage.setItem(kKey, value.value);
      dialog.close();
      asking = null;
      resolve();
    }, {once: true});
  });
  return asking;
}

async function reason(response) {
  try {
    const body = await response.json();
    return body.error?.message ?? body.error ?? response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

async function send(path, {body, signal} = {}) {
  for (;;) {
    const used = sessionStorage.getItem(kKey);
    const response = await fetch(path, {
      method: body === undefined ? 'GET' : 'POST',
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store', signal,
    });
    if (response.status === 401) {
      if (used === sessionStorage.getItem(kKey)) await askForKey();
      continue;
    }
    if (!response.ok) throw new ApiError(await reason(response));
    return response;
  }
}

export async function get(path, options) { return (await send(path, options)).json(); }
export const post = (path, body, signal) => get(path, {body, signal});

// The JSON of each server-sent event of an answer.
export async function* events(path, body, signal) {
  const response = await send(path, {body, signal});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new ApiError(event.error.message ?? 'the answer failed');
      yield event;
    }
  }
}
