const rows = [...document.querySelectorAll('tbody tr')];
const count = document.getElementById('count');
function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !words.every(word => content.includes(word));
    if (!row.hidden) ++shown;
  }
  count.textContent = `${shown} of ${rows.length} rows`;
}
document.getElementById('filter').addEventListener('input', event => filter(event.target.value));
document.querySelectorAll('th').forEach((head, column) => {
  let up = false;
  head.tabIndex = 0;
  const sort = () => {
    up = !up;
    const value = row => row.cells[column].textContent;
    const number = head.classList.contains('number');
    rows.sort((a, b) => {
      const order = number ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b));
      return up ? order : -order;
    });
    document.querySelector('tbody').append(...rows);
  };
  head.addEventListener('click', sort);
  head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(); });
});
filter('');
