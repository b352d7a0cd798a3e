// Fleets, and the cells of one: each model with each set of options for each target.
import {call} from './api.js';
import {announce, element, field, guardBy, pager, replaceContent, row, table} from './dom.js';
import {bytes, count, countsBar, countsText, fleetAddress, hasEnded, labelMarks, seconds, STATES, stateMark, stateOf, time, took, zone} from './format.js';
import {changeButton} from './workflow.js';
import {workflowAddress} from './workflows.js';

const CELL_PAGE = 1000, MOST_CELLS = 20000, MOST_ROWS = 500, READ_AGAIN = 30000;
const FLEETS = [
  {name: 'Fleet', className: 'text'}, {name: 'State'}, {name: 'Workflows'}, {name: 'Steps', className: 'wide'}, {name: 'Created', className: 'wide'},
  {name: 'Took', className: 'number'}, {name: 'Labels', className: 'text wide'}, {name: 'Tenant', className: 'wide'},
];
const CELLS = [
  {name: 'Model', className: 'text'}, {name: 'Options', className: 'wide'}, {name: 'Target'}, {name: 'State'}, {name: 'Took', className: 'number'},
  {name: 'Library', className: 'number wide'}, {name: 'Workflow', className: 'wide'}, {name: 'Note', className: 'text'},
];

export function fleetsPage({caller, refresh}) {
  const list = table('Fleets', FLEETS);
  const pages = pager(refresh);
  const rowOf = fleet => {
    const address = fleetAddress(fleet.id, fleet.tenant, caller);
    return row({}, FLEETS, [element('a', {href: address, 'data-key': address}, fleet.id), stateMark(stateOf(fleet.state)),
      countsBar(fleet.workflows), countsText(fleet.steps), time(fleet.createTime), took(fleet.startTime, fleet.endTime),
      labelMarks(fleet.labels), fleet.tenant ?? '']);
  };
  return {
    root: element('section', {}, element('h1', {}, 'Fleets'), list.box, element('div', {class: 'bar'}, pages.buttons)),
    period: 3000,
    async update() {
      const asked = pages.page();
      const answer = await call('Fleets/ListFleets', {pageToken: pages.token(), tenant: caller.role === 'operator' ? '-' : ''});
      if (this.gone || pages.page() !== asked) return;
      const next = answer.nextPageToken ?? '';
      const fleets = answer.fleets ?? [];
      replaceContent(list.body, fleets.map(rowOf));
      list.caption.textContent = fleets.length ? `${fleets.length} fleets${next ? ', and more' : ''}` : 'There is no fleet';
      pages.show(next);
      announce(list.caption.textContent);
    },
  };
}

