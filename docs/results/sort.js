// Sorts a table by the column whose heading is clicked: numbers by value, the rest as text; again for the other way.
document.addEventListener("click", (event) => {
  const heading = event.target.closest("th");
  if (!heading) return;
  const body = heading.closest("table").tBodies[0];
  const place = heading.cellIndex;
  const rises = heading.dataset.rises !== "true";
  heading.dataset.rises = rises;
  const value = (row) => row.cells[place].textContent.trim();
  const number = (text) => parseFloat(text.replace(/,/g, ""));
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [number(value(a)), number(value(b))];
    const order = isNaN(x) || isNaN(y) ? value(a).localeCompare(value(b)) : x - y;
    return rises ? order : -order;
  });
  body.append(...rows);
});
