package backup

import (
	"io"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// spread is one sealed stream that goes to all stores.
type spread struct {
	*stores
	id    catalog.ID
	seal  seal.Seal
	about int64 // bytes

	decided  chan struct{} // closed when every store has the data or is excluded
	manifest catalog.Manifest
	refused  error // why there is no manifest
}

// run reads sealed once and writes the same bytes to every store. When each store has all of them or is excluded, run
// calls manifest once, and every store writes the result. It returns the error of sealed or manifest; the errors of
// stores are recorded with them.
func (s *spread) run(sealed io.Reader, manifest func() (catalog.Manifest, error)) error {
	s.decided = make(chan struct{})
	left := s.remaining()
	for _, one := range left {
		go s.create(one)
	}
	err := s.feed(sealed)
	if err == nil {
		s.waitFor(left, func(one *store) <-chan struct{} { return one.stored })
		err = s.finishManifest(manifest)
	}
	s.release(err)
	s.waitFor(left, func(one *store) <-chan struct{} { return one.ended })
	for _, one := range left { // excluded stores need a moment to end
		<-one.ended
	}
	return err
}

// create stores the backup in one store.
func (s *spread) create(one *store) {
	defer close(one.ended)
	backup, err := one.Cluster.Create(one.ctx, s.id, s.seal, s.about, one.out, func() (catalog.Manifest, error) {
		close(one.stored)
		select {
		case <-s.decided:
			return s.manifest, s.refused
		case <-one.ctx.Done():
			return catalog.Manifest{}, one.ctx.Err()
		}
	})
	if err != nil {
		s.exclude(one, err)
		one.out.CloseWithError(err) // or feed would wait for it
		return
	}
	s.mu.Lock()
	one.backup = &backup
	s.mu.Unlock()
}

// feed copies the stream to all stores, at the speed of the slowest.
func (s *spread) feed(sealed io.Reader) error {
	buffer := make([]byte, 256<<10)
	for s.failed() == nil {
		n, err := sealed.Read(buffer)
		s.write(buffer[:n])
		if err == io.EOF {
			for _, one := range s.all {
				one.in.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *spread) write(p []byte) {
	var written sync.WaitGroup
	for _, one := range s.remaining() {
		written.Go(func() {
			defer s.limitWait(one)()
			_, _ = one.in.Write(p) // create records the error
		})
	}
	written.Wait()
}

// waitFor waits until each store has reached the state, or is excluded.
func (s *spread) waitFor(left []*store, there func(*store) <-chan struct{}) {
	var waiting sync.WaitGroup
	for _, one := range left {
		waiting.Go(func() {
			defer s.limitWait(one)()
			select {
			case <-there(one):
			case <-one.ended:
			case <-one.ctx.Done():
			}
		})
	}
	waiting.Wait()
}

// finishManifest calls manifest, unless too few stores are left.
func (s *spread) finishManifest(manifest func() (catalog.Manifest, error)) (err error) {
	if s.refused = s.failed(); s.refused == nil {
		s.manifest, err = manifest()
	}
	return err
}

// release lets the stores continue, or makes them stop with err, which is not their fault.
func (s *spread) release(err error) {
	s.mu.Lock()
	s.independent, s.blameless = true, err != nil
	s.mu.Unlock()
	if err != nil {
		s.refused = err
		for _, one := range s.all {
			one.in.CloseWithError(err)
		}
	}
	close(s.decided)
}
