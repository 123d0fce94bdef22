package find

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// kept identifies the state of a key, to detect a change from one leg to the next.
type kept struct {
	Revision int64   `json:"revision"`
	Digest   [8]byte `json:"digest"` // of the value: two histories may contain the same revision
}

type keptLine struct {
	Key []byte `json:"key"`
	kept
}

func keep(kv *mvccpb.KeyValue) kept {
	sum := sha256.Sum256(kv.Value)
	return kept{kv.ModRevision, [8]byte(sum[:8])}
}

// keep writes the existing keys at the end of a leg to a file.
func (s *server) keep(bucket *bolt.Bucket) (err error) {
	there, err := newest(bucket, s.Keys)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.Leg.Keep, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep what is there: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	for _, h := range there {
		kv, err := decodeKV(bucket.Get(h.at))
		if err != nil {
			return err
		}
		err = lines.Encode(keptLine{kv.Key, keep(kv)})
		if err != nil {
			return fmt.Errorf("keep what is there: %w", err)
		}
	}
	return w.Flush()
}

func readKept(path string) (map[string]kept, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what was there: %w", err)
	}
	defer f.Close()
	before := map[string]kept{}
	for lines := json.NewDecoder(bufio.NewReader(f)); ; {
		var line keptLine
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return before, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what was there: %w", err)
		}
		before[string(line.Key)] = line.kept
	}
}

func sorted(keys map[string]kept) []string { return slices.Sorted(maps.Keys(keys)) }
