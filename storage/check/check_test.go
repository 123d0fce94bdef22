package check_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// minute locks for a minute, which passes at once in a bubble.
var minute = check.Options{Large: large, Lock: records.Lock{For: time.Minute}}

func TestMem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		lines := check.Run(t.Context(), b, minute, nil)
		wantVerdicts(t, lines, nil)
		locked := left(t, b)
		if len(locked) != 1 || !strings.HasPrefix(locked[0], ".dr-check-") || !strings.HasSuffix(locked[0], "/locked") {
			t.Errorf("left are %q, want the locked object alone", locked)
		}
		wantSaid(t, line(t, lines, "lock holds"), locked[0], "until 2000-01-01T00:0")
		wantSaid(t, line(t, lines, "cleaned up"), "locked")
	})
}

func TestWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		lines := check.Run(t.Context(), b, check.Options{Large: large}, nil)
		wantVerdicts(t, lines, map[string]check.Verdict{"lock holds": check.NotRun})
		wantLeft(t, b)
	})
}

func TestFile(t *testing.T) {
	b := openFile(t)
	lines := check.Run(t.Context(), b, minute, nil)
	wantVerdicts(t, lines, map[string]check.Verdict{"lock holds": check.Wanting, "versioning": check.Note})
	wantSaid(t, line(t, lines, "lock holds"), "no locks", "--lock")
	wantLeft(t, b)
}

// TestBelowAPrefix checks that Run writes below the repository's own root, and that a caller may provide AsOf for a
// bucket with a prefix.
func TestBelowAPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		put(t, b, "other")
		lines := check.Run(t.Context(), storage.WithPrefix(b, "some/where"), check.Options{Large: large}, nil)
		wantVerdicts(t, lines, map[string]check.Verdict{"lock holds": check.NotRun, "versioning": check.Note})
		o := check.Options{Large: large, AsOf: func(_ context.Context, at time.Time) (storage.Bucket, error) {
			past, err := storage.AsOf(b, at)
			return storage.WithPrefix(past, "some/where"), err
		}}
		lines = check.Run(t.Context(), storage.WithPrefix(b, "some/where"), o, nil)
		wantVerdicts(t, lines, map[string]check.Verdict{"lock holds": check.NotRun})
		wantLeft(t, b, "other")
	})
}

// needCreate returns the lines that are not run if nothing can be created.
func needCreate() map[string]check.Verdict {
	not := map[string]check.Verdict{}
	for _, name := range all[2:14] {
		not[name] = check.NotRun
	}
	return not
}

func and(verdicts map[string]check.Verdict, name string, v check.Verdict) map[string]check.Verdict {
	verdicts = maps.Clone(verdicts)
	verdicts[name] = v
	return verdicts
}

func only(name string) map[string]check.Verdict {
	return map[string]check.Verdict{name: check.Wanting}
}

// failing returns a function that makes a method always fail.
func failing(verb storagetest.Verb, err error) func(b *mem.Bucket) storage.Bucket {
	return func(b *mem.Bucket) storage.Bucket {
		f := storagetest.Faulty(b)
		f.On(verb).Always().Fail(err)
		return f
	}
}

