// The time line: recovery windows, gaps, backups by their proof, and drills, with a cursor that picks a moment.

import { now } from "./api.js";
import { draw, el, fill } from "./dom.js";
import { drillShape, icon, mark, proofShape } from "./shapes.js";
import { known, span, utc } from "./words.js";

const hour = 3600e3, day = 24 * hour;
const ranges = { "1 hour": hour, "6 hours": 6 * hour, "1 day": day, "1 week": 7 * day, "30 days": 30 * day, "All": 0 };
const steps = [
	60e3, 300e3, 600e3, 1800e3, hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour,
	day, 2 * day, 7 * day, 14 * day, 30 * day, 91 * day, 365 * day,
]; // between labels
const lanes = { window: 38, backup: 92, drill: 140 }; // where each begins, in pixels from above
const bar = 22, height = 196, axis = 170, edge = 10;
const weights = ["stored", "hashed", "opened", "booted", "bad", "drill-passed", "drill-not-run", "drill-failed"];
const half = 62; // pixels: of the text above the cursor
const apart = 12; // pixels between two marks
const near = 9; // pixels within which a click means the mark and not the moment

// timeline calls picked(moment in milliseconds, id of a backup or undefined).
export function timeline(picked) {
	const picture = draw("svg", {
		height, tabindex: "0", role: "slider", "aria-label": "Moment to go back to", "aria-describedby": "timeline-keys", keydown, pointerdown,
	});
	const frame = el("div", { class: "timeline" }, picture);
	const buttons = Object.entries(ranges).map(([name, range]) =>
		el("button", { type: "button", "aria-pressed": "false", click: () => zoom(range) }, name));
	const step = (label, name, by) => el("button", { type: "button", "aria-label": name, click: () => pan(by) }, label);
	const node = el("div", {},
		el("div", { class: "ranges", role: "group", "aria-label": "What the time line shows" },
			step("←", "Earlier", -0.5), buttons, step("→", "Later", 0.5)),
		frame, legend(),
		el("p", { id: "timeline-keys", class: "small keys" }, "Click a moment, or use the keyboard: ",
			keys("←", "→"), " move, with ", keys("Shift"), " further; ", keys("Page Up", "Page Down"), " backup by backup; ",
			keys("Home", "End"), " oldest and newest; ", keys("+", "−"), " zoom."));

	let backups = [], windows = [], gaps = [], drills = [];
	let from, to; // what is shown
	let cursor; // what is picked
	let width = 0;
	new ResizeObserver(([entry]) => {
		width = Math.floor(entry.contentRect.width);
		paint();
	}).observe(frame);

	const x = (at) => edge + ((at - from) / (to - from)) * (width - 2 * edge);
	const at = (px) => from + ((px - edge) / (width - 2 * edge)) * (to - from);
	const oldest = () => Math.min(...backups.map((b) => b.at), ...windows.map((w) => w.from), ...gaps.map((g) => g.since));

	function show(theBackups, theWindows, theGaps, proofs, target) {
		backups = theBackups.map((b) => ({ ...b, at: Date.parse(b.started) })).sort((a, b) => a.at - b.at);
		windows = theWindows.filter((w) => known(w.from.time) && known(w.to.time))
			.map((w) => ({ from: Date.parse(w.from.time), to: Date.parse(w.to.time) }));
		gaps = theGaps.map((g) => ({ ...g, since: Date.parse(g.since), until: known(g.until) ? Date.parse(g.until) : now() }));
		drills = proofs.map((p) => ({ ...p, at: Date.parse(p.time) }));
		if (from === undefined) zoom(fitting());
		point(target);
	}

	// point puts the cursor to a target; a revision has no place on a line of time.
	function point(target) {
		const moment = known(target.time) ? Date.parse(target.time) : backups.find((b) => b.id === target.backup)?.at;
		cursor = Number.isNaN(moment) ? undefined : moment;
		if (cursor < from || cursor > to) shift(cursor - (from + to) / 2);
		else paint();
	}

	// fitting is the shortest range that shows a few backups.
	function fitting() {
		const begin = backups.at(-12)?.at ?? oldest();
		return Object.values(ranges).find((range) => range && now() - range < begin) ?? 0;
	}

	function zoom(range, around) {
		const end = now(), whole = Math.max(end - oldest(), hour);
		const wanted = range || whole;
		to = around === undefined || range === 0 ? end : Math.min(end, around + wanted / 2);
		if (!Number.isFinite(wanted)) return paint();
		from = to - wanted * 1.02;
		to += wanted * 0.02; // so that what was just done is not under the edge
		buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(Object.values(ranges)[i] === range)));
		paint();
	}

	function pan(by) {
		const move = Math.min(by * (to - from), now() - from > 0 ? now() + (to - from) * 0.02 - to : 0);
		shift(by < 0 ? by * (to - from) : Math.max(0, move));
	}

	function shift(by) {
		from += by;
		to += by;
		paint();
	}

	function pick(moment, backup) {
		cursor = Math.min(moment, now());
		if (cursor < from || cursor > to) shift(cursor - (from + to) / 2);
		else paint();
		picked(cursor, backup?.id);
	}

	function pointerdown(event) {
		const px = event.clientX - picture.getBoundingClientRect().left;
		const close = backups.filter((b) => Math.abs(x(b.at) - px) < near).sort((a, b) => Math.abs(x(a.at) - px) - Math.abs(x(b.at) - px))[0];
		pick(close ? close.at : Math.floor(at(px) / 1000) * 1000, close);
	}

	function keydown(event) {
		if (event.ctrlKey || event.altKey || event.metaKey) return;
		const here = cursor ?? now();
		const second = (moment) => Math.round(moment / 1000) * 1000;
		const little = Math.max(1000, (to - from) / (event.shiftKey ? 20 : 200));
		const before = () => backups.findLast((b) => b.at < here), after = () => backups.find((b) => b.at > here);
		const toBackup = (b) => b && pick(b.at, b);
		const lastWindow = () => Math.max(...windows.map((w) => w.to)); // a backup is picked as itself: its second is before it
		const meaning = {
			ArrowLeft: () => pick(second(here - little)), ArrowDown: () => pick(second(here - little)),
			ArrowRight: () => pick(second(here + little)), ArrowUp: () => pick(second(here + little)),
			PageUp: () => toBackup(before()), PageDown: () => toBackup(after()),
			Home: () => toBackup(backups[0]), End: () => (lastWindow() > (backups.at(-1)?.at ?? 0) ? pick(lastWindow()) : toBackup(backups.at(-1))),
			"+": () => zoom((to - from) / 2.08, here), "=": () => zoom((to - from) / 2.08, here), "-": () => zoom((to - from) * 1.92, here),
		}[event.key];
		if (meaning) {
			event.preventDefault();
			meaning();
		}
	}

	function paint() {
		if (!width || from === undefined) return;
		picture.setAttribute("width", width);
		picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
		fill(picture, hatch(), lane("window", "Any moment can be restored"), lane("backup", "Backups"), lane("drill", "Drills"), ticks(),
			windows.filter(visible).map((w) => block("window", w.from, w.to)),
			gaps.filter((g) => visible({ from: g.since, to: g.until })).map(gap),
			spread(backups, proofShape).map((b) => placed(mark(proofShape(b)), b.at, lanes.backup)),
			spread(drills, (d) => drillShape(d.verdict)).map((d) => placed(mark(drillShape(d.verdict)), d.at, lanes.drill)),
			nowLine(), cursorLine());
		const value = Math.round((cursor ?? now()) / 1000);
		picture.setAttribute("aria-valuemin", Math.round((Number.isFinite(oldest()) ? oldest() : from) / 1000));
		picture.setAttribute("aria-valuemax", Math.round(now() / 1000));
		picture.setAttribute("aria-valuenow", value);
		picture.setAttribute("aria-valuetext", cursor === undefined ? "nothing picked yet" : said(cursor));
	}

	// said is what a screen reader says of a moment.
	function said(moment) {
		const backup = backups.find((b) => b.at === moment);
		if (backup) return `${utc(moment)}, backup, ${backup.proven || "failed its last check"}`;
		if (gaps.some((g) => g.since < moment && moment < g.until)) return `${utc(moment)}, in a gap`;
		const exact = windows.some((w) => w.from <= moment && moment <= w.to);
		return `${utc(moment)}, ${exact ? "can be restored exactly" : "only the backup before it can be restored"}`;
	}

	const visible = ({ from: begin, to: end }) => end >= from && begin <= to;
	const clamp = (moment) => Math.max(0, Math.min(width, x(moment)));
	const lane = (name, label) => draw("g", {},
		draw("text", { class: "lane", x: edge, y: lanes[name] - 7 }, label),
		draw("rect", { class: "lane", x: 0, y: lanes[name], width, height: bar, rx: 3 }));
	const block = (name, begin, end) => draw("rect", {
		class: name, x: clamp(begin), y: lanes.window, width: Math.max(2, clamp(end) - clamp(begin)), height: bar, rx: 2,
	});

	function gap(g) {
		const left = clamp(g.since), space = clamp(g.until) - left;
		return draw("g", {}, draw("title", {}, `gap of ${span((g.until - g.since) / 1000)}: ${g.reason}`), block("gap", g.since, g.until),
			draw("text", { class: "gap", x: Math.min(width - 14, Math.max(14, left + space / 2)), y: lanes.window + bar + 13 }, "gap"));
	}

	const placed = (shape, moment, y) => {
		shape.setAttribute("transform", `translate(${x(moment) - 8} ${y + 3})`);
		return shape;
	};

	// spread leaves out marks that would lie on others, and what is bad or proven before what is not: of a year of hourly
	// backups a few dozen are drawn.
	function spread(all, shape) {
		const taken = [];
		const weight = (one) => weights.indexOf(shape(one));
		return all.filter((one) => one.at >= from && one.at <= to).sort((a, b) => weight(b) - weight(a)).filter((one) => {
			const px = x(one.at), free = !taken.some((other) => Math.abs(other - px) < apart);
			if (free) taken.push(px);
			return free;
		});
	}

	function ticks() {
		const least = ((to - from) / (width - 2 * edge)) * 92; // so that labels have room
		const every = steps.find((s) => s >= least) ?? steps.at(-1);
		const shift = new Date(from).getTimezoneOffset() * 60e3; // so that days begin at the local midnight
		const marks = [];
		const last = at(Math.min(width, x(now())) - 40); // beside "now"
		for (let t = Math.ceil((from - shift) / every) * every + shift; t <= last; t += every) {
			marks.push(draw("line", { class: "tick", x1: x(t), x2: x(t), y1: 26, y2: axis }),
				draw("text", { class: "tick", x: x(t), y: axis + 16 }, label(t, every)));
		}
		return marks;
	}

	function nowLine() {
		const px = x(now());
		if (px < 0 || px > width) return undefined;
		return draw("g", { class: "now" }, draw("line", { x1: px, x2: px, y1: 26, y2: axis }),
			draw("text", { x: Math.min(px, width - 2), y: axis + 16, "text-anchor": px > width - 20 ? "end" : "middle" }, "now"));
	}

	function cursorLine() {
		if (cursor === undefined || cursor < from || cursor > to) return undefined;
		const px = x(cursor), middle = Math.max(half, Math.min(width - half, px)); // the text stays within the picture
		return draw("g", { class: "cursor" }, draw("line", { x1: px, x2: px, y1: 16, y2: axis }),
			draw("path", { d: `M${px - 6} 14h12l-6 9Z` }),
			draw("text", { x: middle, y: 11, "text-anchor": "middle" }, clock.format(cursor)));
	}

	return { node, show, point };
}

const clock = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const months = new Intl.DateTimeFormat("en-GB", { month: "short", year: "numeric" });

function label(t, every) {
	if (every >= 30 * day) return months.format(t);
	return every >= day || new Date(t).getHours() + new Date(t).getMinutes() === 0 ? days.format(t) : hours.format(t);
}

const keys = (...names) => names.map((name) => el("kbd", {}, name));

const hatch = () => draw("defs", {},
	draw("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
		draw("rect", { class: "hatch-ground", width: 7, height: 7 }), draw("rect", { class: "hatch-line", width: 3, height: 7 })));

function legend() {
	const entry = (shape, text) => el("li", {}, icon(shape), " ", text);
	return el("ul", { class: "legend", "aria-label": "What the marks mean" },
		entry("stored", "stored"), entry("hashed", "hashed: every byte read"), entry("opened", "opened: database checked"),
		entry("booted", "booted: etcd ran on it"),
		entry("bad", "failed"), entry("drill-passed", "drill passed"), entry("drill-not-run", "drill not run"));
}
