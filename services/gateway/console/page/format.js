// Numbers, times and states, as people read them.
import {element, svg} from './dom.js';

export const STATES = ['queued', 'running', 'succeeded', 'failed', 'cancelled'];
export const stateOf = value => (value ?? 'STATE_QUEUED').replace('STATE_', '').toLowerCase();
export const hasEnded = state => state === 'succeeded' || state === 'failed' || state === 'cancelled';
export const stateMark = state => element('span', {class: `state ${state}`}, state);

export function bytes(value) {
  const number = Number(value ?? 0);
  for (const [unit, scale] of [['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
    if (number >= scale) return `${(number / scale).toPrecision(3)} ${unit}`;
  }
  return `${number} B`;
}

export const count = value => Number(value ?? 0).toLocaleString('en-US');

export function seconds(value) {
  if (!Number.isFinite(value)) return '';
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

// Between two times of the gateway; to now where it has not ended.
export function took(start, end) {
  if (!start) return '';
  return seconds(Math.max(0, ((end ? Date.parse(end) : Date.now()) - Date.parse(start)) / 1000));
}

const two = number => String(number).padStart(2, '0');

// The time of the day, in the reader's time zone, as `time` has it.
export function clock(value) {
  const date = new Date(value);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function time(value) {
  if (!value) return '';
  const date = new Date(value);
  return element('time', {datetime: value, title: value}, `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(value)}`);
}

// The reader's time zone at that time: "UTC+1", "UTC+5:30".
export function zone(value) {
  const minutes = -new Date(value).getTimezoneOffset(), size = Math.abs(minutes);
  if (!minutes) return 'UTC';
  return `UTC${minutes < 0 ? '-' : '+'}${Math.floor(size / 60)}${size % 60 ? `:${two(size % 60)}` : ''}`;
}

// A fleet's address; that of another tenant's, which operators see, names the tenant.
export const fleetAddress = (id, tenant, caller) =>
  `#/fleets/${encodeURIComponent(id)}${tenant && tenant !== caller.tenant ? `?tenant=${encodeURIComponent(tenant)}` : ''}`;

export const labelMarks = labels =>
  Object.entries(labels ?? {}).map(([key, value]) => element('span', {class: 'label'}, value ? `${key}=${value}` : key));

export const totalOf = counts => STATES.reduce((sum, state) => sum + (counts?.[state] ?? 0), 0);

export function countsText(counts) {
  const parts = STATES.filter(state => counts?.[state]).map(state => `${count(counts[state])} ${state}`);
  if (counts?.cacheHits) parts.push(`${count(counts.cacheHits)} from the cache`);
  return parts.join(', ');
}

// A bar of the states, and the same in words.
export function countsBar(counts) {
  const total = totalOf(counts) || 1;
  let at = 0;
  const parts = ['succeeded', 'failed', 'cancelled', 'running', 'queued'].map(state => {
    const width = 100 * (counts?.[state] ?? 0) / total;
    at += width;
    return width && svg('rect', {class: state, x: at - width, width, height: 10});
  }).filter(Boolean);
  return element('div', {},
    element('div', {class: 'counts'}, svg('svg', {viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true'}, parts)),
    element('span', {class: 'quiet'}, countsText(counts)));
}