// TestLies checks that every line can fail, each with a store that misbehaves in exactly one way.
func TestLies(t *testing.T) {
	type verdicts = map[string]check.Verdict
	replaced := verdicts{"replaces in one step": check.Wanting, "replaces one version": check.NotRun, "pinned reads": check.NotRun, "versioning": check.NotRun}
	for _, test := range []struct {
		name  string
		store func(b *mem.Bucket) storage.Bucket
		want  verdicts
		says  map[string]string
	}{
		{"no bucket", failing(storagetest.VerbList, storage.ErrNoBucket),
			and(and(and(needCreate(), "reachable", check.Wanting), "can create", check.NotRun), "leftovers", check.NotRun),
			map[string]string{"reachable": "create the bucket", "can create": `"reachable" is wanting`}},
		{"no right to create", failing(storagetest.VerbPut, fmt.Errorf("put: %w", storage.ErrDenied)),
			and(needCreate(), "can create", check.Wanting), map[string]string{"can create": "give these credentials the right"}},
		{"it overwrites", func(b *mem.Bucket) storage.Bucket { return fakeOverwriting{b} },
			only("cannot overwrite"), map[string]string{"cannot overwrite": "an existing object"}},
		{"it only looks before", func(b *mem.Bucket) storage.Bucket { return fakeLooking{b, 0} },
			only("cannot overwrite"), map[string]string{"cannot overwrite": "while 1000 bytes were uploaded"}},
		{"it only looks before it takes parts", func(b *mem.Bucket) storage.Bucket { return fakeLooking{b, large / 2} },
			only("cannot overwrite"), map[string]string{"cannot overwrite": "while 204800 bytes were uploaded"}},
		{"it ignores the version to replace", func(b *mem.Bucket) storage.Bucket { return fakeForgetting{b} },
			verdicts{"replaces one version": check.Note}, map[string]string{"replaces one version": "ignores the condition"}},
		{"it refuses the version to replace", func(b *mem.Bucket) storage.Bucket { return fakeRefusing{b, storage.ErrUnsupported} },
			verdicts{"replaces one version": check.Note}, map[string]string{"replaces one version": "refuses the condition"}},
		{"it finds every version changed", func(b *mem.Bucket) storage.Bucket { return fakeRefusing{b, storage.ErrChanged} },
			verdicts{"replaces one version": check.Note}, map[string]string{"replaces one version": "has not changed"}},
		{"it looks at the version only before", func(b *mem.Bucket) storage.Bucket { return fakeGlancing{b} },
			verdicts{"replaces one version": check.Note}, map[string]string{"replaces one version": "have succeeded, not 1"}},
		{"it tears", func(b *mem.Bucket) storage.Bucket { return fakeTearing{b} },
			replaced, map[string]string{"replaces in one step": "16384 bytes"}},
		{"it has a moment without", func(b *mem.Bucket) storage.Bucket { return fakeAbsent{b} },
			replaced, map[string]string{"replaces in one step": "does not exist"}},
		{"it flips a bit", func(b *mem.Bucket) storage.Bucket { return fakeFlipping{b, large / 2} },
			only("checksum"), map[string]string{"checksum": "from byte 102400 on"}},
		{"it ignores ranges", func(b *mem.Bucket) storage.Bucket { return fakeWhole{b} },
			only("can read ranges"), map[string]string{"can read ranges": "offset 0, length 10"}},
		{"it forgives ranges", func(b *mem.Bucket) storage.Bucket { return fakeForgiving{b} },
			only("can read ranges"), map[string]string{"can read ranges": "past the end"}},
		{"it ignores versions", func(b *mem.Bucket) storage.Bucket { return fakeUnpinned{b} },
			verdicts{"pinned reads": check.Wanting, "versioning": check.Wanting}, nil},
		{"it lists late", func(b *mem.Bucket) storage.Bucket { return fakeLate{b} },
			only("lists in order"), map[string]string{"lists in order": `"list/2" is not listed`}},
		{"it lists in another order", func(b *mem.Bucket) storage.Bucket { return fakeCollating{b} },
			only("lists in order"), nil},
		{"it does not delete", func(b *mem.Bucket) storage.Bucket { return fakeKeeping{b} },
			verdicts{"can delete": check.Wanting, "lock holds": check.Wanting}, nil},
		{"it publishes what breaks", func(b *mem.Bucket) storage.Bucket { return fakePublishing{b} },
			only("broken upload leaves nothing"), nil},
		{"it leaves pieces", func(b *mem.Bucket) storage.Bucket { return fakeSweeper{b, map[string]storage.Object{}, true} },
			only("broken upload leaves nothing"), map[string]string{"broken upload leaves nothing": "lifecycle rule"}},
		{"its locks do not hold", func(b *mem.Bucket) storage.Bucket { return fakeUnlocked{b} },
			only("lock holds"), map[string]string{"lock holds": "was deleted"}},
		{"it forgets locks", func(b *mem.Bucket) storage.Bucket { return fakeUnlocking{b} },
			only("lock holds"), map[string]string{"lock holds": "the lock should last"}},
		{"it has no locks", func(b *mem.Bucket) storage.Bucket { return fakeLockless{b} },
			only("lock holds"), map[string]string{"lock holds": "no locks"}},
		{"its clock is slow", func(b *mem.Bucket) storage.Bucket { return fakeClock{b, -90 * time.Second} },
			only("clock skew"), map[string]string{"clock skew": "NTP"}},
		{"its clock is fast", func(b *mem.Bucket) storage.Bucket { return fakeClock{b, 61 * time.Second} },
			only("clock skew"), map[string]string{"clock skew": "1m1s"}},
		{"it keeps no versions", func(b *mem.Bucket) storage.Bucket { return fakeHiding{b} },
			verdicts{"versioning": check.Note}, nil},
		{"its versioning is off", func(b *mem.Bucket) storage.Bucket { return fakeNewest{b} },
			verdicts{"versioning": check.Note}, map[string]string{"versioning": "switch the bucket's versioning on"}},
		{"it forgets times", func(b *mem.Bucket) storage.Bucket { return fakeForgetful{b} },
			only("versioning"), map[string]string{"versioning": "a wrong time"}},
		{"it confuses versions", func(b *mem.Bucket) storage.Bucket { return fakeConfused{b} },
			only("versioning"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := mem.New()
				lines := check.Run(t.Context(), test.store(b), minute, nil)
				cleaned := line(t, lines, "cleaned up").Verdict
				wantVerdicts(t, lines, and(test.want, "cleaned up", cleaned))
				for name, words := range test.says {
					wantSaid(t, line(t, lines, name), words)
				}
				want := slices.Contains(slices.Collect(maps.Values(test.want)), check.Wanting)
				if anyWanting(lines) != want {
					t.Errorf("something is wanting: %t, want %t", !want, want)
				}
				for obj, err := range b.List(t.Context(), storage.ListOptions{}) {
					if err != nil || !strings.HasSuffix(obj.Key, "/locked") {
						t.Errorf("%s is left, %v", obj.Key, err)
					}
				}
			})
		})
	}
}

