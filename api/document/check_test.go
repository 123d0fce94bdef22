package document_test

import (
	"bytes"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/check"
)

// checkDocument has a value in every field.
func checkDocument() document.Check {
	return document.NewCheck("s3://bucket/prefix",
		[]check.Line{
			{Name: "reachable", Verdict: check.OK, Seen: "a request takes 3ms"},
			{Name: "encryption", Of: "prod", Verdict: check.Note, Seen: "OFF", Cure: "take backups with --recipient"},
			{Name: "lock holds", Verdict: check.NotRun, Seen: "it was not asked for"},
			{Name: "versioning", Verdict: check.Unknown, Seen: "no answer"},
		},
		[]check.Line{{Name: "alarms", Verdict: check.Wanting, Seen: "NOSPACE", Cure: "compact and defragment", Ends: at}})
}

func TestCheckWithoutLines(t *testing.T) {
	data := encode(t, document.NewCheck("", nil, nil))
	for _, empty := range []string{`"store": []`, `"etcd": []`, `"wanting": []`} {
		if !bytes.Contains(data, []byte(empty)) {
			t.Errorf("%s is not in %s", empty, data)
		}
	}
}
