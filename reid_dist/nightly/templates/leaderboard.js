// Sorts a table by the column of a button. Without it, rows keep their order: the best of the first metric first.
for (const table of document.querySelectorAll("table.board")) {
  table.querySelectorAll("thead button").forEach((button, column) => button.addEventListener("click", () => {
    const head = button.parentElement, fell = head.getAttribute("aria-sort") === "descending";
    table.querySelectorAll("thead th").forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", fell ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.key;
    const compare = (one, other) => isNaN(key(one)) || isNaN(key(other))
      ? String(key(one)).localeCompare(key(other)) : key(one) - key(other);
    const rows = [...table.tBodies[0].rows].sort(compare);
    table.tBodies[0].append(...(fell ? rows : rows.reverse()));
  }));
}
