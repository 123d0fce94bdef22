package repository

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	segmentSuffix = ".seg"
	indexPrefix   = "index-"

	logTombstonePrefix = "tombstone-"
)

var lineageName = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ValidLineage returns an error that wraps ErrName unless id can be a lineage's: 32 lower-case hex digits.
func ValidLineage(id string) error {
	if !lineageName.MatchString(id) {
		return fmt.Errorf("%w: lineage %q: it has 32 digits from 0 to f", ErrName, id)
	}
	return nil
}

func (c *Cluster) logPrefix() string                   { return c.name + "/log/" }
func (c *Cluster) lineagePrefix(lineage string) string { return c.logPrefix() + lineage + "/" }

func (c *Cluster) segmentKey(lineage string, seq uint64) string {
	return fmt.Sprintf("%s%016x%s", c.lineagePrefix(lineage), seq, segmentSuffix)
}

func (c *Cluster) indexKey(lineage string, first uint64) string {
	return fmt.Sprintf("%s%s%016x%s", c.lineagePrefix(lineage), indexPrefix, first, jsonSuffix)
}

func (c *Cluster) logTombstoneKey(lineage string, upto uint64) string {
	return fmt.Sprintf("%s%s%016x%s", c.lineagePrefix(lineage), logTombstonePrefix, upto, jsonSuffix)
}

// logName is what a key below the cluster's log says.
type logName struct {
	lineage string
	kind    logKind
	seq     uint64 // of the segment, of the first one in the index, or of the last one that the tombstone is of
}

type logKind int

const (
	logSegment logKind = iota
	logIndex
	logTombstone
)

// splitLogKey takes a key below the cluster's log apart. Only names that this package makes are ok.
func (c *Cluster) splitLogKey(key string) (n logName, ok bool) {
	lineage, name, ok := strings.Cut(strings.TrimPrefix(key, c.logPrefix()), "/")
	if !ok || ValidLineage(lineage) != nil {
		return logName{}, false
	}
	n.lineage = lineage
	digits, isSegment := strings.CutSuffix(name, segmentSuffix)
	if !isSegment {
		digits = strings.TrimSuffix(name, jsonSuffix)
		n.kind = logIndex
		if strings.HasPrefix(name, logTombstonePrefix) {
			n.kind = logTombstone
		}
		_, digits, _ = strings.Cut(digits, "-")
	}
	seq, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || seq == 0 {
		return logName{}, false
	}
	n.seq = seq
	return n, c.logKey(n) == key // there is one spelling
}

// logKey is splitLogKey's other way.
func (c *Cluster) logKey(n logName) string {
	switch n.kind {
	case logIndex:
		return c.indexKey(n.lineage, n.seq)
	case logTombstone:
		return c.logTombstoneKey(n.lineage, n.seq)
	}
	return c.segmentKey(n.lineage, n.seq)
}
