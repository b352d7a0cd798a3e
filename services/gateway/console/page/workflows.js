// The list of workflows: a page of it at a time, which the gateway filters.
import {call} from './api.js';
import {announce, element, field, pager, replaceContent, row, table} from './dom.js';
import {count, countsBar, labelMarks, STATES, stateMark, stateOf, time, took} from './format.js';

const PAGE_SIZE = 50;
const COLUMNS = [
  {name: 'Workflow', className: 'text'}, {name: 'State'}, {name: 'Steps'}, {name: 'Created', className: 'wide'},
  {name: 'Took', className: 'number'}, {name: 'Labels', className: 'text wide'}, {name: 'Tenant', className: 'wide'},
];

export const workflowAddress = name => `#/workflows/${encodeURIComponent(name.replace(/^workflows\//, ''))}`;
const quoted = text => `"${text.replace(/[\\"]/g, '\\$&')}"`;

// The fields of the form as a filter of ListWorkflows.
function filterOf(query) {
  const conditions = [];
  if (query.get('title')) conditions.push(`title = ${quoted(`*${query.get('title')}*`)}`);
  for (const name of ['model', 'target', 'fleet']) {
    if (query.get(name)) conditions.push(`${name} = ${quoted(query.get(name))}`);
  }
  for (const label of (query.get('label') ?? '').split(',').map(each => each.trim()).filter(Boolean)) {
    const [key, ...value] = label.split('=');
    conditions.push(value.length ? `labels.${key.trim()} = ${quoted(value.join('=').trim())}` : `labels:${key}`);
  }
  return conditions.join(' AND ');
}

export function workflowsPage({query, caller, refresh}) {
  const pages = pager(refresh);
  const text = (name, hint) =>
    element('input', {name, value: query.get(name) ?? '', placeholder: hint, autocomplete: 'off', spellcheck: 'false'});
  const state = element('select', {name: 'state'}, element('option', {value: ''}, 'all'),
    STATES.map(each => element('option', {value: each, selected: query.get('state') === each}, each)));
  const order = element('select', {name: 'order'}, [['', 'newest first'], ['create_time', 'oldest first'], ['end_time desc', 'last ended first']]
    .map(([value, name]) => element('option', {value, selected: query.get('order') === value}, name)));
  const form = element('form', {class: 'bar', 'aria-label': 'Filter', role: 'search'},
    field('State', state), field('Title', text('title', 'a part of it')), field('Model', text('model', 'resnet50')),
    field('Target', text('target', 'x86-64-v3')), field('Label', text('label', 'team=vision')), field('Fleet', text('fleet', '')),
    caller.role === 'operator' && field('Tenant', text('tenant', 'all')), field('Order', order),
    element('button', {type: 'submit'}, 'Filter'),
    element('button', {type: 'button', onclick: () => { location.hash = '#/workflows'; }}, 'Clear'));
  const list = table('Workflows', COLUMNS);
  const place = element('span', {class: 'quiet'});
  state.addEventListener('change', () => form.requestSubmit());
  order.addEventListener('change', () => form.requestSubmit());
  form.addEventListener('submit', event => {
    event.preventDefault();
    const asked = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) asked.set(name, value.trim());
    const hash = asked.toString() ? `#/workflows?${asked}` : '#/workflows';
    if (hash === location.hash) refresh();
    else location.hash = hash;
  });

  function rowOf(workflow) {
    const its = stateOf(workflow.state), address = workflowAddress(workflow.name);
    return row({}, COLUMNS, [
      element('a', {href: address, 'data-key': address}, workflow.title || workflow.name.replace(/^workflows\//, '')),
      stateMark(its), countsBar(workflow.counts), time(workflow.createTime), took(workflow.startTime, workflow.endTime),
      labelMarks(workflow.labels), workflow.tenant ?? '',
    ]);
  }

  return {
    root: element('section', {}, element('h1', {}, 'Workflows'), form, list.box, element('div', {class: 'bar'}, pages.buttons, place)),
    period: 2000,
    changeQuery(changed) {
      query = changed;
      pages.reset();
      for (const input of form.elements) if (input.name) input.value = query.get(input.name) ?? '';
    },
    async update() {
      const tenant = query.get('tenant') || (caller.role === 'operator' ? '-' : '');
      const request = {pageSize: PAGE_SIZE, pageToken: pages.token(), filter: filterOf(query), tenant};
      if (query.get('state')) request.states = [`STATE_${query.get('state').toUpperCase()}`];
      if (query.get('order')) request.orderBy = query.get('order');
      const asked = pages.page();
      const answer = await call('Workflows/ListWorkflows', request);
      if (this.gone || pages.page() !== asked) return;
      const workflows = answer.workflows ?? [];
      const next = answer.nextPageToken ?? '';
      replaceContent(list.body, workflows.map(rowOf));
      const first = (pages.page() - 1) * PAGE_SIZE;
      const range = workflows.length ? `${count(first + 1)} to ${count(first + workflows.length)}` : 'none';
      list.caption.textContent = workflows.length ? `Workflows ${range}${next ? ', and more' : ''}` : 'No workflow is like that';
      place.textContent = `Page ${pages.page()}`;
      pages.show(next);
      announce(list.caption.textContent);
    },
  };
}
