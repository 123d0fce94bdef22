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

// verified passes a stream on, and puts an error in the place of its end unless size and digest are as wanted. It
// remembers how it ended, which the decoders above it wrap, hide or replace.
type verified struct {
	r    io.Reader
	name string
	want Blob
	hash hash.Hash
	size int64
	err  error
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
	v.err = v.judge(err)
	return n, v.err
}

func (v *verified) judge(err error) error {
	switch {
	case err != nil && err != io.EOF:
		return sealDamaged(err)
	case v.size > v.want.Size:
		return fmt.Errorf("%w: its %s has more than the %d bytes that its header says", storage.ErrDamaged, v.name, v.want.Size)
	case err == nil:
		return nil
	case v.size < v.want.Size:
		return fmt.Errorf("%w: its %s has %d bytes, its header says %d", storage.ErrDamaged, v.name, v.size, v.want.Size)
	case hex.EncodeToString(v.hash.Sum(nil)) != v.want.SHA256:
		return fmt.Errorf("%w: the sha256 of its %s is not what its header says", storage.ErrDamaged, v.name)
	}
	return io.EOF
}

// sealDamaged makes what the seal found match storage.ErrDamaged, and leaves every other error as it is.
func sealDamaged(err error) error {
	if errors.Is(err, seal.ErrDamaged) {
		return damaged(err)
	}
	return err
}
