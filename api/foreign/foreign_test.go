package foreign_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
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
		o := foreign.Options{Gone: strings.HasSuffix(file, "gone.yaml")}
		if strings.HasSuffix(file, "periodic.yaml") {
			o.Recipients = []string{recipient}
		}
		all, err := foreign.Translate([]foreign.File{{Name: file, Text: read(t, file)}}, o)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, translation := range all {
			if translation.Err != nil {
				t.Errorf("%s: %v", file, translation.Err)
			}
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

// translate translates one file with one object.
func translate(manifest string) (foreign.Translation, error) {
	all, err := foreign.Translate([]foreign.File{{Name: "theirs.yaml", Text: []byte(manifest)}}, foreign.Options{})
	if err != nil {
		return foreign.Translation{}, err
	}
	return all[0], all[0].Err
}

// of returns an object of coreos' operator.
func of(kind, spec string) string {
	return "apiVersion: etcd.database.coreos.com/v1beta2\nkind: " + kind + "\nmetadata: {name: a}\nspec: " + spec
}

// TestRefused gives manifests that cannot be translated.
func TestRefused(t *testing.T) {
	s3 := func(fields string) string {
		return of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: S3, "+fields+"}")
	}
	endpoint := func(url string) string {
		return of("EtcdBackup", "{storageType: S3, s3: {path: bucket/b}, etcdEndpoints: ['"+url+"']}")
	}
	bomb := "a: &a '" + strings.Repeat("x", 100_000) + "'\n"
	for manifest, says := range map[string]string{
		"":                             "nothing to translate",
		"{":                            "cannot be read",
		"a: b":                         "is not an object of Kubernetes",
		"- a":                          "is not an object of Kubernetes",
		"apiVersion: v1\nkind: Secret": "nothing to translate",
		bomb + "b: [" + strings.Repeat("*a,", 1000) + "]":                     "once its aliases are expanded",
		strings.Repeat("#", foreign.MaxFile+1):                                "more than",
		strings.Replace(of("EtcdBackup", "{}"), "name: a", "", 1):             "metadata.name is missing",
		strings.Replace(of("EtcdBackup", "{}"), "name: a", "name: 'a; b'", 1): `metadata.name is "a; b"`,
		strings.Replace(of("EtcdBackup", "{}"), "spec: {}", "", 1):            "the spec is missing",
		of("EtcdBackup", "{}"):                                                "spec.etcdEndpoints is empty",
		of("EtcdBackup", "[]"):                                                "the spec cannot be read",
		of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: s3}"):      "must be S3, GCS, ABS or OSS",
		s3("s3: {}"):                                               `spec.s3.path is ""`,
		s3("s3: {path: bucket}"):                                   `spec.s3.path is "bucket"`,
		s3("s3: {path: <full-s3-path>}"):                           "such as backups/etcd",
		s3("s3: {path: bucket/a//b}"):                              "spec.s3.path: bad repository URL",
		s3("s3: {path: bucket/a, awsSecret: A_B}"):                 "the Secret of spec.s3.path",
		s3("s3: {path: bucket/a, endpoint: 'http://u:p@h'}"):       "write http:// or https://",
		s3("s3: {path: bucket/a}, backupPolicy: {maxBackups: -1}"): "a negative number",
		s3("s3: {path: bucket/a}, backupPolicy: {backupIntervalInSecond: 1000000000000}"): "at most",
		endpoint("http://u:p@e:2379"):  "write http:// or https://",
		endpoint("http://e:2379/?x=1"): "write http:// or https://",
		endpoint("unix:///run/etcd"):   "write http:// or https://",
		endpoint(""):                   "write http:// or https://",
		of("EtcdCluster", "{size: 0}"): "spec.size is 0",
		of("EtcdCluster", "{size: 8}"): "spec.size is 8",
		of("EtcdRestore", "{backupStorageType: GCS, gcs: {path: bucket/b}, etcdCluster: {name: c}}"):                 "the Jobs of a restore need it",
		of("EtcdRestore", "{backupStorageType: GCS, gcs: {path: bucket/b, gcpSecret: g}, etcdCluster: {name: A_B}}"): "spec.etcdCluster.name",
	} {
		got, err := translate(manifest)
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, fault.Usage) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%.300s\n%v, error %v, want one that says %q", manifest, got, err, says)
		}
	}
}

