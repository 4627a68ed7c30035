// Sorts a table by the column whose head is pressed. Without it, rows keep their order: the best of the first metric first.
for (const table of document.querySelectorAll(".board table")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    // Rank and model come before the first metric.
    if (column === 2) head.setAttribute("aria-sort", "descending");
    const key = (row) => row.cells[column].dataset.key;
    const number = (row) => isNaN(key(row)) ? -Infinity : Number(key(row));
    const compare = (one, other) => number(one) - number(other) || key(one).localeCompare(key(other));
    button.addEventListener("click", () => {
      const fell = head.getAttribute("aria-sort") === "descending";
      table.querySelectorAll("thead th").forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", fell ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort(compare);
      table.tBodies[0].append(...(fell ? rows : rows.reverse()));
    });
  });
}
