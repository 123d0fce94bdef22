package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// spoolEvery is the interval of writing a segment to the spool while the store is unreachable.
const spoolEvery = 10 * time.Second

// spool is a directory with segments that wait for the store, already sealed. The zero spool has room for nothing.
type spool struct {
	dir      string // "": there is no spool
	max      int64  // maximum of bytes
	bytes    int64  // size of the segments
	segments int    // their number
	lock     *fileutil.LockedFile
	warn     func(format string, args ...any) // nil: not called
}

// Spool describes the segments that wait in the spool while the store is unreachable.
type Spool struct {
	Segments int
	Bytes    int64
	Max      int64 // 0: there is no spool
}

// openSpool opens and locks the cluster's directory within dir. Without the lock two agents would store each other's segments.
func openSpool(dir, cluster string, most int64, warn func(string, ...any)) (spool, error) {
	if dir == "" {
		return spool{}, nil
	}
	s := spool{dir: filepath.Join(dir, cluster), max: most, warn: warn}
	err := os.MkdirAll(s.dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) { // dir was empty, and has just been removed
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return spool{}, fmt.Errorf("%w: --spool: %w", ErrConfig, err)
	}
	s.lock, err = lockFile(s.lockPath())
	if errors.Is(err, fileutil.ErrLocked) {
		return spool{}, fmt.Errorf("%w: --spool: another agent uses %s: give each agent its own directory", ErrConfig, s.dir)
	}
	if err != nil {
		return spool{}, fmt.Errorf("%w: --spool: lock %s: %w", ErrConfig, s.dir, err)
	}
	_, _, err = s.sort(log.Tail{}) // counts segments that an earlier run has left
	return s, err
}

// CloseSpool does with the cluster's directory within dir what an agent does when it ends: it removes the directory, or calls warn if
// segments wait in it. The error matches ErrConfig if an agent uses it.
func CloseSpool(dir, cluster string, warn func(format string, args ...any)) error {
	s, err := openSpool(dir, cluster, 0, warn)
	if err != nil {
		return err
	}
	return s.close()
}

// SpoolLock is the name of the file in the directory of each spool by whose lock an agent keeps others away.
const SpoolLock = "lock"

func (s *spool) lockPath() string { return filepath.Join(s.dir, SpoolLock) }

// lockFile creates and locks a file. The error matches fileutil.ErrLocked if another agent has the lock, or has just removed the file.
func lockFile(path string) (*fileutil.LockedFile, error) {
	lock, err := fileutil.TryLockFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := lock.Stat()
	if err == nil {
		var there fs.FileInfo
		there, err = os.Stat(path)
		if err == nil && os.SameFile(locked, there) {
			return lock, nil
		}
	}
	return nil, errors.Join(fileutil.ErrLocked, err, lock.Close())
}

// close removes the directory unless segments wait in it, and unlocks it. Segments that wait are reported: the cluster may not be
// archived any more.
func (s *spool) close() error {
	if s.lock == nil {
		return nil
	}
	if s.segments > 0 && s.warn != nil {
		s.warn("%d segments of the log (%s) are not stored, and stay in %s: the next agent with this spool stores them; remove the directory if they are not needed",
			s.segments, humanize.IBytes(uint64(s.bytes)), s.dir)
	}
	if s.segments == 0 {
		_ = os.Remove(s.lockPath())
		_ = os.Remove(s.dir) // fails if it contains anything
	}
	return s.lock.Close()
}

// hasRoom reports whether there is room for so many bytes of changes. Sealed, they are hardly ever larger.
func (s *spool) hasRoom(bytes int) bool { return s.dir != "" && s.bytes+int64(bytes) <= s.max }

func (s *spool) status() Spool { return Spool{Segments: s.segments, Bytes: s.bytes, Max: s.max} }

const spoolSuffix = ".seg"

func (s *spool) path(h segment.Header) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%016x%s", h.Lineage, h.Seq, spoolSuffix))
}

