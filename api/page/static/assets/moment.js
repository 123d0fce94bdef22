// A moment to go back to: picked on the time line, or typed; and the command that restores it.

import { clusterPath, get, now, search } from "./api.js";
import { el, fill, update } from "./dom.js";
import { icon, proofShape } from "./shapes.js";
import { timeline } from "./timeline.js";
import { age, count, known, moment, notice, size, small, span, utc } from "./words.js";

const settle = 250; // milliseconds without another key before the service is asked

export function momentPicker(cluster) {
	const line = timeline((at, backup) => pick(backup ? { backup } : { time: utc(at) }));
	const field = el("input", { id: "target", autocomplete: "off", spellcheck: "false", "aria-describedby": "target-forms" });
	const form = el("form", { class: "target", submit: enter },
		el("label", { for: "target" }, "Or type a time or a revision"), field, el("button", {}, "Show"),
		el("p", { id: "target-forms", class: "small" },
			"2026-11-21T09:24:33Z, 2h ago, 4711, or a backup's id. Nothing: the newest point there is."));
	const answer = el("div", { class: "answer", "aria-live": "polite" });
	const list = el("div");
	let repository = "", target = {}, waiting, asked = 0;
	let place = {}; // of the cursor: the target or, where that is no time, what the service says of it

	function enter(event) {
		event.preventDefault();
		try {
			pick(targetOf(field.value.trim()), 0);
			line.point(place);
		} catch (error) {
			asked++; // an answer that is on its way is not to this
			fill(answer, refusal(error));
		}
	}

	// pick asks for a target, and writes it into the address: that can be sent to somebody.
	function pick(to, wait = settle) {
		target = place = to;
		field.value = to.time ?? to.revision ?? to.backup ?? "";
		history.replaceState(null, "", `#/clusters/${encodeURIComponent(cluster)}${search({ repository, ...to })}`);
		clearTimeout(waiting);
		hold();
		waiting = setTimeout(() => ask(), wait);
	}

	// hold takes away the command of the target before: nobody must copy that one now.
	function hold() {
		asked++;
		fill(answer, el("p", { class: "small" }, "Asking what that means…"));
	}

	async function ask(best = false) {
		hold();
		const mine = asked;
		let said;
		try {
			const way = await get(clusterPath(cluster, "plan"), { repository, ...target, best });
			said = planOf(way);
			if (mine === asked && !target.time && !target.backup) line.point(place = { time: way.lost.since });
		} catch (error) {
			said = [refusal(error), error.status === 404 && !best && Object.keys(target).length > 0 &&
				el("p", {}, el("button", { id: "nearest", click: () => ask(true) }, "Show the nearest point before"))];
		}
		if (mine === asked) fill(answer, said);
	}

	// go takes what an address says.
	function go(of, parameters) {
		repository = of;
		target = {};
		for (const kind of ["time", "revision", "backup"]) {
			if (parameters.get(kind)) target = { [kind]: parameters.get(kind) };
		}
		place = target;
		line.point(place);
		field.value = Object.values(target)[0] ?? "";
		ask();
	}

	function show(of, backups, windows, drills) {
		repository = of;
		line.show(backups.backups.filter((b) => !b.origin), windows.windows, windows.gaps, drills, place);
		update(list, backups, () => backupsOf(backups, (id) => pick({ backup: id }, 0)));
	}

	return { node: el("div", {}, line.node, form, answer, list), go, show };
}

const refusal = (error) => notice("critical", error.message);

const secondsIn = { y: 365 * 86400, w: 7 * 86400, d: 86400, h: 3600, m: 60, s: 1 };

