// One cluster: what is wrong with it, where it can go back to, what goes next, and what was done.

import { clusterPath, get, Refusal } from "./api.js";
import { el, update } from "./dom.js";
import { drill, goodOf, loss, proof } from "./fleet.js";
import { momentPicker } from "./moment.js";
import { orders } from "./orders.js";
import { icon } from "./shapes.js";
import { age, badge, count, known, moment, newest, notice, safe, size, small, span, standing, work } from "./words.js";

const kept = 10000; // milliseconds for which the service answers with what it read before

export function clusterView(main, name, target) {
	const part = () => el("div");
	const head = part(), facts = part(), wrong = part(), chooser = part(), silent = part(), pruning = part(), jobs = part();
	const picker = momentPicker(name);
	const desk = orders(name, () => refresh());
	main.replaceChildren(
		el("p", { class: "back" }, el("a", { href: "#/" }, "← All clusters")),
		el("h1", {}, name), head, facts,
		section("What is wrong", wrong),
		section("Go back to a moment", chooser, silent, picker.node),
		section("What pruning drops next", pruning),
		section("What was done last", jobs),
		section("What you can do", desk.node));

	let repository = target.get("repository") ?? "";
	let seen = ""; // what the repository's content was last read for
	let changed = 0, sure = false; // when that was first seen, and whether it was read after that by the service too
	picker.go(repository, target);

	async function refresh() {
		const cluster = await get(clusterPath(name));
		update(head, [cluster.state, cluster.next, cluster.conditions], () => el("p", { class: "standing" },
			badge(standing(cluster)), " ", work(cluster), cluster.reason && small(cluster.reason)));
		update(facts, cluster, factsOf);
		update(wrong, cluster, wrongOf);
		update(jobs, cluster.jobs, jobsOf);
		desk.show(cluster);
		const names = cluster.standings.map((s) => s.repository);
		if (!names.includes(repository)) repository = names[0] ?? "";
		update(chooser, [names, repository], () => names.length > 1 && choice(names));
		await refreshContent(cluster);
	}

	// What a repository holds is asked for again only after something has changed in it: each answer is a listing of the store.
	async function refreshContent(cluster) {
		const standing = cluster.standings.find((s) => s.repository === repository);
		const now = JSON.stringify([repository, cluster.last?.id, standing?.at, standing?.backups, standing?.drill?.time, standing?.verified]);
		if (seen === now && sure) return;
		if (seen !== now) changed = performance.now();
		const asked = performance.now();
		const of = (what) => get(clusterPath(name, what), { repository });
		let problem = "";
		try {
			const [backups, windows, drills, retention] = await Promise.all(
				[of("backups"), of("windows"), of("drills"), of("retention").catch(refused)]);
			seen = now;
			sure = asked - changed > kept;
			picker.show(repository, backups, windows, drills.drills);
			update(pruning, retention, () => retention.problem ?
				notice("warning", "What pruning drops next is not known: ", retention.problem) : pruningOf(retention));
		} catch (error) {
			if (!(error instanceof Refusal)) throw error;
			problem = error.message;
		}
		update(silent, problem, () => problem && notice("warning", "The repository does not tell what it holds: ", problem));
	}

	// refused keeps one answer that is missing from hiding the others.
	function refused(error) {
		if (!(error instanceof Refusal)) throw error;
		return { problem: error.message };
	}

	function choice(names) {
		const pick = el("select", { id: "repository", change: () => {
			repository = pick.value;
			picker.go(repository, new URLSearchParams());
			refresh().catch(() => {}); // the next look says what is wrong
		} }, names.map((n) => el("option", { value: n, selected: n === repository }, n)));
		return el("p", {}, el("label", { for: "repository" }, "Out of repository "), pick);
	}

	return { title: name, refresh, go: (to) => picker.go(to.get("repository") ?? repository, to) };
}

function section(title, ...children) {
	const id = title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
	return el("section", { "aria-labelledby": id }, el("h2", { id }, title), children);
}