// put writes a segment atomically.
func (s *spool) put(e segment.Encoded) error {
	path := s.path(e.Header)
	err := writeSynced(path+".part", e.Bytes)
	if err != nil {
		return errors.Join(fmt.Errorf("spool segment %d: %w", e.Header.Seq, err), os.Remove(path+".part"))
	}
	err = errors.Join(os.Rename(path+".part", path), syncDir(s.dir))
	if err != nil {
		return fmt.Errorf("spool segment %d: %w", e.Header.Seq, err)
	}
	s.bytes += int64(len(e.Bytes))
	s.segments++
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func writeSynced(path string, p []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// get reads the segment with the header h, and checks its body against the header in the file.
func (s *spool) get(h segment.Header) (segment.Encoded, error) {
	p, err := os.ReadFile(s.path(h))
	if err != nil {
		return segment.Encoded{}, fmt.Errorf("read segment %d from the spool: %w", h.Seq, err)
	}
	e, err := segment.Decode(p)
	if err != nil {
		return segment.Encoded{}, fmt.Errorf("read segment %d from the spool: %s: %w", h.Seq, s.path(h), err)
	}
	return e, nil
}

// remove deletes the file of a stored segment.
func (s *spool) remove(spooled catalog.Segment) error {
	err := os.Remove(s.path(spooled.Header))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove segment %d from the spool: %w", spooled.Seq, err)
	}
	s.bytes -= spooled.Size
	s.segments--
	return nil
}

// sort returns the segments that continue the log after tail, in order, and the stranded ones, which do not: another agent has
// started a new lineage, or has stored the same or other segments in their place. It removes only files that are not segments.
func (s *spool) sort(tail log.Tail) (following, stranded []catalog.Segment, err error) {
	if s.dir == "" {
		return nil, nil, nil
	}
	stranded, err = s.list()
	if err != nil {
		return nil, nil, err
	}
	s.bytes, s.segments = 0, len(stranded)
	for _, one := range stranded {
		s.bytes += one.Size
	}
	for {
		i := slices.IndexFunc(stranded, func(one catalog.Segment) bool { return continues(tail, one) })
		if i < 0 {
			return following, stranded, nil
		}
		next := stranded[i]
		stranded = slices.Delete(stranded, i, i+1)
		following = append(following, next)
		tail.Lineage, tail.Last = next.Lineage, next
	}
}

// continues reports whether s is the next segment of the log that ends with tail.
func continues(tail log.Tail, s catalog.Segment) bool {
	if s.Seq > 1 {
		return s.Lineage == tail.Lineage && s.Seq == tail.Last.Seq+1 && s.Previous == tail.Last.Digest
	}
	if s.After == nil {
		return tail.Lineage == ""
	}
	return s.After.Lineage == tail.Lineage && s.After.Seq == tail.Last.Seq
}

// list returns the segments in the order of their file names, which within a lineage is the order of Seq. It removes files that are
// not segments, such as incomplete ones after a crash, but not files that cannot be read now.
func (s *spool) list() ([]catalog.Segment, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the spool: %w", err)
	}
	var found []catalog.Segment
	for _, entry := range entries {
		path := filepath.Join(s.dir, entry.Name())
		if strings.HasSuffix(path, spoolSuffix+".part") {
			err = errors.Join(err, s.discard(path, errors.New("it is incomplete")))
		}
		if !strings.HasSuffix(path, spoolSuffix) {
			continue
		}
		one, readErr := readSpooled(path)
		switch {
		case readErr == nil && s.path(one.Header) == path:
			found = append(found, one)
		case readErr == nil:
			err = errors.Join(err, s.discard(path, fmt.Errorf("it is segment %d of lineage %s", one.Seq, one.Lineage)))
		case errors.Is(readErr, storage.ErrDamaged):
			err = errors.Join(err, s.discard(path, readErr))
		default:
			return nil, fmt.Errorf("read the spool: %w", readErr)
		}
	}
	return found, err
}

// discard removes a file that is not a segment, and reports it.
func (s *spool) discard(path string, why error) error {
	if s.warn != nil {
		s.warn("%s is removed from the spool: %v", filepath.Base(path), why)
	}
	return os.Remove(path)
}

func readSpooled(path string) (catalog.Segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return catalog.Segment{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return catalog.Segment{}, err
	}
	h, digest, err := segment.ReadHeader(f)
	return catalog.Segment{Header: h, Digest: digest, Size: info.Size()}, err
}
