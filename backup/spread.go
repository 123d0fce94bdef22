package backup

import (
	"io"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// spread is one sealed stream on its way to all stores.
type spread struct {
	*stores
	id    catalog.ID
	seal  seal.Seal
	about int64 // bytes

	decided  chan struct{} // closed when every store has the data or is left out
	manifest catalog.Manifest
	refused  error // why there is none
}

// run reads sealed once and gives every store the same bytes. When each has them, or is left out, it asks for the manifest,
// once, and gives that to every store. An error is sealed's or manifest's own; what befell the stores, they know.
func (s *spread) run(sealed io.Reader, manifest func() (catalog.Manifest, error)) error {
	s.decided = make(chan struct{})
	left := s.left()
	for _, one := range left {
		go s.create(one)
	}
	err := s.feed(sealed)
	if err == nil {
		s.await(left, func(one *store) <-chan struct{} { return one.stored })
		err = s.decide(manifest)
	}
	s.settle(err)
	s.await(left, func(one *store) <-chan struct{} { return one.ended })
	for _, one := range left { // those that were left out need a moment to end
		<-one.ended
	}
	return err
}

// create is what one store does.
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
		s.leave(one, err)
		one.out.CloseWithError(err) // or feed would wait for it
		return
	}
	s.mu.Lock()
	one.backup = &backup
	s.mu.Unlock()
}

// feed gives the stream to all stores, as fast as the slowest takes it.
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
	for _, one := range s.left() {
		written.Go(func() {
			defer s.hurry(one)()
			_, _ = one.in.Write(p) // why it fails, create knows
		})
	}
	written.Wait()
}

// await waits until each store has got there, or is left out.
func (s *spread) await(left []*store, there func(*store) <-chan struct{}) {
	var waiting sync.WaitGroup
	for _, one := range left {
		waiting.Go(func() {
			defer s.hurry(one)()
			select {
			case <-there(one):
			case <-one.ended:
			case <-one.ctx.Done():
			}
		})
	}
	waiting.Wait()
}

// decide asks for the manifest, unless there are not the stores for one.
func (s *spread) decide(manifest func() (catalog.Manifest, error)) (err error) {
	if s.refused = s.failed(); s.refused == nil {
		s.manifest, err = manifest()
	}
	return err
}

// settle tells the stores to go on, or with an error, which is none of theirs, to give up.
func (s *spread) settle(err error) {
	s.mu.Lock()
	s.alone, s.blameless = true, err != nil
	s.mu.Unlock()
	if err != nil {
		s.refused = err
		for _, one := range s.all {
			one.in.CloseWithError(err)
		}
	}
	close(s.decided)
}