// TestGoneNeedsImage gives an EtcdCluster that does not name what its members ran. With its StatefulSet, that does not matter.
func TestGoneNeedsImage(t *testing.T) {
	file := foreign.File{Name: "theirs.yaml", Text: []byte("apiVersion: etcd.ydzs.io/v1alpha1\nkind: EtcdCluster\nmetadata: {name: a}\nspec: {size: 3}")}
	for _, gone := range []bool{false, true} {
		all, err := foreign.Translate([]foreign.File{file}, foreign.Options{Gone: gone})
		if err != nil || (all[0].Err != nil) != gone || gone && !strings.Contains(all[0].Err.Error(), "spec.image is missing: name an image") {
			t.Errorf("gone: %t: %v, %v", gone, err, all)
		}
	}
}

// TestOneBadObject translates the objects beside one that cannot be.
func TestOneBadObject(t *testing.T) {
	good := of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/a, awsSecret: aws}}")
	all, err := foreign.Translate([]foreign.File{{Name: "bad.yaml", Text: []byte(of("EtcdBackup", "{}"))}, {Name: "good.yaml", Text: []byte(good)}}, foreign.Options{})
	if err != nil || len(all) != 2 || all[0].Err == nil || all[0].Objects != nil || all[1].Err != nil || len(all[1].Objects) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestForms reads objects in all forms in which kubectl prints and reads them.
func TestForms(t *testing.T) {
	one := `{"apiVersion":"etcd.database.coreos.com/v1beta2","kind":"EtcdBackup","metadata":{"name":"a","labels":{"face":"\ud83d\ude00"}},"spec":` +
		`{"etcdEndpoints":["http://a"],"storageType":"S3","s3":{"path":"bucket/c","awsSecret":"aws"}}}`
	plain := strings.Replace(one, `,"labels":{"face":"\ud83d\ude00"}`, "", 1)
	without := strings.Replace(one, `"apiVersion":"etcd.database.coreos.com/v1beta2","kind":"EtcdBackup",`, "", 1)
	list := `{"apiVersion":"v1","kind":"List","items":[` + one + `]}`
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"JSON":              {one, 1},
		"JSON, twice":       {one + "\n" + one, 2},
		"a byte order mark": {"\ufeff" + one, 1},
		"YAML after a line": {"---\n" + plain + "\n---\n---  # end\n" + plain + "\n", 2},
		"lines of Windows":  {strings.ReplaceAll(of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/c, forcePathStyle: yes}}"), "\n", "\r\n"), 1},
		"a list":            {list, 1},
		"a list in a list":  {`{"apiVersion":"v1","kind":"List","items":[` + list + `,` + one + `]}`, 2},
		"a list of a kind":  {`{"apiVersion":"etcd.database.coreos.com/v1beta2","kind":"EtcdBackupList","items":[` + without + `]}`, 1},
	} {
		all, err := foreign.Translate([]foreign.File{{Name: name, Text: []byte(test.text)}}, foreign.Options{})
		objects := 0
		for _, translation := range all {
			objects += len(translation.Objects)
			err = errors.Join(err, translation.Err)
		}
		if err != nil || objects != test.want {
			t.Errorf("%s: %d objects, %v, want %d", name, objects, err, test.want)
		}
	}
}

// TestNeighbour translates paths that begin like a repository: the retention of coreos' operator deletes everything that begins with its path.
func TestNeighbour(t *testing.T) {
	for _, key := range []string{"e", "etcd", "etcd-dr", "etcd-dr/", "etcd-dr/x", "d", "dr-backups", "other"} {
		got, err := translate(of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: S3, s3: {path: bucket/"+key+", awsSecret: aws}}"))
		if err != nil {
			t.Fatal(err)
		}
		spec, _ := got.Objects[0].Spec.(v1alpha1.EtcdBackupSpec)
		a, err := address.Parse(spec.Repositories[0].URL)
		if err != nil || strings.HasPrefix(a.Prefix+"/", strings.Trim(key, "/")) {
			t.Errorf("the path %s becomes %s, %v", key, a.Prefix, err)
		}
	}
}

// TestEndpoints completes the names of Services and pods.
func TestEndpoints(t *testing.T) {
	for theirs, want := range map[string]string{
		"http://etcd:2379":                    "http://etcd.default.svc:2379",
		"etcd:2379":                           "http://etcd.default.svc:2379",
		"https://ETCD-client/":                "https://etcd-client.default.svc",
		"http://demo-0.demo:2379":             "http://demo-0.demo.default.svc:2379",
		"http://c-abcdef1234.c:2379":          "http://c-abcdef1234.c.default.svc:2379",
		"http://etcd.payments:2379":           "http://etcd.payments:2379",
		"http://etcd.payments.svc:2379":       "http://etcd.payments.svc:2379",
		"http://10.0.0.1:2379":                "http://10.0.0.1:2379",
		"http://[fd00::1]:2379":               "http://[fd00::1]:2379",
		"http://localhost:2379":               "http://localhost:2379",
		"https://etcd.prod.example.com:2379/": "https://etcd.prod.example.com:2379",
	} {
		got, err := translate(of("EtcdBackup", "{storageType: S3, s3: {path: bucket/b, awsSecret: aws}, etcdEndpoints: ['"+theirs+"']}"))
		if err != nil {
			t.Errorf("%s: %v", theirs, err)
			continue
		}
		spec, _ := got.Objects[0].Spec.(v1alpha1.EtcdBackupSpec)
		if spec.Source.Endpoints[0] != want {
			t.Errorf("%s becomes %s, want %s", theirs, spec.Source.Endpoints[0], want)
		}
	}
}