export function fleetPage({parts, query, caller, refresh}) {
  const id = parts[0], here = `#/fleets/${encodeURIComponent(id)}`;
  let tenant = query.get('tenant') ?? '';
  const facts = element('div'), trouble = element('p', {class: 'problem', role: 'alert', hidden: true});
  const guard = guardBy(trouble, refresh);
  const cancel = changeButton('Cancel', 'Cancel all of it: sure?', () => guard(() => call('Fleets/CancelFleet', {id, tenant})));
  const retry = changeButton('Retry what failed', '', () => guard(() => call('Fleets/RetryFleet', {id, tenant})));
  const state = element('select', {name: 'state'}, element('option', {value: ''}, 'all'), STATES.map(each => element('option', {value: each}, each)));
  const text = (name, list) => element('input', {name, list, autocomplete: 'off', spellcheck: 'false'});
  const targets = element('datalist', {id: 'targets'});
  const form = element('form', {class: 'bar', role: 'search', 'aria-label': 'Filter'},
    field('Model', text('model')), field('Target', text('target', 'targets')), targets, field('State', state),
    element('button', {type: 'submit'}, 'Filter'));
  form.addEventListener('submit', event => {
    event.preventDefault();
    const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
    if (tenant) asked.set('tenant', tenant);
    location.hash = asked.toString() ? `${here}?${asked}` : here;
  });
  state.addEventListener('change', () => form.requestSubmit());
  const list = table('Cells', CELLS);
  // Cells of the fleet as they were at its last change, or half a minute ago where there are thousands.
  let cells = [], known = '', readAt = 0, cut = false;
  const fromQuery = () => { for (const input of form.elements) if (input.name) input.value = query.get(input.name) ?? ''; };
  fromQuery();

  function showFleet(fleet) {
    const its = stateOf(fleet.state);
    const rows = [['State', stateMark(its)], ['Workflows', countsBar(fleet.workflows)], ['Steps', countsBar(fleet.steps)],
      ['Shards', `${count(fleet.createdShards)} of ${count(fleet.shards)}`], ['Created', [time(fleet.createTime), ` ${zone(fleet.createTime)}`]],
      ['Took', took(fleet.startTime, fleet.endTime)]];
    if (Object.keys(fleet.labels ?? {}).length) rows.push(['Labels', labelMarks(fleet.labels)]);
    replaceContent(facts, element('dl', {}, rows.map(([key, value]) => [element('dt', {}, key), element('dd', {}, value)])));
    cancel.hidden = !caller.mayChange || hasEnded(its);
    retry.hidden = !caller.mayChange || !(fleet.workflows?.failed || fleet.workflows?.cancelled);
    announce(`${its}: ${countsText(fleet.steps)}`);
  }

  async function readCells(states) {
    const all = [];
    let next = '';
    do {
      const answer = await call('Fleets/ListFleetCells', {id, tenant, pageSize: CELL_PAGE, pageToken: next, states});
      all.push(...answer.cells ?? []);
      next = answer.nextPageToken ?? '';
    } while (next && all.length < MOST_CELLS);
    cut = next !== '';
    return all;
  }

  function showCells() {
    const wanted = (value, word) => !word || (value ?? '').toLowerCase().includes(word.toLowerCase());
    const found = cells.filter(cell => wanted(cell.model, query.get('model')) && wanted(cell.target, query.get('target')));
    replaceContent(list.body, found.slice(0, MOST_ROWS).map(cell => row({}, CELLS, [
      cell.model ?? '', cell.options ?? '', cell.target ?? '', stateMark(stateOf(cell.state)), cell.seconds ? seconds(cell.seconds) : '',
      cell.libraryBytes ? bytes(cell.libraryBytes) : '',
      cell.workflow ? element('a', {'data-key': `${cell.workflow} ${cell.step}`,
        href: `${workflowAddress(cell.workflow)}${cell.step ? `?step=${encodeURIComponent(cell.step)}` : ''}`}, 'steps') : '',
      cell.error?.message ?? (cell.cached ? 'from the cache' : '')])));
    const all = cut ? `the first ${count(cells.length)} cells (\`quench fleet watch ${id} --table\` has all)` : `${count(found.length)} cells`;
    list.caption.textContent = `${count(Math.min(found.length, MOST_ROWS))} of ${all}` +
      (found.length > MOST_ROWS ? ': filter by model or target to see others' : '');
    targets.replaceChildren(...[...new Set(cells.map(cell => cell.target).filter(Boolean))].sort().map(value => element('option', {value})));
  }

  return {
    root: element('section', {}, element('h1', {}, `Fleet ${id}`), element('div', {class: 'bar'}, cancel, retry), trouble, facts,
      element('h2', {}, 'Cells'), form, list.box),
    period: 2000,
    changeQuery(changed) {
      query = changed;
      if (tenant !== (query.get('tenant') ?? '')) known = '';
      tenant = query.get('tenant') ?? '';
      fromQuery();
    },
    async update() {
      const {fleet} = await call('Fleets/GetFleet', {id, tenant});
      showFleet(fleet);
      const states = query.get('state') ? [`STATE_${query.get('state').toUpperCase()}`] : [];
      const changed = JSON.stringify([fleet.workflows, fleet.steps, fleet.createdShards, states]);
      const due = cells.length <= CELL_PAGE || hasEnded(stateOf(fleet.state)) || Date.now() - readAt > READ_AGAIN ||
        !known.endsWith(JSON.stringify([states]).slice(1));
      if (changed !== known && due) {
        cells = await readCells(states);
        known = changed;
        readAt = Date.now();
      }
      if (this.gone) return false;
      showCells();
      return !hasEnded(stateOf(fleet.state));
    },
  };
}
