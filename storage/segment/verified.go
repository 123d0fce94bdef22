package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// verified passes a stream on, but ends it with an error in place of io.EOF unless size and digest are as expected. It
// records the error with which the stream ended, because the decoders that read it wrap, hide or replace the error.
type verified struct {
	r    io.Reader
	name string
	want Blob
	hash hash.Hash
	size int64 // bytes read so far
	err  error // io.EOF after an intact stream; nil before the end
}

func newVerified(r io.Reader, name string, want Blob) *verified {
	return &verified{r: r, name: name, want: want, hash: sha256.New()}
}

func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(p)
	v.hash.Write(p[:n])
	v.size += int64(n)
	v.err = v.checkEnd(err)
	return n, v.err
}

// checkEnd returns the error for a Read whose source has returned err: nil before the end.
func (v *verified) checkEnd(err error) error {
	switch {
	case err != nil && err != io.EOF:
		return sealDamaged(err)
	case v.size > v.want.Size:
		return fmt.Errorf("%w: its %s has more than the %d bytes in its header", storage.ErrDamaged, v.name, v.want.Size)
	case err == nil:
		return nil
	case v.size < v.want.Size:
		return fmt.Errorf("%w: its %s has %d bytes, according to its header %d", storage.ErrDamaged, v.name, v.size, v.want.Size)
	case hex.EncodeToString(v.hash.Sum(nil)) != v.want.SHA256:
		return fmt.Errorf("%w: the sha256 of its %s differs from its header's", storage.ErrDamaged, v.name)
	}
	return io.EOF
}

// sealDamaged makes an error that matches seal.ErrDamaged also match storage.ErrDamaged, and returns every other error
// unchanged.
func sealDamaged(err error) error {
	if errors.Is(err, seal.ErrDamaged) {
		return damaged(err)
	}
	return err
}
