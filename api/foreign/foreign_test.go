package foreign_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// TestTranslate translates each file of testdata.
func TestTranslate(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		o := foreign.Options{}
		if strings.HasSuffix(file, "periodic.yaml") {
			o.Recipients = []string{recipient}
		}
		all, err := foreign.Translate(read(t, file), o)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		text, err := foreign.YAML(all)
		if err != nil {
			t.Fatal(err)
		}
		golden.Want(t, strings.TrimSuffix(file, ".yaml")+".ours", []byte(text))
	}
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRefused gives manifests that cannot be translated.
func TestRefused(t *testing.T) {
	backup := func(spec string) string {
		return "apiVersion: etcd.database.coreos.com/v1beta2\nkind: EtcdBackup\nmetadata: {name: a}\nspec: " + spec
	}
	cluster := func(spec string) string {
		return strings.Replace(backup(spec), "EtcdBackup", "EtcdCluster", 1)
	}
	for manifest, says := range map[string]string{
		"":                             "nothing to translate",
		"{":                            "is no YAML",
		"a: b":                         "is no object of Kubernetes",
		"- a":                          "is no object of Kubernetes",
		"? {a: b}\n: c":                "is no YAML",
		"apiVersion: v1\nkind: Secret": "nothing to translate",
		strings.Replace(backup("{}"), "name: a", "", 1):             "metadata.name is missing",
		strings.Replace(backup("{}"), "name: a", "name: 'a; b'", 1): "must be names of Kubernetes",
		strings.Replace(backup("{}"), "spec: {}", "", 1):            "the spec is missing",
		backup("{}"): "spec.etcdEndpoints is empty",
		backup("[]"): "the spec cannot be read",
		backup("{etcdEndpoints: [http://a], storageType: s3}"):                                                                              "must be S3, GCS, ABS or OSS",
		backup("{etcdEndpoints: [http://a], storageType: S3}"):                                                                              `spec.s3.path is ""`,
		backup("{etcdEndpoints: [http://a], storageType: S3, s3: {path: <full-s3-path>}}"):                                                  "such as backups/etcd",
		backup("{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/a//b}}"):                                                     "spec.s3.path: bad repository URL",
		backup("{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/a, endpoint: 'http://u:p@h'}}"):                              "bad repository URL",
		backup("{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/a}, backupPolicy: {maxBackups: -1}}"):                        "a negative number",
		backup("{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/a}, backupPolicy: {backupIntervalInSecond: 1000000000000}}"): "at most",
		cluster("{size: 0}"): "spec.size is 0",
		cluster("{size: 8}"): "spec.size is 8",
		cluster("{size: 3, TLS: {static: {member: {peerSecret: a}}}}"): "name both",
	} {
		all, err := foreign.Translate([]byte(manifest), foreign.Options{})
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, fault.Usage) {
			t.Errorf("%s\n%v, error %v, want one that says %q", manifest, all, err, says)
		}
	}
}

// FuzzTranslate gives any bytes. What is translated is YAML of Kubernetes, with the comment of each object on lines of comments.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(read(f, file))
	}
	f.Fuzz(func(t *testing.T, manifests []byte) {
		all, err := foreign.Translate(manifests, foreign.Options{})
		if err != nil {
			return
		}
		text, err := foreign.YAML(all)
		if err != nil {
			t.Fatal(err)
		}
		objects := 0
		for document := range strings.SplitSeq("\n"+text, "\n---\n") {
			var o struct{ APIVersion, Kind string }
			err := yaml.Unmarshal([]byte(document), &o)
			if err != nil {
				t.Fatalf("%v\n%s", err, document)
			}
			if o.Kind != "" {
				objects++
			}
		}
		want := 0
		for _, translation := range all {
			want += len(translation.Objects)
		}
		if objects != want {
			t.Errorf("there are %d objects, want %d:\n%s", objects, want, text)
		}
	})
}
