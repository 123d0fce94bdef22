// The way to the service: /api/v1, on the host that the page came from.

const patience = 65000; // milliseconds; the service waits a minute for a store
const tokenKey = "etcd-dr token";

let skew = 0; // milliseconds by which the service's clock is ahead of this one
let role = ""; // what whoever looks may do, as the service says

// now is the service's clock. At 3 a.m. nobody should wonder why a laptop's wrong clock makes all backups old.
export const now = () => Date.now() + skew;

// The token lives as long as the tab.
export const keepToken = (token) => sessionStorage.setItem(tokenKey, token);
export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;
export const dropToken = () => sessionStorage.removeItem(tokenKey);

// mayOperate: a service that says nothing of roles says so when it is ordered something.
export const mayOperate = () => role !== "read";

// Refusal is what the service answered instead of what it was asked for. A service that is away gives another error.
export class Refusal extends Error {
	constructor(status, message, cure) {
		super(cure ? `${message} (${cure})` : message);
		this.status = status;
	}
}

export const get = (path, query = {}) => ask("GET", path + search(query));
export const post = (path, body = {}) => ask("POST", path, body);

// clusterPath is where the service keeps what belongs to a cluster.
export const clusterPath = (cluster, of = "") => `clusters/${encodeURIComponent(cluster)}${of && "/" + of}`;

// search leaves out what is empty.
export function search(query) {
	const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
	return text && "?" + text;
}

async function ask(method, path, body) {
	const headers = { Accept: "application/json" };
	if (hasToken()) {
		headers.Authorization = "Bearer " + sessionStorage.getItem(tokenKey);
	}
	if (body) {
		headers["Content-Type"] = "application/json";
	}
	const response = await fetch("api/v1/" + path, {
		method, headers, body: body && JSON.stringify(body),
		cache: "no-store", redirect: "error", signal: AbortSignal.timeout(patience),
	});
	const date = Date.parse(response.headers.get("Date"));
	if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 2000) { // the header has no fractions of a second
		skew = date - Date.now();
	}
	role = response.headers.get("Etcd-Dr-Role") ?? "";
	const answer = await response.json().catch(() => ({})); // a proxy in between may answer with something else
	if (!response.ok) {
		throw new Refusal(response.status, answer.message ?? `${response.status} ${response.statusText}`, answer.cure);
	}
	return answer;
}
