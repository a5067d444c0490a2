// What is wrong with the page as it is now, in words; nothing where all is well. The rules are
// those of WCAG 2.2 AA that a script can decide. The last lines say how the test calls it.
'use strict';

const CONTRAST_OF_TEXT = 4.5;
const CONTRAST_OF_FOCUS = 3;
const SMALLEST_TARGET = 24;

const text = (element) => element?.textContent.trim() ?? '';

function named(element) {
  const own = element.id ? `#${element.id}` : `"${text(element).slice(0, 30)}"`;
  return `${element.tagName.toLowerCase()} ${own}`;
}

function visible(element) {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0
    && element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
}

const all = (selector) => [...document.querySelectorAll(selector)].filter(visible);

/* Colours. A canvas turns each notation into red, green, blue and alpha. */

const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });

function pixel(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return { channels: [red, green, blue], alpha: alpha / 255 };
}

function over(front, back) {
  return front.channels.map((value, at) => value * front.alpha + back[at] * (1 - front.alpha));
}

/** What is painted where the page paints nothing: another by night. */
function canvasColour() {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.backgroundColor = 'Canvas';
  const colour = getComputedStyle(probe).backgroundColor;
  probe.remove();
  return pixel(colour).channels;
}

/** What is painted behind the content of an element. */
function paper(element) {
  if (!element) return canvasColour();
  const style = getComputedStyle(element);
  if (style.backgroundImage !== 'none') throw new Error(`${named(element)} has a picture as its paper`);
  const own = pixel(style.backgroundColor);
  return own.alpha === 1 ? own.channels : over(own, paper(element.parentElement));
}

function luminance(channels) {
  const [red, green, blue] = channels.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(colour, behind) {
  const front = luminance(over(pixel(colour), behind));
  const back = luminance(behind);
  return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
}

/* The rules. Each returns what breaks it. */

function frame() {
  const wrong = [];
  if (!document.documentElement.lang) wrong.push('the page does not say its language');
  if (!document.title.trim()) wrong.push('the page has no title');
  for (const one of ['main', 'h1']) {
    if (all(one).length !== 1) wrong.push(`the page has ${all(one).length} ${one}`);
  }
  let level = 0;
  for (const heading of all('h1, h2, h3, h4, h5, h6')) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push(`${named(heading)} comes after a heading of level ${level}`);
    level = next;
  }
  return wrong;
}

function ids() {
  const twice = [...document.querySelectorAll('[id]')]
    .filter((element) => document.getElementById(element.id) !== element);
  const wrong = twice.map((element) => `${named(element)} is there twice`);
  for (const attribute of ['for', 'aria-labelledby', 'aria-describedby', 'aria-controls']) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of element.getAttribute(attribute).split(/\s+/)) {
        if (!document.getElementById(id)) wrong.push(`${named(element)} refers to #${id}, which is not there`);
      }
    }
  }
  return wrong;
}

/** What a screen reader calls an element. */
function label(element) {
  const by = (element.getAttribute('aria-labelledby') ?? '').split(/\s+/).filter(Boolean);
  const labels = [...(element.labels ?? [])].map(text);
  const content = ['BUTTON', 'A'].includes(element.tagName) ? [text(element)] : [];
  return [
    ...by.map((id) => text(document.getElementById(id))),
    element.getAttribute('aria-label') ?? '', element.getAttribute('alt') ?? '', ...labels, ...content,
  ].join(' ').trim();
}

function labels() {
  const need = 'a[href], button, input, select, textarea, progress, meter, img, svg:not([aria-hidden=true]), [role=img]';
  const wrong = all(need).filter((element) => !label(element)).map((element) => `${named(element)} has no label`);
  for (const table of all('table')) {
    if (!text(table.caption)) wrong.push(`${named(table)} has no caption`);
    if (![...table.querySelectorAll('th')].every((cell) => cell.scope)) wrong.push(`${named(table)} has a th without scope`);
  }
  return wrong;
}

function targets() {
  return all('button, input, select, textarea').flatMap((element) => {
    const { width, height } = element.getBoundingClientRect();
    const small = Math.min(width, height) < SMALLEST_TARGET;
    return small ? [`${named(element)} is ${Math.round(width)} × ${Math.round(height)} px, too small to hit`] : [];
  });
}

function contrasts() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set(all('input:not([type=checkbox])'));
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && visible(element)) seen.add(element);
  }
  return [...seen].flatMap((element) => {
    const found = contrast(getComputedStyle(element).color, paper(element));
    return found < CONTRAST_OF_TEXT ? [`${named(element)} has a contrast of ${found.toFixed(2)}`] : [];
  });
}

function width() {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  const out = all('body *').filter((element) => element.getBoundingClientRect().right > root.clientWidth + 0.5);
  const names = out.slice(0, 5).map(named).join(', ');
  return [`the page is ${root.scrollWidth} px wide on a screen of ${root.clientWidth} px: ${names}`];
}

/** What is wrong with the page. */
function page() {
  return [frame, ids, labels, targets, contrasts, width].flatMap((rule) => rule());
}

/** Which element has the focus, and what is wrong with how that shows. */
function focus() {
  const element = document.activeElement;
  if (!element || element === document.body) return { id: '', wrong: [] };
  const wrong = [];
  const style = getComputedStyle(element);
  const around = paper(element.parentElement);
  if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) {
    wrong.push(`${named(element)} has no outline while it has the focus`);
  } else if (contrast(style.outlineColor, around) < CONTRAST_OF_FOCUS) {
    wrong.push(`${named(element)} has an outline that does not stand out`);
  }
  const box = element.getBoundingClientRect();
  const inside = box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
  if (!inside) wrong.push(`${named(element)} has the focus and is not on the screen`);
  return { id: element.id, wrong };
}

return { page, focus }[arguments[0]]();
