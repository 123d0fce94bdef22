package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// RunOfStream is the part of Run that uses the stores, without a member: snapshot is the data that a member would send.
// It needs no network, so that it can run in virtual time.
func RunOfStream(ctx context.Context, snapshot []byte, to []Store, r Request, report storage.Report) (Result, error) {
	r.Report = report
	run := &run{request: r, started: time.Now().UTC()}
	run.manifest = catalog.Manifest{
		Started: run.started, Finished: run.started, ClusterID: "9", EtcdVersion: "3.6.16", Revision: 7,
		Plain: catalog.Blob{Size: int64(len(snapshot)), SHA256: fmt.Sprintf("%x", sha256.Sum256(snapshot))},
	}
	run.to = newStores(ctx, to, r, run.warn)
	defer run.to.close()
	err := run.compareWithLast()
	if err != nil {
		return Result{}, err
	}
	id, err := run.to.freeID(catalog.NewID(run.started, run.manifest.Revision))
	if err != nil {
		return Result{}, err
	}
	sealed, err := seal.New(bytes.NewReader(snapshot), r.To)
	if err != nil {
		return Result{}, err
	}
	defer sealed.Close()
	s := &spread{stores: run.to, id: id, seal: r.To.Seal()}
	err = s.run(sealed, func() (catalog.Manifest, error) { return run.manifest, nil })
	if err != nil {
		return Result{}, err
	}
	return run.result(ctx)
}
