package document_test

import (
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
)

func foundKey() document.Key {
	return document.Key{
		Key: "/registry/cert-manager.io/certificates/prod/web", KeyBase64: []byte("k"),
		Kubernetes: &document.KubernetesObject{Kind: "Certificate", Resource: "certificates", Group: "cert-manager.io", Namespace: "prod", Name: "web"},
	}
}

func foundChange() document.Change {
	return document.Change{
		Key: foundKey(), Change: "put", Revision: 4711, After: 4700, Position: 5000, Lineage: lineage, NotBefore: at, NotAfter: at.Add(time.Second),
		By: "transaction", Keys: 2, Size: 512, Lease: "6c2b", Version: 3, CreateRevision: 4000,
	}
}

// findDocuments have a value in every field.
func findDocuments() map[string]any {
	change := foundChange()
	point := document.At{Revision: 4711, Backup: id, Lineage: lineage, NotBefore: at, NotAfter: at.Add(time.Second)}
	value := &document.Value{Size: 5, SHA256: strings.Repeat("ab", 32), ModRevision: 4711, Value: []byte("value")}
	return map[string]any{
		"find-change": document.Line{Item: document.Found{Change: &change}},
		"find-unseen": document.Line{Item: document.Found{Unseen: &document.Unseen{
			After: 5, UpTo: 9, Lineage: lineage, Since: at, Until: at.Add(time.Hour), Reason: "there is a gap in the log",
		}}},
		"find": document.Find{
			Changes: 3, Unseen: 1, Last: &change, Forgotten: 7,
			Vanished: &document.Vanished{
				Keys: 5, From: 4705, To: 4711, LastWhole: 4704, Lineage: lineage, NotBefore: at, NotAfter: at.Add(time.Second), Mark: &change, Earlier: 2,
			},
			Marked: &document.Marked{Change: change, LastGood: 4704},
			Gone: []document.Gone{{
				Change: change, Vanished: 2, Mark: &change, LastGood: 4710, Nearest: &document.Point{Revision: 4700, Time: at},
				Restore: []string{"dr", "restore", "--to-revision", "4710", "--best", "--output-dir", "DIR"},
			}},
		},
		"extract-item": document.Line{Item: document.Extracted{
			Key: foundKey(), Value: []byte("value"), Object: map[string]any{"kind": "Certificate"}, Unreadable: "encrypted by Kubernetes",
			CreateRevision: 4000, ModRevision: 4711, Version: 3, Lease: "6c2b",
		}},
		"extract":   document.Extract{At: point, Keys: 2, Bytes: 512, Unreadable: 1},
		"diff-item": document.Line{Item: document.Different{Key: foundKey(), Change: "changed", A: value, B: value}},
		"diff":      document.Diff{A: point, B: point, Added: 1, Changed: 2, Removed: 3, Same: 4},
	}
}
