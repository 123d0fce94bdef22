package backup

import (
	"context"
	"io"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// spread is one sealed stream that goes to all stores.
type spread struct {
	*stores
	id    catalog.ID
	seal  seal.Seal
	about int64 // bytes
}

// run stores the same bytes in every store. When each store has all of them or is excluded, run calls manifest once, and stores the
// result in the remaining stores. It returns the error of sealed or manifest; the errors of stores are recorded with them.
func (s *spread) run(sealed io.Reader, manifest func() (catalog.Manifest, error)) error {
	defer s.discard()
	err := s.upload(sealed)
	if err != nil || s.failed() != nil {
		return err
	}
	m, err := manifest()
	if err != nil {
		return err
	}
	s.commit(m)
	return nil
}

// upload returns when each store has the whole stream or is excluded. It returns the error of sealed.
func (s *spread) upload(sealed io.Reader) error {
	left := s.remaining()
	for _, one := range left {
		one.uploaded = make(chan struct{})
		go s.uploadTo(one)
	}
	err := s.feed(sealed)
	var waiting sync.WaitGroup
	for _, one := range left {
		waiting.Go(func() {
			defer s.limitWait(one)()
			select {
			case <-one.uploaded:
			case <-one.ctx.Done():
				s.exclude(one, context.Cause(one.ctx)) // no effect unless the caller's context has ended
			}
		})
	}
	waiting.Wait()
	return err
}

// uploadTo stores the stream in one store.
func (s *spread) uploadTo(one *store) {
	defer close(one.uploaded)
	upload, err := one.Cluster.Upload(one.ctx, s.id, repository.Sealed{Seal: s.seal, About: s.about, Reader: one.out})
	if err != nil {
		s.exclude(one, err)
		one.out.CloseWithError(err) // without this, feed would wait until this store reads
		return
	}
	one.upload = &upload
}

// feed copies the stream to all stores, at the speed of the slowest. It stops early when too few stores are left for a
// backup: exclude has then closed all streams.
func (s *spread) feed(sealed io.Reader) error {
	buffer := make([]byte, 256<<10)
	for s.failed() == nil {
		n, err := sealed.Read(buffer)
		s.write(buffer[:n])
		if err == io.EOF {
			s.endStreams(nil)
			return nil
		}
		if err != nil {
			s.setPhase(broken)
			s.endStreams(err)
			return err
		}
	}
	return nil
}

// endStreams ends the streams to all stores, with io.EOF if err is nil.
func (s *spread) endStreams(err error) {
	for _, one := range s.all {
		one.in.CloseWithError(err)
	}
}

func (s *spread) write(p []byte) {
	var written sync.WaitGroup
	for _, one := range s.remaining() {
		written.Go(func() {
			defer s.limitWait(one)()
			_, _ = one.in.Write(p) // uploadTo records the error
		})
	}
	written.Wait()
}

// commit stores the manifest in each remaining store.
func (s *spread) commit(m catalog.Manifest) {
	s.setPhase(committing)
	_ = s.each(func(one *store) error { // the errors are recorded
		upload := one.upload
		one.upload = nil // a Commit that fails discards the upload itself
		backup, err := upload.Commit(one.ctx, m)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		one.backup = &backup
		return nil
	})
}

// discard removes the data that was not committed. It waits for the uploads to excluded stores, which may still be running.
func (s *spread) discard() {
	var removing sync.WaitGroup
	for _, one := range s.all {
		if one.uploaded == nil {
			continue // excluded before the stream began
		}
		removing.Go(func() {
			<-one.uploaded
			if one.upload != nil {
				one.upload.Discard(one.ctx)
			}
		})
	}
	removing.Wait()
}
