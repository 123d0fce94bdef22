package document_test

import (
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// chapter is a heading of docs/json.md and the type that it describes, or several types. Other chapters link to it by its noun, else by
// its heading. A struct without a chapter is described as a part of the documents that contain it.
type chapter struct {
	heading string
	of      any
	noun    string
}

// short is a table of documents with few fields.
type short []chapter

var chapters = []chapter{
	{"## Lines", document.Line{}, ""},
	{"### event", storage.Event{}, ""},
	{"### error", document.Error{}, ""},
	{"## list", document.List{}, ""},
	{"### window", catalog.Window{}, ""},
	{"### gap", document.Gap{}, ""},
	{"### source", segment.WAL, ""},
	{"## show", document.Backup{}, "backup"},
	{"### manifest", catalog.Manifest{}, ""},
	{"### origin", catalog.Origin{}, ""},
	{"### proof", catalog.Proof{}, ""},
	{"### drill in a proof", catalog.Drill{}, "drill"},
	{"### level", catalog.Stored, ""},
	{"### pin", catalog.Pin{}, ""},
	{"## The status of archive", document.ArchiveStatus{}, ""},
	{"### agent", document.Agent{}, ""},
	{"## archive verify", document.ArchiveVerify{}, ""},
	{"## drill", document.Drill{}, ""},
	{"## import", document.Import{}, ""},
	{"## convert", document.Convert{}, ""},
	{"## copy", document.Copy{}, ""},
	{"## prune", document.Prune{}, ""},
	{"## The plan: restore --dry-run, --plan-out, salvage", plan.Plan{}, "plan"},
	{"### Salvage in a plan", plan.Salvage{}, "salvage"},
	{"## restore", document.Restore{}, ""},
	{"### swap", document.Swap{}, ""},
	{"## restore --into", document.Into{}, ""},
	{"### restore --into --dry-run", document.IntoPlan{}, ""},
	{"## find, extract, diff", short{
		{"each item of `find`", document.Found{}, ""},
		{"each item of `extract`", document.Extracted{}, ""},
		{"the result of `extract`", document.Extract{}, ""},
		{"each item of `diff`", document.Different{}, ""},
		{"the result of `diff`", document.Diff{}, ""},
	}, ""},
	{"### key", document.Key{}, ""},
	{"### change", document.Change{}, ""},
	{"### state", document.At{}, ""},
	{"### The result of find", document.Find{}, ""},
	{"### gone", document.Gone{}, ""},
	{"### vanished", document.Vanished{}, ""},
	{"## check", document.Check{}, ""},
	{"### line of a check", check.Line{}, "line"},
	{"## status", document.Status{}, ""},
	{"### standing", condition.Standing{}, ""},
	{"### condition", condition.Condition{}, ""},
	{"## status FILE", document.Inspection{}, ""},
	{"## config check", document.ConfigCheck{}, ""},
	{"### drills in config check", document.ConfigDrill{}, "drills"},
	{"## The status of serve", document.ServeStatus{}, ""},
	{"### cluster", document.ServedCluster{}, ""},
	{"### job", document.Outcome{}, ""},
	{"## suspend and resume", document.Suspension{}, ""},
	{"## assets list", document.Assets{}, ""},
	{"### version of assets", assets.Manifest{}, "version"},
	{"### asset", assets.Entry{}, ""},
	{"## assets backup, diff, restore", short{
		{"`assets backup`", document.AssetsBackup{}, ""},
		{"`assets diff`", document.AssetsDiff{}, ""},
		{"`assets restore`", document.AssetsRestore{}, ""},
	}, ""},
	{"## The other verbs", short{
		{"`backup`, `import`, `salvage --to-repository`", document.BackupResult{}, ""},
		{"`fetch`", document.Fetch{}, ""},
		{"`list --leftovers`", document.Leftovers{}, ""},
		{"`pin`, `unpin`", document.Pins{}, ""},
		{"`restore --replace`", document.Replaced{}, ""},
		{"`verify`", document.Verify{}, ""},
		{"`version`", document.Version{}, ""},
	}, ""},
	{"## The API", short{
		{"`windows`", document.Recovery{}, ""},
		{"`drills`", document.Drills{}, ""},
		{"`jobs`", document.Jobs{}, ""},
		{"`trigger`", document.QueuedJob{}, ""},
		{"an error", document.Problem{}, ""},
	}, ""},
	{"### The plan of the API", document.Way{}, ""},
}