// FuzzTranslate gives any bytes. The result is YAML of Kubernetes: the differences of an object never leave their lines of comment.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(read(f, file))
	}
	f.Fuzz(func(t *testing.T, manifests []byte) {
		all, err := foreign.Translate([]foreign.File{{Name: "theirs", Text: manifests}}, foreign.Options{})
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

// TestByPath names clusters by the paths of their snapshots: a restore finds them without an EtcdBackup.
func TestByPath(t *testing.T) {
	backup := of("EtcdBackup", "{etcdEndpoints: [http://a], storageType: S3, s3: {path: 'PATH', awsSecret: s}}")
	restore := of("EtcdRestore", "{backupStorageType: S3, etcdCluster: {name: c}, s3: {path: 'PATHSUFFIX', awsSecret: s}}")
	long := "bucket/" + strings.Repeat("x", 120)
	names := map[string]string{}
	for path, want := range map[string]string{
		"mybucket/etcd.backup":   "default.mybucket.etcd.backup-",
		"mybucket/a/b":           "default.mybucket.a-b-",
		"mybucket/a.b":           "default.mybucket.a.b-",
		"mybucket/a b":           "default.mybucket.a-b-",
		long + "1":               "default.bucket.xxx",
		long + "2":               "default.bucket.xxx",
		"s3://mybucket/a/backup": "default.mybucket.a-backup-",
	} {
		b, r := translateByPath(t, strings.Replace(backup, "PATH", path, 1)), translateByPath(t, strings.Replace(restore, "PATHSUFFIX", path, 1))
		name := b.Objects[0].Spec.(v1alpha1.EtcdBackupSpec).Cluster
		from := r.Objects[0].Spec.(v1alpha1.EtcdRestoreSpec).From
		if !strings.HasPrefix(name, want) || catalog.ValidCluster(name) != nil || names[name] != "" || from.Cluster != name || from.Repository == nil {
			t.Errorf("%s: the backup's cluster is %q (want %q), that of the restore %q; %q has the same", path, name, want, from.Cluster, names[name])
		}
		names[name] = path
		r = translateByPath(t, strings.Replace(restore, "PATHSUFFIX", path+"', endpoint: 'http://minio.default.svc:9000", 1))
		from = r.Objects[0].Spec.(v1alpha1.EtcdRestoreSpec).From
		if from.Cluster != name {
			t.Errorf("%s: with another spelling of the endpoint, the restore is of cluster %q, want %q", path, from.Cluster, name)
		}
	}
	_, key, _ := strings.Cut("mybucket/a/b", "/")
	b := translateByPath(t, strings.Replace(backup, "PATH", "mybucket/a/b", 1))
	if b.Key != key || foreign.PeriodicName(key, "20261128T030000Z-0000000000000066") != "a/b_v102_2026-11-28-03:00:00" {
		t.Errorf("its snapshot is at %q, want %q", b.Key, key)
	}
	r := translateByPath(t, strings.Replace(restore, "PATHSUFFIX", "mybucket/a/b_v102_2026-11-28-03:00:00", 1))
	spec := r.Objects[0].Spec.(v1alpha1.EtcdRestoreSpec)
	if spec.Target != (v1alpha1.RestoreTarget{Backup: "20261128T030000Z-0000000000000066"}) || spec.From.Cluster != b.Objects[0].Spec.(v1alpha1.EtcdBackupSpec).Cluster {
		t.Errorf("the snapshot of revision 102 is %+v of %q", spec.Target, spec.From.Cluster)
	}
}

// translateByPath translates one file with one object.
func translateByPath(t *testing.T, manifest string) foreign.Translation {
	t.Helper()
	all, err := foreign.Translate([]foreign.File{{Name: "theirs.yaml", Text: []byte(manifest)}}, foreign.Options{ByPath: true})
	if err != nil || all[0].Err != nil {
		t.Fatal(err, all)
	}
	return all[0]
}
