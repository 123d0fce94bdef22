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

// logName is what a key below the cluster's log says.
type logName struct {
	lineage string
	index   bool   // of headers, or a segment
	seq     uint64 // of the segment, or of the first one in the index
}

// splitLogKey takes a key below the cluster's log apart. Only names that this package makes are ok.
func (c *Cluster) splitLogKey(key string) (n logName, ok bool) {
	lineage, name, ok := strings.Cut(strings.TrimPrefix(key, c.logPrefix()), "/")
	if !ok || ValidLineage(lineage) != nil {
		return logName{}, false
	}
	digits, isSegment := strings.CutSuffix(name, segmentSuffix)
	if !isSegment {
		digits = strings.TrimSuffix(strings.TrimPrefix(name, indexPrefix), jsonSuffix)
	}
	seq, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || seq == 0 {
		return logName{}, false
	}
	made := c.indexKey(lineage, seq)
	if isSegment {
		made = c.segmentKey(lineage, seq)
	}
	return logName{lineage, !isSegment, seq}, made == key // there is one spelling
}
