package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// Limits of what a spool may hold.
const (
	defaultSpool = 2 << 30
	minSpool     = archive.MinSpool * spec.SegmentSize
)

// archive says nothing of the spool where there is no flush: a cluster can so leave out what the defaults have.
func (i in) archive(part archivePart, to seal.Recipients) spec.Archive {
	if part.Flush == 0 {
		return spec.Archive{}
	}
	a := spec.Archive{Flush: time.Duration(part.Flush), Spool: part.Spool, SpoolMax: int64(part.SpoolMax)}
	if a.Spool != "" && a.SpoolMax == 0 {
		a.SpoolMax = defaultSpool
	}
	switch {
	case a.Flush < archive.MinFlush:
		i.blame(fmt.Errorf("flush is at least %s, or 0s for a log that is not archived", archive.MinFlush), "archive", "flush")
	case a.Spool == "" && a.SpoolMax != 0:
		i.blame(errors.New("spoolMax without a spool: name its folder"), "archive", "spoolMax")
	case a.Spool != "" && a.SpoolMax < minSpool:
		i.blame(fmt.Errorf("spoolMax is at least %s", humanize.IBytes(minSpool)), "archive", "spoolMax")
	case to.Passphrase():
		i.blame(errors.New("a passphrase takes a second of CPU for each piece of an archived log: use recipients"), "archive")
	}
	return a
}