// targetOf reads what a person typed: nothing for the newest point, a revision, a backup's id, a time, or how long ago. A time
// without a zone is refused: at night, in a hurry, two people would read it as two moments.
function targetOf(text) {
	if (!text) return {};
	if (/^\d+$/.test(text)) return { revision: text };
	if (/^\d{8}T\d{6}Z-[0-9a-f]+$/.test(text)) return { backup: text };
	if (/^(\d+[ywdhms]\s*)+ago$/.test(text)) {
		const spans = [...text.matchAll(/(\d+)([ywdhms])/g)].map(([, n, unit]) => n * secondsIn[unit]);
		return { time: utc(now() - spans.reduce((sum, seconds) => sum + seconds) * 1000) };
	}
	if (!/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(text) || Number.isNaN(Date.parse(text))) {
		throw new Error(`"${text}" is no time, no revision and no backup's id. Forms: 2026-11-21T09:24:33Z, 2h ago, 4711.`);
	}
	if (!/(Z|[+-]\d\d:\d\d)$/.test(text)) throw new Error(`"${text}" has no zone: add Z for UTC, or an offset such as +02:00.`);
	return { time: utc(text) };
}

function planOf({ command, plan, lost, estimateSeconds }) {
	// Broken between words alone where there is room: a line that ends within --dry-run would be read wrongly.
	const words = command.split(" ").flatMap((word, i) => [i > 0 && " ", el("span", {}, word)]);
	const copied = el("span", { class: "small", role: "status" });
	const copy = el("button", { id: "copy", click: async () => {
		try {
			await navigator.clipboard.writeText(command);
			copied.textContent = "copied";
		} catch {
			getSelection().selectAllChildren(code);
			copied.textContent = "selected: press Ctrl+C";
		}
	} }, "Copy");
	const code = el("code", { id: "command", tabindex: "0", "aria-label": "The command" }, words);
	return [
		el("h3", {}, "Run this where the members' data dirs are to be"),
		el("div", { class: "command" }, el("pre", {}, code), el("p", {}, copy, " ", copied)),
		el("p", { class: "small" }, "It prints the plan and changes nothing. To restore, run it with --output-dir DIRECTORY",
			plan.backup?.seal?.encryption && " --identity FILE", " in place of --dry-run."),
		el("dl", { class: "facts" },
			fact("You get", got(plan)),
			fact("You lose", losing(lost)),
			estimateSeconds > 0 && fact("It takes about", span(estimateSeconds))),
		plan.notes?.length > 0 && el("ul", {}, plan.notes.map((note) => el("li", {}, note))),
	];
}

function losing(lost) {
	if (!known(lost.since)) return lost.message;
	return [el("strong", {}, age(lost.since, "")), " of writes", small("all after ", moment(lost.since)),
		lost.knownSeconds > 0 && small(`${span(lost.knownSeconds)} of it`,
			lost.revisions > 0 && `, ${count(lost.revisions, "revision")},`, " could be had by picking a later moment")];
}

const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

function got({ backup, log, reach }) {
	return [
		backup && `revision ${(reach?.revision ?? backup.revision).toLocaleString("en")}`,
		backup && small("backup ", backup.id, ", taken ", moment(backup.started)),
		log && small(`and ${log.requests.toLocaleString("en")} requests of the log after it, ${size(log.bytes)}`),
	];
}

// backupsOf says the time line's marks in words, for whoever does not see them, and for ids.
function backupsOf({ backups, damaged, untrusted }, pick) {
	const proof = (b) => (b.proven ? [b.proven, " ", age(b.provenAt)] : "failed its last check");
	const line = (b) => el("li", {}, icon(proofShape(b)), " ", moment(b.started), " ",
		small(`revision ${b.revision.toLocaleString("en")}, ${size(b.plain.size)}, `, proof(b)),
	b.origin && small(b.origin.salvage ? "salvaged" : "imported"),
	b.pins?.length > 0 && small("pinned: ", b.pins.map((p) => p.until ? `${p.reason} (until ${p.until})` : p.reason).join(", ")),
	el("button", { id: "pick-" + b.id, click: () => pick(b.id), "aria-label": "Show how to restore backup " + b.id }, "Restore this"));
	const bad = [...damaged, ...untrusted].map((d) => el("li", {}, icon("bad"), " ", d.id, " ", small(d.message)));
	return el("details", { id: "backups" }, el("summary", {}, `All ${backups.length + bad.length} backups as a list`),
		el("ul", { class: "backups" }, bad, backups.map(line)));
}
