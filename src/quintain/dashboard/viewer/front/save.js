// The page that is shown as one file without scripts: what stands in it now, with the styles that it has.

import { h } from "./dom.js";

export async function save(title) {
  const style = await (await fetch("front/viewer.css")).text();
  const copy = document.documentElement.cloneNode(true);
  for (const each of copy.querySelectorAll("script, link, noscript, #save, .live-only")) each.remove();
  for (const each of copy.querySelectorAll("select")) {
    const own = document.getElementById(each.id);
    each.replaceWith(h("span", { class: "chip" }, own?.selectedOptions[0]?.textContent ?? ""));
  }
  for (const each of copy.querySelectorAll("a[href]")) each.removeAttribute("href");
  for (const each of copy.querySelectorAll("button, input")) each.setAttribute("disabled", "");
  const policy = document.createElement("meta");
  policy.setAttribute("http-equiv", "Content-Security-Policy");
  policy.setAttribute("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:");
  const sheet = document.createElement("style");
  sheet.textContent = style;
  copy.querySelector("head").prepend(policy);
  copy.querySelector("head").append(sheet);
  const text = `<!doctype html>\n${copy.outerHTML}\n`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  h("a", { href: address, download: `${title.replace(/[^\w.-]+/g, "-")}.html` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  return text;
}
