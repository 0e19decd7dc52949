// SPDX-License-Identifier: Apache-2.0
// The page that `tessera serve` shows at its address: a conversation or a text that is continued,
// the settings of both, and how loaded the server is. It talks to nobody else.
//
// What models and people wrote goes into the page as text, never as markup.
'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  function make(name, properties = {}, ...children) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  }

  // What has not changed is not written: selections and screen readers stay undisturbed.
  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // --- The server ------------------------------------------------------------------------------

  let key = sessionStorage.getItem('key');

  function refuseKey() {
    setText($('#key-error'), key === null ? '' : 'The key was not accepted.');
    key = null;
    sessionStorage.removeItem('key');
    $('#key-form').hidden = false;
  }

  function messageIn(text) {
    try { return JSON.parse(text).error.message; } catch { return null; }
  }

  async function call(path, { body, signal } = {}) {
    const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
    if (body) headers['Content-Type'] = 'application/json';
    let answer;
    try {
      answer = await fetch(path, { method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
                                   headers, signal, cache: 'no-store' });
    } catch {
      throw new Error('The server does not answer.');
    }
    if (answer.ok) return answer;
    if (answer.status === 401) refuseKey();
    throw new Error(messageIn(await answer.text()) ?? `The server answered with status ${answer.status}.`);
  }

  // The events of a stream, up to the one that says that it is whole.
  async function* eventsOf(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { done, value } = await reader.read().catch(() => ({ done: true }));
      if (done) throw new Error('The connection ended before the answer did.');
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data:')) continue;
        const data = line.slice('data:'.length).trim();
        if (data === '[DONE]') return;
        const event = JSON.parse(data);
        if (event.error) throw new Error(event.error.message);
        yield event;
      }
    }
  }

  // --- Writing ---------------------------------------------------------------------------------

  let running = null;  // what aborts the answer that is being written

  function setRunning(controller) {
    running = controller;
    for (const button of $$('button[data-idle]')) {
      setText(button, running ? 'Stop' : button.dataset.idle);
      button.classList.toggle('stops', running !== null);
    }
    for (const button of $$('.modes button')) button.disabled = running !== null;
  }

  // What was left empty is the server's to choose.
  function settings() {
    const request = { model: $('#model').value || last?.model };
    for (const input of $$('[name]', $('#settings'))) {
      if (input.value === '') continue;
      request[input.name] = input.type === 'number' ? input.valueAsNumber : input.value === 'true';
    }
    return request;
  }

  function settingsAreValid() {
    if ($('#settings').checkValidity()) return true;
    showPanel(true);
    $('#settings').reportValidity();
    return false;
  }

  function noteOf(tokens, seconds, reason) {
    const parts = [];
    if (tokens !== null) parts.push(tokens === 1 ? '1 token' : `${tokens} tokens`);
    if (tokens > 1 && seconds > 0) parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
    if (reason === 'length') parts.push('ended at the limit of tokens');
    if (reason === 'stopped') parts.push('stopped');
    return parts.join(', ');
  }

  // Hands over the text as it comes; returns { note, error }, of which error is '' where all is well.
  async function write(path, request, onText) {
    const controller = new AbortController();
    setRunning(controller);
    let tokens = null, reason = null, first = null, error = '';
    try {
      const body = { ...settings(), ...request, stream: true, stream_options: { include_usage: true } };
      for await (const event of eventsOf(await call(path, { body, signal: controller.signal }))) {
        const choice = event.choices?.[0];
        const text = choice?.delta?.content ?? choice?.text;
        if (text) {
          first ??= performance.now();
          onText(text);
        }
        reason = choice?.finish_reason ?? reason;
        tokens = event.usage?.completion_tokens ?? tokens;
      }
    } catch (failure) {
      if (controller.signal.aborted) reason = 'stopped'; else error = failure.message;
    }
    controller.abort();  // whatever the reason: nobody reads on
    setRunning(null);
    return { note: noteOf(tokens, (performance.now() - first) / 1000, reason), error };
  }

  function stop() {
    running?.abort();
  }

  async function copy(button, element) {
    try {
      if (navigator.clipboard) {
        await navigator.clipboard.writeText(element.value ?? element.textContent);
      } else {  // a page that did not come by a safe way
        if (element.select) element.select(); else getSelection().selectAllChildren(element);
        document.execCommand('copy');
      }
      setText(button, 'Copied');
    } catch {
      setText(button, 'Not copied');
    }
    setTimeout(() => setText(button, 'Copy'), 1500);
  }

  // --- Chat ------------------------------------------------------------------------------------

  const log = $('#log');
  let turns = [];  // { said, answer: text nodes, ... }

  // Who has scrolled up is reading: the end is followed only where it is in sight.
  function followingEnd(change) {
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    change();
    if (follows) log.scrollTop = log.scrollHeight;
  }

  function addTurn(said) {
    const answer = make('div', { className: 'answer' }, document.createTextNode(''));
    const copies = make('button', { type: 'button', textContent: 'Copy', hidden: true });
    const again = make('button', { type: 'button', textContent: 'Try again', hidden: true });
    const note = make('span', { className: 'note' });
    const error = make('p', { className: 'error' });
    const element = make('article', { className: 'turn' }, make('div', { className: 'said' }, said),
                         answer, error, make('div', { className: 'below' }, copies, again, note));
    const turn = { said, answer, copies, again, note, error, element };
    copies.addEventListener('click', () => copy(copies, answer));
    again.addEventListener('click', () => { if (!running && settingsAreValid()) answerTo(turn); });
    turns.push(turn);
    log.append(element);
    return turn;
  }

  // A question without an answer is not part of what was said.
  function messagesUpTo(turn) {
    const messages = [];
    const system = $('#system').value.trim();
    if (system) messages.push({ role: 'system', content: system });
    for (const { said, answer } of turns.slice(0, turns.indexOf(turn))) {
      if (answer.textContent === '') continue;
      messages.push({ role: 'user', content: said }, { role: 'assistant', content: answer.textContent });
    }
    return [...messages, { role: 'user', content: turn.said }];
  }

  async function answerTo(turn) {
    const text = turn.answer.firstChild;
    text.data = '';
    setText(turn.error, '');
    setText(turn.note, '');
    for (const earlier of turns) earlier.again.hidden = true;
    turn.copies.hidden = true;
    turn.answer.ariaBusy = 'true';
    const { note, error } = await write('v1/chat/completions', { messages: messagesUpTo(turn) },
                                        (piece) => followingEnd(() => text.appendData(piece)));
    followingEnd(() => {
      turn.answer.ariaBusy = 'false';
      turn.copies.hidden = text.data === '';
      turn.again.hidden = (error === '' && text.data !== '') || turn !== turns.at(-1);
      setText(turn.note, note);
      setText(turn.error, error);
    });
  }

  function fitMessage() {
    const message = $('#message');
    followingEnd(() => {
      message.style.height = 'auto';
      message.style.height = `${message.scrollHeight + 2}px`;
    });
  }

  function send() {
    const message = $('#message');
    if (running || message.value.trim() === '' || !settingsAreValid()) return;
    const turn = addTurn(message.value);
    $('#welcome').hidden = true;
    message.value = '';
    fitMessage();
    log.scrollTop = log.scrollHeight;
    answerTo(turn);
  }

  function newConversation() {
    stop();
    for (const turn of turns) turn.element.remove();
    turns = [];
    $('#welcome').hidden = false;
    $('#message').focus();
  }

  // --- Text ------------------------------------------------------------------------------------

  const prose = $('#prose');
  let before = '';  // the text, before it was continued or replaced

  function setBefore(text) {
    before = text;
    $('#undo').disabled = false;
  }

  async function continueText() {
    if (running || !settingsAreValid()) return;
    setBefore(prose.value);
    prose.readOnly = true;
    setText($('#text-note'), 'Writing');
    setText($('#text-error'), '');
    const { note, error } = await write('v1/completions', { prompt: prose.value }, (piece) => {
      const follows = prose.scrollHeight - prose.scrollTop - prose.clientHeight < 40;
      prose.setRangeText(piece, prose.value.length, prose.value.length, 'preserve');
      if (follows) prose.scrollTop = prose.scrollHeight;
    });
    prose.readOnly = false;
    setText($('#text-note'), note);
    setText($('#text-error'), error);
  }

  function replaceText(text) {
    if (running) return;
    setBefore(prose.value);
    prose.value = text;
    setText($('#text-note'), '');
    setText($('#text-error'), '');
    prose.focus();
  }

  // --- Load ------------------------------------------------------------------------------------

  const kWindowSeconds = 120;
  let last = null;   // what the server said last
  let rates = [];    // { at, written, read } of the last two minutes; at: the server's seconds
  let places = [];   // by slot: the name of what runs there

  const count = (number) => number.toLocaleString('en');
  const share = (part, whole) => `${whole > 0 ? Math.min(100, 100 * part / whole) : 0}%`;

  function duration(seconds) {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} days`;
  }

  function noteRates(load) {
    const seconds = last && load.uptime_seconds - last.uptime_seconds;
    if (!last || seconds <= 0) {  // the first, or another server at its address
      rates = [];
      return;
    }
    rates.push({ at: load.uptime_seconds, written: (load.tokens_made - last.tokens_made) / seconds,
                 read: (load.tokens_read - last.tokens_read) / seconds });
    rates = rates.filter((rate) => load.uptime_seconds - rate.at <= kWindowSeconds);
  }

  function drawRate(name) {
    const now = rates.at(-1);
    const most = Math.max(0, ...rates.map((rate) => rate[name]));
    const points = rates.map((rate) => {
      const x = 120 * (1 - (now.at - rate.at) / kWindowSeconds);
      return `${x.toFixed(1)} ${(32 - 31 * rate[name] / (most || 1)).toFixed(1)}`;
    });
    const figure = document.getElementById(name);
    $('.curve', figure).setAttribute('d', points.length > 1 ? `M${points.join('L')}` : '');
    setText($('.most', figure), now ? `highest ${most.toFixed(1)}` : '');
    setText($('.figure', figure), now ? `${now[name].toFixed(1)} tokens/s` : '-');
  }

  // What runs by names that last: a client may have several answers at a time.
  function byName(running) {
    const names = new Map();
    for (const row of running) {
      let nth = 1;
      while (names.has(`${row.client} ${nth}`)) ++nth;
      names.set(`${row.client} ${nth}`, row);
    }
    return names;
  }

  // By slot, what runs there. It stays where it is.
  function placed(load) {
    const names = byName(load.running);
    places = Array.from({ length: Math.max(load.slots, names.size) },
                        (_, i) => names.has(places[i]) ? places[i] : null);
    for (const name of names.keys()) {
      if (!places.includes(name)) places[places.indexOf(null)] = name;
    }
    return places.map((name) => names.get(name));
  }

  function makeSlot() {
    return make('li', {}, make('div', { className: 'line' }, make('span', { className: 'who' }),
                               make('span', { className: 'what' })),
                make('div', { className: 'bar', ariaHidden: 'true' },
                     make('i', { className: 'was-read' }), make('i', { className: 'was-made' })));
  }

  function showSlots(load) {
    const rows = placed(load);
    const list = $('#slots');
    while (list.children.length > rows.length) list.lastChild.remove();
    while (list.children.length < rows.length) list.append(makeSlot());
    rows.forEach((row, i) => {
      const slot = list.children[i];
      const whole = row ? row.prompt + row.limit : 0;
      setText($('.who', slot), !row ? 'free' : row.adapter ? `${row.adapter}, ${row.client}` : row.client);
      slot.title = row ? $('.who', slot).textContent : '';
      setText($('.what', slot), !row ? '' :
        (row.state === 'reading' ? `reading ${row.read} of ${row.prompt}`
                                 : `writing ${row.made} of ${row.limit}`) + `, ${duration(row.seconds)}`);
      $('.was-read', slot).style.width = row ? share(row.read, whole) : '0';
      $('.was-made', slot).style.width = row ? share(row.made, whole) : '0';
    });
  }

  function showLoad(load) {
    const busy = load.running.length > 0;
    $('#state').className = `state ${busy ? 'busy' : 'idle'}`;
    setText($('#state'), busy ? `${load.running.length} running` : 'Idle');
    setText($('#running'), `${load.running.length} of ${load.slots}`);
    setText($('#waiting'), count(load.waiting));
    setText($('#refused'), count(load.refused));
    setText($('#pages'), `${count(load.pages.in_use)} of ${count(load.pages.all)}`);
    $('#pages-bar').style.width = share(load.pages.in_use, load.pages.all);
    drawRate('written');
    drawRate('read');
    showSlots(load);
    setText($('#totals'), `Up ${duration(load.uptime_seconds)}. Tokens: ${count(load.tokens_made)} written, ` +
      `${count(load.tokens_read)} read, ${count(load.tokens_taken)} taken from earlier texts; ` +
      `${count(load.passes)} passes.`);
  }

  function showGone(why) {
    setText($('#gone'), why === '' ? '' : `${why} This page asks again every second.`);
    setText($('#load-title'), why === '' || !last ? 'Load' : 'Load, as last seen');
    if (why === '') return;
    $('#state').className = 'state gone';
    setText($('#state'), 'No answer');
  }

  // --- The page --------------------------------------------------------------------------------

  let modelsKnown = false;

  function showMode(mode) {
    for (const section of $$('section.mode')) section.hidden = section.id !== mode;
    for (const button of $$('.modes button')) button.ariaPressed = String(button.dataset.mode === mode);
  }

  function showPanel(shown) {
    document.body.classList.toggle('shows-panel', shown);
    $('#panel-button').ariaExpanded = String(shown);
    setText($('#panel-button'), shown ? 'Back' : 'Settings');
  }

  function meet(load) {
    setText($('#model-name'), load.model);
    document.title = `${load.model} - Tessera`;
    $('#no-chat').hidden = load.chat;
    $('.modes').hidden = !load.chat;
    if (!load.chat) showMode('text');
    if (load.key_needed && key === null) refuseKey();
    modelsKnown = false;
  }

  async function readModels() {
    const models = (await (await call('v1/models')).json()).data;
    const chosen = $('#model').value;
    $('#model').replaceChildren(...models.map(({ id }) => make('option', { value: id, textContent: id })));
    if (models.some(({ id }) => id === chosen)) $('#model').value = chosen;
    $('#max_new_tokens').max = models[0]?.max_model_len ?? '';
    $('#key-form').hidden = true;
    modelsKnown = true;
  }

  // One question at a time; the next a second after the answer.
  async function look() {
    try {
      const load = await (await call('load', { signal: AbortSignal.timeout(10000) })).json();
      noteRates(load);
      if (!last || load.uptime_seconds < last.uptime_seconds) meet(load);
      last = load;
      showGone('');
      showLoad(load);
    } catch (error) {
      showGone(error.message);
    }
    if (last && !modelsKnown && (!last.key_needed || key !== null)) await readModels().catch(() => {});
  }

  async function keepLooking() {
    if (!document.hidden) await look();
    setTimeout(keepLooking, 1000);
  }

  function onSubmit(form, start) {
    $(form).addEventListener('submit', (event) => {
      event.preventDefault();
      if (running) stop(); else start();
    });
    // A second click means the same as the first.
    $(`${form} [type="submit"]`).addEventListener('click', (event) => {
      if (event.detail > 1) event.preventDefault();
    });
  }

  function sendsOn(textarea, isIt, start) {
    textarea.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.isComposing || !isIt(event)) return;
      event.preventDefault();
      start();
    });
  }

  onSubmit('#chat-form', send);
  onSubmit('#text-form', continueText);
  sendsOn($('#message'), (event) => !event.shiftKey, send);
  sendsOn(prose, (event) => event.ctrlKey || event.metaKey, continueText);
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') stop(); });
  $('#message').addEventListener('input', fitMessage);
  $('#new').addEventListener('click', newConversation);
  $('#clear').addEventListener('click', () => replaceText(''));
  $('#undo').addEventListener('click', () => replaceText(before));
  $('#copy-text').addEventListener('click', (event) => copy(event.target, prose));
  $('#settings').addEventListener('submit', (event) => event.preventDefault());
  $('#panel-button').addEventListener('click', () => showPanel(!document.body.classList.contains('shows-panel')));
  for (const button of $$('.modes button')) {
    button.addEventListener('click', () => {
      showPanel(false);
      showMode(button.dataset.mode);
    });
  }
  $('#key-form').addEventListener('submit', (event) => {
    event.preventDefault();
    key = $('#key').value.trim();
    sessionStorage.setItem('key', key);
    readModels().catch((error) => { if (key !== null) setText($('#key-error'), error.message); });
  });
  keepLooking();
})();
