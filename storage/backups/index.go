package backups

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// The index of a cluster's backups contains copies of their manifests and proofs. It is one zstd frame with a first line that names the
// format, and then for each document a line from listing and its bytes. It only saves requests: a copy takes the place of its object only if
// the object is listed as it was when it was copied, and is checked in the same way.

const indexHeader = "etcd-dr backups-index 1\n"

const (
	maxIndex    = 16 << 20 // bytes of the index
	maxUnpacked = 64 << 20 // bytes of its content, as many as the documents of one catalog have
	maxCopies   = 200_000  // documents in it
	maxLine     = 4 << 10  // bytes of a line from listing
)

// listing returns the line of an object in an index: its key, size, time and version as they are listed.
func listing(o storage.Object) string {
	return fmt.Sprintf("%s %d %s %s\n", o.Key, o.Size, o.ModTime.UTC().Format(time.RFC3339Nano), o.Version)
}

// isCopied reports whether an index contains objects like o, which is one of a backup.
func isCopied(o storage.Object) bool {
	name := path.Base(o.Key)
	return name == catalog.ManifestName || strings.HasPrefix(name, catalog.ProofPrefix)
}

// eachCopy calls do for each document in the index of the repository, which may have limit bytes. do may read its content, of size bytes.
func (r *Reader) eachCopy(ctx context.Context, limit int64, do func(line string, size int64, content io.Reader) error) error {
	stored, _, err := r.Store.Bucket.Open(ctx, catalog.BackupsIndexKey(r.Store.Cluster), storage.OpenOptions{})
	if err != nil {
		return err
	}
	defer stored.Close()
	dec, err := records.NewUnpacker(io.LimitReader(stored, limit))
	if err != nil {
		return err
	}
	defer dec.Close()
	return splitIndex(io.LimitReader(dec, maxUnpacked+maxLine), do)
}

// errNoIndex means that an object is no index of this format, or is damaged.
var errNoIndex = errors.New("no index of backups")

// splitIndex calls do for each document in the content of an index.
func splitIndex(content io.Reader, do func(line string, size int64, content io.Reader) error) error {
	in := bufio.NewReaderSize(content, maxLine)
	header, err := in.ReadSlice('\n')
	if err != nil || string(header) != indexHeader {
		return errNoIndex
	}
	for range maxCopies {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return errNoIndex
		}
		_, rest, _ := bytes.Cut(line, []byte(" "))
		number, _, _ := bytes.Cut(rest, []byte(" "))
		size, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil || size < 0 || size > document.MaxKind {
			return errNoIndex
		}
		one := &io.LimitedReader{R: in, N: size}
		err = do(string(line), size, one)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, one)
		if err != nil || one.N > 0 {
			return errNoIndex
		}
	}
	return nil
}
