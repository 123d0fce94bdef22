// All clusters, the worst first.

import { el, update } from "./dom.js";
import { get } from "./api.js";
import { icon } from "./shapes.js";
import { age, badge, count, newest, notice, safe, small, standing, summary, work } from "./words.js";

const columns = ["Cluster", "State", "Would be lost", "Last good backup", "Last proof", "Last drill", "What is wrong, and the cure"];

let sought = ""; // kept while the person looks at a cluster

export function fleetView(main) {
	const verdict = el("p", { class: "verdict", role: "status" });
	const refused = el("div");
	const restores = el("div", { id: "restores" });
	const body = el("tbody", { role: "rowgroup" });
	const none = el("p", { class: "none", role: "status" });
	const field = el("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", value: sought, input: filter });
	const head = columns.map((name) => el("th", { scope: "col", role: "columnheader" }, name));
	main.replaceChildren(
		el("h1", {}, "Clusters"), verdict, refused, restores,
		el("p", { class: "filter" }, el("label", { for: "filter" }, "Show those whose name has "), field), none,
		// Below a certain width rows are shown as cards, which would take the table's meaning from it; roles keep it.
		el("table", { class: "fleet", role: "table", "aria-label": "Clusters, the worst first" },
			el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)), body));
	let clusters = [];

	function filter() {
		sought = field.value;
		const wanted = clusters.filter((c) => c.cluster.toLowerCase().includes(sought.trim().toLowerCase()));
		update(body, wanted, (list) => list.map(row));
		update(none, [clusters.length, wanted.length], () => (clusters.length && !wanted.length ? "No cluster has such a name." : ""));
	}

	async function refresh() {
		const said = await get("clusters");
		clusters = worstFirst(said.clusters);
		update(verdict, summary(clusters), ({ shape, text }) => [icon(shape), el("span", {}, text)]);
		verdict.className = "verdict " + summary(clusters).shape;
		update(refused, said.config?.refused ?? "", (why) => why &&
			notice("warning", "What the configuration file says now is refused, and the old one stays in effect: ", why));
		update(restores, (said.restores ?? []).filter((r) => !r.ended), (running) => running.map(restore));
		filter();
	}

	return { title: "Clusters", refresh };
}

// restore is one that runs, of a Kubernetes operator.
function restore({ namespace, name, statefulSet, phase, since, membersDone, message }) {
	return notice("unknown", el("strong", {}, `${namespace}/${name}`), ` restores StatefulSet ${statefulSet}: ${phase}`,
		since && [" for ", age(since, "")], membersDone && `, ${membersDone} members done`, message && `. ${message}`);
}

function worstFirst(clusters) {
	const since = (c) => Date.parse(safe(c) ?? 0);
	return [...clusters].sort((a, b) => standing(a).rank - standing(b).rank || since(a) - since(b) || a.cluster.localeCompare(b.cluster));
}

function row(cluster) {
	const good = goodOf(cluster);
	const cells = [
		[el("a", { id: "open-" + cluster.cluster, href: `#/clusters/${encodeURIComponent(cluster.cluster)}` }, cluster.cluster)],
		[badge(standing(cluster)), small(work(cluster))],
		[loss(cluster)],
		[good ? age(good.started) : never()],
		[proof(cluster)],
		[drill(cluster)],
		[conditions(cluster)],
	];
	const well = !cluster.conditions.length && !cluster.problem; // a card has no line for that
	return el("tr", { role: "row", class: standing(cluster).shape }, cells.map((cell, i) => (i === 0
		? el("th", { scope: "row", role: "rowheader" }, cell)
		: el("td", { role: "cell", "data-column": columns[i], class: i === cells.length - 1 && well && "empty" }, el("div", {}, cell)))));
}

// goodOf is the newest good backup or, before the repositories were looked at for that, the newest one.
export const goodOf = (cluster) => newest(cluster.standings, (s) => s.good?.started)?.good ?? cluster.last;

const never = (word = "never") => el("strong", { class: "bad" }, word);

export function loss(cluster) {
	const moment = safe(cluster);
	return moment ? age(moment, "") : never(cluster.state === "starting" ? "not known yet" : "everything");
}

export function proof(cluster) {
	const last = newest(cluster.standings, (s) => s.good?.provenAt)?.good;
	if (!last?.proven) return never();
	return [el("span", { class: "together" }, icon(last.proven), " ", last.proven), small(age(last.provenAt))];
}

export function drill(cluster) {
	const last = newest(cluster.standings, (s) => s.drill?.time)?.drill;
	if (!last) return small("never");
	const verdict = last.verdict === "passed" ? "passed" : el("strong", { class: "bad" }, last.verdict);
	return [verdict, small(age(last.time))];
}

const most = 2; // conditions in a row; all of them stand on the cluster's own page

function conditions(cluster) {
	const all = cluster.conditions;
	if (!all.length) return cluster.problem ? el("p", {}, cluster.problem) : small("nothing");
	return el("ul", { class: "conditions" }, all.slice(0, most).map((c) => el("li", {},
		el("span", { class: c.severity }, icon(c.severity), " ", c.message), el("span", { class: "cure" }, c.cure))),
	all.length > most && el("li", { class: "small" }, `and ${count(all.length - most, "more", "more")}`));
}

