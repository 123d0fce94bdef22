package copying

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// copying is the state of a Copy.
type copying struct {
	from, to *repository.Cluster
	by       string
	report   storage.Report
	done     int64 // bytes of the objects to copy that are finished, with or without an error
	total    int64 // bytes to copy
	result   Result
}

// run carries out the plan.
func (c *copying) run(ctx context.Context, plan plan) error {
	for _, id := range plan.deletions {
		err := c.delete(ctx, id)
		if err != nil {
			return err
		}
	}
	for _, b := range plan.backups {
		err := c.backup(ctx, b)
		if err != nil {
			return err
		}
	}
	for _, l := range plan.log {
		err := c.lineage(ctx, l)
		if err != nil {
			return err
		}
	}
	for _, v := range plan.versions {
		err := c.recordFault(v.manifest.key, c.version(ctx, v))
		if err != nil {
			return err
		}
	}
	return nil
}

// version copies a version of assets, the manifest last.
func (c *copying) version(ctx context.Context, v version) error {
	archive, err := c.from.Assets().Archive(ctx, v.Manifest)
	if err != nil {
		return err
	}
	err = c.small(ctx, v.archive, archive)
	if err != nil {
		return err
	}
	err = c.document(ctx, v.manifest, v.isManifest)
	if err == nil {
		c.result.Assets++
	}
	return err
}

// isManifest returns an error unless data is the manifest of v. It may have been replaced since it was listed.
func (v version) isManifest(data []byte) error {
	m, err := assets.Manifests.Decode(data)
	if err == nil && (m.ID != v.ID || m.Node != v.Node || m.Cluster != v.Cluster || m.Stored != v.Stored) {
		err = fmt.Errorf("%w: it has been replaced while it was copied", catalog.ErrDamaged)
	}
	return err
}

// delete deletes a backup at the target.
func (c *copying) delete(ctx context.Context, id catalog.ID) error {
	err := c.to.Delete(ctx, catalog.Tombstone{Backup: id, Reason: "deleted at the repository that it was copied from", Time: time.Now().UTC(), By: c.by})
	switch {
	case errors.Is(err, catalog.ErrNotFound), errors.Is(err, repository.ErrPinned): // deleted or pinned since it was listed
		c.result.LeftOut++
		return nil
	case err != nil && !errors.Is(err, storage.ErrLocked): // a locked backup is deleted, and only its objects stay
		return err
	}
	c.result.Deleted++
	return nil
}

// deletedMeanwhile reports whether the backup is now deleted on either side. The target counts only if it had the manifest.
func (c *copying) deletedMeanwhile(ctx context.Context, b backup) (bool, error) {
	gone, err := isGone(ctx, c.from, b.backup.ID)
	if err == nil && !gone && b.manifest.present {
		gone, err = isGone(ctx, c.to, b.backup.ID)
	}
	return gone, err
}

// isGone reports whether the backup is no longer listed.
func isGone(ctx context.Context, c *repository.Cluster, id catalog.ID) (bool, error) {
	f, err := c.Backups().Folder(ctx, id)
	if err != nil || !f.Has(catalog.ManifestName) {
		return err == nil, err
	}
	deleted, err := c.Backups().IsDeleted(ctx, f)
	if errors.Is(err, catalog.ErrDamaged) {
		err = nil
	}
	return deleted, err
}

// isPruned reports whether the segment is now pruned on either side.
func (c *copying) isPruned(ctx context.Context, lineage string, seq uint64) (bool, error) {
	for _, side := range []*repository.Cluster{c.from, c.to} {
		cuts, err := side.Log().Cuts(ctx, lineage)
		if err != nil {
			return false, err
		}
		n := len(cuts)
		if n > 0 && cuts[n-1].Upto >= seq {
			return true, nil
		}
	}
	return false, nil
}

// recordFault returns err unless it is about the object under key only. Such an error becomes a fault of the result.
func (c *copying) recordFault(key string, err error) error {
	if errors.Is(err, catalog.ErrDamaged) || errors.Is(err, ErrDiffers) || errors.Is(err, catalog.ErrNotFound) {
		c.result.Faults = append(c.result.Faults, Fault{key, err})
		return nil
	}
	return err
}

// backup copies the missing objects of a backup. A backup that is deleted on either side during the copy is left out.
func (c *copying) backup(ctx context.Context, b backup) error {
	if !b.manifest.present { // checked first, so that the data of a backup deleted meanwhile is not copied in vain
		gone, err := isGone(ctx, c.from, b.backup.ID)
		if gone {
			c.result.LeftOut++
		}
		if err != nil || gone {
			return err
		}
	}
	key, err := c.parts(ctx, b)
	if !errors.Is(err, catalog.ErrNotFound) {
		return c.recordFault(key, err)
	}
	gone, e := c.deletedMeanwhile(ctx, b)
	if e != nil {
		return e
	}
	if gone {
		c.result.LeftOut++
		return nil
	}
	return c.recordFault(key, err)
}

