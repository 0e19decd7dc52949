// SPDX-License-Identifier: Apache-2.0
// Colours, navigation and search of the site's pages, from plain files.
'use strict';

(function () {
  const page = document.documentElement;
  const root = page.dataset.root;

  // ---- Colours: the reader's choice, else the system's -------------------------------------------

  function stored() {
    try { return localStorage.getItem('colours'); } catch (error) { return null; }
  }
  function store(colours) {
    try { localStorage.setItem('colours', colours); } catch (error) { /* it holds for this page */ }
  }
  function isDark() {
    if (page.dataset.colours) return page.dataset.colours === 'dark';
    return matchMedia('(prefers-color-scheme: dark)').matches;
  }
  if (stored()) page.dataset.colours = stored();

  // ---- Search ------------------------------------------------------------------------------------

  const kMost = 30;
  let index = null;

  // The index is a script, which a page that is read from a disk may load, too.
  function load(then) {
    if (index) { then(); return; }
    const script = document.createElement('script');
    script.src = root + 'search-index.js';
    script.onload = function () {
      const given = window.searchIndex;
      index = given.sections.map(function (section) {
        const [path, title] = given.pages[section[0]];
        return {
          path: path, title: title, anchor: section[1], heading: section[2], text: section[3],
          lowHeading: (section[2] || title).toLowerCase(), lowTitle: title.toLowerCase(),
          lowText: section[3].toLowerCase(),
        };
      });
      then();
    };
    document.head.appendChild(script);
  }

  // 0: a term is nowhere in the section.
  function score(section, terms) {
    let sum = 0;
    for (const term of terms) {
      let points = 0;
      const name = section.lowHeading.split('::').pop().replace(/^-+/, '');
      const words = section.lowHeading.split(/[\s,]+/).map(function (word) {
        return word.replace(/^-+/, '');
      });
      if (section.lowHeading === term || name === term) points += 60;
      else if (words[0] === term && section.lowHeading.startsWith('--')) points += 60;
      else if (words.includes(term)) points += 40;
      else if (section.lowHeading.startsWith(term) || name.startsWith(term)) points += 25;
      else if (section.lowHeading.includes(term)) points += 12;
      if (section.lowTitle.includes(term)) points += 8;
      if (section.lowText.includes(term)) points += 5;
      if (points === 0) return 0;
      sum += points;
    }
    const aside = section.path.startsWith('docs/benchmarks/') || section.path === 'CHANGELOG.html';
    if (aside) sum /= 2;
    if (section.path.startsWith('api/')) sum *= 0.8;
    return sum;
  }

  function find(query) {
    const terms = query.toLowerCase().split(/\s+/).map(function (term) {
      return term.replace(/^-+/, '');
    }).filter(Boolean);
    if (terms.length === 0) return [];
    const hits = [];
    index.forEach(function (section, number) {
      const points = score(section, terms);
      if (points > 0) hits.push({section: section, points: points, number: number});
    });
    hits.sort(function (a, b) { return b.points - a.points || a.number - b.number; });
    return hits.slice(0, kMost).map(function (hit) {
      return {section: hit.section, term: terms[0]};
    });
  }

  // The text around the term.
  function excerpt(section, term) {
    const at = section.lowText.indexOf(term);
    const begin = Math.max(0, at - 50);
    const text = section.text.slice(begin, begin + 150);
    return (begin > 0 ? '… ' : '') + text + (begin + 150 < section.text.length ? ' …' : '');
  }

  function element(name, css, text) {
    const made = document.createElement(name);
    made.className = css;
    made.textContent = text;
    return made;
  }

  function show(found, hits, query) {
    found.textContent = '';
    found.hidden = query.trim() === '';
    if (hits.length === 0) found.appendChild(element('p', 'none', 'Nothing found.'));
    for (const hit of hits) {
      const section = hit.section;
      const link = element('a', 'hit', '');
      link.href = root + section.path + (section.anchor ? '#' + encodeURIComponent(section.anchor) : '');
      link.appendChild(element('span', 'heading', section.heading || section.title));
      if (section.heading && section.heading !== section.title) {
        link.appendChild(element('span', 'of', section.title));
      }
      if (section.text) link.appendChild(element('span', 'text', excerpt(section, hit.term)));
      found.appendChild(link);
    }
  }

  function move(found, by) {
    const links = Array.from(found.querySelectorAll('a'));
    if (links.length === 0) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by;
    if (next < 0 || next >= links.length) document.getElementById('site-search').focus();
    else links[next].focus();
  }

  function addSearch() {
    const input = document.getElementById('site-search');
    const found = document.getElementById('site-found');
    const update = function () {
      load(function () { show(found, find(input.value), input.value); });
    };
    input.addEventListener('focus', function () { load(function () {}); });
    input.addEventListener('input', update);
    document.addEventListener('keydown', function (event) {
      const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
      if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        input.focus();
      } else if (event.key === 'Escape') {
        found.hidden = true;
        input.blur();
      } else if (!found.hidden && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
        event.preventDefault();
        move(found, event.key === 'ArrowDown' ? 1 : -1);
      } else if (event.key === 'Enter' && document.activeElement === input) {
        const first = found.querySelector('a');
        if (first) location.href = first.href;
      }
    });
    document.addEventListener('click', function (event) {
      if (!event.target.closest('.search')) found.hidden = true;
      else if (event.target.closest('a')) found.hidden = true;
      else if (event.target === input) update();
    });
    const asked = new URLSearchParams(location.search).get('q');
    if (asked) {
      input.value = asked;
      update();
    }
  }

  document.addEventListener('DOMContentLoaded', function () {
    const button = document.getElementById('site-colours');
    const label = function () { button.textContent = isDark() ? 'Light' : 'Dark'; };
    label();
    button.addEventListener('click', function () {
      page.dataset.colours = isDark() ? 'light' : 'dark';
      store(page.dataset.colours);
      label();
    });
    const current = document.querySelector('nav [aria-current]');
    const menu = document.querySelector('nav');
    if (current && current.offsetTop > menu.clientHeight / 2) {
      menu.scrollTop = current.offsetTop - menu.clientHeight / 3;
    }
    menu.addEventListener('click', function (event) {
      if (event.target.closest('a')) document.getElementById('site-menu').checked = false;
    });
    addSearch();
  });
})();
