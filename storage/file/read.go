package file

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (b *tree) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	f, info, err := b.open(ctx, key, o.Version)
	if err != nil {
		return nil, storage.Object{}, b.failed("open", key, err)
	}
	left, err := seek(f, info.Size(), o)
	if err != nil {
		f.Close()
		return nil, storage.Object{}, b.failed("open", key, err)
	}
	return &stream{ctx: ctx, b: b, key: key, f: f, left: left}, object(key, info), nil
}

func (b *tree) open(ctx context.Context, key, wanted string) (*os.File, fs.FileInfo, error) {
	// Opening a FIFO would block, so check first.
	_, err := b.stat(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	f, err := b.root.Open(key)
	if missing(err) {
		return nil, nil, storage.ErrNotExist
	}
	if err != nil {
		return nil, nil, unreadable(err)
	}
	info, err := f.Stat()
	if err == nil && wanted != "" && wanted != version(info) {
		err = fmt.Errorf("%w: version %q, the object has %q", storage.ErrNotExist, wanted, version(info))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// seek moves to the start of the range and returns its length.
func seek(f *os.File, size int64, o storage.OpenOptions) (int64, error) {
	if o.Offset < 0 || o.Length < 0 || o.Offset > size {
		return 0, fmt.Errorf("%w: offset %d, length %d of %d bytes", storage.ErrRange, o.Offset, o.Length, size)
	}
	left := size - o.Offset
	if o.Length > 0 {
		left = min(left, o.Length)
	}
	_, err := f.Seek(o.Offset, io.SeekStart)
	return left, err
}

// stream is an open range. It counts bytes, because a file that is truncated meanwhile would end as if it were
// complete.
type stream struct {
	ctx  context.Context
	b    *tree
	key  string
	f    *os.File
	left int64
}

func (s *stream) Read(p []byte) (int, error) {
	err := s.ctx.Err()
	if err != nil {
		return 0, s.b.failed("read", s.key, err)
	}
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.f.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == io.EOF {
		err = fmt.Errorf("%w: the file was truncated: %d bytes are missing", io.ErrUnexpectedEOF, s.left)
	}
	if err != nil {
		return n, s.b.failed("read", s.key, unreadable(err))
	}
	return n, nil
}

func (s *stream) Close() error { return s.f.Close() }
