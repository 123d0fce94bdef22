// What is shown, by the address behind the #, and the refresh that keeps it true.

import { dropToken, hasToken, keepToken, now, Refusal } from "./api.js";
import { clusterView } from "./cluster.js";
import { el, fill, update } from "./dom.js";
import { fleetView } from "./fleet.js";
import { notice, span, tick, utc, zone } from "./words.js";

const every = 10000; // milliseconds between two looks at the service
const counting = 1000; // and between two looks at the clock
const old = 45; // seconds after which what is shown counts as old

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
const alarm = document.getElementById("alarm");

let view, address, timer, asked = 0;
let lastGood; // when the service last answered
let problem = "";

function route() {
	const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
	if (path && !path.startsWith("/")) return; // the skip link
	const target = new URLSearchParams(query);
	if (view && path === address) {
		view.go?.(target);
		return;
	}
	const first = address === undefined;
	address = path;
	const [, kind, cluster] = path.split("/");
	view = kind === "clusters" && cluster ? clusterView(main, decodeURIComponent(cluster), target) : fleetView(main);
	document.title = `${view.title} · etcd-dr`;
	if (!first) {
		scrollTo(0, 0);
		main.focus({ preventScroll: true });
	}
	look();
}

async function look() {
	clearTimeout(timer);
	const mine = ++asked;
	try {
		await view.refresh();
		if (mine !== asked) return; // the person has gone on meanwhile
		lastGood = now();
		problem = "";
	} catch (error) {
		if (mine !== asked) return;
		if (error instanceof Refusal && error.status === 401) return askForToken();
		problem = error instanceof Refusal ? `The service refuses: ${error.message}` : `The service does not answer (${error.message}).`;
	}
	say();
	if (!document.hidden) timer = setTimeout(look, every);
}

// say tells how old what is shown is.
function say() {
	tick();
	const seconds = lastGood === undefined ? undefined : (now() - lastGood) / 1000;
	const text = seconds === undefined ? "" : seconds < every / 1000 + 5 ? "up to date" : `as of ${span(seconds)} ago`;
	update(freshness, text, () => [hasToken() && el("button", { id: "forget", click: forget }, "Forget the token"), el("span", {}, text)]);
	freshness.classList.toggle("old", seconds > old);
	update(alarm, [problem, lastGood], () => problem && notice("critical", problem,
		lastGood === undefined ? " Nothing is known yet." : ` What you see is of ${utc(lastGood)}, and may be wrong by now.`));
}

function forget() {
	dropToken();
	location.reload();
}

function askForToken() {
	const had = hasToken();
	dropToken();
	const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
	const form = el("form", { submit: enter }, el("label", { for: "token" }, "Token"), field, el("button", {}, "Go on"));
	address = undefined;
	view = undefined;
	fill(main, el("h1", {}, "Who are you?"),
		el("p", {}, had ? "The service does not know this token." : "The service asks for a token.",
			" It is one of those in its --tokens-file, and is kept until this tab is closed."), form);
	field.focus();
	function enter(event) {
		event.preventDefault();
		keepToken(field.value.trim());
		route();
	}
}

document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault(); // the address behind the # is the page's own
	main.focus();
});
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : view && look()));
setInterval(() => document.hidden || say(), counting);
document.getElementById("zone").textContent = zone();
route();
