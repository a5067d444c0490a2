'use strict';

/* The story: each step with its picture and a run of its own. Comes after app.js. */

const STORY = { users: 300, requests_per_user: 3, concurrency: 48 };

/** Longer than the lease of any lock that has one: what is locked then is locked for good. */
const LEASES_ARE_OVER = 7000;

const storyButtons = [];

function storyElement(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The picture of a step: a list in time, drawn along the lines of those who take part. */
function makePicture(step) {
  const figure = storyElement('figure', 'sequence');
  const heads = figure.appendChild(storyElement('div', 'heads'));
  for (const line of step.lines) heads.append(storyElement('b', '', line));
  const moments = figure.appendChild(storyElement('ol'));
  let ended = [];
  for (const moment of step.moments) {
    const item = moments.appendChild(storyElement('li'));
    for (const at of step.lines.keys()) {
      const line = item.appendChild(storyElement('i', `line at-${at}`));
      line.setAttribute('aria-hidden', 'true');
      line.hidden = ended.includes(at);
    }
    const call = moment.from !== undefined;
    const who = call ? `${step.lines[moment.from]} to ${step.lines[moment.to]}: ` : `${step.lines[moment.at]}: `;
    const [left, right] = call ? [moment.from, moment.to].sort() : [];
    const kind = call ? `call from-${left}-to-${right}` : `event at-${moment.at}`;
    const text = item.appendChild(storyElement('span', kind));
    text.append(storyElement('span', 'hidden', who), storyElement('span', 'text', moment.text));
    if (call) text.classList.add(moment.from < moment.to ? 'rightwards' : 'leftwards');
    if (moment.ends) ended.push(moment.at);
  }
  return figure;
}

/** Runs a step: its sale, its slow orders, and what is broken on the way. */
async function runStep(step, name, tell) {
  const sale = await call('POST', '/api/vouchers', saleOf(name, step.lock, {
    stock: STORY.users * STORY.requests_per_user, stall_one_in: step.stall_one_in, waiting_room: false,
  }));
  showPanels([sale]);
  const [fault, after] = step.fault?.split('@') ?? [];
  let struck;
  const strike = async () => {
    await new Promise((over) => { setTimeout(over, parseInt(after, 10)); });
    return call('POST', `/chaos/${fault}`);
  };
  const state = await rush(sale, STORY, (seen) => {
    tell(`${plain(seen.ended)} of ${plain(seen.requests)} requests have ended.`);
    if (fault && seen.ended > 0) struck ??= strike().catch((error) => ({ done: error.message }));
  });
  const came = [`${plain(state.duplicates)} second orders of a user.`];
  if (fault) {
    came.unshift((await struck)?.done ?? 'It was over before anything could be broken.');
    tell(`${came.join(' ')} Waiting until all leases are over …`);
    await new Promise((over) => { setTimeout(over, LEASES_ARE_OVER); });
    const again = await rush(sale, { ...STORY, requests_per_user: 1 }, () => {});
    came.push(`${plain(again.ends.busy ?? 0)} users are locked out for good.`);
  }
  tell(came.join(' '));
}

function makeStep(step, number, faults) {
  const details = storyElement('details');
  details.id = `story-${number}`;
  details.append(storyElement('summary', '', `${number}. ${step.lock}: ${step.title}`));
  details.append(makePicture(step), storyElement('p', '', step.moral));
  const button = details.appendChild(storyElement('button', '', 'Run this step'));
  button.type = 'button';
  button.id = `story-${number}-run`;
  const result = details.appendChild(storyElement('p'));
  result.id = `story-${number}-result`;
  result.setAttribute('role', 'status');
  const possible = !step.fault || faults.includes(step.fault.split('@')[0]);
  if (possible) storyButtons.push(button);
  else result.textContent = 'It takes a fault that this shop does not allow: see `up --chaos`, without `--redis`.';
  button.disabled = !possible;
  button.addEventListener('click', async () => {
    for (const one of storyButtons) one.disabled = true;
    try {
      await runStep(step, `Story ${number} ${new Date().toISOString().slice(5, 19)}`, (text) => { result.textContent = text; });
    } catch (error) {
      result.textContent = error.message;
    } finally {
      for (const one of storyButtons) one.disabled = false;
    }
  });
  return details;
}

async function showStory() {
  const steps = await call('GET', '/story.json');
  const { faults } = await call('GET', '/chaos');
  const names = faults.map((fault) => fault.name);
  $('story').append(...steps.map((step, at) => makeStep(step, at + 1, names)));
}

showStory().catch((error) => { $('story-intro').textContent = error.message; });
