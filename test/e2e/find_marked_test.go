package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestFindMarkedForDeletion searches for the keys of a namespace and of another object with a finalizer, while they are in
// deletion and after it. The good state is the one before the mark: after it the namespace is being emptied.
func TestFindMarkedForDeletion(t *testing.T) {
	withServers(t)
	const namespace, app = "/registry/namespaces/prod", "/registry/example.org/apps/prod/web"
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	backup := func() { j.backUp(t, c) }

	put(t, client, namespace, encodedNamespace(t, "", nil))
	put(t, client, app, `{"apiVersion":"example.org/v1","kind":"App","metadata":{"name":"web"}}`)
	mark := written(t, client, namespace, encodedNamespace(t, "", &metav1.Time{Time: time.Unix(1800000000, 0)}))
	put(t, client, app, `{"apiVersion":"example.org/v1","kind":"App","metadata":{"name":"web","deletionTimestamp":"2027-01-15T08:00:00Z"}}`)
	written(t, client, namespace, encodedNamespace(t, "emptied", &metav1.Time{Time: time.Unix(1800000000, 0)}))
	backup()

	f := j.find(t, "--key", namespace)
	if f.Marked == nil || f.Marked.Revision != mark || f.Marked.LastGood != mark-1 || f.Marked.NotAfter.IsZero() || len(f.Gone) != 0 {
		t.Errorf("in deletion: marked %+v, want revision %d; gone %+v", f.Marked, mark, f.Gone)
	}
	wants(t, command.Must(t, j.env, "find", "--key", namespace),
		namespace+" (Namespace prod) exists, but was marked for deletion at revision 4, between ",
		"dr extract --to-revision 3 --key "+namespace, "dr find --namespace prod")
	wants(t, command.Must(t, j.env, "find", "--key", app),
		"(apps.example.org prod/web) exists, but was marked for deletion at revision 5, between ", "dr extract --to-revision 4 --key "+app)
	wants(t, command.Must(t, j.env, "find", "--namespace", "prod"), "was marked for deletion at revision 4", "dr extract --to-revision 3 --namespace prod")

	remove(t, client, app)
	end := remove(t, client, namespace)
	backup()
	f = j.find(t, "--key", namespace)
	if f.Marked != nil || len(f.Gone) != 1 || f.Gone[0].Revision != end || f.Gone[0].Mark.Revision != mark || f.Gone[0].LastGood != mark-1 {
		t.Errorf("deleted: marked %+v, gone %+v", f.Marked, f.Gone)
	}
	text := command.Must(t, j.env, "find", "--key", namespace)
	wants(t, text, "was marked for deletion at revision 4, between ", "and vanished at revision 8", "the last good revision is 3")
	if strings.Contains(text, "--to-revision 7") {
		t.Errorf("find leads into the deletion:\n%s", text)
	}
}

// TestFindMarkedBetweenBackups searches for a namespace whose mark was compacted before a backup had it: only a later change
// of the marked namespace is known. The last good revision is the backup's before.
func TestFindMarkedBetweenBackups(t *testing.T) {
	withServers(t)
	const key = "/registry/namespaces/prod"
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	put(t, client, key, encodedNamespace(t, "", nil))
	last := written(t, client, "object", "")
	j.backUp(t, c)
	put(t, client, key, encodedNamespace(t, "", &metav1.Time{Time: time.Unix(1800000000, 0)}))
	remove(t, client, "object")
	late := written(t, client, key, encodedNamespace(t, "emptied", &metav1.Time{Time: time.Unix(1800000000, 0)}))
	_, err := client.Compact(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	j.backUp(t, c)

	f := j.find(t, "--key", key)
	if f.Marked == nil || f.Marked.After != last || f.Marked.Revision != late || f.Marked.LastGood != last {
		t.Errorf("marked %+v, want after revision %d, up to %d", f.Marked, last, late)
	}
}

// wants checks that text contains all of the words.
func wants(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// encodedNamespace returns the namespace prod as an API server stores it.
func encodedNamespace(t *testing.T, label string, deletion *metav1.Time) string {
	t.Helper()
	object := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: map[string]string{"state": label}, DeletionTimestamp: deletion},
	}
	var encoded bytes.Buffer
	err := protobuf.NewSerializer(runtime.NewScheme(), runtime.NewScheme()).Encode(object, &encoded)
	if err != nil {
		t.Fatal(err)
	}
	return encoded.String()
}

// TestFindPrefixOfADeletedNamespace searches for the keys of a namespace by a prefix that does not include the namespace itself. The last
// good revision is before the namespace was marked for deletion, and no other one is offered.
func TestFindPrefixOfADeletedNamespace(t *testing.T) {
	withServers(t)
	const namespace, prefix = "/registry/namespaces/prod", "/registry/configmaps/prod/"
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	put(t, client, namespace, encodedNamespace(t, "", nil))
	for _, name := range []string{"a", "b", "c"} {
		put(t, client, prefix+name, "value")
	}
	mark := written(t, client, namespace, encodedNamespace(t, "", &metav1.Time{Time: time.Unix(1800000000, 0)}))
	put(t, client, "other", "")
	for _, name := range []string{"a", "b", "c"} {
		remove(t, client, prefix+name)
	}
	remove(t, client, namespace)
	j.backUp(t, c)

	for _, searched := range []string{prefix, "/registry/"} {
		f := j.find(t, "--prefix", searched)
		v := f.Vanished
		if v == nil || v.LastWhole != mark-1 || v.Mark == nil || v.Mark.Revision != mark {
			t.Fatalf("prefix %s: vanished %+v, want the mark of revision %d", searched, v, mark)
		}
		for _, g := range f.Gone {
			if g.LastGood != mark-1 {
				t.Errorf("prefix %s: the last good revision of %s is %d, want %d", searched, g.Key.Key, g.LastGood, mark-1)
			}
		}
	}
	text := command.Must(t, j.env, "find", "--repo", "file://"+j.repo, "--cluster", "prod", "--prefix", prefix)
	first, _, _ := strings.Cut(text, "\n")
	wants(t, first, "3 keys vanished in revisions 8 to 10", "the last revision with all of them is 5")
	wants(t, text, "namespace prod was marked for deletion at revision 6", "REVISION ",
		"dr extract --repo file://"+j.repo+" --cluster prod --to-revision 5 --prefix "+prefix)
}

// TestFindOffersNoEmptiedPoint deletes keys one after the other: only the first deletion names a command, to the point with all of them.
func TestFindOffersNoEmptiedPoint(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	client := c.Client(t)
	j := newJob(t)
	for _, key := range []string{"app/a", "app/b", "app/c"} {
		put(t, client, key, "")
	}
	j.backUp(t, c)
	for _, key := range []string{"app/a", "app/b", "app/c"} {
		remove(t, client, key)
	}
	j.backUp(t, c)
	f := j.find(t, "--prefix", "app/")
	if len(f.Gone) != 3 || f.Gone[0].Restore == nil || f.Gone[0].LastGood != f.Vanished.LastWhole {
		t.Fatalf("gone %+v of %+v", f.Gone, f.Vanished)
	}
	for _, g := range f.Gone[1:] {
		if g.Restore != nil || g.Nearest != nil {
			t.Errorf("%s: %q restores a point at which other keys are missing", g.Key.Key, g.Restore)
		}
	}
}
