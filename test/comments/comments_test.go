package comments_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/comments"
)

func TestCommentsAreForReadersOfJSON(t *testing.T) {
	r := comments.New(filepath.Join("..", ".."))
	pin := reflect.TypeFor[catalog.Pin]()
	manifest := reflect.TypeFor[catalog.Manifest]()
	for _, c := range []struct {
		of    reflect.Type
		field string
		want  string
	}{
		{pin, "ID", "its id: 16 hex digits, random"},
		{pin, "Until", "the time at which the pin ends; absent if it ends only when it is lifted"},
		{manifest, "Alarms", "`NOSPACE` or `CORRUPT`, raised by any member"},
		{manifest, "HashKV", "of `member`; absent if it was not requested or not available"},
		{reflect.TypeFor[catalog.Drill](), "Position", "the place of the target in the log. Absent if only the backup was restored. `position` is also absent if only the replay can find it."},
	} {
		f, _ := c.of.FieldByName(c.field)
		got, err := r.Field(c.of, f)
		if err != nil || got != c.want {
			t.Errorf("%s.%s: %q, %v, want %q", c.of, c.field, got, err, c.want)
		}
	}
	text, err := r.Type(reflect.TypeFor[catalog.Verdict]())
	if err != nil || text != "The outcome of a verify or a drill." {
		t.Errorf("type: %q, %v", text, err)
	}
	values, err := r.Values(reflect.TypeFor[catalog.Blame](), pin)
	want := []comments.Value{{"backup", ""}, {"log", "the replayed part of the log"}, {"assertion", "an expectation of the restored data"}}
	if err != nil || !slices.Equal(values, want) {
		t.Errorf("values: %q, %v", values, err)
	}
}
