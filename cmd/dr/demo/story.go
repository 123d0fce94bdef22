package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	etcd "go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// act is one part of the demo: a title, and a function that runs it and returns lines to print.
type act struct {
	title string
	play  func(context.Context) ([]string, error)
}

func (d *demoRun) acts() []act {
	return append([]act{
		{"Three etcd members start", d.start},
		{"They are filled, and authentication is enabled", d.fillThem},
		{"Their content is recorded and compared", d.record},
		{"A backup is taken", d.backUp},
		{"Disaster: all three members and their data dirs are lost", d.destroy},
		{"The backup is restored", d.restoreAll},
		{"The three restored members start", d.startAgain},
		{"Each of them is compared with the record", d.compare},
	}, d.secondPart()...)
}

func (d *demoRun) start(ctx context.Context) ([]string, error) {
	err := d.members.start(ctx, "demo", "new")
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("etcd %s at %s", etcd.Version, strings.Join(d.members.clientURLs(), ", "))}, nil
}

func (d *demoRun) fillThem(ctx context.Context) (_ []string, err error) {
	d.data, err = fill(ctx, d.members, d.rootPassword)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s keys written, %s overwritten, %s deleted, a compaction in between",
			count(written), count(overwritten), count(deleted)),
		fmt.Sprintf("%d leases with %d keys each; users root and %s, each with a role and a password", leases, leased, user),
	}, nil
}

// record records the content of the first member, and checks that the others have the same content.
func (d *demoRun) record(ctx context.Context) (_ []string, err error) {
	d.before, err = d.readContent(ctx, d.members[0])
	if err != nil {
		return nil, err
	}
	err = d.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s keys at revision %s; HashKV %s", d.before.value(factKeys), count(d.revision), d.before.value(factHash)),
		"leases, users, roles and some values; equal on all three",
	}, nil
}

func (d *demoRun) backUp(ctx context.Context) ([]string, error) {
	b, err := backup.Run(ctx, d.etcdConfig(), []backup.Store{{Cluster: d.repository}}, d.request())
	if err != nil {
		return nil, err
	}
	if b.Revision != d.revision {
		return nil, fmt.Errorf("the backup is of revision %d, but %d was the last one written", b.Revision, d.revision)
	}
	return []string{
		fmt.Sprintf("%s from %s, the leader: %s, compressed and encrypted to %s",
			b.ID, b.Member.Name, size(b.Plain.Size), size(b.Stored.Size)),
	}, nil
}

func (d *demoRun) etcdConfig() cluster.Config {
	return cluster.Config{
		Endpoints: d.members.clientURLs(), User: root, Password: d.rootPassword,
		DialTimeout: answerTimeout, CommandTimeout: answerTimeout,
	}
}

func (d *demoRun) request() backup.Request {
	return backup.Request{From: "leader", To: d.recipients, MaxStream: time.Minute, Grace: 24 * time.Hour, Version: d.Version}
}

// destroy makes one more write, to show that writes after the backup are lost. Then it stops the members and removes their data dirs.
func (d *demoRun) destroy(ctx context.Context) ([]string, error) {
	err := d.put(ctx, lateKey)
	if err != nil {
		return nil, err
	}
	d.members.stop()
	d.lost = time.Now()
	err = os.RemoveAll(d.path("members"))
	if err != nil {
		return nil, err
	}
	err = d.checkDestroyed(ctx)
	if err != nil {
		return nil, err
	}
	return []string{"one more write came after the backup", "no member responds, no data dir is left"}, nil
}

// checkDestroyed returns an error if a server responds or a data dir exists.
func (d *demoRun) checkDestroyed(ctx context.Context) error {
	for _, answer := range cluster.Knock(ctx, d.members.clientURLs(), reach.Anywhere) {
		if answer.Alive {
			return fmt.Errorf("a server still responds at %s", answer.URL)
		}
	}
	for _, m := range d.members {
		_, err := os.Stat(m.dataDir)
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the data dir %s still exists", m.dataDir)
		}
	}
	return nil
}

