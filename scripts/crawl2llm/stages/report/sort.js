"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    if (head.dataset.still !== undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.by ?? row.cells[column].textContent;
      const rows = [...body.rows].sort((a, b) => {
        const one = key(a), other = key(b);
        const number = one !== "" && other !== "" && !isNaN(one) && !isNaN(other);
        return (number ? one - other : one.localeCompare(other)) * (up ? 1 : -1);
      });
      body.append(...rows);
    });
  });
}
