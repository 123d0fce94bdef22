package statefulset_test

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

func newOrder() statefulset.Order {
	return statefulset.Order{
		Target: "2h ago", Point: plan.Target{Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}, Layout: plan.Layout{Salt: "random", Bump: "auto"},
		Into: statefulset.Into{Members: []plan.Member{{Name: "etcd-0", PeerURLs: []string{"http://etcd-0:2380"}}}, DataDir: "/data"},
		URL:  "s3://b", Repository: kubejob.Repository{URL: "s3://b", Cluster: "c", Identity: kubejob.Key{Secret: "key", Name: "key.txt"}}, Image: "dr:v1",
	}
}

// The same command orders the same restore, whenever it runs. Another command, and another StatefulSet of the name, do not.
func TestOrderID(t *testing.T) {
	first := orderID(t, newWorld(t, "parallel"), newOrder())
	for name, c := range map[string]struct {
		change func(o *statefulset.Order)
		set    func(s *appsv1.StatefulSet)
		same   bool
	}{
		"later":               {func(o *statefulset.Order) { o.Point.Time = o.Point.Time.Add(time.Hour) }, nil, true},
		"another salt":        {func(o *statefulset.Order) { o.Layout.Salt = "other" }, nil, true},
		"a newer backup":      {func(o *statefulset.Order) { o.Point.Backup = "20261121T092433Z-0000000000001267" }, nil, true},
		"another target":      {func(o *statefulset.Order) { o.Target = "3h ago" }, nil, false},
		"another revision":    {func(o *statefulset.Order) { o.Point.Revision = 7 }, nil, false},
		"another repository":  {func(o *statefulset.Order) { o.URL = "s3://c" }, nil, false},
		"another data dir":    {func(o *statefulset.Order) { o.Into.DataDir = "/other" }, nil, false},
		"another StatefulSet": {nil, func(s *appsv1.StatefulSet) { s.UID = "another" }, false},
	} {
		o := newOrder()
		if c.change != nil {
			c.change(&o)
		}
		w := newWorld(t, "parallel")
		if c.set != nil {
			w = newWorld(t, "parallel", c.set)
		}
		id := orderID(t, w, o)
		if (id == first) != c.same {
			t.Errorf("%s: the id is %s, that of the first order %s", name, id, first)
		}
	}
}

func orderID(t *testing.T, w *world, o statefulset.Order) string {
	t.Helper()
	id, err := statefulset.New(w.options).OrderID(t.Context(), o)
	if err != nil || len(id) != 16 {
		t.Fatal(id, err)
	}
	return id
}

// The record of a restore contains its order. Restores that an EtcdRestore has begun have none.
func TestOrderOfARecord(t *testing.T) {
	want := newOrder()
	got, err := statefulset.OrderOf(handoff.Record{Settings: want.Encode()})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, settings := range []string{"", "{", `{"cluster":"payments.etcd","repository":{"name":"main"}}`} {
		_, err := statefulset.OrderOf(handoff.Record{ID: restoreID, Settings: settings})
		if fault.KindOf(err) != fault.Refused {
			t.Errorf("settings %q: %v", settings, err)
		}
	}
}
