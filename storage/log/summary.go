package log

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// The summary of a log contains its folded indexes. It only saves time: a folded index in it takes the place of the index only if the
// segments are listed with the same sizes, and a plan reads the headers of the segments that it needs. A prune replaces it.

// SummaryFormat is the version of the summary's format that this package reads and writes.
const SummaryFormat = 1

// Limits of a summary.
const (
	fewFolds     = 16        // fewer indexes than this are read without a summary
	maxSummary   = 32 << 20  // bytes of the stored document
	maxFoldLines = 32 << 20  // bytes of its lines, unpacked
	maxFoldLine  = 256 << 10 // bytes of one line
	leastField   = 16        // bytes of a field and its value, on average over a line: an empty object of JSON takes more memory than bytes
)

// summary is the stored document.
type summary struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	// Folds are JSON objects of the form of summaryFold, one a line, compressed with zstd. To read them: jq -r .folds | base64 -d | zstd -d.
	Folds []byte `json:"folds"`
}

// summaryFold is a folded index.
type summaryFold struct {
	Last     uint64           `json:"last"`     // seq of the last segment in the index
	Listed   uint64           `json:"listed"`   // listing.sum of its segments
	Segments []summarySegment `json:"segments"` // the first one, and the fold of the others
}

// summarySegment is a catalog.Segment.
type summarySegment struct {
	Header    segment.Header `json:"header"`
	Signature string         `json:"signature,omitempty"`
	Digest    string         `json:"digest"`
	Size      int64          `json:"size"`
	Folded    uint64         `json:"folded,omitempty"`
}

// encode returns the line of a folded index.
func (k keptFold) encode() ([]byte, error) {
	line := summaryFold{Last: k.last, Listed: k.listed}
	for _, s := range k.segments {
		line.Segments = append(line.Segments, summarySegment{s.Header, s.Signature, s.Digest, s.Size, s.Folded})
	}
	data, err := json.Marshal(line)
	return append(data, '\n'), err
}

// decodeFold returns the folded index in a line.
func decodeFold(line []byte, cluster string) (keptFold, error) {
	if bytes.Count(line, []byte(","))*leastField > len(line) {
		return keptFold{}, errors.New("its fields are too short")
	}
	var f summaryFold
	err := json.Unmarshal(line, &f)
	if err != nil {
		return keptFold{}, err
	}
	if len(f.Segments) != 2 {
		return keptFold{}, errors.New("it is not the fold of an index")
	}
	k := keptFold{last: f.Last, listed: f.Listed}
	for _, s := range f.Segments {
		s.Header.Signature = s.Signature
		k.segments = append(k.segments, catalog.Segment{Header: s.Header, Digest: s.Digest, Size: s.Size, Folded: s.Folded})
	}
	first, run := k.segments[0], k.segments[1]
	whole := first.Folded == 0 && run.Folded > 0 && run.Folded < run.Seq && run.IndexSeq() == first.Seq && run.Previous == first.Digest
	if !whole || first.Cluster != cluster || run.Cluster != cluster || first.Lineage != run.Lineage || catalog.ValidLineage(first.Lineage) != nil {
		return keptFold{}, errors.New("it is not the fold of an index of this cluster")
	}
	return k, nil
}

// StoreSummary replaces the summary by one of the folded indexes that log.Headers has cached, unless these are few. It does nothing
// without a cache.
func (log *Log) StoreSummary(ctx context.Context) error {
	folds := log.Headers.allFolds()
	if len(folds) < fewFolds {
		return nil
	}
	key := catalog.LogSummaryKey(log.store.Cluster)
	data, err := encodeSummary(log.store.Cluster, folds)
	if err == nil {
		err = log.store.RefuseUnsigned(ctx)
	}
	if err == nil {
		data, err = document.Sign(data, log.store.Policy.Key)
	}
	if err == nil {
		_, err = log.store.Bucket.Put(ctx, key, bytes.NewReader(data), storage.PutOptions{SizeHint: int64(len(data))})
	}
	if err != nil {
		return fmt.Errorf("store the summary of the log, %s: %w", key, err)
	}
	return nil
}

