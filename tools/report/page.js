// SPDX-License-Identifier: Apache-2.0
// What a report can do beyond being read: a cursor that reads all charts at one step, smoothing,
// logarithmic axes, runs that are shown or not, and looking for news where it is served.
//
// The page's scales are its maker's: curves are drawn again here, axes never.
'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const reads = { smoothing: 0, logarithmic: false, hidden: new Set(), step: null };
  let charts = [];

  // --- Charts ----------------------------------------------------------------------------------

  function readChart(figure) {
    const data = JSON.parse($('script[type="application/json"]', figure).textContent);
    const curves = (data.curves || []).map((curve) => {
      const group = $(`.curve[data-run="${curve.run}"]`, figure);
      const reading = $(`.readings li[data-run="${curve.run}"] .value`, figure);
      const line = $('.line', group);
      return {
        ...curve, group, reading, line, dots: $('.dots', group), last: reading.textContent,
        letter: $('.letter', group), height: Number($('.letter', group)?.getAttribute('y')),
        drawn: line.getAttribute('d'), dotted: $('.dots', group)?.getAttribute('d'),
      };
    });
    const steps = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    return { figure, data, curves, steps, svg: $('svg', figure), at: $('.at', figure), slider: null };
  }

  function xOf(chart, step) {
    const [left, , right] = chart.data.plot;
    const [low, high] = chart.data.steps;
    return left + (right - left) * (step - low) / (high - low);
  }

  function yOf(chart, value) {
    const [, top, , bottom] = chart.data.plot;
    const logarithmic = reads.logarithmic && chart.data.logarithmic;
    const [low, high] = logarithmic || chart.data.linear;
    const share = logarithmic ? Math.log(value / low) / Math.log(high / low)
                              : (value - low) / (high - low);
    return bottom - (bottom - top) * share;
  }

  // As the page's maker draws: gaps where a number is not finite, dots between gaps.
  function pathOf(chart, curve, values, dotted) {
    let path = '', draws = false;
    values.forEach((value, i) => {
      if (value !== null) {
        path += `${draws && !dotted ? 'L' : 'M'}${xOf(chart, curve.x[i]).toFixed(1)} ${yOf(chart, value).toFixed(1)}`;
        if (dotted || (!draws && (values[i + 1] ?? null) === null)) path += 'h0';
      }
      draws = value !== null;
    });
    return path;
  }

  // An exponential moving average that is not drawn to where it began.
  function smoothed(values, weight) {
    let sum = 0, weights = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      weights = weight * weights + (1 - weight);
      return sum / weights;
    });
  }

  // The letters' heights, in the order of the curves' ends; below one another where they would touch.
  function placeLetters(chart, logarithmic) {
    const ends = chart.curves.filter((curve) => curve.letter).map((curve) => {
      const value = curve.y.findLast((y) => y !== null);
      return { letter: curve.letter, y: logarithmic ? yOf(chart, value) + 3.8 : curve.height };
    }).sort((a, b) => a.y - b.y);
    let least = -Infinity;
    for (const { letter, y } of ends) {
      const height = logarithmic ? Math.max(y, least) : y;
      letter.setAttribute('y', height.toFixed(2));
      least = height + 13;
    }
  }

  function draw(chart) {
    const logarithmic = reads.logarithmic && chart.data.logarithmic;
    chart.svg.classList.toggle('log', Boolean(logarithmic));
    placeLetters(chart, logarithmic);
    for (const curve of chart.curves) {
      curve.line.setAttribute('d', logarithmic ? pathOf(chart, curve, curve.y, false) : curve.drawn);
      curve.dots?.setAttribute('d', logarithmic ? pathOf(chart, curve, curve.y, true) : curve.dotted);
      const smooths = reads.smoothing > 0 && chart.data.smooths && curve.y.length > 24;
      curve.group.classList.toggle('smoothed', smooths);
      let path = $('.average', curve.group);
      if (!smooths) {
        path?.remove();
        continue;
      }
      if (!path) {
        path = curve.line.cloneNode();
        path.setAttribute('class', 'average');
        curve.group.append(path);
      }
      path.setAttribute('d', pathOf(chart, curve, smoothed(curve.y, reads.smoothing), false));
    }
  }

  // --- The cursor ------------------------------------------------------------------------------

  // Of ascending numbers the place of the one nearest to `x`.
  function nearest(sorted, x) {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= x) low = middle; else high = middle;
    }
    return x - sorted[low] <= sorted[high] - x ? low : high;
  }

  function readAt(chart, step) {
    const none = step === null || chart.steps.length === 0;
    chart.figure.classList.toggle('reading', !none);
    const at = none ? null : chart.steps[nearest(chart.steps, step)];
    chart.at.textContent = none ? '' : `step ${at.toLocaleString('en')}`;
    if (!none) $('.cursor', chart.svg).setAttribute('transform', `translate(${xOf(chart, at).toFixed(1)},0)`);
    const spoken = [];
    for (const curve of chart.curves) {
      const text = none ? curve.last : curve.text[nearest(curve.x, at)];
      curve.reading.textContent = text;
      if (!reads.hidden.has(curve.run)) {
        const name = $(`.readings li[data-run="${curve.run}"] .name`, chart.figure);
        spoken.push(name ? `${name.textContent} ${text}` : text);
      }
    }
    const last = chart.steps[chart.steps.length - 1];
    chart.slider?.setAttribute('aria-valuenow', at ?? last ?? 0);
    chart.slider?.setAttribute('aria-valuetext', `${none ? 'last' : `step ${at}`}: ${spoken.join(', ')}`);
  }

  function moveTo(step) {
    reads.step = step;
    for (const chart of charts) readAt(chart, step);
  }

  function moveByKey(chart, event) {
    const count = chart.steps.length, page = Math.max(1, Math.round(count / 10));
    // What is read without a cursor stands behind the last point.
    const at = reads.step === null ? count : nearest(chart.steps, reads.step);
    const to = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - page, PageUp: at + page, Home: 0, End: count - 1,
    }[event.key];
    if (event.key === 'Escape') moveTo(null);
    if (to === undefined || count === 0) return;
    event.preventDefault();
    moveTo(chart.steps[Math.min(count - 1, Math.max(0, to))]);
  }

  function addSlider(chart) {
    const slider = document.createElement('div');
    const title = $('h3', chart.figure).textContent;
    const attributes = {
      class: 'slider', role: 'slider', tabindex: '0', id: `${chart.figure.id}-slider`,
      'aria-label': `${title}, step`, 'aria-orientation': 'horizontal',
      'aria-valuemin': chart.steps[0] ?? 0, 'aria-valuemax': chart.steps[chart.steps.length - 1] ?? 0,
    };
    for (const [name, value] of Object.entries(attributes)) slider.setAttribute(name, value);
    const point = (event) => {
      const box = chart.svg.getBoundingClientRect();
      const [left, , right] = chart.data.plot;
      const x = (event.clientX - box.left) * chart.svg.viewBox.baseVal.width / box.width;
      const [low, high] = chart.data.steps;
      moveTo(low + (high - low) * (x - left) / (right - left));
    };
    slider.addEventListener('pointermove', point);
    slider.addEventListener('pointerdown', point);
    slider.addEventListener('pointerleave', (event) => {
      if (event.pointerType === 'mouse' && document.activeElement !== slider) moveTo(null);
    });
    slider.addEventListener('keydown', (event) => moveByKey(chart, event));
    slider.addEventListener('blur', () => moveTo(null));
    $('.plot', chart.figure).append(slider);
    chart.slider = slider;
  }

  // --- Runs ------------------------------------------------------------------------------------

  function showRuns() {
    for (const element of $$('[data-run]')) {
      element.classList.toggle('off', reads.hidden.has(Number(element.dataset.run)));
    }
  }

  function addRunSwitches() {
    for (const input of $$('[data-show]')) {
      const run = Number(input.dataset.show);
      input.hidden = false;
      input.checked = !reads.hidden.has(run);
      input.addEventListener('change', () => {
        if (input.checked) reads.hidden.delete(run); else reads.hidden.add(run);
        showRuns();
      });
    }
    showRuns();
  }

  // After the page came, and after what it reports was replaced.
  function begin() {
    charts = $$('figure.chart').filter((figure) => $('script', figure)).map(readChart);
    for (const chart of charts) {
      addSlider(chart);
      draw(chart);
    }
    addRunSwitches();
    moveTo(reads.step);
  }

  // --- News ------------------------------------------------------------------------------------

  function replace(page) {
    const open = $$('details[open]').map((details) => details.id);
    const focused = document.activeElement?.id;
    const [x, y] = [window.scrollX, window.scrollY];
    document.title = page.title;
    $('#title').textContent = $('#title', page).textContent;
    const step = reads.step;  // leaving a slider forgets it
    $('#report').replaceWith(document.adoptNode($('#report', page)));
    for (const id of open) document.getElementById(id)?.setAttribute('open', '');
    reads.step = step;
    begin();
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    window.scrollTo(x, y);
  }

  function follow(milliseconds) {
    const live = $('#live');
    let tag = null;
    const look = async () => {
      try {
        // Who selects text is reading it.
        if (!document.hidden && getSelection().isCollapsed) {
          const headers = tag === null ? {} : { 'If-None-Match': tag };
          const answer = await fetch(location.href, { cache: 'no-store', headers });
          const text = await answer.text();
          if (answer.status === 200) {
            tag = answer.headers.get('ETag');
            replace(new DOMParser().parseFromString(text, 'text/html'));
          } else if (answer.status !== 304) {
            throw new Error(text);
          }
          if (live.textContent !== 'Live') live.textContent = 'Live';
        }
      } catch (error) {
        const text = error instanceof TypeError ? 'No longer served' : `Not refreshed: ${error.message}`;
        if (live.textContent !== text) live.textContent = text;
      }
      setTimeout(look, milliseconds);
    };
    setTimeout(look, milliseconds);
  }

  $('#smoothing').addEventListener('input', (event) => {
    reads.smoothing = Number(event.target.value);
    $('output[for="smoothing"]').textContent = String(reads.smoothing);
    charts.forEach(draw);
  });
  $('#logarithmic').addEventListener('change', (event) => {
    reads.logarithmic = event.target.checked;
    charts.forEach(draw);
  });
  $('.controls').hidden = false;
  $('.hint').hidden = false;
  begin();
  const refresh = Number(document.body.dataset.refresh);
  if (refresh > 0) follow(refresh);
})();
