// The means behind workflows: services with their slots, the store, and what tenants use.
import {call} from './api.js';
import {announce, element, replaceContent, row, table} from './dom.js';
import {bytes, count, seconds, time} from './format.js';

const SERVICES = [
  {name: 'Service'}, {name: 'State'}, {name: 'Running', className: 'number'}, {name: 'Slots', className: 'number'},
  {name: 'Waiting', className: 'number'}, {name: '', className: 'text wide'},
];
const TENANTS = [
  {name: 'Tenant', className: 'text'}, {name: 'Running steps', className: 'number'}, {name: 'Waiting steps', className: 'number'},
  {name: 'Live workflows', className: 'number wide'}, {name: 'Queued bytes', className: 'number wide'}, {name: 'Kept bytes', className: 'number'},
  {name: 'Time today', className: 'number'}, {name: 'Weight', className: 'number wide'},
];

const facts = rows => element('dl', {}, rows.map(([key, value]) => [element('dt', {}, key), element('dd', {}, value)]));

function serviceRow(service) {
  const slots = service.slots ?? 0, running = service.runningSteps ?? 0;
  return row({}, SERVICES, [
    service.name, element('span', {class: `state ${service.serving ? 'succeeded' : 'failed'}`}, service.serving ? 'serves' : 'lost'),
    count(running), slots ? [element('progress', {max: slots, value: Math.min(running, slots), 'aria-label': `Busy slots of ${service.name}`}),
      ` ${count(slots)}`] : 'not known yet',
    count(service.queuedSteps), service.problem ?? '']);
}

export function machinePage() {
  const list = table('Services', SERVICES), store = element('div'), gateway = element('div');
  return {
    root: element('section', {}, element('h1', {}, 'Services and store'), list.box, element('h2', {}, 'Store'), store,
      element('h2', {}, 'Gateway'), gateway),
    period: 2000,
    async update() {
      const seen = await call('Overview/GetOverview'), its = seen.store ?? {}, services = seen.services ?? [];
      replaceContent(list.body, services.map(serviceRow));
      list.caption.textContent = services.length ? `${services.length} services` : 'The gateway has no service';
      const most = Number(its.maxBytes ?? 0);
      replaceContent(store, facts([
        [its.remote ? 'Local copies' : 'Used', [most > 0 && element('progress', {max: most, value: Number(its.bytes ?? 0), 'aria-label': 'Used space'}),
          ` ${bytes(its.bytes)} of ${bytes(its.maxBytes)}`]],
        ['Evicts above', bytes(its.highBytes)],
        ['Free on the disk', its.freeBytes === undefined ? 'not known' : bytes(its.freeBytes)],
        ['Pinned', `${count(its.pinnedBlobs)} blobs`],
        ['Kept outputs', bytes(its.keptBytes)],
      ]));
      replaceContent(gateway, facts([['Version', seen.version ?? ''], ['Since', time(seen.startTime)],
        ['Takes workflows', seen.draining ? 'no, it drains' : 'yes']]));
      const lost = services.filter(service => !service.serving).map(service => service.name);
      announce(lost.length ? `Lost: ${lost.join(', ')}` : `${services.length} services serve`);
    },
  };
}

export function tenantsPage() {
  const list = table('Tenants', TENANTS);
  const within = (used, limit, form) => (Number(limit ?? 0) > 0 ? `${form(used)} of ${form(limit)}` : form(used));
  return {
    root: element('section', {}, element('h1', {}, 'Tenants'), list.box),
    period: 3000,
    async update() {
      const tenants = (await call('Tenants/ListTenants')).tenants ?? [];
      replaceContent(list.body, tenants.map(({limits = {}, ...its}) => row({}, TENANTS, [
        its.name, within(its.runningSteps ?? 0, limits.maxRunningSteps, count), within(its.queuedSteps ?? 0, limits.maxQueuedSteps, count),
        count(its.liveWorkflows), within(its.queuedBytes ?? 0, limits.maxQueuedBytes, bytes), within(its.keptBytes ?? 0, limits.maxKeptBytes, bytes),
        within(its.stepSeconds ?? 0, limits.maxStepSecondsPerDay, value => seconds(Number(value))), limits.weight ?? 1])));
      list.caption.textContent = `${tenants.length} tenants`;
      announce(list.caption.textContent);
    },
  };
}
