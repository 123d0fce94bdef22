package child_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
)

// count produces the numbers up to the one in its job.
func count(ctx context.Context, input []byte, give func(any) error, report storage.Report) (any, error) {
	var upTo int
	err := json.Unmarshal(input, &upTo)
	if err != nil {
		return nil, err
	}
	for n := 1; n <= upTo; n++ {
		report.Say(storage.Event{Stage: "count"})
		err := errors.Join(give(n), ctx.Err())
		if err != nil {
			return nil, err
		}
	}
	return upTo, nil
}

func TestItemsComeInOrder(t *testing.T) {
	var got []int
	var result, events int
	err := child.Call{Verb: "count", Job: 1000, Result: &result, Report: func(storage.Event) { events++ }, Take: func(item json.RawMessage) error {
		var n int
		err := json.Unmarshal(item, &n)
		got = append(got, n)
		return err
	}}.Run(t.Context())
	if err != nil || result != 1000 || events != 1000 || len(got) != 1000 {
		t.Fatalf("result %d, %d events, %d items, %v", result, events, len(got), err)
	}
	for i, n := range got {
		if n != i+1 {
			t.Fatalf("item %d is %d", i, n)
		}
	}
}

// An error of take ends the child, however many items remain.
func TestRefusedItemEndsTheChild(t *testing.T) {
	taken, enough := 0, errors.New("enough")
	err := child.Call{Verb: "count", Job: 1 << 30, Result: new(int), Take: func(json.RawMessage) error {
		taken++
		if taken == 3 {
			return enough
		}
		return nil
	}}.Run(t.Context())
	if !errors.Is(err, enough) || taken != 3 {
		t.Errorf("%d taken, %v", taken, err)
	}
}

// An error of take counts even if the child has produced all items by then.
func TestRefusedLastItem(t *testing.T) {
	enough := errors.New("enough")
	err := child.Call{Verb: "count", Job: 1, Result: new(int), Take: func(json.RawMessage) error { return enough }}.Run(t.Context())
	if !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}
