package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// putEvery is the pause between two writes whose latency is measured.
const putEvery = 5 * time.Millisecond

// measureStalls measures a client's longest write during etcdctl's snapshot and during a dr backup. Each measured backup has a predecessor,
// as in production, so dr can estimate the stall, and requests the HashKV if --hash-max allows it.
func (b *bench) measureStalls(r *result) error {
	for i := range b.pairs {
		fmt.Fprintf(os.Stderr, "bench: %s, longest writes %d of %d\n", r.measured, i+1, b.pairs)
		saving, err := b.longestWrite(b.save)
		if err != nil {
			return err
		}
		backingUp, err := b.longestWrite(b.backupAgain)
		if err != nil {
			return err
		}
		r.saveStalls, r.backupStalls = append(r.saveStalls, cost{wall: saving}), append(r.backupStalls, cost{wall: backingUp})
	}
	return nil
}

// longestWrite returns the time of the slowest write that a client makes while command runs.
func (b *bench) longestWrite(command func() (cost, error)) (longest time.Duration, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.endpoint}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	running, ended := context.WithCancel(b.ctx)
	defer ended()
	var writing errgroup.Group
	writing.Go(func() error {
		for running.Err() == nil {
			begin := time.Now()
			_, err := client.Put(b.ctx, "written during a backup", "value")
			if err != nil {
				return err
			}
			longest = max(longest, time.Since(begin))
			time.Sleep(putEvery)
		}
		return nil
	})
	_, err = command()
	ended()
	err = errors.Join(err, writing.Wait())
	return longest, err
}
