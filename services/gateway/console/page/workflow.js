// One workflow: its graph, its steps, and the details of one of them.
import {call, linkTo} from './api.js';
import {announce, element, field, guardBy, replaceContent, row, table} from './dom.js';
import {bytes, clock, count, countsBar, countsText, fleetAddress, hasEnded, labelMarks, STATES, stateMark, stateOf, time, took, totalOf, zone} from './format.js';
import {graphOf, MOST_NODES} from './graph.js';

const STEP_PAGE = 200, FIND_PAGE = 1000;
const COLUMNS = [
  {name: 'Step', className: 'text'}, {name: 'State'}, {name: 'Attempt', className: 'number wide'}, {name: 'Took', className: 'number'},
  {name: 'Now'},
];

// Asks once more before it does something that cannot be taken back.
export function changeButton(name, question, act) {
  const button = element('button', {type: 'button'}, name);
  let asked = 0;
  const reset = () => { asked = 0; button.textContent = name; button.classList.remove('danger'); };
  button.addEventListener('click', async event => {
    if (event.detail > 1) return;  // a double click asks once
    if (question && !asked) {
      asked = 1;
      button.textContent = question;
      button.classList.add('danger');
      announce(question);
      return;
    }
    reset();
    button.disabled = true;
    try {
      await act();
    } finally {
      button.disabled = false;
    }
  });
  button.addEventListener('blur', reset);
  return button;
}

const progressText = step => {
  const progress = step.progress;
  if (!progress || stateOf(step.state) !== 'running') return '';
  return [progress.stage, progress.detail].filter(Boolean).join(' ');
};

function nowOf(step) {
  const state = stateOf(step.state);
  if (state === 'running') {
    const total = Number(step.progress?.total ?? 0), done = Number(step.progress?.done ?? 0);
    return [total > 0 && element('progress', {max: total, value: done, 'aria-label': `Progress of ${step.name}`}), ' ', progressText(step)];
  }
  if (state === 'queued') return step.waitingReason ?? '';
  if (step.cacheHit) return 'from the cache';
  return step.error?.message ?? '';
}

async function download(output, step, tenant) {
  const name = `${step.name.replaceAll('/', '-')}-${output.name.replace(/^.*\//, '')}`;
  const link = element('a', {href: await linkTo(output.digest, tenant, name, 'file'), download: name});
  document.body.append(link);
  link.click();
  link.remove();
}

// A report in a frame of its own origin: its scripts reach nothing of the console.
async function show(output, form, tenant, place) {
  const url = await linkTo(output.digest, tenant, output.name, form);
  const title = `Report ${output.name}`;
  place.replaceChildren(element('h3', {tabindex: -1}, title),
    element('iframe', {src: url, title, sandbox: form === 'page' ? 'allow-scripts' : '', referrerpolicy: 'no-referrer'}));
  place.firstChild.focus();
}

// How an output is shown; null: it is downloaded only.
function formOf(output, step) {
  if (output.name === 'page') return 'page';
  if (output.name === 'report_json' || output.name === 'header') return 'text';
  return output.name === 'report' && step.method === 'Compile' ? 'compile_report' : null;
}

function outputsOf(step, tenant, report, guard) {
  return element('ul', {}, (step.outputs ?? []).filter(output => output.digest).map(output => element('li', {'data-hash': output.digest.hash},
    element('button', {type: 'button', class: 'link', 'data-key': `get ${output.name}`,
      'aria-label': `Download ${output.name}`, onclick: () => guard(() => download(output, step, tenant))}, output.name),
    ` ${bytes(output.digest.sizeBytes)} `,
    formOf(output, step) && element('button', {type: 'button', 'data-key': `show ${output.name}`,
      onclick: () => guard(() => show(output, formOf(output, step), tenant, report))}, `Show ${output.name}`))));
}

function attemptsOf(step) {
  return (step.failedAttempts ?? []).map(attempt => element('li', {},
    `attempt ${attempt.attempt} on ${attempt.server || 'a server'}: ${attempt.error?.message ?? 'ended without a result'}`));
}

function logOf(step) {
  const attempt = line => (step.attempt > 1 && line.attempt ? ` [${line.attempt}]` : '');
  return (step.log ?? []).map(line => `${line.time ? clock(line.time) : ''}${attempt(line)} ${line.text ?? ''}`).join('\n');
}

