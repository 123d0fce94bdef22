// What a person may order here: a backup or a drill now, suspend and resume. Each is asked about before it is sent. Nothing
// here restores or deletes.

import { clusterPath, mayOperate, post } from "./api.js";
import { el, fill, update } from "./dom.js";

export function orders(name, after) {
	const node = el("div");
	const told = el("p", { role: "status" });
	const buttons = el("div");
	node.append(buttons, told);

	function show(cluster) {
		const stopped = Boolean(cluster.suspension);
		update(buttons, [mayOperate(), stopped], () => {
			if (!mayOperate()) return el("p", {}, "Your role is to read. Backups, drills and suspending need the role operate.");
			return el("p", { class: "orders" },
				order("backup", "Back up now", `Take a backup of ${name} now?`, "It reads all of one member's database.", "trigger", { job: "backup" }),
				order("drill", "Drill now", `Restore ${name} for practice now?`,
					"Into a scratch server on the service's host, which is thrown away. The cluster is not touched.", "trigger", { job: "drill" }),
				stopped ? order("resume", "Resume", `Resume ${name}?`, "What was missed is caught up at once.", "resume", {})
					: order("suspend", "Suspend", `Suspend ${name}?`, "No backup and no drill begins until somebody resumes it.", "suspend", {}, "Why"));
		});
	}

	const order = (id, label, question, meaning, path, body, reason) => el("button", { id: "order-" + id, click: async () => {
		const given = await confirmed(label, question, meaning, reason);
		if (given === undefined) return;
		try {
			await post(clusterPath(name, path), reason ? { ...body, reason: given } : body);
			told.textContent = `${label}: the service has been told.`;
			await after();
		} catch (error) {
			told.textContent = `${label}: ${error.message}`;
		}
	} }, label);

	return { node, show };
}

// confirmed asks, and gives what was typed if it was said yes to.
function confirmed(label, question, meaning, reason) {
	const dialog = document.getElementById("ask");
	const field = reason && el("input", { id: "ask-reason", required: true, autocomplete: "off" });
	const form = el("form", { method: "dialog" },
		el("h2", { id: "ask-title" }, question), el("p", {}, meaning),
		field && el("p", {}, el("label", { for: "ask-reason" }, reason), field),
		el("p", { class: "orders" }, el("button", { value: "yes" }, label),
			el("button", { value: "no", type: "button", autofocus: !reason, click: () => dialog.close("no") }, "Leave it")));
	fill(dialog, form);
	dialog.returnValue = "no"; // Escape leaves it as it was
	dialog.showModal();
	return new Promise((resolve) => {
		const closed = () => {
			if (dialog.open && form.isConnected) return; // the question before this one was closed, and that is told only now
			dialog.removeEventListener("close", closed);
			resolve(form.isConnected && dialog.returnValue === "yes" ? (field?.value.trim() ?? "") : undefined);
		};
		dialog.addEventListener("close", closed);
	});
}