function factsOf(cluster) {
	const { standings } = cluster;
	const good = goodOf(cluster);
	const rto = newest(standings, (s) => s.drill?.time)?.drill.drill?.rtoSeconds;
	const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
	return el("dl", { class: "facts" },
		fact("Would be lost", loss(cluster), safe(cluster) && small("what was written after ", moment(safe(cluster)))),
		fact("Last good backup", good ? [age(good.started), small(moment(good.started))] : "none"),
		fact("Last proof", proof(cluster)),
		fact("Last drill", drill(cluster), rto > 0 && small(`a restore took ${span(rto)}`)),
		standings.map((s) => fact("In repository " + s.repository, `${count(s.backups, "backup")}, ${size(s.bytes)}`,
			small(s.problem ? el("strong", { class: "bad" }, s.problem) : ["looked at ", age(s.at)]))));
}

function wrongOf(cluster) {
	const all = cluster.conditions;
	return [
		cluster.suspension && notice("paused", "Suspended by ", cluster.suspension.by, ": ",
			cluster.suspension.reason, " (", age(cluster.suspension.since), ")"),
		cluster.problem && notice("warning", `The last ${count(cluster.failures, "try", "tries")} failed: `, cluster.problem),
		cluster.unpruned && notice("warning", "Old backups stay: ", cluster.unpruned),
		all.length > 0 && el("ul", { class: "conditions wide" }, all.map(conditionOf)),
		!all.length && !cluster.problem && el("p", {}, "Nothing that the service knows of."),
	];
}

const conditionOf = (c) => el("li", { class: c.severity }, icon(c.severity), el("div", {},
	el("h3", {}, c.name, " ", c.repository && small("in repository " + c.repository), " ", small("since ", age(c.since, ""))),
	el("p", {}, c.message), el("p", { class: "cure" }, c.cure)));

function pruningOf(retention) {
	const drops = retention.backups.filter((b) => !b.keep), keeps = retention.backups.filter((b) => b.keep);
	const line = (b) => el("li", {}, moment(b.started), `, ${size(b.size)}: `, b.reasons.join(", "), b.doubt && ` (${b.doubt})`);
	const log = retention.log.map((l) => el("li", {}, count(l.segments, "piece"), " of the log, ", size(l.size), ": ", l.reason));
	return [
		drops.length + log.length ? [
			el("p", {}, `The next pruning frees ${size(retention.removedBytes)} and keeps ${size(retention.keptBytes)}. It drops:`),
			el("ul", {}, drops.map(line), log),
		] : el("p", {}, "Nothing: all that is there is kept."),
		keeps.length > 0 && el("details", { id: "kept" },
			el("summary", {}, `${count(keeps.length, "backup")} kept, and why`), el("ul", {}, keeps.map(line))),
	];
}

function jobsOf(jobs) {
	if (!jobs.length) return el("p", {}, "Nothing since this service was started.");
	const columns = ["Job", "Began", "How it went", "Why it was done"];
	const head = (name) => el("th", { scope: "col", role: "columnheader" }, name);
	const cell = (column, content) => el("td", { role: "cell", "data-column": column }, el("div", {}, content));
	return el("table", { class: "jobs", role: "table" },
		el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map(head))),
		el("tbody", { role: "rowgroup" }, jobs.map((j) => el("tr", { role: "row" },
			el("th", { scope: "row", role: "rowheader" }, j.job, j.repository && small(j.repository)),
			[age(j.began), outcome(j), j.reason].map((content, i) => cell(columns[i + 1], content))))));
}

function outcome(job) {
	if (!job.verdict) return "runs";
	const took = known(job.ended) && ` in ${span((Date.parse(job.ended) - Date.parse(job.began)) / 1000)}`;
	const shape = { succeeded: "good", failed: "critical", "not run": "warning" }[job.verdict];
	return [el("span", { class: shape }, icon(shape), " ", job.verdict), took,
		job.rtoSeconds && `, a restore took ${span(job.rtoSeconds)}`, job.message && small(job.message)];
}