function factsOf(step) {
  const facts = [['State', stateMark(stateOf(step.state))], ['Method', step.method]];
  if (step.waitingReason) facts.push(['Waits', step.waitingReason]);
  if (step.error) facts.push(['Error', step.error.message]);
  facts.push(['Attempts', `${step.attempt ?? 0} of ${step.maxAttempts ?? 0}`]);
  if (step.startTime) facts.push(['Began', time(step.startTime)], ['Took', took(step.startTime, step.endTime)]);
  if (hasEnded(stateOf(step.state))) facts.push(['Cache', step.cacheHit ? 'hit: nothing was computed' : 'miss']);
  const execution = step.execution;
  if (execution?.server) facts.push(['Server', execution.server]);
  if (execution?.cpuTime) facts.push(['Processor time', execution.cpuTime]);
  if (execution?.peakMemoryBytes) facts.push(['Peak memory', bytes(execution.peakMemoryBytes)]);
  if (step.dependsOn?.length) facts.push(['Waits for', step.dependsOn.join(', ')]);
  return element('dl', {}, facts.map(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
}

export function workflowPage({parts, query, caller, refresh}) {
  const name = `workflows/${parts[0]}`, here = `#/workflows/${encodeURIComponent(parts[0])}`;
  const heading = element('h1', {}, parts[0]), facts = element('div'), trouble = element('p', {class: 'problem', role: 'alert', hidden: true});
  const guard = guardBy(trouble, refresh);
  const cancel = changeButton('Cancel', 'Cancel it: sure?', () => guard(() => call('Workflows/CancelWorkflow', {name})));
  const retry = changeButton('Retry what failed', '', () => guard(() => call('Workflows/RetryWorkflow', {name})));
  const graphBox = element('div', {class: 'graph', role: 'region', 'aria-label': 'Graph', tabindex: 0});
  const state = element('select', {}, element('option', {value: ''}, 'all'), STATES.map(each => element('option', {value: each}, each)));
  const more = element('button', {type: 'button', hidden: true}, 'More steps');
  const list = table('Steps', COLUMNS), details = element('section', {class: 'details', hidden: true, 'aria-label': 'Step'});
  const detailHeading = element('h2', {tabindex: -1}), content = element('div'), log = element('pre', {tabindex: 0, 'aria-label': 'Log'});
  const report = element('div'), missing = element('p', {class: 'problem', role: 'status', hidden: true});
  details.append(detailHeading, content, log, report);
  let graph = null, chosen = query.get('step') ?? '', focusDetails = false, pages = 1, shownLog = null, chosenAt = '';
  const addressOf = step => `${here}?step=${encodeURIComponent(step.name)}`;

  state.addEventListener('change', () => { pages = 1; refresh(); });
  more.addEventListener('click', () => { ++pages; refresh(); });

  function showHeader(workflow) {
    const its = stateOf(workflow.state);
    heading.textContent = workflow.title || parts[0];
    document.title = `${its}: ${heading.textContent} - Quench`;
    const known = [['State', stateMark(its)], ['Steps', countsBar(workflow.counts)], ['Created', [time(workflow.createTime), ` ${zone(workflow.createTime)}`]],
      ['Took', took(workflow.startTime, workflow.endTime)]];
    if (workflow.error) known.push(['Error', workflow.error.message]);
    if (workflow.tenant) known.push(['Tenant', workflow.tenant]);
    if (workflow.fleet) {
      known.push(['Fleet', element('a', {'data-key': 'fleet', href: fleetAddress(workflow.fleet.fleet, workflow.tenant, caller)}, workflow.fleet.fleet)]);
    }
    if (Object.keys(workflow.labels ?? {}).length) known.push(['Labels', labelMarks(workflow.labels)]);
    if (workflow.outputsExpireTime) known.push(['Outputs kept until', time(workflow.outputsExpireTime)]);
    replaceContent(facts, element('dl', {}, known.map(([key, value]) => [element('dt', {}, key), element('dd', {}, value)])));
    cancel.hidden = !caller.mayChange || hasEnded(its);
    retry.hidden = !caller.mayChange || !(its === 'failed' || its === 'cancelled');
    announce(`${its}: ${countsText(workflow.counts)}`);
  }

  function showStep(step, tenant) {
    details.hidden = !step;
    if (!step) return;
    if (detailHeading.textContent !== step.name) report.replaceChildren();
    detailHeading.textContent = step.name;
    const failed = attemptsOf(step), outputs = (step.outputs ?? []).length;
    replaceContent(content, factsOf(step),
      failed.length > 0 && [element('h3', {}, 'Attempts that failed'), element('ul', {}, failed)],
      outputs > 0 && [element('h3', {}, 'Outputs'), outputsOf(step, tenant, report, guard)]);
    const text = logOf(step);
    log.hidden = text === '';
    if (text !== shownLog) {
      const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
      log.textContent = shownLog = text;
      if (atEnd) log.scrollTop = log.scrollHeight;
    }
    if (focusDetails) {
      focusDetails = false;
      detailHeading.focus();
    }
  }

  function rowOf(step) {
    const is = step.name === chosen;
    return row({class: is && 'chosen'}, COLUMNS, [
      element('a', {href: addressOf(step), 'data-key': step.name, 'aria-current': is && 'true'}, step.name), stateMark(stateOf(step.state)),
      `${step.attempt ?? 0} of ${step.maxAttempts ?? 0}`, took(step.startTime, step.endTime), nowOf(step)]);
  }

  // All of them where that is one message; else the pages that were asked for.
  async function stepsOf(workflow, whole) {
    if (whole) {
      const wanted = step => !state.value || stateOf(step.state) === state.value;
      return {steps: (workflow.steps ?? []).filter(wanted), next: ''};
    }
    const steps = [], states = state.value ? [`STATE_${state.value.toUpperCase()}`] : [];
    let next = '';
    for (let page = 0; page < pages; ++page) {
      const answer = await call('Workflows/ListWorkflowSteps', {name, pageSize: STEP_PAGE, pageToken: next, states});
      steps.push(...answer.steps ?? []);
      next = answer.nextPageToken ?? '';
      if (!next) break;
    }
    return {steps, next};
  }

  // The chosen step where it is none of those shown. The page that has it is remembered.
  async function findChosen() {
    for (let token = chosenAt; ; ) {
      const answer = await call('Workflows/ListWorkflowSteps', {name, pageSize: FIND_PAGE, pageToken: token});
      const found = (answer.steps ?? []).find(step => step.name === chosen);
      if (found) chosenAt = token;
      if (found || !answer.nextPageToken) return found;
      token = answer.nextPageToken;
    }
  }

  return {
    root: element('section', {}, heading, element('div', {class: 'bar'}, cancel, retry), trouble, facts, graphBox, missing, details,
      element('h2', {}, 'Steps'), element('div', {class: 'bar'}, field('State', state)), list.box, more),
    changeQuery(changed) {
      chosen = changed.get('step') ?? '';
      chosenAt = '';
      focusDetails = chosen !== '';
    },
    async update() {
      let {workflow} = await call('Workflows/GetWorkflow', {name, view: 'WORKFLOW_VIEW_BASIC'});
      const total = totalOf(workflow.counts);
      let whole = total <= MOST_NODES;
      if (whole) ({workflow} = await call('Workflows/GetWorkflow', {name, view: 'WORKFLOW_VIEW_FULL'}));
      if (this.gone) return false;
      whole &&= !workflow.stepsTruncated;
      // Large answers are not asked for every second.
      this.period = 1000 + 5 * Math.min(total, MOST_NODES);
      showHeader(workflow);
      if (whole && workflow.steps?.length) {
        if (!graph) graphBox.replaceChildren((graph = graphOf(workflow.steps, addressOf)).root);
        graph.update(workflow.steps, chosen);
      } else {
        graphBox.textContent = `${count(total)} steps are too many for a picture.`;
      }
      const {steps, next} = await stepsOf(workflow, whole);
      replaceContent(list.body, steps.map(rowOf));
      list.caption.textContent = `${count(steps.length)}${next ? ` of ${count(total)}` : ''} steps`;
      more.hidden = !next;
      let step = (whole ? workflow.steps ?? [] : steps).find(each => each.name === chosen);
      if (!step && chosen && !whole) step = await findChosen();
      if (this.gone) return false;
      showStep(step, workflow.tenant);
      missing.hidden = !chosen || Boolean(step);
      const said = missing.hidden ? '' : `There is no step ${chosen}.`;
      if (missing.textContent !== said) missing.textContent = said;  // once
      return !hasEnded(stateOf(workflow.state));
    },
  };
}
