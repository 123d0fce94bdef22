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

// measureStalls measures for how long a write waits at most while a snapshot is taken. The backups follow another, as most do: so the
// member's HashKV is requested if --hash-max allows it.
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

// longestWrite returns the time of the slowest of the writes that a client makes while do runs.
func (b *bench) longestWrite(do func() (cost, error)) (longest time.Duration, err error) {
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
	_, err = do()
	ended()
	err = errors.Join(err, writing.Wait())
	return longest, err
}
