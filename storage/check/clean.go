package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

const (
	// cleanTime bounds the clean-up, which also runs after ctx has ended.
	cleanTime = time.Minute
	// abandoned is the age from which the objects of other runs are treated as those of a killed check.
	abandoned = 24 * time.Hour
)

// cleaning is the result of the clean-up.
type cleaning struct {
	removed, locked int
	denied, other   error
}

// cleanUp removes the objects of this run, and those of killed checks. reached reports whether the store answers at
// all.
func (p *probe) cleanUp(ctx context.Context, reached bool) Line {
	if !reached {
		return notRun("nothing was written")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	var c cleaning
	for _, obj := range p.made {
		c.remove(ctx, p.bucket, obj.Key, obj.Version)
	}
	// Objects that a failed Put has stored.
	for obj, err := range p.bucket.List(ctx, storage.ListOptions{}) {
		c.record(err)
		if err == nil {
			c.remove(ctx, p.bucket, obj.Key, "")
		}
	}
	c.sweep(ctx, p.root, p.dir, 0)
	mine := c
	c.removeAbandoned(ctx, p.root, p.dir)
	c.sweep(ctx, p.root, folder, abandoned)
	return c.line(p.dir, c.removed-mine.removed)
}

func (c *cleaning) remove(ctx context.Context, b storage.Bucket, key, version string) {
	err := b.Delete(ctx, key, storage.DeleteOptions{Version: version})
	if version != "" && errors.Is(err, storage.ErrDenied) { // hiding the key may be allowed
		err = b.Delete(ctx, key, storage.DeleteOptions{})
	}
	c.record(err)
	if err == nil {
		c.removed++
	}
}

func (c *cleaning) record(err error) {
	switch {
	case err == nil:
	case errors.Is(err, storage.ErrLocked):
		c.locked++
	case errors.Is(err, storage.ErrDenied):
		c.denied = err
	default:
		c.other = err
	}
}

// sweep removes pieces of uploads that are older than age.
func (c *cleaning) sweep(ctx context.Context, root storage.Bucket, prefix string, age time.Duration) {
	sweeper, sweeps := storage.AsSweeper(root)
	if !sweeps {
		return
	}
	for piece, err := range sweeper.Leftovers(ctx, prefix) {
		if err != nil {
			c.record(err)
			return
		}
		if time.Since(piece.ModTime) >= age {
			c.record(sweeper.Sweep(ctx, piece))
		}
	}
}

func (c *cleaning) removeAbandoned(ctx context.Context, root storage.Bucket, mine string) {
	var old []string
	for obj, err := range root.List(ctx, storage.ListOptions{Prefix: folder}) {
		if err != nil {
			c.record(err)
			return
		}
		if !strings.HasPrefix(obj.Key, mine) && time.Since(obj.ModTime) >= abandoned {
			old = append(old, obj.Key)
		}
	}
	for _, key := range old {
		c.remove(ctx, root, key, "")
	}
}

func (c *cleaning) line(dir string, earlier int) Line {
	later := "run dr check again after more than a day, with credentials that may delete: it removes them"
	switch {
	case c.other != nil:
		return unknown(later, "objects may be left in %s: %s", dir, oneLine(c.other))
	case c.denied != nil:
		return note(later, "the objects of this check stay in %s: %s", dir, oneLine(c.denied))
	}
	seen := "nothing is left"
	if c.locked > 0 {
		seen = fmt.Sprintf("locked objects stay in %s until a check removes them, more than a day later", dir)
	}
	if earlier > 0 {
		seen += fmt.Sprintf("; %d objects of earlier checks were removed", earlier)
	}
	return ok("%s", seen)
}
