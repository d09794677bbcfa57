// What the page does beyond its HTML: it goes on by itself. Without this file everything is there; one has to reload.
"use strict";

const EVERY_MS = 2000;
let paused = false;

// Somebody who reads, marks text or stands on a link must not have it pulled away.
function isInUse(part) {
  const chosen = document.getSelection();
  return part.contains(document.activeElement) || (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
}

async function renew() {
  const reply = await fetch(location.href, { cache: "no-cache" });
  if (!reply.ok) {
    throw new Error(reply.statusText);
  }
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next && next.innerHTML !== part.innerHTML && !isInUse(part)) {
      part.replaceChildren(...next.childNodes);
    }
  }
}

async function goOn() {
  if (!paused && !document.hidden) {
    const isAnswered = await renew().then(() => true, () => false);
    document.getElementById("stale").hidden = isAnswered;
  }
  setTimeout(goOn, EVERY_MS);
}

function offerPause() {
  const button = document.getElementById("pause");
  if (!button) {
    return;
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
  });
}

if (document.querySelector("[data-live]")) {
  offerPause();
  setTimeout(goOn, EVERY_MS);
}

// A branch of the tree opens in place; without this file its hash leads to a page of its own.
async function openBranch(button) {
  const item = button.closest("li");
  const there = item.querySelector(":scope > .branches");
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (there) {
    there.hidden = isOpen;
    return;
  }
  const reply = await fetch(button.dataset.open);
  const level = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector(".branches");
  if (reply.ok && level) {
    item.append(level);
    offerOpening(level);
  }
}

function offerOpening(part) {
  for (const button of part.querySelectorAll("button[data-open]")) {
    button.hidden = false;
    button.addEventListener("click", () => openBranch(button).catch(() => button.setAttribute("aria-expanded", "false")));
  }
}

offerOpening(document);
