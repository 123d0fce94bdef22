// Elements, made one way: text is always a text node. What the service says may hold what a stranger wrote into a bucket,
// and must never become markup.

export function el(tag, attributes = {}, ...children) {
	return make(document.createElement(tag), attributes, children);
}

// draw is el for SVG.
export function draw(tag, attributes = {}, ...children) {
	return make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function make(node, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) {
		if (typeof value === "function") {
			node.addEventListener(name, value);
		} else if (value !== undefined && value !== null && value !== false) {
			node.setAttribute(name, value === true ? "" : value);
		}
	}
	node.append(...present(children));
	return node;
}

const present = (children) => children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== "");

// fill replaces what is in node. The focus, and lists that were unfolded, stay by their ids: without that a person who uses
// the keyboard would be thrown to the top of the page at each refresh.
export function fill(node, ...children) {
	const focused = node.contains(document.activeElement) ? document.activeElement.id : "";
	const open = [...node.querySelectorAll("details[open]")].map((d) => d.id);
	node.replaceChildren(...present(children));
	for (const details of node.querySelectorAll("details")) {
		details.open ||= open.includes(details.id);
	}
	if (focused) {
		document.getElementById(focused)?.focus({ preventScroll: true });
	}
}

const shown = new WeakMap();

// update fills node with render(data) if data has changed, so that nobody's selection or screen reader is disturbed by a
// refresh that brought nothing new.
export function update(node, data, render) {
	const key = JSON.stringify(data);
	if (shown.get(node) !== key) {
		shown.set(node, key);
		fill(node, render(data));
	}
}