// encodeSummary returns the document of a summary. It leaves out what would exceed the limits.
func encodeSummary(cluster string, folds map[string]keptFold) ([]byte, error) {
	var lines bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(folds)) {
		line, err := folds[key].encode()
		if err != nil {
			return nil, err
		}
		if len(line) < maxFoldLine && lines.Len()+len(line) <= maxFoldLines {
			lines.Write(line)
		}
	}
	packed, err := records.Pack(lines.Bytes())
	if err != nil {
		return nil, err
	}
	return document.EncodeUpTo(maxSummary, summary{SummaryFormat, cluster, packed})
}

// summaryFor returns the folded indexes in the summary that the options allow to use, by key. There are none if the folders have
// few indexes that are not cached.
func (log *Log) summaryFor(ctx context.Context, folders []logFolder, o LoadOptions) map[string]keptFold {
	if o.Details || !log.store.MayUse(o.Copies) {
		return nil
	}
	indexes := -log.Headers.foldCount()
	for _, f := range folders {
		indexes += len(f.indexes)
	}
	if indexes < fewFolds {
		return nil
	}
	folds, err := log.readSummary(ctx)
	if err != nil {
		return nil // the indexes themselves are read
	}
	return folds
}

// readSummary returns the folded indexes in the summary, by key.
func (log *Log) readSummary(ctx context.Context) (map[string]keptFold, error) {
	data, err := log.store.ReadUpTo(ctx, catalog.LogSummaryKey(log.store.Cluster), maxSummary)
	if err != nil {
		return nil, err
	}
	err = document.Check(data, log.store.Policy.Trust)
	if err != nil {
		return nil, err
	}
	var s summary
	err = document.Decode(data, SummaryFormat, &s)
	if err != nil {
		return nil, err
	}
	if s.Cluster != log.store.Cluster {
		return nil, fmt.Errorf("%w: it is of cluster %s", catalog.ErrDamaged, s.Cluster)
	}
	return s.unpack(ctx)
}

// unpack returns the folded indexes in s, by key.
func (s summary) unpack(ctx context.Context) (map[string]keptFold, error) {
	folds := map[string]keptFold{}
	err := unpack(ctx, s.Folds, maxFoldLines, func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxFoldLine)
		for lines.Scan() && len(folds) < maxFolds {
			k, err := decodeFold(lines.Bytes(), s.Cluster)
			if err != nil {
				return err
			}
			first := k.segments[0]
			folds[catalog.IndexKey(s.Cluster, first.Lineage, first.Seq)] = k
		}
		return lines.Err()
	})
	return folds, err
}

// fits reports whether the folded index stands for the segments that stored lists, or for the pack p, nil if there is none, and covers
// the same seqs. next is the first seq of the next index; 0 if there is none.
func (k keptFold) fits(stored listing, p *pack, next uint64) bool {
	first, run := k.segments[0], k.segments[len(k.segments)-1]
	cut := k.last
	if next > 0 {
		cut = min(cut, next-1)
	}
	if cut != run.Seq {
		return false
	}
	if stored.count(first.Seq, run.Seq) != run.Seq-first.Seq+1 { // pruned, or missing
		return false
	}
	if p != nil {
		return p.first == first.Seq && p.last == run.Seq && p.size == first.Size+run.Size
	}
	sum, whole := stored.sum(first.Seq, run.Seq)
	return whole && sum == k.listed
}

// foldCount returns the number of folded indexes that h has cached.
func (h *Headers) foldCount() int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.folds)
}

// allFolds returns the folded indexes that h has cached and whose time has not ended, by key.
func (h *Headers) allFolds() map[string]keptFold {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().After(h.foldsUntil) {
		return nil
	}
	return maps.Clone(h.folds)
}
