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
)

// act is one part of the demo: a title, and a function that runs it and returns lines to print.
type act struct {
	title string
	play  func(context.Context) ([]string, error)
}

func (t *demoRun) acts() []act {
	return append([]act{
		{"Three etcd members start", t.start},
		{"They are filled, and users are enabled", t.fillThem},
		{"The content of each of them is recorded", t.record},
		{"A backup is taken", t.backUp},
		{"Disaster: all three members and their data dirs are lost", t.destroy},
		{"The backup is restored", t.restoreAll},
		{"The three restored members start", t.startAgain},
		{"Each of them is compared with the record", t.compare},
	}, t.secondPart()...)
}

func (t *demoRun) start(ctx context.Context) ([]string, error) {
	err := t.members.start(ctx, "demo", "new")
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("etcd %s at %s", etcd.Version, strings.Join(t.members.clientURLs(), ", "))}, nil
}

func (t *demoRun) fillThem(ctx context.Context) (_ []string, err error) {
	t.data, err = fill(ctx, t.members, t.rootPassword)
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
func (t *demoRun) record(ctx context.Context) (_ []string, err error) {
	t.before, err = t.readContent(ctx, t.members[0])
	if err != nil {
		return nil, err
	}
	err = t.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s keys at revision %s; HashKV %s", t.before.value(factKeys), count(t.revision), t.before.value(factHash)),
		"leases, users, roles and some values; the same on all three",
	}, nil
}

func (t *demoRun) backUp(ctx context.Context) ([]string, error) {
	b, err := backup.Run(ctx, t.etcdConfig(), []backup.Store{{Cluster: t.repository}}, t.request())
	if err != nil {
		return nil, err
	}
	if b.Revision != t.revision {
		return nil, fmt.Errorf("the backup is of revision %d, but %d was the last one written", b.Revision, t.revision)
	}
	return []string{
		fmt.Sprintf("%s from %s, the leader: %s, compressed and encrypted to %s",
			b.ID, b.Member.Name, size(b.Plain.Size), size(b.Stored.Size)),
	}, nil
}

func (t *demoRun) etcdConfig() cluster.Config {
	return cluster.Config{
		Endpoints: t.members.clientURLs(), User: root, Password: t.rootPassword,
		DialTimeout: answerTimeout, CommandTimeout: answerTimeout,
	}
}

func (t *demoRun) request() backup.Request {
	return backup.Request{From: "leader", To: t.recipients, MaxStream: time.Minute, Grace: 24 * time.Hour, Version: t.Version}
}

// destroy makes one more write, to show that writes after the backup are lost. Then it stops the members and removes their data dirs.
func (t *demoRun) destroy(ctx context.Context) ([]string, error) {
	err := t.put(ctx, lateKey)
	if err != nil {
		return nil, err
	}
	t.members.stop()
	t.lost = time.Now()
	err = os.RemoveAll(t.path("members"))
	if err != nil {
		return nil, err
	}
	err = t.checkDestroyed(ctx)
	if err != nil {
		return nil, err
	}
	return []string{"one more write came after the backup", "no member responds, no data dir is left"}, nil
}

// checkDestroyed returns an error if a server responds or a data dir exists.
func (t *demoRun) checkDestroyed(ctx context.Context) error {
	for _, answer := range cluster.Knock(ctx, t.members.clientURLs()) {
		if answer.Alive {
			return fmt.Errorf("a server still responds at %s", answer.URL)
		}
	}
	for _, m := range t.members {
		_, err := os.Stat(m.dataDir)
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the data dir %s still exists", m.dataDir)
		}
	}
	return nil
}

// restoreAll restores in a child process, as dr always does with a database from a repository.
func (t *demoRun) restoreAll(ctx context.Context) ([]string, error) {
	catalog, err := t.repository.Load(ctx, backups.LoadOptions{})
	if err != nil {
		return nil, err
	}
	t.token = "dr-" + strings.ToLower(rand.Text()[:20])
	layout := plan.Layout{Token: t.token, Into: plan.Into{OutputDir: t.path("restored")}}
	request := plan.Request{Catalog: catalog, Layout: layout, Now: time.Now()}
	_, result, err := restore.RunTarget(ctx, restore.Attempt{Request: request, Run: t.spawn})
	if err != nil {
		return nil, err
	}
	return []string{
		"fetched, decrypted, every page checked, " + result.HashKV,
		fmt.Sprintf("data dirs of %s built as a new cluster, %s", t.members.names(), result.ClusterID),
	}, nil
}

func (t *demoRun) startAgain(ctx context.Context) ([]string, error) {
	err := t.startFrom(ctx, "restored")
	if err != nil {
		return nil, err
	}
	t.outage = time.Since(t.lost)
	return []string{fmt.Sprintf("under the same names and URLs, %.1f s after the disaster", t.outage.Seconds())}, nil
}

// startFrom starts the members on the restored data dirs in a folder.
func (t *demoRun) startFrom(ctx context.Context, folder string) error {
	err := t.members.moveTo(t.path(folder))
	if err != nil {
		return err
	}
	return t.members.start(ctx, t.token, "existing")
}

func (t *demoRun) compare(ctx context.Context) ([]string, error) {
	err := t.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	err = t.checkLateKey(ctx)
	if err != nil {
		return nil, err
	}
	err = t.put(ctx, newKey)
	if err != nil {
		return nil, err
	}
	same := "the same on all three: " + strings.Join(t.before.names(), ", ")
	return []string{same, "the write after the backup is lost, as it must be; a new write went through"}, nil
}

// compareAll compares the content of every member with t.before.
func (t *demoRun) compareAll(ctx context.Context) error {
	for _, m := range t.members {
		now, err := t.readContent(ctx, m)
		if err != nil {
			return fmt.Errorf("look at %s: %w", m.name, err)
		}
		err = t.before.compare(now)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func (t *demoRun) put(ctx context.Context, key string) error {
	c, err := connect(ctx, t.members[0], root, t.rootPassword)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Put(ctx, key, "x")
	if err != nil {
		return fmt.Errorf("write to %s: %w", t.members[0].name, err)
	}
	return nil
}

// checkLateKey returns an error if the key that was written after the backup exists.
func (t *demoRun) checkLateKey(ctx context.Context) error {
	c, err := connect(ctx, t.members[0], root, t.rootPassword)
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

func (t *demoRun) conclude(took time.Duration) {
	t.say("\nProven in %.1f s: a cluster that had lost all three members was back %.1f s later, with all data of the\n"+
		"backup. After a mistake it was back in %.1f s, as of one revision before: %s keys, HashKV %s.\n",
		took.Seconds(), t.outage.Seconds(), t.secondOutage.Seconds(), t.before.value(factKeys), t.before.value(factHash))
	t.say(`
For your own cluster:
  dr keygen  --to key.txt
  dr backup  --repo file:///var/backups/etcd --cluster prod --endpoints https://10.0.0.1:2379 --recipient age1…
  dr archive --repo file:///var/backups/etcd --cluster prod --endpoints https://10.0.0.1:2379 --recipient age1… --data-dir /var/lib/etcd
  dr restore --repo file:///var/backups/etcd --cluster prod --identity key.txt --output-dir /restored --to "5m ago"
`)
}

func count[N int | int64](n N) string { return humanize.Comma(int64(n)) }

func size(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