// parts copies the objects of a backup, the manifest last. With an error it returns the key of the object concerned. If the
// target has the manifest, parts compares the manifests first, and does not read data that the target has. If the target has only
// the data, parts checks the data against the source's manifest.
func (c *copying) parts(ctx context.Context, b backup) (key string, err error) {
	if b.manifest.present {
		err := c.document(ctx, b.manifest, b.isManifest)
		if err != nil {
			return b.manifest.key, err
		}
	}
	err = c.data(ctx, b)
	if err != nil {
		return b.data.key, err
	}
	for _, o := range b.proofs {
		err := c.document(ctx, o, b.isProof)
		if err != nil && !errors.Is(err, catalog.ErrDamaged) && !errors.Is(err, ErrDiffers) {
			return o.key, err
		}
		err = c.recordFault(o.key, err)
		if err != nil {
			return o.key, err
		}
	}
	if b.manifest.present {
		return "", nil
	}
	err = c.document(ctx, b.manifest, b.isManifest)
	if err != nil {
		return b.manifest.key, err
	}
	c.result.Backups++
	return b.data.key, c.checkData(ctx, b)
}

// checkData returns an error and removes the manifest from the target if the data is missing there. Data that an
// interrupted copy left counts as a leftover, so repository.Cluster.Sweep may have removed it just before the manifest was stored.
func (c *copying) checkData(ctx context.Context, b backup) error {
	_, err := c.to.Records().Bucket.Stat(ctx, b.data.key)
	if !records.IsAbsent(err) {
		return err
	}
	c.result.Backups--
	return errors.Join(fmt.Errorf("%s: it was removed as a leftover while it was copied, and is %w at the target: repeat the copy",
		b.data.key, catalog.ErrNotFound), c.to.Records().Bucket.Delete(ctx, b.manifest.key, storage.DeleteOptions{}))
}

// data copies the sealed snapshot.
func (c *copying) data(ctx context.Context, b backup) error {
	if b.data.present && b.manifest.present {
		c.result.Present++
		return nil
	}
	if !b.data.present {
		r, err := c.from.FetchSealed(ctx, b.backup)
		if err != nil {
			return records.ReadError(err)
		}
		defer r.Close()
		err = c.create(ctx, b.data, r)
		if !errors.Is(err, storage.ErrExist) {
			return err
		}
	}
	err := drain(c.to.FetchSealed(ctx, b.backup))
	if errors.Is(err, catalog.ErrDamaged) {
		return differs(b.data.key, "it differs from the source's manifest")
	}
	if err == nil {
		c.result.Present++
	}
	return err
}

