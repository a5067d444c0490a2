'use strict';

const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

/** The sales of the panels, the locked one first. */
let sales = [];
let room = null;
let pass = null;
const panels = new Map();

/** Calls the shop. Whatever it is not pleased with is thrown, in its words. */
async function call(method, path, body, headers = {}) {
  // The front takes no change without this type, which no page of another origin may send.
  const options = { method, headers: { 'content-type': 'application/json', ...headers } };
  if (body !== undefined) options.body = JSON.stringify(body);
  const answer = await fetch(path, options);
  const text = await answer.text();
  const said = text ? JSON.parse(text) : {};
  if (!answer.ok) {
    throw new Error(`${said.title ?? answer.status}: ${said.detail ?? ''}`);
  }
  return said;
}

const number = (id) => Number($(id).value);
const plain = (count) => count.toLocaleString('en');

function describe(lock) {
  return lock === 'off' ? 'without a lock' : `lock: ${lock}`;
}

/* 1. A sale, and the same without a lock. */

function saleOf(name, lock, more) {
  const now = Date.now();
  const sale = { begins_at: now - 1000, ends_at: now + 3600 * 1000, lock, ...more };
  return { name, price_cents: 500, sale };
}

async function createSale(event) {
  event.preventDefault();
  $('create-sale').disabled = true;
  try {
    const name = $('sale-name').value;
    const lock = $('sale-lock').value;
    const more = {
      stock: number('sale-stock'), stall_one_in: number('sale-stall'), waiting_room: $('sale-room').checked,
    };
    const made = [await call('POST', '/api/vouchers', saleOf(name, lock, more))];
    if ($('sale-compare').checked && lock !== 'off') {
      made.push(await call('POST', '/api/vouchers', saleOf(`${name}, no lock`, 'off', more)));
    }
    sales = made;
    $('sale-result').textContent = `${made.map((one) => one.name).join(' and ')}: on sale.`;
    showPanels(made);
    const entered = made[0].sale.waiting_room;
    $('start-rush').disabled = entered;
    $('rush-result').textContent = entered
      ? 'This sale is entered through the waiting room.'
      : 'Ready.';
    if (entered) {
      for (const sale of made) addRoom(sale);
    }
    suggestName();
  } catch (error) {
    $('sale-result').textContent = error.message;
  } finally {
    $('create-sale').disabled = false;
  }
}

function showPanels(made) {
  $('panels').replaceChildren();
  panels.clear();
  made.forEach((sale, at) => panels.set(sale.id, makePanel('ab'[at], sale)));
}

function suggestName() {
  $('sale-name').value = `Tea ${new Date().toISOString().slice(5, 19).replace('T', ' ')}`;
}

/* 2. A rush for each of them, one after the other. */

async function startRush(event) {
  event.preventDefault();
  $('start-rush').disabled = true;
  $('rush-result').textContent = 'It runs.';
  // A step of the story may have taken their place.
  if (!sales.every((sale) => panels.has(sale.id))) showPanels(sales);
  try {
    for (const sale of sales) {
      await rush(sale, {
        users: number('rush-users'),
        requests_per_user: number('rush-requests'),
        concurrency: number('rush-concurrency'),
      });
    }
    $('rush-result').textContent = 'It is over. Create another sale for the next one.';
  } catch (error) {
    $('rush-result').textContent = error.message;
    $('start-rush').disabled = false;
  }
}

/** Lets all instances rush for a sale, and returns how it was in the end. */
async function rush(sale, size, seen = () => {}) {
  const begun = await call('POST', '/api/rushes', { voucher_id: sale.id, ...size });
  return watch(begun.id, (state) => {
    panels.get(sale.id)?.show(state);
    seen(state);
  });
}

/* 3. What is told of it: ten times a second at most, whatever the number of requests. */

function watch(id, show) {
  return new Promise((over) => {
    const open = () => {
      const source = new EventSource(`/api/rushes/${id}/events`);
      source.addEventListener('rush', (event) => {
        const state = JSON.parse(event.data);
        show(state);
        if (state.done) {
          source.close();
          over(state);
        }
      });
      // The browser opens a stream that was cut again, on another instance, but gives up one that
      // was refused.
      source.addEventListener('error', () => {
        if (source.readyState === EventSource.CLOSED) setTimeout(open, 1000);
      });
    };
    open();
  });
}

