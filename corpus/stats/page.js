// SPDX-License-Identifier: Apache-2.0
// Heads of tables sort them.
for (const head of document.querySelectorAll("th[role=button]")) {
  head.addEventListener("click", () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const down = head.dataset.down !== "1";
    head.dataset.down = down ? "1" : "0";
    const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
  });
}
