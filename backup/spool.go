package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Spool is where the sealed stream waits for the stores, so that the member's stream never does.
type Spool struct {
	Dir   string // folder; "": the stores read the stream as it comes
	Room  *Room  // bounds the spools of several backups; nil: only the disk does
	Owner string // of the backup, for Room
	Full  func() // called when the spool contains the whole stream: only the stores are still to do. May be nil
}

// errNoRoom reports a backup for which a Room has no room now.
var errNoRoom = fault.New(fault.Busy, "no room in the spool")

// Room bounds the bytes of the spools of several backups. An owner gets no more of it than stays free for the others: one whose stores are
// slow cannot fill it.
type Room struct {
	max   int64
	mu    sync.Mutex
	taken map[string]int64 // by owner; guarded by mu
}

// NewRoom returns a Room for so many bytes.
func NewRoom(most int64) *Room { return &Room{max: most, taken: map[string]int64{}} }

// take takes n bytes for an owner. Its error matches errNoRoom.
func (r *Room) take(owner string, n int64) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left(owner)
	if n > left {
		return fmt.Errorf("%w: the backup may take %s there, and %s of %s are left for it: wait until others are uploaded, or allow more with --spool-backups",
			errNoRoom, humanize.IBytes(uint64(n)), humanize.IBytes(uint64(left)), humanize.IBytes(uint64(r.max)))
	}
	r.taken[owner] += n
	return nil
}

// left returns the most bytes that an owner may take: after that it has no more than is free. The caller holds r.mu.
func (r *Room) left(owner string) int64 {
	free := r.max
	for _, n := range r.taken {
		free -= n
	}
	return max(0, (free-r.taken[owner])/2)
}

// giveBack gives back n bytes of an owner.
func (r *Room) giveBack(owner string, n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[owner] -= n
	if r.taken[owner] == 0 {
		delete(r.taken, owner)
	}
}

// spooled is the file of a Spool, which disappears with this process, and its part of the Room.
type spooled struct {
	*os.File
	spool Spool
	bytes int64 // of the Room
}

// fill writes the sealed stream of a database of about so many bytes to a file, and rewinds it. No byte of it is plain if the backup is
// encrypted.
func (s Spool) fill(sealed io.Reader, about int64) (*spooled, error) {
	most := largest(about)
	err := s.Room.take(s.Owner, most)
	if err != nil {
		return nil, err
	}
	f := &spooled{spool: s, bytes: most}
	f.File, err = unlinked(s.Dir)
	if err != nil {
		s.Room.giveBack(s.Owner, most)
		return nil, fmt.Errorf("make a spool: %w", err)
	}
	err = f.copy(sealed, most)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool the snapshot in %s: %w", s.Dir, err), f.Close())
	}
	return f, nil
}

// largest returns the most bytes that the sealed stream of a database of about so many may have: data that does not compress, with the
// frames of compression and encryption.
func largest(about int64) int64 { return about + about/20 + 1<<20 }

// unlinked creates a file in dir without a name.
func unlinked(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "dr-spool-*")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// copy writes the stream to f, and gives the part of the Room back that it does not need. A stream of more than most bytes is an error: a
// member that is none could fill the disk.
func (f *spooled) copy(sealed io.Reader, most int64) error {
	n, err := io.Copy(f.File, io.LimitReader(sealed, most+1))
	if err != nil {
		return err
	}
	if n > most {
		return fmt.Errorf("the member has sent more than the %s that its database can take", humanize.IBytes(uint64(most)))
	}
	f.spool.Room.giveBack(f.spool.Owner, most-n)
	f.bytes = n
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Close removes the file, and gives its part of the Room back.
func (f *spooled) Close() error {
	f.spool.Room.giveBack(f.spool.Owner, f.bytes)
	return f.File.Close()
}
