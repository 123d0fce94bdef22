package catalog

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var lineageName = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ValidLineage returns an error that matches ErrName unless id is 32 lower-case hex digits.
func ValidLineage(id string) error {
	if !lineageName.MatchString(id) {
		return fmt.Errorf("%w: lineage %q: use 32 lower-case hex digits", ErrName, id)
	}
	return nil
}

// LogPrefix returns the prefix of all keys of a cluster's log.
func LogPrefix(cluster string) string { return cluster + "/log/" }

// LineagePrefix returns the prefix of all keys of a lineage.
func LineagePrefix(cluster, lineage string) string { return LogPrefix(cluster) + lineage + "/" }

// SegmentKey returns the key of a segment.
func SegmentKey(cluster, lineage string, seq uint64) string {
	return LogName{lineage, LogSegment, seq}.Key(cluster)
}

// IndexKey returns the key of the index whose first segment is first.
func IndexKey(cluster, lineage string, first uint64) string {
	return LogName{lineage, LogIndex, first}.Key(cluster)
}

// LogTombstoneKey returns the key of the tombstone that deletes the segments up to and including upto.
func LogTombstoneKey(cluster, lineage string, upto uint64) string {
	return LogName{lineage, LogTombstone, upto}.Key(cluster)
}

// LogName names an object of a log.
type LogName struct {
	Lineage string
	Kind    LogKind
	Seq     uint64 // of the segment, of the index's first segment, or of the last deleted segment
}

// LogKind is the kind of an object of a log.
type LogKind int

// The kinds of objects of a log.
const (
	LogSegment LogKind = iota
	LogIndex
	LogTombstone
)

// logAffixes has the text before and after the seq in the key of each kind.
var logAffixes = [...]struct{ prefix, suffix string }{
	LogSegment:   {"", ".seg"},
	LogIndex:     {IndexPrefix, JSONSuffix},
	LogTombstone: {TombstonePrefix, JSONSuffix},
}

// Key returns the key of the object.
func (n LogName) Key(cluster string) string {
	affixes := logAffixes[n.Kind]
	return fmt.Sprintf("%s%s%016x%s", LineagePrefix(cluster, n.Lineage), affixes.prefix, n.Seq, affixes.suffix)
}

// SplitLogKey returns the name whose Key is key. ok is false if key is not such a key.
func SplitLogKey(cluster, key string) (n LogName, ok bool) {
	lineage, name, ok := strings.Cut(strings.TrimPrefix(key, LogPrefix(cluster)), "/")
	if !ok || ValidLineage(lineage) != nil {
		return LogName{}, false
	}
	for kind, affixes := range logAffixes {
		digits, begins := strings.CutPrefix(name, affixes.prefix)
		digits, ends := strings.CutSuffix(digits, affixes.suffix)
		seq, err := strconv.ParseUint(digits, 16, 64)
		n = LogName{lineage, LogKind(kind), seq}
		if begins && ends && err == nil && seq > 0 && n.Key(cluster) == key { // a name has exactly one key
			return n, true
		}
	}
	return LogName{}, false
}
