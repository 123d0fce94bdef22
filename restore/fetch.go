package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/readahead"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// The buffers between unsealing and writing.
const (
	aheadBuffers = 4
	aheadSize    = 1 << 20
)

// fetch writes the database into the work dir, without the digest that etcd appends to it.
func (r *run) fetch(ctx context.Context) error {
	err := r.trusted(ctx)
	if err != nil {
		return err
	}
	source, size, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	f, err := os.OpenFile(r.db, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the database: %w", err)
	}
	defer f.Close()
	followed := r.report.Follow(source, storage.Event{Stage: "fetch", Message: "fetching the backup", Object: r.name(), Total: size})
	ahead, err := readahead.NewReaderSize(followed, aheadBuffers, aheadSize) // unseals while the disk writes
	if err != nil {
		return err
	}
	defer ahead.Close()
	written, err := io.Copy(&earlyWriter{f: f}, ahead)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", r.name(), err)
	}
	if r.plan.File == "" {
		return r.trim(f, written) // without a check: the stream checked a backup's digests, and a member's own database has none
	}
	return r.checkFile(f, written)
}

// open opens the database: that of a backup, a file, or a disk. It only reads.
func (r *run) open(ctx context.Context) (io.ReadCloser, int64, error) {
	if r.plan.Backup == nil {
		f, err := os.Open(r.plan.BaseFile())
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", catalog.ErrNotFound, err)
		}
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, err
		}
		return f, info.Size(), nil
	}
	snapshot, err := r.cluster.Fetch(ctx, *r.plan.Backup, r.keys)
	if err != nil {
		return nil, 0, err
	}
	r.result.Key = snapshot.Key
	return snapshot, r.plan.Backup.Plain.Size, nil
}

// name returns the name of the base for messages.
func (r *run) name() string {
	if r.plan.Backup != nil {
		return "backup " + string(r.plan.Backup.ID)
	}
	return r.plan.BaseFile()
}

// trim removes the digest from the end of a snapshot. A digest is present if the size is 32 more than a multiple of 512, the
// unit of databases (etcdutl/snapshot).
func (r *run) trim(f *os.File, size int64) error {
	if size%512 != sha256.Size {
		return nil
	}
	return f.Truncate(size - sha256.Size)
}

// checkFile compares a plain file with the digest at its end.
func (r *run) checkFile(f *os.File, size int64) error {
	err := r.checkSameFile(f, size)
	if err != nil {
		return err
	}
	if size%512 != sha256.Size {
		if r.plan.SkipHashCheck {
			return nil
		}
		return fmt.Errorf("%w: %s has no digest at its end: it is truncated, or a copy of member/snap/db; --skip-hash-check accepts it",
			catalog.ErrDamaged, r.plan.File)
	}
	if !r.plan.SkipHashCheck {
		err := CheckDigest(f, size, r.plan.File)
		if err != nil {
			return err
		}
	}
	return r.trim(f, size)
}

// CheckDigest compares the last 32 bytes of a snapshot of size bytes with the SHA-256 of those before them. The error names the file,
// and matches catalog.ErrDamaged if they differ.
func CheckDigest(f io.ReaderAt, size int64, file string) error {
	want := make([]byte, sha256.Size)
	_, err := f.ReadAt(want, size-sha256.Size)
	if err != nil {
		return err
	}
	digest := sha256.New()
	_, err = io.Copy(digest, io.NewSectionReader(f, 0, size-sha256.Size))
	if err == nil && !bytes.Equal(want, digest.Sum(nil)) {
		err = fmt.Errorf("%w: %s does not match the digest at its end", catalog.ErrDamaged, file)
	}
	return err
}

// checkSameFile compares the file with the one that the plan was made for.
func (r *run) checkSameFile(f *os.File, size int64) error {
	if r.plan.FileDigest == "" {
		return nil
	}
	digest, err := fileDigest(f, size, r.plan.SkipHashCheck)
	if err == nil && digest != r.plan.FileDigest {
		err = fmt.Errorf("%w: %s is not the file that the plan was made for: copy that one to each host", fault.Refused, r.plan.File)
	}
	return err
}

// FileDigest returns a digest that identifies a plain snapshot: the digest at its end, which the restore checks. If the file has none or
// skipHashCheck is true, it returns the digest of all bytes.
func FileDigest(path string, skipHashCheck bool) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return fileDigest(f, info.Size(), skipHashCheck)
}

func fileDigest(f io.ReaderAt, size int64, all bool) (string, error) {
	if size%512 == sha256.Size && !all {
		digest := make([]byte, sha256.Size)
		_, err := f.ReadAt(digest, size-sha256.Size)
		return hex.EncodeToString(digest), err
	}
	digest := sha256.New()
	_, err := io.Copy(digest, io.NewSectionReader(f, 0, size))
	return hex.EncodeToString(digest.Sum(nil)), err
}

// earlyWriter makes the kernel write to the disk early, so that the final sync has little left to do.
type earlyWriter struct {
	f                *os.File
	written, started int64 // bytes that were written to f; bytes of these that the kernel began to write to the disk
}

func (w *earlyWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.written += int64(n)
	if w.written-w.started >= copyStep {
		startWriteback(w.f, w.started, w.written-w.started)
		w.started = w.written
	}
	return n, err
}