// TestSmallSkewIsFine allows for stores with times in seconds, and slow networks.
func TestSmallSkewIsFine(t *testing.T) {
	for _, by := range []time.Duration{-59 * time.Second, 59 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			lines := check.Run(t.Context(), fakeClock{mem.New(), by}, minute, nil)
			wantVerdicts(t, lines, nil)
		})
	}
}

// TestAppendOnly checks that a bucket in which the credentials may only create objects is good.
func TestAppendOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := check.Run(t.Context(), failing(storagetest.VerbDelete, storage.ErrDenied)(mem.New()), check.Options{Large: large}, nil)
		wantVerdicts(t, lines, map[string]check.Verdict{
			"can delete": check.Note, "lock holds": check.NotRun, "cleaned up": check.Note,
		})
		if anyWanting(lines) {
			t.Error("something is wanting")
		}
		wantSaid(t, line(t, lines, "cleaned up"), "stay in .dr-check-")
	})
}

// TestLockThatCannotBeTried checks that a refusal for a missing right does not count as a lock.
func TestLockThatCannotBeTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := check.Run(t.Context(), failing(storagetest.VerbDelete, storage.ErrDenied)(mem.New()), minute, nil)
		l := line(t, lines, "lock holds")
		if l.Verdict != check.Unknown {
			t.Errorf("%+v", l)
		}
	})
}

func TestOldPieces(t *testing.T) {
	for age, want := range map[time.Duration]check.Verdict{25 * time.Hour: check.Wanting, 23 * time.Hour: check.OK} {
		synctest.Test(t, func(t *testing.T) {
			piece := storage.Object{Key: "prod/backups/x", Size: 7, ModTime: time.Now().Add(-age)}
			f := fakeSweeper{mem.New(), map[string]storage.Object{piece.Key: piece}, false}
			lines := check.Run(t.Context(), f, minute, nil)
			wantVerdicts(t, lines, map[string]check.Verdict{"leftovers": want})
			wantSaid(t, line(t, lines, "leftovers"), map[check.Verdict]string{
				check.Wanting: "1 pieces", check.OK: "1 pieces of uploads that may still be running",
			}[want])
			if len(f.pieces) != 1 {
				t.Error("a piece of somebody else was removed")
			}
		})
	}
}