// drain reads r to its end and closes it. It returns err if that is not nil.
func drain(r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// document copies a small object after decode has accepted it. If the target has the object, document compares them.
func (c *copying) document(ctx context.Context, o object, decode func([]byte) error) error {
	data, err := c.from.Records().ReadSigned(ctx, o.key)
	if records.IsAbsent(err) {
		return fmt.Errorf("%s: it was listed, and is %w", o.key, catalog.ErrNotFound)
	}
	if err == nil {
		err = decode(data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.key, err)
	}
	return c.small(ctx, o, data)
}

// isManifest returns an error unless data is the manifest of b. It may have been replaced since the catalog was read.
func (b backup) isManifest(data []byte) error {
	m, err := catalog.Manifests.Decode(data)
	if err == nil && (m.ID != b.backup.ID || m.Cluster != b.backup.Cluster || m.Stored != b.backup.Stored) {
		err = fmt.Errorf("%w: it has been replaced while the backup was copied", catalog.ErrDamaged)
	}
	return err
}

// isProof returns an error unless data is a proof of b.
func (b backup) isProof(data []byte) error {
	p, err := catalog.Proofs.Decode(data)
	if err == nil && p.Backup != b.backup.ID {
		err = fmt.Errorf("%w: it belongs to backup %s and was moved here", catalog.ErrDamaged, p.Backup)
	}
	return err
}

// small stores data at the target, or compares it with the object that is there.
func (c *copying) small(ctx context.Context, o object, data []byte) error {
	if !o.present {
		err := c.create(ctx, o, bytes.NewReader(data))
		if !errors.Is(err, storage.ErrExist) {
			return err
		}
	}
	stored, err := c.to.Records().ReadUpTo(ctx, o.key, max(int64(len(data)), document.MaxSize))
	if errors.Is(err, catalog.ErrDamaged) || err == nil && !bytes.Equal(stored, data) {
		return differs(o.key, "its bytes are not the source's")
	}
	if records.IsAbsent(err) {
		return fmt.Errorf("%s: it was listed at the target, and is %w", o.key, catalog.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.key, err)
	}
	c.result.Present++
	return nil
}

// lineage copies segments in order, so that an interrupted copy has no hole, and then the indexes that list them.
func (c *copying) lineage(ctx context.Context, l lineage) error {
	held := map[uint64]bool{} // by seq: the target has the segment
	for _, s := range l.segments {
		err := c.segment(ctx, s)
		held[s.segment.Seq] = err == nil
		err = c.recordLogFault(ctx, logObject{l.id, s.segment.Seq, s.key}, err)
		if err != nil {
			return err
		}
	}
	for _, x := range l.indexes {
		err := c.recordLogFault(ctx, logObject{l.id, x.first, x.key}, c.index(ctx, l.id, x, held))
		if err != nil {
			return err
		}
	}
	return nil
}

// logObject is a segment, or an index with the seq of its first segment.
type logObject struct {
	lineage string
	seq     uint64
	key     string
}

// recordLogFault is recordFault for an object of the log. An object that was pruned during the copy is no fault.
func (c *copying) recordLogFault(ctx context.Context, o logObject, err error) error {
	if errors.Is(err, catalog.ErrNotFound) {
		pruned, e := c.isPruned(ctx, o.lineage, o.seq)
		if e != nil {
			return e
		}
		if pruned {
			c.result.LeftOut++
			return nil
		}
	}
	return c.recordFault(o.key, err)
}

// segment copies a segment. If the target has a segment of that name by now, the digests of the headers must be equal.
func (c *copying) segment(ctx context.Context, s segmentCopy) error {
	if s.present {
		c.result.Present++
		return nil
	}
	source, err := c.from.Log().OpenStored(ctx, s.segment)
	if err != nil {
		return err
	}
	defer source.Close()
	whole := newCheckingReader(source, func(r io.Reader) error { return isSegment(r, s) })
	defer whole.Close()
	err = c.create(ctx, s.object, whole)
	if err == nil {
		c.result.Segments++
	}
	if !errors.Is(err, storage.ErrExist) {
		return err
	}
	stored, err := c.to.Log().ReadSegment(ctx, s.segment.Lineage, s.segment.Seq)
	if errors.Is(err, catalog.ErrDamaged) || err == nil && stored.Digest != s.segment.Digest {
		return differs(s.key, "its header is not the source's")
	}
	if err == nil {
		c.result.Present++
	}
	return err
}

// isSegment reads r to its end, and returns an error unless it is the segment s.
func isSegment(r io.Reader, s segmentCopy) error {
	_, _, err := segment.Check(r)
	if err != nil {
		return fmt.Errorf("%s: %w", s.key, err)
	}
	return nil
}

// index copies an index if the target has all segments that the index lists. A listed segment that is missing counts as lost.
func (c *copying) index(ctx context.Context, lineage string, x index, held map[uint64]bool) error {
	if x.present {
		c.result.Present++
		return nil
	}
	if !held[x.first] {
		return nil
	}
	data, err := c.from.Records().ReadUpTo(ctx, x.key, log.MaxIndex)
	if records.IsAbsent(err) {
		return log.Missing(x.key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", x.key, err)
	}
	parsed, err := log.ParseIndex(data)
	var segments []catalog.Segment
	if err == nil {
		segments, err = parsed.Segments(ctx, c.from.Log().DecodeHeader)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", x.key, err)
	}
	for _, s := range segments {
		if s.Cluster != c.from.Records().Cluster || s.Lineage != lineage || !held[s.Seq] {
			return nil
		}
	}
	return c.small(ctx, x.object, data)
}

// create stores an object at the target, counts it, and reports progress.
func (c *copying) create(ctx context.Context, o object, r io.Reader) error {
	begun := c.done
	forward := storage.Report(func(e storage.Event) {
		c.done = begun + e.Done
		e.Done, e.Total = c.done, c.total
		c.report.Say(e)
	})
	err := c.to.Records().Create(ctx, o.key, forward.Follow(r, storage.Event{Stage: "copy", Message: "copying", Object: o.key}), o.size)
	c.done = begun + o.size // also after an error
	if err != nil {
		return err
	}
	c.result.Objects++
	c.result.Bytes += o.size
	return nil
}

// newCheckingReader returns a reader of the bytes of r, which check reads at the same time. The reader ends with io.EOF if check
// returns nil, otherwise with the error of check. check must read all of r. The caller must close the reader before r.
func newCheckingReader(r io.Reader, check func(io.Reader) error) io.ReadCloser {
	out, in := io.Pipe()
	c := &checkingReader{PipeReader: out, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		in.CloseWithError(check(io.TeeReader(r, in)))
	}()
	return c
}

// checkingReader is the reader that newCheckingReader returns.
type checkingReader struct {
	*io.PipeReader
	ended chan struct{} // closed when the check has returned
}

// Close ends the check and waits for it.
func (c *checkingReader) Close() error {
	err := c.PipeReader.Close()
	<-c.ended
	return err
}