// restoreAll restores in a child process: dr opens a database from a repository only in one.
func (d *demoRun) restoreAll(ctx context.Context) ([]string, error) {
	catalog, err := d.repository.Load(ctx, backups.LoadOptions{})
	if err != nil {
		return nil, err
	}
	d.token = "dr-" + strings.ToLower(rand.Text()[:20])
	layout := plan.Layout{Token: d.token, Into: plan.Into{OutputDir: d.path("restored")}}
	request := plan.Request{Catalog: catalog, Layout: layout, Now: time.Now()}
	_, result, err := restore.RunTarget(ctx, restore.Attempt{Request: request, Run: d.spawn})
	if err != nil {
		return nil, err
	}
	return []string{
		"fetched, decrypted, every page checked, " + result.HashKV,
		fmt.Sprintf("data dirs of %s built; they form the new cluster %s", d.members.names(), result.ClusterID),
	}, nil
}

func (d *demoRun) startAgain(ctx context.Context) ([]string, error) {
	err := d.startFrom(ctx, "restored")
	if err != nil {
		return nil, err
	}
	d.outage = time.Since(d.lost)
	return []string{fmt.Sprintf("under the same names and URLs, %.1f s after the disaster", d.outage.Seconds())}, nil
}

// startFrom starts the members on the restored data dirs in a folder.
func (d *demoRun) startFrom(ctx context.Context, folder string) error {
	err := d.members.moveTo(d.path(folder))
	if err != nil {
		return err
	}
	return d.members.start(ctx, d.token, "existing")
}

func (d *demoRun) compare(ctx context.Context) ([]string, error) {
	err := d.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	err = d.checkLateKey(ctx)
	if err != nil {
		return nil, err
	}
	err = d.put(ctx, newKey)
	if err != nil {
		return nil, err
	}
	same := "the same on all three: " + strings.Join(d.before.names(), ", ")
	return []string{same, "the write after the backup is lost, as it must be; a new write went through"}, nil
}

// compareAll compares the content of every member with t.before.
func (d *demoRun) compareAll(ctx context.Context) error {
	for _, m := range d.members {
		now, err := d.readContent(ctx, m)
		if err != nil {
			return fmt.Errorf("look at %s: %w", m.name, err)
		}
		err = d.before.compare(now)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func (d *demoRun) put(ctx context.Context, key string) error {
	c, err := connect(ctx, d.members[0], root, d.rootPassword)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Put(ctx, key, "x")
	if err != nil {
		return fmt.Errorf("write to %s: %w", d.members[0].name, err)
	}
	return nil
}

// checkLateKey returns an error if the key that was written after the backup exists.
func (d *demoRun) checkLateKey(ctx context.Context) error {
	c, err := connect(ctx, d.members[0], root, d.rootPassword)
	if err != nil {
		return err
	}
	defer c.Close()
	late, err := c.Get(ctx, lateKey, clientv3.WithCountOnly())
	if err == nil && late.Count > 0 {
		err = errors.New("a key that was written after the backup exists: this is not the backup's key space")
	}
	return err
}

func (d *demoRun) conclude(took time.Duration) {
	d.say("\nProven in %.1f s. A cluster lost all three members and was back %.1f s after the loss, with all data of the\n"+
		"backup. After a client's mistake it was back %.1f s after it was stopped, as it was one revision before the\n"+
		"mistake: %s keys, HashKV %s.\n",
		took.Seconds(), d.outage.Seconds(), d.secondOutage.Seconds(), d.before.value(factKeys), d.before.value(factHash))
	d.say(`
For your own cluster:
  dr keygen  --to key.txt
  dr backup  --repo file:///var/backups/etcd --cluster prod --endpoints https://10.0.0.1:2379 --recipient age1…
  dr archive --repo file:///var/backups/etcd --cluster prod --endpoints https://10.0.0.1:2379 --recipient age1… --data-dir /var/lib/etcd
  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --output-dir /restored --to "5m ago"
`)
}

func count[N int | int64](n N) string { return humanize.Comma(int64(n)) }

func size(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
