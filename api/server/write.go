package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// suspendRequest is the body of a request that suspends a cluster.
type suspendRequest struct {
	Reason string `json:"reason,omitempty"` // free text, shown with the result
}

// pinRequest is the body of a request that pins a backup.
type pinRequest struct {
	Reason string    `json:"reason,omitempty"` // free text, shown with the pin
	Until  time.Time `json:"until,omitzero"`   // when the pin ends; absent: it holds until it is lifted
}

// body decodes the body of r. An empty body is a zero document.
func body[T any](r *http.Request) (d T, err error) {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err = dec.Decode(&d)
	if errors.Is(err, io.EOF) {
		return d, nil
	}
	if err == nil {
		_, err = dec.Token()
		if err == nil {
			err = errors.New("unexpected data after the JSON document")
		} else if errors.Is(err, io.EOF) {
			return d, nil
		}
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return d, errTooLarge
	}
	return d, fail(http.StatusBadRequest, "invalid request body: %v", err)
}

// reasonOf returns text, or an error if it is not one line of limited length.
func reasonOf(text string) (string, error) {
	if len(text) > scheduler.MaxReason || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fail(http.StatusBadRequest, "reason: use one line of at most %d bytes", scheduler.MaxReason)
	}
	return text, nil
}

// reason returns the reason in the body of r.
func reason(r *http.Request) (string, error) {
	sent, err := body[suspendRequest](r)
	if err != nil {
		return "", err
	}
	return reasonOf(sent.Reason)
}

// emptyRequest is the body of requests without parameters.
type emptyRequest struct{}

// triggerRequest is the body of a request that triggers a job.
type triggerRequest struct {
	Job    document.Job `json:"job,omitempty"` // backup, prune or drill; backup if it is absent
	Reason string       `json:"reason,omitempty"`
}

func (a *api) trigger(r *http.Request) (any, error) {
	sent, err := body[triggerRequest](r)
	if err != nil {
		return nil, err
	}
	_, err = reasonOf(sent.Reason)
	if err != nil {
		return nil, err
	}
	d := document.QueuedJob{
		Cluster: r.PathValue("cluster"), Job: cmp.Or(sent.Job, document.JobBackup), Reason: cmp.Or(sent.Reason, "asked for by "+visitorOf(r).name),
	}
	if !slices.Contains([]document.Job{document.JobBackup, document.JobPrune, document.JobDrill}, d.Job) {
		return nil, fail(http.StatusBadRequest, "job: use backup, prune or drill")
	}
	return d, a.Scheduler.Trigger(d.Cluster, scheduler.Job(d.Job), d.Reason)
}

func (a *api) suspend(r *http.Request) (any, error) {
	why, err := reason(r)
	if err != nil {
		return nil, err
	}
	err = a.Scheduler.Suspend(r.Context(), r.PathValue("cluster"), a.by(r), why)
	if err != nil {
		return nil, err
	}
	return a.cluster(r)
}

func (a *api) resume(r *http.Request) (any, error) {
	_, err := body[emptyRequest](r)
	if err != nil {
		return nil, err
	}
	err = a.Scheduler.Resume(r.Context(), r.PathValue("cluster"), a.by(r))
	if err != nil {
		return nil, err
	}
	return a.cluster(r)
}

// by returns the author of an order, for stored documents.
func (a *api) by(r *http.Request) string {
	return fmt.Sprintf("%s through %s", visitorOf(r).name, a.By)
}

func (a *api) pin(r *http.Request) (any, error) {
	asked, err := body[pinRequest](r)
	if err == nil {
		asked.Reason, err = reasonOf(asked.Reason)
	}
	if err == nil && !asked.Until.IsZero() && !asked.Until.After(time.Now()) {
		err = fail(http.StatusBadRequest, "until: the time is in the past")
	}
	if err != nil {
		return nil, err
	}
	place, c, b, err := a.toPin(r)
	if err != nil {
		return nil, err
	}
	defer a.catalogs.forget(c.Name(), place)
	p, err := c.Pin(r.Context(), catalog.Pin{Backup: b.ID, Reason: asked.Reason, Until: asked.Until.UTC(), Time: time.Now().UTC(), By: a.by(r)})
	if err != nil {
		return nil, err
	}
	return document.Pins{Backup: b.ID, Pins: append(slices.Clone(b.Pins), p), Lifted: []catalog.Pin{}}, nil
}

func (a *api) unpin(r *http.Request) (any, error) {
	_, err := body[emptyRequest](r)
	if err != nil {
		return nil, err
	}
	place, c, b, err := a.toPin(r)
	if err != nil {
		return nil, err
	}
	defer a.catalogs.forget(c.Name(), place)
	lifted, err := c.Unpin(r.Context(), catalog.Unpin{Backup: b.ID, Time: time.Now().UTC(), By: a.by(r)})
	if err != nil {
		return nil, err
	}
	return document.Pins{Backup: b.ID, Pins: []catalog.Pin{}, Lifted: append([]catalog.Pin{}, lifted...)}, nil
}

// toPin returns the backup that the path names, freshly loaded, with its repository.
func (a *api) toPin(r *http.Request) (place spec.Repository, c *repository.Cluster, b catalog.Backup, err error) {
	id, err := catalog.ParseID(r.PathValue("backup"))
	if err != nil {
		return place, nil, b, fail(http.StatusBadRequest, "%v", err)
	}
	place, store, err := a.Scheduler.OpenRepository(r.Context(), r.PathValue("cluster"), r.URL.Query().Get("repository"))
	if err != nil {
		return place, nil, b, err
	}
	catalog, err := store.Cluster.Load(r.Context(), backups.LoadOptions{Only: id, Proofs: true})
	if err == nil {
		b, err = catalog.Find(id)
	}
	return place, store.Cluster, b, err
}
