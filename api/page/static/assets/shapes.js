// Shapes that mean something also to a person who does not see the colours. Each fits into a square of 16.

import { draw } from "./dom.js";

const shapes = {
	// How a cluster or a condition is.
	critical: ["M5 1h6l4 4v6l-4 4H5l-4-4V5Z", "M8 4v5M8 11.5v.5"],
	warning: ["M8 1.5 15 14.5H1Z", "M8 6v4M8 12v.4"],
	good: ["M8 1a7 7 0 1 1 0 14a7 7 0 1 1 0-14Z", "M4.8 8.2 7.2 10.6 11.4 5.8"],
	paused: ["M2 2h12v12H2Z", "M6 5v6M10 5v6"],
	unknown: ["M8 1a7 7 0 1 1 0 14a7 7 0 1 1 0-14Z", "M4.5 8h.2M8 8h.2M11.3 8h.2"],
	// How far a backup has been proven, and how a drill ended.
	stored: ["M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10Z"],
	hashed: ["M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10Z", "M8 3v10"],
	opened: ["M8 1.5 14.5 8 8 14.5 1.5 8Z"],
	booted: ["M8 .8 10.2 5.6 15.4 6.2 11.5 9.7 12.6 14.8 8 12.2 3.4 14.8 4.5 9.7 .6 6.2 5.8 5.6Z"],
	bad: ["M2.5 5 5 2.5 8 5.5 11 2.5 13.5 5 10.5 8 13.5 11 11 13.5 8 10.5 5 13.5 2.5 11 5.5 8Z"],
	"drill-passed": ["M8 2 14.5 13.5H1.5Z"],
	"drill-failed": ["M2.5 5 5 2.5 8 5.5 11 2.5 13.5 5 10.5 8 13.5 11 11 13.5 8 10.5 5 13.5 2.5 11 5.5 8Z"],
	"drill-not-run": ["M8 2 14.5 13.5H1.5Z"],
};

// mark is the group of lines of one shape, with its corner at x, y.
export function mark(shape, x = 0, y = 0) {
	const [outline, inner] = shapes[shape] ?? shapes.unknown;
	return draw("g", { class: `shape ${shape}`, transform: `translate(${x} ${y})` },
		draw("path", { class: "outline", d: outline }), inner && draw("path", { class: "inner", d: inner }));
}

// icon is a shape in a line of text, which says the same in words.
export const icon = (shape) => draw("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, mark(shape));

// proofShape is how a backup is drawn. One that failed its last check is never drawn as proven.
export function proofShape(backup) {
	return backup.proven in shapes && backup.proven ? backup.proven : "bad";
}

export const drillShape = (verdict) => "drill-" + (verdict ?? "not run").replaceAll(" ", "-");
