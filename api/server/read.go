package server

import (
	_ "embed"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// api serves /api/v1.
type api struct {
	Service
	catalogs *catalogs
}

// openAPI describes all routes. A test generates it from them, and another compares it with real responses.
//
//go:embed openapi.json
var openAPI []byte

func newAPI(s Service) *api { return &api{s, newCatalogs(s.Scheduler)} }

func (a *api) clusters(*http.Request) (any, error) {
	d := a.Status()
	d.Clusters = document.WorstFirst(d.Clusters)
	return d, nil
}

func (a *api) cluster(r *http.Request) (any, error) {
	s, err := a.Scheduler.StatusOf(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	return convert.Cluster(s), nil
}

func (a *api) jobs(*http.Request) (any, error) { return document.NewJobs(a.Status().Clusters), nil }

// catalog returns the repository that the query names, and its catalog.
func (a *api) catalog(r *http.Request) (spec.Repository, catalog.Catalog, error) {
	return a.catalogs.load(r.Context(), r.PathValue("cluster"), r.URL.Query().Get("repository"))
}

func (a *api) backups(r *http.Request) (any, error) {
	_, catalog, err := a.catalog(r)
	if err != nil {
		return nil, err
	}
	list := document.NewList()
	list.Add(catalog)
	return list, nil
}

func (a *api) windows(r *http.Request) (any, error) {
	_, catalog, err := a.catalog(r)
	if err != nil {
		return nil, err
	}
	return document.Recovery{Windows: document.Windows(catalog), Gaps: document.Gaps(catalog)}, nil
}

func (a *api) drills(r *http.Request) (any, error) {
	_, catalog, err := a.catalog(r)
	if err != nil {
		return nil, err
	}
	return document.NewDrills(catalog), nil
}

// retention returns the decisions of the retention rules without carrying them out. Locks are unknown until a removal is tried.
func (a *api) retention(r *http.Request) (any, error) {
	spec, err := a.Scheduler.Spec(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	in, catalog, err := a.catalog(r)
	if err != nil {
		return nil, err
	}
	policy := spec.RetentionIn(in.Name)
	if policy == (retention.Policy{}) {
		return convert.Prune(catalog, everything(catalog), repository.PruneResult{}, true), nil
	}
	decisions, err := retention.Plan(catalog, policy, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	return convert.Prune(catalog, decisions, repository.PruneResult{}, true), nil
}

// everything returns the decisions for a cluster without retention rules: everything is kept.
func everything(c catalog.Catalog) (d retention.Decisions) {
	for _, b := range c.Backups {
		d.Backups = append(d.Backups, retention.Decision{Backup: b, Keep: true, Reasons: []string{"no retention is configured"}})
		d.Kept += b.Stored.Size
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			d.Kept += s.Size
		}
	}
	return d
}

// plan returns the plan that dr restore --dry-run makes.
func (a *api) plan(r *http.Request) (any, error) {
	target, newest, err := targetOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	place, catalog, err := a.catalog(r)
	if err != nil {
		return nil, err
	}
	if newest {
		b, err := catalog.Latest()
		if err != nil {
			return nil, err
		}
		target.Backup = b.ID
	}
	_, store, err := a.Scheduler.OpenRepository(r.Context(), r.PathValue("cluster"), place.Name)
	if err != nil {
		return nil, err
	}
	catalog, err = restore.Detail(r.Context(), plan.Request{Catalog: catalog, Target: target}, store.Cluster.Log().Unfold)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	plan, err := plan.New(catalog, target, plan.Layout{}, now)
	if err != nil {
		return nil, err
	}
	return document.NewWay(plan, target, place, now), nil
}

// targetOf returns the target in a query. newest reports that the target is the newest backup, which the caller must look up.
func targetOf(q url.Values) (t plan.Target, newest bool, err error) {
	bad := func(name, form string) error { return fail(http.StatusBadRequest, "%s: use %s", name, form) }
	given := 0
	for _, name := range []string{"time", "revision", "backup"} {
		if q.Has(name) {
			given++
		}
	}
	if given > 1 {
		return t, false, fail(http.StatusBadRequest, "time, revision, backup: give only one")
	}
	text := q.Get("time")
	if q.Has("time") {
		t.Time, err = time.Parse(time.RFC3339, text)
		if err != nil || t.Time.IsZero() {
			return t, false, bad("time", "a form like 2026-11-21T10:00:00Z")
		}
	}
	text = q.Get("revision")
	if q.Has("revision") {
		t.Revision, err = strconv.ParseInt(text, 10, 64)
		if err != nil || t.Revision < 1 {
			return t, false, bad("revision", "a number from 1")
		}
	}
	text = q.Get("backup")
	if q.Has("backup") && text != "latest" {
		t.Backup, err = catalog.ParseID(text)
		if err != nil {
			return t, false, bad("backup", "an id, as dr list shows it, or latest")
		}
	}
	text = q.Get("best")
	if q.Has("best") {
		t.Best, err = strconv.ParseBool(text)
		if err != nil {
			return t, false, bad("best", "true or false")
		}
	}
	return t, q.Get("backup") == "latest", nil
}
