// How things are said: spans, moments, sizes, and how a cluster stands.

import { now } from "./api.js";
import { el } from "./dom.js";
import { icon } from "./shapes.js";

const minute = 60, hour = 60 * minute, day = 24 * hour;

// span is a number of seconds in words, in two units at most.
export function span(seconds) {
	seconds = Math.max(0, Math.round(seconds));
	const two = (big, bigName, small, smallName) => {
		const rest = Math.floor((seconds % big) / small);
		return `${Math.floor(seconds / big)} ${bigName}` + (rest ? ` ${rest} ${smallName}` : "");
	};
	if (seconds < minute) return `${seconds} s`;
	if (seconds < hour) return `${Math.floor(seconds / minute)} min`;
	if (seconds < day) return two(hour, "h", minute, "min");
	if (seconds < 2 * day) return two(day, "day", hour, "h");
	return seconds < 10 * day ? two(day, "days", hour, "h") : `${Math.floor(seconds / day)} days`;
}

export function size(bytes) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let i = 0;
	for (; bytes >= 1024 && i < units.length - 1; i++) bytes /= 1024;
	return `${i && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
}

export const count = (n, one, many = one + "s") => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

// Go's zero time is no time.
export const known = (time) => Boolean(time) && !time.startsWith("0001-");

const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const zoneName = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" })
	.formatToParts().find((part) => part.type === "timeZoneName").value;
const localIsUTC = new Intl.DateTimeFormat().resolvedOptions().timeZone === "UTC" || zoneName === "UTC";

export const utc = (time) => new Date(time).toISOString().replace(/\.\d+Z$/, "Z");

export const zone = () => (localIsUTC ? "Times are in UTC." : `Times are in ${zoneName}, your zone, and in UTC.`);

// moment says a time in the zone of whoever looks, and in UTC.
export function moment(time) {
	const text = localIsUTC ? local.format(new Date(time)) + " UTC" : `${local.format(new Date(time))} ${zoneName}`;
	return el("time", { datetime: utc(time) }, text, !localIsUTC && el("span", { class: "utc" }, " " + utc(time)));
}

// age says how long ago something was, and goes on counting: see tick.
export function age(time, suffix = " ago") {
	const node = el("time", { datetime: utc(time), "data-suffix": suffix, title: titleOf(time) });
	countOn(node);
	return node;
}

const titleOf = (time) => local.format(new Date(time)) + (localIsUTC ? " UTC" : ` ${zoneName}, ${utc(time)}`);

function countOn(node) {
	const seconds = (now() - Date.parse(node.dateTime)) / 1000;
	const text = seconds < -1 ? "in " + span(-seconds) : span(seconds) + node.dataset.suffix;
	if (node.textContent !== text) node.textContent = text;
}

// tick brings all ages on the page up to date.
export const tick = () => document.querySelectorAll("time[data-suffix]").forEach(countOn);

const stands = [
	{ shape: "critical", word: "Act now" },
	{ shape: "warning", word: "Look soon" },
	{ shape: "unknown", word: "Looking" },
	{ shape: "paused", word: "Suspended" },
	{ shape: "good", word: "Fine" },
];

// standing is how a cluster stands, the worst first: its rank, a word and a shape.
export function standing(cluster) {
	const has = (severity) => cluster.conditions.some((c) => c.severity === severity);
	let rank = 4;
	if (has("critical")) rank = 0;
	else if (has("warning") || cluster.state === "failing") rank = 1;
	else if (cluster.state === "starting" || !cluster.standings.length) rank = 2; // nothing wrong is known, for nobody has looked
	else if (cluster.state === "suspended" || cluster.suspension) rank = 3;
	return { rank, ...stands[rank] };
}

export function badge({ shape, word }) {
	return el("span", { class: `badge ${shape}` }, icon(shape), word);
}

export const small = (...children) => el("span", { class: "small" }, children);

// notice is what nobody should overlook.
export const notice = (shape, ...children) => el("p", { class: "notice " + shape }, icon(shape), el("span", {}, children));

// summary says in one sentence whether all is well.
export function summary(clusters) {
	const ranks = clusters.map((c) => standing(c).rank);
	const of = (rank) => ranks.filter((r) => r === rank).length;
	const all = count(clusters.length, "cluster");
	const [acute, soon, looking, paused] = [of(0), of(1), of(2), of(3)];
	if (!clusters.length) return { shape: "unknown", text: "No clusters are configured." };
	if (acute) {
		const also = soon ? `, and ${soon} more should be looked at soon` : "";
		return { shape: "critical", text: `${acute} of ${all} ${acute === 1 ? "needs" : "need"} you now${also}.` };
	}
	if (soon) return { shape: "warning", text: `${soon} of ${all} should be looked at soon. None is acute.` };
	if (looking) return { shape: "unknown", text: `Still looking at ${looking} of ${all}.` };
	const resting = paused ? ` ${count(paused, "cluster is", "clusters are")} suspended: nothing new is backed up there.` : "";
	return { shape: "good", text: `All is well with ${clusters.length === 1 ? "the one cluster" : "all " + all}.${resting}` };
}

// safe is the moment up to which everything is in a repository; what was written after it would be lost now.
export function safe(cluster) {
	const moments = [cluster.archive?.confirmedAt];
	if (!cluster.standings.length) moments.push(cluster.last?.started);
	for (const s of cluster.standings) moments.push(s.good?.started, s.window?.to.time);
	return moments.filter(known).sort((a, b) => Date.parse(a) - Date.parse(b)).at(-1);
}

// newest is the element of a list of standings that has the latest time at a field.
export function newest(standings, field) {
	return standings.filter((s) => known(field(s))).sort((a, b) => Date.parse(field(a)) - Date.parse(field(b))).at(-1);
}

const doing = { running: "backing up now", queued: "waiting for its turn", standby: "another service works on it", starting: "looking" };

// work is what the service does for a cluster.
export function work(cluster) {
	if (doing[cluster.state]) return doing[cluster.state];
	if (cluster.state === "suspended" || cluster.suspension) return "nothing is started";
	if (!known(cluster.next)) return "nothing is scheduled";
	return [cluster.state === "failing" ? "tries again " : "next backup ", age(cluster.next)];
}
