package imported

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// unit divides the size of every database. A snapshot has a digest after the database, whose size unit does not divide
// (etcdutl/snapshot).
const unit = 512

// copyPlain copies the file from, decompressed, to the new file to, and checks the digest at its end. It reports whether there is no
// digest, which is an error unless skipHashCheck is true. A digest that exists must match in any case.
func copyPlain(to, from string, skipHashCheck bool) (unhashed bool, err error) {
	src, err := os.Open(from)
	if err != nil {
		return false, fmt.Errorf("%w: %w", catalog.ErrNotFound, err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, fmt.Errorf("copy the file: %w", err)
	}
	defer dst.Close()
	size, err := decompress(dst, src)
	if err != nil {
		return false, fmt.Errorf("%s: %w", from, refusedIfFull(err))
	}
	switch size % unit {
	case sha256.Size:
		return false, restore.CheckDigest(dst, size, from)
	case 0:
		if size > 0 && skipHashCheck {
			return true, nil
		}
	default:
		return false, fmt.Errorf("%w: %s has %d bytes, which no database has: it is truncated, or another kind of file", catalog.ErrDamaged, from, size)
	}
	return false, fmt.Errorf("%w: %s has no digest at its end: it is truncated, or a copy of member/snap/db; --skip-hash-check accepts it",
		catalog.ErrDamaged, from)
}

// decompress copies src to dst, decompressed if it is compressed, and returns the number of written bytes.
func decompress(dst io.Writer, src *os.File) (int64, error) {
	plain, err := opened(src)
	if err != nil {
		return 0, err
	}
	if plain == nil {
		return io.Copy(dst, src)
	}
	defer plain.Close()
	return copyWhole(dst, plain)
}

// refusedIfFull returns err, which then matches fault.Refused if the disk is full: other files may fit.
func refusedIfFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: it does not fit into the scratch directory: name one with more space by --scratch-dir: %w", fault.Refused, err)
	}
	return err
}

// copyWhole copies a file that plain decompresses. It copies nothing if that does not begin like a database, since a small compressed
// file can fill any disk. Errors match catalog.ErrDamaged, unless they are from dst.
func copyWhole(dst io.Writer, plain io.Reader) (int64, error) {
	in := bufio.NewReader(plain)
	begin, err := in.Peek(magicEnd)
	if err == nil && !isDatabase(begin) {
		return 0, fmt.Errorf("%w: what is compressed in it is no database", catalog.ErrDamaged)
	}
	failing := &writer{to: dst}
	n, err := io.Copy(failing, in)
	if err != nil && !errors.Is(err, failing.err) {
		err = fmt.Errorf("%w: the compressed file cannot be read to its end: %w", catalog.ErrDamaged, err)
	}
	return n, err
}

// writer remembers the error of the last write to its destination.
type writer struct {
	to  io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// appendDigest appends the digest of a file to it, as etcd does to a snapshot.
func appendDigest(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	digest := sha256.New()
	_, err = io.Copy(digest, f)
	if err != nil {
		return fmt.Errorf("compute the digest of the database: %w", err)
	}
	_, err = f.Write(digest.Sum(nil))
	if err != nil {
		return fmt.Errorf("append the digest of the database: %w", err)
	}
	return nil
}