// TestFormerChecks checks that the objects of a killed check are removed when they are a day old.
func TestFormerChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		o := storage.PutOptions{RetainUntil: time.Now().Add(48 * time.Hour)}
		_, err := b.Put(t.Context(), ".dr-check-locked/locked", strings.NewReader("x"), o)
		if err != nil {
			t.Fatal(err)
		}
		pieces := map[string]storage.Object{}
		for _, key := range []string{".dr-check-old/x", "prod/x"} {
			pieces[key] = storage.Object{Key: key, ModTime: time.Now()}
		}
		put(t, b, ".dr-check-old/list/a")
		put(t, b, ".dr-checkered/a")
		time.Sleep(25 * time.Hour)
		put(t, b, ".dr-check-young/a")
		pieces[".dr-check-young/x"] = storage.Object{Key: ".dr-check-young/x", ModTime: time.Now()}
		lines := check.Run(t.Context(), fakeSweeper{b, pieces, false}, check.Options{Large: large}, nil)
		wantVerdicts(t, lines, map[string]check.Verdict{"lock holds": check.NotRun, "leftovers": check.Wanting})
		wantSaid(t, line(t, lines, "cleaned up"), "1 objects of earlier checks")
		_, err = b.Stat(t.Context(), ".dr-check-old/list/a")
		if err == nil {
			t.Error("the old one is still there")
		}
		for _, key := range []string{".dr-check-locked/locked", ".dr-checkered/a", ".dr-check-young/a"} {
			_, err := readAll(t.Context(), b, key)
			if err != nil {
				t.Error(err)
			}
		}
		_, old := pieces[".dr-check-old/x"]
		if len(pieces) != 2 || old {
			t.Errorf("pieces left: %v", pieces)
		}
	})
}

// TestInterrupted interrupts Run before each check, and expects every line and no object.
func TestInterrupted(t *testing.T) {
	names := len(check.Run(t.Context(), openFile(t), check.Options{Large: large}, nil))
	for n := 1; n <= names; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen := 0
			b := openFile(t)
			lines := check.Run(ctx, b, check.Options{Large: large}, func(storage.Event) {
				seen++
				if seen == n {
					cancel()
				}
			})
			got := verdicts(t, lines)
			for i, name := range all[:14] {
				if i >= n-1 && got[name] != check.NotRun || i < n-1 && name != "lock holds" && got[name] == check.NotRun {
					t.Errorf("%q is %s", name, got[name])
				}
			}
			if n > 1 && got["cleaned up"] != check.OK {
				t.Errorf("clean up: %+v", line(t, lines, "cleaned up"))
			}
			wantLeft(t, b)
		})
	}
}

// TestInterruptedAnywhere cancels during requests.
func TestInterruptedAnywhere(t *testing.T) {
	for n := 1; n < 40; n += 3 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := mem.New()
			f := storagetest.Faulty(b)
			f.On(storagetest.VerbPut).Nth(n).Delay(8 * time.Second)
			time.AfterFunc(4*time.Second, cancel)
			lines := check.Run(ctx, f, check.Options{Large: large}, nil)
			got := line(t, lines, "clock skew")
			if got.Verdict != check.NotRun {
				t.Errorf("after call %d: %+v", n, got)
			}
			wantLeft(t, b)
		})
	}
}

// TestNoClusterOfItsOwn checks that the objects of a check do not look like a cluster's.
func TestNoClusterOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		put(t, b, ".a/x")
		put(t, b, "prod/backups/x")
		check.Run(t.Context(), b, minute, func(storage.Event) {
			names, err := repository.Clusters(t.Context(), b)
			if err != nil || len(names) != 1 || names[0] != "prod" {
				t.Errorf("clusters %q, %v", names, err)
			}
		})
	})
}

func anyWanting(lines []check.Line) bool {
	return slices.ContainsFunc(lines, func(l check.Line) bool { return l.Verdict == check.Wanting })
}
