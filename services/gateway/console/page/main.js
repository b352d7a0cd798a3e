// The pages by address, the token, and the clock that refreshes what is shown.
import {ApiError, call, session, setToken, takeTokenFromAddress, token} from './api.js';
import {element} from './dom.js';
import {fleetPage, fleetsPage} from './fleets.js';
import {machinePage, tenantsPage} from './machine.js';
import {workflowPage} from './workflow.js';
import {workflowsPage} from './workflows.js';

const PAGES = [
  [/^\/workflows$/, workflowsPage, 'Workflows', '/workflows'],
  [/^\/workflows\/([^/]+)$/, workflowPage, 'Workflow', '/workflows'],
  [/^\/fleets$/, fleetsPage, 'Fleets', '/fleets'],
  [/^\/fleets\/([^/]+)$/, fleetPage, 'Fleet', '/fleets'],
  [/^\/machine$/, machinePage, 'Services and store', '/machine'],
  [/^\/tenants$/, tenantsPage, 'Tenants', '/tenants'],
];
const PERIOD = 1000;

const main = document.getElementById('main'), problem = document.getElementById('problem');
// The caller, as far as pages ask: one object for all of them.
const caller = {mayChange: false, role: '', tenant: ''};
const BEGIN_AGAIN = 3000;
// `beginning`: of the attempt to learn who the caller is, which goes on whatever page is opened meanwhile.
let page = null, timer = 0, turn = 0, beginning = 0;

function showProblem(error) {
  problem.hidden = error === null;
  const text = error === null ? '' : error.message;
  if (problem.textContent !== text) problem.textContent = text;
}

function split(hash) {
  const [path, query = ''] = hash.replace(/^#/, '').split('?');
  return {path: path || '/workflows', query: new URLSearchParams(query)};
}

// Errors of a gateway that is away, stops (499) or has no room.
const isPassing = error => error.status === 0 || error.status >= 500 || error.status === 429 || error.status === 499;

async function learnCaller() {
  const known = await session();
  Object.assign(caller, {mayChange: known.mayChange, role: '', tenant: ''});
  if (known.mayRead) {
    const overview = await call('Overview/GetOverview');
    caller.tenant = overview.tenant ?? '';
    caller.role = overview.role ?? '';
    if (caller.role === 'viewer') caller.mayChange = false;
  }
  document.getElementById('caller').textContent = !known.mayRead ? 'no access without a token' :
    `${caller.tenant ? `${caller.tenant}, ` : ''}${caller.mayChange ? caller.role : 'read-only'}`;
}

// One round: what the page shows becomes what is. The next comes a while after it has ended; a page has one at a time.
async function refresh(mine) {
  const shown = page;
  while (shown.round) await shown.round;
  if (mine !== turn) return;
  let ended;
  shown.round = new Promise(resolve => { ended = resolve; });
  try {
    await runRound(mine);
  } finally {
    shown.round = null;
    ended();
  }
}

async function runRound(mine) {
  clearTimeout(timer);
  let again = true;
  if (!document.hidden) {
    try {
      again = await page.update() !== false;
      if (mine !== turn) return;
      showProblem(null);
    } catch (error) {
      if (mine !== turn) return;
      showProblem(error);
      if (!(error instanceof ApiError)) throw error;
      again = isPassing(error);
    }
  }
  clearTimeout(timer);
  if (again) timer = setTimeout(() => refresh(mine), page.period ?? PERIOD);
}

// Answers that are late for this page are not shown.
function leave() {
  if (page) page.gone = true;
  page = null;
}

// Null where an address is malformed.
function partsOf(texts) {
  try {
    return texts.map(decodeURIComponent);
  } catch {
    return null;
  }
}

function navigate() {
  // The link that skips to the content is no page.
  if (location.hash === '#main') return;
  const {path, query} = split(location.hash);
  const found = PAGES.find(([pattern]) => pattern.test(path));
  for (const link of document.querySelectorAll('nav a')) {
    if (found && link.getAttribute('href') === `#${found[3]}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  ++turn;
  clearTimeout(timer);
  const parts = found && partsOf(found[0].exec(path).slice(1));
  if (!parts) {
    leave();
    document.title = 'Quench';
    main.replaceChildren(element('h1', {}, 'There is no such page'));
    return;
  }
  document.title = `${found[2]} - Quench`;
  // The same page with another query: it goes on as it is.
  if (page && page.path === path && page.changeQuery) {
    page.changeQuery(query);
  } else {
    leave();
    page = found[1]({parts, query, caller, refresh: () => refresh(turn)});
    page.path = path;
    main.replaceChildren(page.root);
    window.scrollTo(0, 0);
  }
  refresh(turn);
}

async function begin() {
  clearTimeout(beginning);
  showProblem(null);
  try {
    await learnCaller();
  } catch (error) {
    document.getElementById('caller').textContent = '';
    showProblem(error);
    if (isPassing(error)) {
      beginning = setTimeout(begin, BEGIN_AGAIN);
      return;
    }
  }
  leave();
  navigate();
}

const form = document.getElementById('token-form'), button = document.getElementById('token-button');
button.addEventListener('click', () => {
  form.hidden = !form.hidden;
  button.setAttribute('aria-expanded', String(!form.hidden));
  if (!form.hidden) document.getElementById('token').focus();
});
function useToken(value) {
  setToken(value);
  document.getElementById('token').value = '';
  form.hidden = true;
  button.setAttribute('aria-expanded', 'false');
  button.focus();
  begin();
}
form.addEventListener('submit', event => {
  event.preventDefault();
  useToken(document.getElementById('token').value.trim());
});
document.getElementById('token-forget').addEventListener('click', () => useToken(''));
document.querySelector('.skip').addEventListener('click', event => {
  event.preventDefault();
  main.focus();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && page) refresh(turn);
});
window.addEventListener('hashchange', () => {
  if (/^#token=/.test(location.hash)) {
    takeTokenFromAddress();
    begin();
  } else {
    navigate();
  }
});

takeTokenFromAddress();
if (!token() && !location.hash) history.replaceState(null, '', '#/workflows');
begin();
