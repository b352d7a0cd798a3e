// Calls to the gateway through the console's server. The token is kept in this tab alone.
const KEY = 'quench-token';

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message || `the console answered ${status}`);
    this.status = status;
    this.code = error?.code;
  }
}

export const token = () => sessionStorage.getItem(KEY) ?? '';
export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// `gateway serve` prints an address whose fragment has the token: it does not stay in the address bar.
export function takeTokenFromAddress() {
  const found = /^#token=([0-9a-f]+)$/.exec(location.hash);
  if (!found) return;
  setToken(found[1]);
  history.replaceState(null, '', '#/workflows');
}

async function post(path, body) {
  const headers = {'Content-Type': 'application/json'};
  if (!/^[\x20-\x7e]*$/.test(token())) throw new ApiError(401, {message: 'the token has characters that no token has'});
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let response;
  try {
    response = await fetch(path, {method: 'POST', headers, body: JSON.stringify(body), cache: 'no-store'});
  } catch {
    throw new ApiError(0, {message: 'the gateway does not answer'});
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) throw new ApiError(response.status, answer);
  return answer;
}

export const call = (method, request = {}) => post(`/api/${method}`, request);
export const session = () => post('/api/session', {});
// The address of a blob, which works without a token for some minutes. `form`: file, page or text.
export const linkTo = async (digest, tenant, name, form) =>
  (await post('/api/links', {hash: digest.hash, size: Number(digest.sizeBytes ?? 0), tenant: tenant ?? '', name, form})).url;
