package catalog

import (
	"fmt"
	"math"
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
	return LogName{Lineage: lineage, Kind: LogSegment, Seq: seq}.Key(cluster)
}

// IndexKey returns the key of the index whose first segment is first.
func IndexKey(cluster, lineage string, first uint64) string {
	return LogName{Lineage: lineage, Kind: LogIndex, Seq: first}.Key(cluster)
}

// LogTombstoneKey returns the key of the tombstone that deletes the segments up to and including upto.
func LogTombstoneKey(cluster, lineage string, upto uint64) string {
	return LogName{Lineage: lineage, Kind: LogTombstone, Seq: upto}.Key(cluster)
}

// PackKey returns the key of the pack that contains the segments from first to last.
func PackKey(cluster, lineage string, first, last uint64) string {
	return LogName{lineage, LogPack, first, last}.Key(cluster)
}

// LogName names an object of a log.
type LogName struct {
	Lineage string
	Kind    LogKind
	Seq     uint64 // of the segment, of the first segment of an index or a pack, or of the last deleted segment
	Last    uint64 // of the last segment of a pack; 0 for the other kinds
}

// LogKind is the kind of an object of a log.
type LogKind int

// The kinds of objects of a log.
const (
	LogSegment LogKind = iota
	LogIndex
	LogTombstone
	LogPack
)

// logAffixes has the text before and after the seq in the key of each kind.
var logAffixes = [...]struct{ prefix, suffix string }{
	LogSegment:   {"", ".seg"},
	LogIndex:     {IndexPrefix, JSONSuffix},
	LogTombstone: {TombstonePrefix, JSONSuffix},
	LogPack:      {PackPrefix, ".segs"},
}

// Key returns the key of the object.
func (n LogName) Key(cluster string) string {
	affixes := logAffixes[n.Kind]
	seqs := fmt.Sprintf("%016x", n.Seq)
	if n.Kind == LogPack {
		seqs += fmt.Sprintf("-%016x", n.Last)
	}
	return LineagePrefix(cluster, n.Lineage) + affixes.prefix + seqs + affixes.suffix
}

// SplitLogKey returns the name whose Key is key. ok is false if key is not such a key. It refuses the highest seq,
// so that seq+1 never overflows.
func SplitLogKey(cluster, key string) (n LogName, ok bool) {
	lineage, name, ok := strings.Cut(strings.TrimPrefix(key, LogPrefix(cluster)), "/")
	if !ok || ValidLineage(lineage) != nil {
		return LogName{}, false
	}
	for kind, affixes := range logAffixes {
		seqs, begins := strings.CutPrefix(name, affixes.prefix)
		seqs, ends := strings.CutSuffix(seqs, affixes.suffix)
		if !begins || !ends {
			continue
		}
		first, last, isPack := strings.Cut(seqs, "-")
		n = LogName{Lineage: lineage, Kind: LogKind(kind)}
		n.Seq, _ = strconv.ParseUint(first, 16, 64) // 0 if it is no number
		if isPack {
			n.Last, _ = strconv.ParseUint(last, 16, 64)
		}
		inRange := n.Seq > 0 && n.Seq < math.MaxUint64 && n.Last < math.MaxUint64
		if inRange && (n.Kind != LogPack || n.Last > n.Seq) && n.Key(cluster) == key { // a name has exactly one key
			return n, true
		}
	}
	return LogName{}, false
}
