package find

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// Difference is a key that differs between two points. A is nil if the key was added, B if it was removed. A key with the same
// value at both points is no difference, even if it was written or created again in between.
type Difference struct{ A, B *Entry }

// Compared describes the two points and counts the keys.
type Compared struct {
	A, B                    At
	Added, Changed, Removed int
	Same                    int
}

// Diff calls take for each key that differs between two targets, in key order, with the values if values is true. It writes the
// entries of the first point to the scratch directory, so that its memory grows with the number of keys and not with the
// values. If the second target can be reached from the first, only the rest of the log is replayed.
func (s Search) Diff(
	ctx context.Context, targets [2]plan.Target, values bool, take func(Difference) error,
) (c Compared, err error) {
	scratch, err := child.NewDir(s.Dir, "diff")
	if err != nil {
		return c, err
	}
	defer func() { _ = scratch.Remove() }()
	f, err := os.Create(filepath.Join(scratch.Path, "first"))
	if err != nil {
		return c, fmt.Errorf("make a scratch file: %w", err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	first := json.NewEncoder(w)
	r := &reader{Search: s, scratch: scratch.Path, values: valuesJob{With: values, Keep: true}}
	c.A, err = r.read(ctx, targets[0], func(e Entry) error { return first.Encode(e) })
	err = errors.Join(err, w.Flush())
	if err != nil {
		return c, fmt.Errorf("the first point: %w", err)
	}
	_, err = f.Seek(0, io.SeekStart)
	if err != nil {
		return c, fmt.Errorf("read the scratch file: %w", err)
	}
	m := &merge{lines: json.NewDecoder(bufio.NewReader(f)), take: take, compared: &c}
	err = m.next()
	if err != nil {
		return c, err
	}
	c.B, err = r.read(ctx, targets[1], m.second)
	if err != nil {
		return c, fmt.Errorf("the second point: %w", err)
	}
	return c, m.rest()
}

// merge compares two lists of entries, both in key order.
type merge struct {
	lines    *json.Decoder // the first list
	head     *Entry        // its next entry; nil at its end
	take     func(Difference) error
	compared *Compared
}

// next reads the next entry of the first list into head.
func (m *merge) next() error {
	m.head = &Entry{}
	err := m.lines.Decode(m.head)
	if errors.Is(err, io.EOF) {
		m.head = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the scratch file: %w", err)
	}
	return nil
}

// second compares b, the next entry of the second list, with the first list.
func (m *merge) second(b Entry) error {
	for m.head != nil && bytes.Compare(m.head.Key, b.Key) < 0 {
		err := m.removed()
		if err != nil {
			return err
		}
	}
	if m.head == nil || !bytes.Equal(m.head.Key, b.Key) {
		m.compared.Added++
		return m.take(Difference{B: &b})
	}
	a := m.head
	err := m.next()
	if err != nil {
		return err
	}
	if bytes.Equal(a.SHA256, b.SHA256) {
		m.compared.Same++
		return nil
	}
	m.compared.Changed++
	return m.take(Difference{A: a, B: &b})
}

// removed reports head as removed, and reads the next entry.
func (m *merge) removed() error {
	m.compared.Removed++
	err := m.take(Difference{A: m.head})
	if err != nil {
		return err
	}
	return m.next()
}

// rest reports the remaining entries of the first list as removed.
func (m *merge) rest() error {
	for m.head != nil {
		err := m.removed()
		if err != nil {
			return err
		}
	}
	return nil
}
