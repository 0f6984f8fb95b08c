// A key presses the button that names it; the page works without.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const button = [...document.querySelectorAll("button")].find((each) => each.dataset.key === event.key);
  if (button) {
    event.preventDefault();
    button.click();
  }
});