function makePanel(letter, sale) {
  const article = $('panel').content.firstElementChild.cloneNode(true);
  article.id = `panel-${letter}`;
  const part = {};
  for (const element of article.querySelectorAll('[data-part]')) {
    element.id = `panel-${letter}-${element.dataset.part}`;
    part[element.dataset.part] = element;
  }
  part.title.textContent = `${sale.name} (${describe(sale.sale.lock)})`;
  article.setAttribute('aria-labelledby', part.title.id);
  $('panels').append(article);
  const samples = [];
  showStock(part, sale.sale.stock, sale.sale.stock_at_start);
  return {
    show(state) {
      samples.push({ at: state.elapsed_ms, ended: state.ended, stock: state.stock, sold: state.sold });
      showStock(part, state.stock, state.stock_at_start);
      part.ended.textContent = `${plain(state.ended)} of ${plain(state.requests)}`;
      part['ended-bar'].max = state.requests;
      part['ended-bar'].value = state.ended;
      for (const name of ['sold', 'duplicates', 'oversold', 'room']) {
        part[name].textContent = plain(state[name]);
      }
      part.orders.textContent = plain(rate(samples, 'sold', state.done));
      part.rate.textContent = plain(rate(samples, 'ended', state.done));
      part.holding.textContent = plain(state.live.holding);
      part.waiting.textContent = plain(state.live.waiting);
      part.holders.textContent = users(state.live.holders, state.live.holding);
      part.waiters.textContent = users(state.live.waiters, state.live.waiting);
      showWaits(part.waits, state.live.waits, state.wait_bounds_us);
      showRows(part.ends, Object.entries(state.ends).map(([end, count]) => [end, plain(count)]));
      showRows(part.instances, state.instances.map((one) => [
        one.id, one.state, `${plain(one.ended)} of ${plain(one.requests)}`,
      ]));
      showChart(part.chart, samples, state.stock_at_start);
      showVerdict(part, state);
    },
  };
}

function showStock(part, stock, atStart) {
  part.stock.textContent = `${plain(stock)} of ${plain(atStart)}`;
  part['stock-bar'].max = Math.max(atStart, 1);
  part['stock-bar'].value = stock;
}

/** Of the last second while it runs, of all of it when it is over. */
function rate(samples, what, done) {
  const last = samples[samples.length - 1];
  const since = done ? { at: 0, [what]: 0 } : samples.find((sample) => last.at - sample.at <= 1000);
  const time = last.at - since.at;
  return time > 0 ? Math.round(((last[what] - since[what]) * 1000) / time) : 0;
}

function users(some, count) {
  if (count === 0) return 'nobody';
  const more = count - some.length;
  return `user ${some.join(', ')}${more > 0 ? ` and ${plain(more)} more` : ''}`;
}

function showRows(table, rows) {
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement('tr');
    for (const cell of cells) row.insertCell().textContent = cell;
    return row;
  }));
}

