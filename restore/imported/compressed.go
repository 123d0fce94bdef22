package imported

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/lzw"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// compression is a way in which a snapshot can be compressed.
type compression struct {
	is   func(begin []byte, name string) bool // begin are the first bytes, at most beginSize
	open func(*os.File) (io.ReadCloser, error)
}

const beginSize = 4

// compressions are the known ones. A database begins with eight zero bytes, the number of its first page, so that it is none of them.
var compressions = []compression{
	{starts("\x28\xb5\x2f\xfd"), openZstd},
	{starts("\x1f\x8b"), openGzip},
	{starts("PK\x03\x04"), openZip},
	{isZlib, openZlib},
	// LZW has no signature. This is the form of Gardener (etcd-backup-restore, pkg/compressor).
	{func(_ []byte, name string) bool { return suffixOf(name) == ".Z" }, openLZW},
}

// suffixOf returns the suffix of a name. The last snapshot of a cluster in Gardener has another one after that.
func suffixOf(name string) string { return path.Ext(strings.TrimSuffix(name, ".final")) }

func starts(with string) func([]byte, string) bool {
	return func(begin []byte, _ string) bool { return bytes.HasPrefix(begin, []byte(with)) }
}

// isZlib reports whether a file begins with the header of a zlib stream (RFC 1950).
func isZlib(begin []byte, _ string) bool {
	return len(begin) > 1 && begin[0]&0x0f == 8 && (int(begin[0])<<8|int(begin[1]))%31 == 0
}

// mayBeSnapshot reports whether a file that begins like that is compressed, or a database.
func mayBeSnapshot(begin []byte, name string) bool {
	for _, c := range compressions {
		if c.is(begin, name) {
			return true
		}
	}
	return isDatabase(begin)
}

// isDatabase reports whether a file that begins like that may be a database of bbolt: its magic number is at byte 16.
func isDatabase(begin []byte) bool {
	return len(begin) >= magicEnd && binary.LittleEndian.Uint32(begin[magicEnd-4:]) == 0xED0CDAED
}

// magicEnd is the position after the magic number.
const magicEnd = 20

// opened returns the decompressed content of src; nil if it is not compressed.
func opened(src *os.File) (io.ReadCloser, error) {
	begin := make([]byte, beginSize)
	n, err := src.ReadAt(begin, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, c := range compressions {
		if !c.is(begin[:n], src.Name()) {
			continue
		}
		plain, err := c.open(src)
		if err != nil && !errors.Is(err, fault.Refused) {
			err = fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
		}
		return plain, err
	}
	return nil, nil
}

func openZstd(src *os.File) (io.ReadCloser, error) {
	plain, err := zstd.NewReader(bufio.NewReaderSize(src, 1<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return plain.IOReadCloser(), nil
}

func openGzip(src *os.File) (io.ReadCloser, error) {
	return gzip.NewReader(bufio.NewReaderSize(src, 1<<20))
}

func openZlib(src *os.File) (io.ReadCloser, error) {
	return zlib.NewReader(bufio.NewReaderSize(src, 1<<20))
}

func openLZW(src *os.File) (io.ReadCloser, error) {
	return lzw.NewReader(bufio.NewReaderSize(src, 1<<20), lzw.LSB, 8), nil
}

// openZip opens the only snapshot in an archive. RKE adds its own state to it.
func openZip(src *os.File) (io.ReadCloser, error) {
	info, err := src.Stat()
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(src, info.Size())
	if err != nil {
		return nil, err
	}
	var files []*zip.File
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() && path.Ext(f.Name) != ".rkestate" {
			files = append(files, f)
		}
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("%w: the archive has %d files, and not one: unpack it, and name the snapshot", fault.Refused, len(files))
	}
	return files[0].Open()
}
