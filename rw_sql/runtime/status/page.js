// Fetches the page again and puts its content in the place of the old one. What is opened or typed stays.
"use strict";
const SECONDS = 5;

async function renew() {
  if (document.hidden) return;
  const main = document.querySelector("main");
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = made.querySelector("main");
    if (document.activeElement instanceof HTMLInputElement || String(getSelection()) !== "") return;
    const open = new Set([...main.querySelectorAll("details[open] > summary")].map((found) => key(found)));
    for (const found of next.querySelectorAll("details > summary")) {
      if (open.has(key(found))) found.parentElement.open = true;
    }
    const scrolled = [...main.querySelectorAll(".wide")].map((found) => found.scrollLeft);
    main.replaceChildren(...next.childNodes);
    [...main.querySelectorAll(".wide")].forEach((found, at) => { found.scrollLeft = scrolled[at] ?? 0; });
    document.title = made.title;
  } catch {
    if (main.querySelector(".away") === null) {
      const said = document.createElement("p");
      said.className = "away";
      said.textContent = "The process does not answer: this is what it showed last.";
      main.prepend(said);
    }
  }
}

function key(summary) {
  return summary.textContent.split(":")[0];
}

setInterval(renew, SECONDS * 1000);
document.addEventListener("visibilitychange", renew);
