package backup

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Database is a database that no live cluster sends.
type Database struct {
	io.Reader                  // ends with the database's digest, as a snapshot that etcd sends
	Size      int64            // bytes
	Manifest  catalog.Manifest // facts read from the database, and the Origin, which must not be nil; Import adds the rest
}

// importPatience is the default of Request.Patience for several stores. It is long, because no member waits for an import.
const importPatience = 10 * time.Minute

// Import stores d as an imported backup, the same bytes under the same name, in every store in to. The fields of r that
// concern members are not used. Errors and result are those of Run.
func Import(ctx context.Context, d Database, to []Store, r Request) (Result, error) {
	if len(to) == 0 {
		return Result{}, fmt.Errorf("%w: no repository for the backup: name one or more", fault.Refused)
	}
	if r.Patience == 0 && len(to) > 1 {
		r.Patience = importPatience
	}
	run := &run{request: r, started: time.Now().UTC(), manifest: d.Manifest}
	run.describeImport()
	run.to = newStores(ctx, to, r, run.warn)
	defer run.to.close()
	err := run.compareWithLast()
	if err == nil {
		err = run.storeImport(d)
	}
	if err != nil {
		return Result{}, err
	}
	return run.result(ctx)
}

// describeImport sets the times, the version of dr and the labels in the manifest.
func (r *run) describeImport() {
	origin := *r.manifest.Origin
	origin.Imported = r.started
	r.manifest.Origin = &origin
	r.manifest.Started, r.manifest.Finished = origin.Written, origin.Written
	r.manifest.DRVersion, r.manifest.Labels = r.request.Version, r.request.Labels
}

// storeImport writes the database to the stores, and the manifest when they have all of it.
func (r *run) storeImport(d Database) error {
	id, err := r.to.freeID(catalog.NewImportID(r.started, r.manifest.Revision))
	if err != nil {
		return err
	}
	plain := catalog.NewBlobReader(r.request.Report.Follow(d, storage.Event{Stage: "stream", Message: "storing the database", Total: d.Size}))
	sealed, err := seal.New(plain, r.request.To)
	if err != nil {
		return err
	}
	defer sealed.Close()
	s := &spread{stores: r.to, id: id, seal: r.request.To.Seal(), about: d.Size}
	return s.run(sealed, func() (catalog.Manifest, error) {
		r.manifest.Plain = plain.Blob(catalog.SnapshotName)
		r.request.Report.Say(storage.Event{Stage: "commit", Message: "writing the manifest", Done: r.manifest.Plain.Size, Total: r.manifest.Plain.Size})
		return r.manifest, nil
	})
}