function showWaits(table, counts, bounds) {
  const most = Math.max(1, ...counts);
  const rows = counts.map((count, at) => {
    const row = document.createElement('tr');
    const bound = at < bounds.length ? `${bounds[at] / 1000} ms` : 'more';
    row.insertCell().textContent = bound;
    row.insertCell().textContent = plain(count);
    const bar = document.createElementNS(SVG, 'svg');
    bar.setAttribute('viewBox', '0 0 100 10');
    bar.setAttribute('preserveAspectRatio', 'none');
    bar.setAttribute('aria-hidden', 'true');
    const rect = bar.appendChild(document.createElementNS(SVG, 'rect'));
    rect.setAttribute('width', String((100 * count) / most));
    rect.setAttribute('height', '10');
    row.insertCell().append(bar);
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
}

function showChart(chart, samples, atStart) {
  const end = Math.max(1, samples[samples.length - 1].at);
  const top = Math.max(1, atStart, samples[samples.length - 1].sold);
  const line = (name) => {
    const points = samples.map((sample) => `${(300 * sample.at) / end},${88 - (86 * sample[name]) / top}`);
    const polyline = document.createElementNS(SVG, 'polyline');
    polyline.setAttribute('class', name);
    polyline.setAttribute('points', points.join(' '));
    return polyline;
  };
  chart.replaceChildren(line('stock'), line('sold'));
  const last = samples[samples.length - 1];
  chart.setAttribute('aria-label', `Stock, solid, fell to ${last.stock}; sold, dashed, rose to ${last.sold}`);
}

function showVerdict(part, state) {
  part.state.textContent = state.done ? 'done' : state.ended > 0 ? 'runs' : 'waits';
  if (!state.done) return;
  const right = state.duplicates === 0 && state.oversold === 0;
  part.verdict.dataset.verdict = right ? 'right' : 'wrong';
  part.verdict.textContent = right
    ? `✓ Right: ${plain(state.sold)} sold, nobody has two.`
    : `✗ Wrong: ${plain(state.duplicates)} second orders, ${plain(state.oversold)} beyond the stock.`;
  const why = right ? '' : {
    off: 'Two requests of one user both looked before either had bought.',
    setnx: 'A key was lost with the data of Redis.',
    'setnx-ttl': 'An order took longer than its key lived; it then deleted the key of the next one.',
    token: 'An order took longer than its key lived, and went on beside the next one.',
    rlock: 'Redis lost the locks that were held. Their holders notice when they reach Redis again, and '
      + 'what they do until then nobody stops: that takes a token that the database compares (fenced).',
  }[state.lock] ?? '';
  part.why.hidden = why === '';
  part.why.textContent = why;
}

/* The waiting room. */

function addRoom(sale) {
  const select = $('room-sale');
  if (select.disabled) select.replaceChildren();
  select.disabled = false;
  const option = document.createElement('option');
  option.value = sale.id;
  option.textContent = sale.name;
  select.prepend(option);
  select.value = sale.id;
  $('room-join').disabled = room !== null;
}

function leaveRoom(said) {
  room?.close();
  room = null;
  $('room-leave').disabled = true;
  $('room-join').disabled = false;
  $('room-position').textContent = said;
}

function joinRoom() {
  pass = null;
  $('room-join').disabled = true;
  $('room-leave').disabled = false;
  $('room-order').disabled = true;
  $('room-position').textContent = 'You are in the queue.';
  const voucher = $('room-sale').value;
  room = new EventSource(`/api/vouchers/${voucher}/waiting-room`);
  room.addEventListener('position', (event) => {
    const { before } = JSON.parse(event.data);
    $('room-position').textContent = before === 0 ? 'You are next.' : `${plain(before)} are before you.`;
  });
  room.addEventListener('admitted', (event) => {
    pass = { voucher, text: JSON.parse(event.data).pass };
    $('room-order').disabled = false;
    leaveRoom('You may order now, within a minute.');
  });
  room.addEventListener('closed', (event) => leaveRoom(`Closed: ${JSON.parse(event.data).reason}`));
  // The browser opens a stream that was cut again, and gives up one that was refused.
  room.addEventListener('error', ({ target }) => {
    if (target.readyState === EventSource.CLOSED) leaveRoom('You were refused. Try again.');
  });
}

async function orderWithPass() {
  $('room-order').disabled = true;
  try {
    const path = `/api/voucher-orders/${pass.voucher}/seckill`;
    const order = await call('POST', path, undefined, { 'x-waiting-room-pass': pass.text });
    $('room-position').textContent = `Ordered: ${order.order_id}`;
  } catch (error) {
    $('room-position').textContent = error.message;
    $('room-order').disabled = pass === null;
  }
}

/* What can be broken, where somebody allows it. */

async function showFaults() {
  const { faults, remark } = await call('GET', '/chaos');
  $('faults').hidden = faults.length === 0;
  $('fault-remark').textContent = remark ?? '';
  for (const fault of faults) {
    const button = $('fault-buttons').appendChild(document.createElement('button'));
    button.type = 'button';
    button.id = `fault-${fault.name}`;
    button.textContent = fault.title;
    button.addEventListener('click', async () => {
      try {
        const done = await call('POST', `/chaos/${fault.name}`);
        $('fault-result').textContent = done.done;
      } catch (error) {
        $('fault-result').textContent = error.message;
      }
    });
  }
}

async function showStatus() {
  try {
    const instances = await call('GET', '/api/instances');
    $('status').textContent = `${instances.length} ${instances.length === 1 ? 'instance serves' : 'instances serve'}.`;
  } catch (error) {
    $('status').textContent = error.message;
  }
}

async function begin() {
  suggestName();
  $('sale-form').addEventListener('submit', createSale);
  $('rush-form').addEventListener('submit', startRush);
  $('room-join').addEventListener('click', joinRoom);
  $('room-leave').addEventListener('click', () => leaveRoom('You are not in it.'));
  $('room-order').addEventListener('click', orderWithPass);
  await showStatus();
  setInterval(showStatus, 3000);
  await call('POST', '/api/session', {});
  await showFaults();
}

begin().catch((error) => { $('status').textContent = error.message; });
