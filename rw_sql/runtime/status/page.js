// Reloads the page's content every few seconds, except while an input field has the focus or text is selected. Opened
// sections stay open.
"use strict";
const SECONDS = 5;

class Refused extends Error {}

async function renew() {
  if (document.hidden) return;
  const main = document.querySelector("main");
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Refused((await answer.text()).trim());
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
  } catch (error) {
    const why = error instanceof Refused ? `The process answers: ${error.message}` : "The process does not answer";
    let said = main.querySelector(".away");
    if (said === null) {
      said = document.createElement("p");
      said.className = "away";
      main.prepend(said);
    }
    said.textContent = `${why}. This is what it showed last.`;
  }
}

function key(summary) {
  return summary.textContent.split(":")[0];
}

setInterval(renew, SECONDS * 1000);
document.addEventListener("visibilitychange", renew);
