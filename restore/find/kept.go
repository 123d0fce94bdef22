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

// keptState identifies the state of a key, to detect a change from one leg to the next.
type keptState struct {
	Revision int64   `json:"revision"`
	Digest   [8]byte `json:"digest"` // of the value: two histories may contain the same revision
}

// keptLine is one line of a file that server.keep writes.
type keptLine struct {
	Key []byte `json:"key"`
	keptState
}

func stateOf(kv *mvccpb.KeyValue) keptState {
	sum := sha256.Sum256(kv.Value)
	return keptState{Revision: kv.ModRevision, Digest: [8]byte(sum[:8])}
}

// keep writes the state of each existing key at the end of a leg to the file Leg.Keep.
func (s *server) keep(bucket *bolt.Bucket) (err error) {
	f, err := os.OpenFile(s.Leg.Keep, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keep what is there: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	err = values(bucket, s.Keys, func(kv *mvccpb.KeyValue) error {
		err := lines.Encode(keptLine{Key: kv.Key, keptState: stateOf(kv)})
		if err != nil {
			return fmt.Errorf("keep what is there: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.Flush()
}

// readKept reads a file that server.keep wrote.
func readKept(path string) (map[string]keptState, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what was there: %w", err)
	}
	defer f.Close()
	before := map[string]keptState{}
	for lines := json.NewDecoder(bufio.NewReader(f)); ; {
		var line keptLine
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return before, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what was there: %w", err)
		}
		before[string(line.Key)] = line.keptState
	}
}

func sorted(keys map[string]keptState) []string { return slices.Sorted(maps.Keys(keys)) }
